// The data of the page. A change says that from a time on a lane is in a state. The changes of all lanes are in three
// arrays, Ps first and then goroutines, and each lane is a range of them. Times are nanoseconds from the first event.

const NONE = 0, RUNNABLE = 1, RUNNING = 2, CALL = 3, WAITING = 4, SEARCHING = 5;
const meta = JSON.parse(document.getElementById("meta").textContent);
const SMALL = 32, LARGE = 1024;  // changes that share a sum, on two levels

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

function decode() {
  const element = document.getElementById("data"), bytes = bytesOf(element.textContent);
  element.remove();
  let at = 0;
  const number = () => {
    let byte = bytes[at++];
    if (byte < 128) return byte;
    let value = byte & 127, unit = 128;
    do {
      byte = bytes[at++];
      value += (byte & 127) * unit;
      unit *= 128;
    } while (byte >= 128);
    return value;
  };
  const time = new Float64Array(meta.changes), state = new Uint8Array(meta.changes), detail = new Uint32Array(meta.changes);
  let next = 0;
  const ps = meta.ps.map((id, index) => {
    const begin = next, count = number();
    for (let i = 0, t = 0; i < count; i++) {
      time[next] = t += number();
      const code = number(), g = Math.floor(code / 2);
      state[next] = g === 0 ? NONE : g === 1 ? SEARCHING : code & 1 ? CALL : RUNNING;
      detail[next++] = g < 2 ? 0 : g - 1;  // an index of a goroutine plus 1
    }
    return { p: true, id, index, begin, end: next };
  });
  const gs = [];
  for (let index = 0; index < meta.gs; index++) {
    const id = number(), start = meta.texts[number()], role = meta.texts[number()], maker = number(), begin = next, count = number();
    for (let i = 0, t = 0; i < count; i++) {
      time[next] = t += number();
      const code = number();
      state[next] = code & 7;
      detail[next++] = Math.floor(code / 8);  // a P plus 1, or why it left its P
    }
    gs.push({ p: false, id, index, name: role || start, start, maker, begin, end: next });
  }
  const wakes = { time: new Float64Array(meta.wakes), from: new Uint32Array(meta.wakes), to: new Uint32Array(meta.wakes) };
  for (let i = 0, t = 0; i < meta.wakes; i++) {
    wakes.time[i] = t += number();
    wakes.from[i] = number();
    wakes.to[i] = number();
  }
  for (let i = 0; i < meta.regions; i++) {
    const g = gs[number()], begin = number(), end = begin + number();
    (g.regions ??= []).push({ begin, end, name: meta.texts[number()] });
  }
  for (let i = 0; i < meta.logs; i++) {
    const t = number();
    (gs[number()].logs ??= []).push({ time: t, text: meta.texts[number()] });
  }
  for (let i = 0, t = 0; i < meta.samples; i++) {
    t += number();
    const g = number(), stack = number();
    if (g > 0) (gs[g - 1].samples ??= []).push({ time: t, stack });
  }
  ps.sort((a, b) => a.id - b.id);
  return { time, state, detail, ps, gs, wakes, duration: Math.max(meta.duration, 1), used: next };
}

const trace = decode();
const pByIndex = [];
for (const p of trace.ps) pByIndex[p.index] = p;
// A P that has run nothing, and does not count for GOMAXPROCS, has no lane. The library writes such a P for threads that make
// goroutines without one.
trace.ps = trace.ps.filter(p => p.id < meta.procs || trace.state.subarray(p.begin, p.end).some(s => s === RUNNING || s === CALL));

