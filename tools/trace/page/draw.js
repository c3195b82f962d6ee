// Drawing. A state that is a pixel wide or more is a rectangle. Narrower ones share a column, in which the heights of the
// colours are their shares of the time.

const lanes = document.getElementById("lanes"), map = document.getElementById("map");
const GUTTER = 236, AXIS = 26, P_HEIGHT = 24, G_HEIGHT = 19, GAP = 10;
const colour = {};
let fontFamily = "sans-serif";

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ground", "panel", "ink", "soft", "line", "hover", "running", "runnable", "call", "waiting", "pause", "wake",
    "accent", "on", "region"]) colour[name] = style.getPropertyValue("--" + name).trim();
  colour.slot = [colour.running, colour.call, colour.runnable];
  fontFamily = getComputedStyle(document.body).fontFamily;
}

// view is what the canvas shows: the times at its edges, and the goroutines that pass the search, from `top` pixels on.
const view = { from: 0, to: trace.duration, top: 0, list: trace.gs, selected: null, change: -1, width: 0, height: 0 };
const plotWidth = () => Math.max(view.width - GUTTER, 1);
const xOf = t => GUTTER + (t - view.from) / (view.to - view.from) * plotWidth();
const tOf = x => view.from + (x - GUTTER) / plotWidth() * (view.to - view.from);
const pAreaEnd = () => AXIS + trace.ps.length * P_HEIGHT + GAP;
const laneHeight = lane => lane.p ? P_HEIGHT : G_HEIGHT;

// The upper edge of a lane, or NaN if the list does not have it.
const rowOf = new Map();
function yOf(lane) {
  if (lane.p) return AXIS + trace.ps.indexOf(lane) * P_HEIGHT;
  const row = rowOf.get(lane);
  return row === undefined ? NaN : pAreaEnd() + row * G_HEIGHT - view.top;
}

function size(canvas) {
  const scale = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  const w = Math.round(box.width * scale), h = Math.round(box.height * scale);
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const c = canvas.getContext("2d");
  c.setTransform(scale, 0, 0, scale, 0, 0);
  c.clearRect(0, 0, box.width, box.height);
  return [c, box.width, box.height];
}

const shares = new Float64Array(3);

function drawLane(c, lane, y, height) {
  const { time, state } = trace, perPixel = (view.to - view.from) / plotWidth();
  const pad = lane.p ? 3 : 3, h = height - 2 * pad, floor = y + height - pad, right = view.width;
  let i = find(lane, view.from), t = view.from, x = GUTTER;
  if (i < lane.begin) {
    i = lane.begin;
    if (i === lane.end) return;
    t = time[i];
    x = xOf(t);
  }
  while (x < right && t < view.to) {
    const end = endOf(lane, i), stop = Math.min(xOf(end), right);
    if (stop - x >= 1 || i + 1 === lane.end) {
      drawState(c, lane, i, x, Math.max(stop, x + 1), floor, h);
      if (i + 1 === lane.end) return;
      i++; t = end; x = stop;
      continue;
    }
    // A column of several states.
    const column = Math.floor(x) + 1, until = tOf(column);
    shares.fill(0);
    i = addShares(lane, i, t, until, shares);
    let top = floor;
    for (let slot = 0; slot < 3; slot++) {
      const part = shares[slot] / perPixel * h;
      if (part <= 0) continue;
      c.fillStyle = colour.slot[slot];
      c.fillRect(column - 1, top - part, 1, part);
      top -= part;
    }
    if (!lane.p && top > floor - 2 && state[i] !== NONE) {
      c.fillStyle = colour.waiting;
      c.fillRect(column - 1, floor - 2, 1, 2);
    }
    t = until; x = column;
    if (t >= trace.duration) return;
  }
}

function drawState(c, lane, i, x, stop, floor, h) {
  const state = trace.state[i], width = stop - x, inside = width - 8;
  if (state === NONE) return;
  if (state === WAITING || state === SEARCHING) {
    c.fillStyle = colour.waiting;
    c.fillRect(x, floor - 2, width, 2);
    if (state === WAITING && inside > 46) text(c, reasonOf(i), x + 4, floor - 3, inside, colour.soft);
    return;
  }
  c.fillStyle = colour.slot[SLOT[state]];
  c.fillRect(x, floor - h, width > 2 ? width - 0.5 : width, h);
  if (inside < 24) return;
  let label = "";
  if (lane.p) {
    const g = trace.gs[trace.detail[i] - 1];
    label = laneName(g) + "  " + short(g.name);
  } else if (state === RUNNABLE) {
    label = reasonOf(i) || "runnable";
  } else {
    const p = pByIndex[trace.detail[i] - 1];
    label = state === CALL ? "call" : p ? laneName(p) : "";
  }
  text(c, label, x + 4, floor - h / 2 + 4, inside, state === RUNNABLE ? "#1c1c1c" : colour.on);
}

const widths = new Map();
function text(c, string, x, y, most, fill) {
  if (!string) return;
  let width = widths.get(string);
  if (width === undefined) widths.set(string, width = c.measureText(string).width);
  if (width > most) {
    const keep = Math.floor(string.length * most / width) - 1;
    if (keep < 3) return;
    string = string.slice(0, keep) + "…";
  }
  c.fillStyle = fill;
  c.fillText(string, x, y);
}

function step(range, count) {
  const raw = range / count, unit = 10 ** Math.floor(Math.log10(raw));
  return unit * [1, 2, 5, 10].find(n => n * unit >= raw);
}

function drawAxis(c) {
  const gap = step(view.to - view.from, plotWidth() / 110);
  c.textAlign = "left";
  for (let n = Math.ceil(view.from / gap); n * gap <= view.to; n++) {
    const x = Math.round(xOf(n * gap)) + 0.5;
    c.fillStyle = colour.line;
    c.fillRect(x, AXIS - 6, 1, view.height);
    c.fillStyle = colour.soft;
    if (x < view.width - 60) c.fillText(axisText(n * gap, gap), x + 4, AXIS - 10);
  }
}

// A time with as many digits as the gap between two labels needs.
function axisText(t, gap) {
  const [unit, name] = t >= 1e9 || gap >= 1e8 ? [1e9, "s"] : t >= 1e6 || gap >= 1e5 ? [1e6, "ms"] : t >= 1e3 ? [1e3, "µs"] : [1, "ns"];
  return (t / unit).toFixed(Math.max(0, Math.ceil(-Math.log10(gap / unit) - 1e-9))) + " " + name;
}

function drawGutter(c, lane, y, height) {
  c.fillStyle = lane === view.selected ? colour.accent : colour.ink;
  c.font = `600 12px ${fontFamily}`;
  c.fillText(laneName(lane), 16, y + height / 2 + 4);
  if (lane.p) return;
  c.font = `12px ${fontFamily}`;
  const x = 16 + Math.max(38, 9 + 7.5 * laneName(lane).length);
  text(c, short(lane.name) || "not named", x, y + height / 2 + 4, GUTTER - x - 10, colour.soft);
}

function drawExtras(c, lane, y) {
  for (const r of lane.regions ?? []) {
    if (r.end < view.from || r.begin > view.to) continue;
    const x = Math.max(xOf(r.begin), GUTTER);
    c.fillStyle = colour.region;
    c.fillRect(x, y + 1, Math.max(Math.min(xOf(r.end), view.width) - x, 1), 2);
  }
  c.fillStyle = colour.accent;
  for (const sample of lane.samples ?? []) {
    if (sample.time >= view.from && sample.time <= view.to) c.fillRect(xOf(sample.time), y + G_HEIGHT - 3, 1, 3);
  }
  for (const log of lane.logs ?? []) {
    if (log.time < view.from || log.time > view.to) continue;
    c.fillStyle = colour.ink;
    c.beginPath();
    c.arc(xOf(log.time), y + 3, 2, 0, 7);
    c.fill();
  }
}

function drawPauses(c) {
  for (const [begin, length] of meta.pauses) {
    if (begin + length < view.from || begin > view.to) continue;
    const x = Math.max(xOf(begin), GUTTER), width = Math.min(xOf(begin + length), view.width) - x;
    c.globalAlpha = 0.16;
    c.fillStyle = colour.pause;
    c.fillRect(x, AXIS, Math.max(width, 1), view.height - AXIS);
    c.globalAlpha = 1;
    c.fillRect(x, AXIS - 4, Math.max(width, 2), 3);
  }
}

function lowerBound(array, value) {
  let low = 0, high = array.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (array[middle] < value) low = middle + 1; else high = middle;
  }
  return low;
}

const sourceOf = from => from === 0 ? null : from & 1 ? trace.gs[(from >> 1) - 1] : pByIndex[(from >> 1) - 1];

// Draws the wake-ups of the view, or those of the selected goroutine, if they are few enough to be told apart. Returns how many
// there are, and how many were drawn.
function drawWakes(c) {
  const { wakes } = trace, first = lowerBound(wakes.time, view.from), last = lowerBound(wakes.time, view.to);
  const count = last - first, most = plotWidth() / 3, only = count > most ? view.selected : null;
  if (count > most && (!only || only.p || count > 500000)) return [count, 0];
  const mine = only ? 2 * (only.index + 1) + 1 : 0;
  if (only) {
    let some = 0;
    for (let i = first; i < last && some <= most; i++) if (wakes.to[i] === only.index || wakes.from[i] === mine) some++;
    if (some > most) return [count, 0];
  }
  let drawn = 0;
  c.strokeStyle = c.fillStyle = colour.wake;
  c.lineWidth = 1;
  for (let i = first; i < last; i++) {
    if (only && wakes.to[i] !== only.index && wakes.from[i] !== mine) continue;
    const to = trace.gs[wakes.to[i]], from = sourceOf(wakes.from[i]);
    if (!from || from === to) continue;
    const high = yOf(from), low = yOf(to);
    if (isNaN(high) || isNaN(low)) continue;
    const down = low > high, area = pAreaEnd() - GAP / 2;
    const begin = high + (down ? laneHeight(from) - 3 : 3), end = low + (down ? 3 : laneHeight(to) - 3);
    // A lane that has been scrolled away hides its end of the arrow.
    if (Math.min(begin, end) > view.height || Math.max(begin, end) < area) continue;
    const a = from.p ? begin : Math.max(begin, area), b = Math.max(end, area), x = xOf(wakes.time[i]);
    c.globalAlpha = from === view.selected || to === view.selected ? 1 : view.selected ? 0.2 : 0.7;
    c.beginPath();
    c.moveTo(x, a);
    c.lineTo(x, b);
    c.stroke();
    if (end >= area) {
      const s = down ? -1 : 1;
      c.beginPath();
      c.moveTo(x, b);
      c.lineTo(x - 3, b + 5 * s);
      c.lineTo(x + 3, b + 5 * s);
      c.fill();
    }
    drawn++;
  }
  c.globalAlpha = 1;
  return [count, drawn];
}