// Sums of the time that a lane is running, in a call and runnable, over groups of changes. So the shares of a column of the
// screen take the same time to find, however many changes it has.
function makeSums(size) {
  let groups = 0;
  for (const lane of [...trace.ps, ...trace.gs]) {
    lane["sums" + size] = groups;
    groups += Math.floor((lane.end - lane.begin) / size);
  }
  const sums = new Float64Array(3 * groups);
  for (const lane of [...trace.ps, ...trace.gs]) {
    let to = 3 * lane["sums" + size];
    const whole = lane.begin + Math.floor((lane.end - lane.begin) / size) * size;
    for (let i = lane.begin; i < whole; i++) {
      const which = SLOT[trace.state[i]];
      if (which >= 0) sums[to + which] += endOf(lane, i) - trace.time[i];
      if ((i + 1 - lane.begin) % size === 0) to += 3;
    }
  }
  return sums;
}
const SLOT = [-1, 2, 0, 1, -1, -1];  // by state: running, in a call, runnable
const endOf = (lane, i) => i + 1 < lane.end ? trace.time[i + 1] : trace.duration;
const small = makeSums(SMALL), large = makeSums(LARGE);

// The last change of a lane at t or before, or lane.begin - 1.
function find(lane, t) {
  let low = lane.begin, high = lane.end;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (trace.time[middle] <= t) low = middle + 1; else high = middle;
  }
  return low - 1;
}

// Adds the time from `from` to `to` to shares, by slot. i is the change that holds at `from`. Returns the one that holds at
// `to`.
function addShares(lane, i, from, to, shares) {
  const { time, state } = trace, end = lane.end;
  if (i < lane.begin) {
    i = lane.begin;
    if (i === end || time[i] >= to) return i - 1;
    from = time[i];
  }
  for (;;) {
    const stop = i + 1 < end ? time[i + 1] : trace.duration;
    const slot = SLOT[state[i]];
    if (stop >= to || i + 1 === end) {
      if (slot >= 0) shares[slot] += Math.max(0, Math.min(stop, to) - from);
      return stop > to || i + 1 === end ? i : i + 1;
    }
    if (slot >= 0) shares[slot] += stop - from;
    i++;
    from = stop;
    for (const [size, sums, key] of LEVELS) {
      for (;;) {
        const rest = i - lane.begin;
        if (rest % size !== 0 || i + size >= end || time[i + size] > to) break;
        const at = 3 * (lane[key] + rest / size);
        shares[0] += sums[at]; shares[1] += sums[at + 1]; shares[2] += sums[at + 2];
        i += size;
        from = time[i];
      }
    }
  }
}
const LEVELS = [[LARGE, large, "sums" + LARGE], [SMALL, small, "sums" + SMALL]];

// ---- Words

function duration(ns) {
  if (ns < 1000) return Math.round(ns) + " ns";
  for (const [unit, name] of [[1e3, "µs"], [1e6, "ms"], [1e9, "s"]]) {
    const value = ns / unit;
    if (value < 999.5 || name === "s") return value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0) + " " + name;
  }
}

// A point in time, with as many digits as it takes to tell it from one that is `length` later.
function moment(t, length) {
  if (t === 0) return "0 s";
  const digits = Math.min(Math.max(Math.ceil(-Math.log10(length / 1e9)) + 2, 3), 9), text = (t / 1e9).toFixed(digits);
  return text.replace(/(\.\d{3})(\d)/, "$1 $2").replace(/( \d{3})(\d)/, "$1 $2") + " s";
}

// Without template arguments and the machinery of lambdas, a name is short enough to read.
const shortNames = new Map();
function short(name) {
  let s = shortNames.get(name);
  if (s !== undefined) return s;
  s = name.replace(/\{lambda\([^)]*\)(#\d+)\}::operator\(\)/g, "λ$1").replace(/\{lambda\([^)]*\)(#\d+)\}/g, "λ$1")
    .replace(/::_FUN$/, "").replace(/<[^<>]*>/g, "").replace(/<[^<>]*>/g, "").replace(/\(anonymous namespace\)::/g, "");
  shortNames.set(name, s);
  return s;
}
const STATES = ["", "runnable", "running", "in a call", "waiting", "looking for work"];
const plural = (n, word) => n.toLocaleString("en") + " " + word + (n === 1 ? "" : "s");
const laneName = lane => lane.p ? "P" + lane.id : "G" + lane.id;
const whyOf = i => trace.state[i] === WAITING || trace.state[i] === RUNNABLE ? meta.whys[trace.detail[i]] : meta.whys[0];
const reasonOf = i => meta.texts[(whyOf(i) ?? [0])[0]];