function drawSelection(c) {
  const lane = view.selected, y = lane ? yOf(lane) : NaN;
  if (isNaN(y)) return;
  if (view.change < 0) return;
  const x = Math.max(xOf(trace.time[view.change]), GUTTER), end = Math.min(xOf(endOf(lane, view.change)), view.width);
  if (end < GUTTER || x > view.width || (!lane.p && y + laneHeight(lane) < pAreaEnd())) return;
  c.strokeStyle = colour.ink;
  c.lineWidth = 1.5;
  c.strokeRect(x - 0.5, y + 1.5, Math.max(end - x, 2) + 0.5, laneHeight(lane) - 3);
}

function drawLanes() {
  const [c, width, height] = size(lanes);
  view.width = width;
  view.height = height;
  c.font = `12px ${fontFamily}`;
  drawAxis(c);
  const area = pAreaEnd();
  c.save();
  c.beginPath();
  c.rect(0, area - GAP / 2, width, height);
  c.clip();
  const first = Math.max(0, Math.floor(view.top / G_HEIGHT)), last = Math.min(view.list.length, Math.ceil((view.top + height - area) / G_HEIGHT));
  for (let row = first; row < last; row++) {
    const lane = view.list[row], y = area + row * G_HEIGHT - view.top;
    if (lane === view.selected) {
      c.fillStyle = colour.hover;
      c.fillRect(0, y, width, G_HEIGHT);
    }
    drawGutter(c, lane, y, G_HEIGHT);
    c.font = `11px ${fontFamily}`;
    drawLane(c, lane, y, G_HEIGHT);
    drawExtras(c, lane, y);
  }
  c.restore();
  for (const lane of trace.ps) {
    const y = yOf(lane);
    drawGutter(c, lane, y, P_HEIGHT);
    c.font = `11px ${fontFamily}`;
    drawLane(c, lane, y, P_HEIGHT);
  }
  c.fillStyle = colour.line;
  c.fillRect(0, area - GAP / 2, width, 1);
  c.fillRect(GUTTER - 1, 0, 1, height);
  drawPauses(c);
  c.save();
  c.beginPath();
  c.rect(GUTTER, 0, width, height);
  c.clip();
  view.wakes = drawWakes(c);
  drawSelection(c);
  c.restore();
  const all = view.list.length * G_HEIGHT, room = height - area;
  if (all > room) {
    c.fillStyle = colour.waiting;
    c.fillRect(width - 6, area + view.top / all * room, 4, Math.max(room * room / all, 24));
  }
}

// How busy all Ps are together. The picture is made once for each width and theme.
const mapPicture = { width: 0, theme: "", columns: null };
function mapColumns(width) {
  if (mapPicture.width === width) return mapPicture.columns;
  const columns = new Float64Array(2 * width), share = trace.duration / width;
  for (const p of trace.ps) {
    let i = p.begin - 1;
    for (let x = 0; x < width; x++) {
      shares.fill(0);
      i = addShares(p, i, x * share, (x + 1) * share, shares);
      columns[2 * x] += shares[0] / share / trace.ps.length;
      columns[2 * x + 1] += shares[1] / share / trace.ps.length;
    }
  }
  mapPicture.width = width;
  return mapPicture.columns = columns;
}

function drawMap() {
  const [c, width, height] = size(map), columns = mapColumns(Math.max(1, Math.floor(width))), h = height - 8;
  for (let x = 0; 2 * x < columns.length; x++) {
    const running = columns[2 * x] * h, call = columns[2 * x + 1] * h;
    c.fillStyle = colour.running;
    c.fillRect(x, height - running, 1, running);
    c.fillStyle = colour.call;
    c.fillRect(x, height - running - call, 1, call);
  }
  const a = view.from / trace.duration * width, b = view.to / trace.duration * width;
  c.globalAlpha = 0.62;
  c.fillStyle = colour.panel;
  c.fillRect(0, 0, a, height);
  c.fillRect(b, 0, width - b, height);
  c.globalAlpha = 1;
  c.strokeStyle = colour.accent;
  c.lineWidth = 1.5;
  c.strokeRect(a + 0.75, 0.75, Math.max(b - a - 1.5, 2), height - 1.5);
}
