// The panels below the lanes: the selection, histograms and tables.

function element(name, attributes = {}, ...children) {
  const svg = ["svg", "rect", "text", "g", "title", "line"].includes(name);
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

// ---- The selection

function describe(lane, i) {
  const state = trace.state[i], length = duration(endOf(lane, i) - trace.time[i]);
  if (lane.p) {
    if (state === SEARCHING) return `${STATES[state]} for ${length}`;
    const g = trace.gs[trace.detail[i] - 1];
    return `${laneName(g)}  ${short(g.name)} is ${STATES[state]} for ${length}`;
  }
  const p = state === RUNNING || state === CALL ? pByIndex[trace.detail[i] - 1] : null;
  const reason = reasonOf(i);
  return `${STATES[state]}${p ? " on " + laneName(p) : ""}${reason ? ": " + reason : ""}, ${length}`;
}

// The wake-up that made a goroutine runnable at time t.
function wakerAt(g, t) {
  for (let i = lowerBound(trace.wakes.time, t); i < trace.wakes.time.length && trace.wakes.time[i] === t; i++) {
    if (trace.wakes.to[i] === g.index) return sourceOf(trace.wakes.from[i]);
  }
  return null;
}

function link(lane, change) {
  const b = element("button", {}, laneName(lane) + (lane.p ? "" : "  " + short(lane.name)));
  b.addEventListener("click", () => select(lane, change));
  return b;
}

// hotFunctions returns how many of the samples `all` of a goroutine lie in its state i, and the functions with the most of
// these. If none lies there, or no state is selected, it counts all samples.
function hotFunctions(all, i) {
  const lane = view.selected, inState = i < 0 ? [] : all.filter(s => s.time >= trace.time[i] && s.time < endOf(lane, i));
  const some = inState.length > 0 ? inState : all, counts = new Map();
  for (const { stack } of some) {
    const name = meta.texts[meta.stacks[stack][0] ?? 0];
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const hot = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 5).map(([name, n]) => `${short(name) || "?"} ${n.toLocaleString("en")}`);
  return `${some.length.toLocaleString("en")}${some === all ? " in all" : " in this state"}: ${hot.join(" · ")}`;
}

function showDetails() {
  const box = $("details"), lane = view.selected, i = view.change;
  box.replaceChildren();
  if (!lane) {
    box.append(element("p", { class: "soft" }, "Click a state, or use the arrow keys. ",
      element("kbd", {}, "W"), " ", element("kbd", {}, "S"), " zoom, ", element("kbd", {}, "A"), " ", element("kbd", {}, "D"),
      " move, ", element("kbd", {}, "?"), " shows all keys."));
    return;
  }
  const list = element("dl");
  const add = (name, ...value) => list.append(element("dt", {}, name), element("dd", {}, ...value));
  add("lane", laneName(lane) + (lane.p ? "" : "  " + lane.name));
  if (!lane.p && lane.start !== lane.name) add("started as", lane.start);
  if (i >= 0) {
    add("state", describe(lane, i));
    const end = endOf(lane, i), length = Math.max(end - trace.time[i], 1);
    add("from", `${moment(trace.time[i], length)} to ${moment(end, length)}`);
    if (lane.p && trace.detail[i] > 0) {
      const g = trace.gs[trace.detail[i] - 1];
      add("goroutine", link(g, find(g, trace.time[i])));
    }
    if (!lane.p && trace.state[i] === WAITING && i + 1 < lane.end && trace.state[i + 1] === RUNNABLE) {
      const waker = wakerAt(lane, trace.time[i + 1]);
      if (waker) add("woken by", link(waker, find(waker, trace.time[i + 1])));
    }
    if (!lane.p && trace.state[i] === RUNNABLE) {
      const waker = wakerAt(lane, trace.time[i]);
      if (waker) add("woken by", link(waker, find(waker, trace.time[i])));
    }
    for (const r of lane.regions ?? []) if (r.begin <= trace.time[i] && r.end > trace.time[i]) add("region", r.name);
  }
  if (!lane.p && lane.maker) add("made by", link(trace.gs[lane.maker - 1], -1));
  if (lane.samples) add("CPU samples", hotFunctions(lane.samples, i));
  box.append(list);
  if (i < 0 || lane.p) return;
  const stack = meta.stacks[whyOf(i)[1]] ?? [];
  if (stack.length === 0) return;
  const frames = element("ol");
  for (let k = 0; k < stack.length; k += 3) {
    const file = meta.texts[stack[k + 1]], line = stack[k + 2];
    frames.append(element("li", {}, element("b", {}, short(meta.texts[stack[k]])), file ? `  ${file}${line ? ":" + line : ""}` : ""));
  }
  box.append(frames);
}

// ---- Histograms. A bucket has the durations from half its limit to its limit, in powers of two. Heights are logarithms,
// because a few long waits matter more than how many short ones there are.

const limitOf = bucket => 2 ** bucket;

function bars(buckets, from, to, width, height, fill) {
  const most = Math.log2(Math.max(...buckets, 1)) + 1, w = width / (to - from), g = element("g", { fill });
  for (let b = from; b < to; b++) {
    const n = buckets[b] ?? 0;
    if (n === 0) continue;
    const h = Math.max(height * (Math.log2(n) + 1) / most, 1);
    g.append(element("rect", { x: (b - from) * w, y: height - h, width: Math.max(w - 1, 1), height: h, rx: 1 },
      element("title", {}, `${duration(limitOf(b) / 2)} to ${duration(limitOf(b))}: ${n.toLocaleString("en")}`)));
  }
  return g;
}

function range(all) {
  let from = 64, to = 0;
  for (const buckets of all) buckets.forEach((n, b) => { if (n) { from = Math.min(from, b); to = Math.max(to, b + 1); } });
  return from < to ? [Math.max(0, from - 1), to + 1] : [0, 1];
}

const WITHOUT_DATA = "The trace has none.";

function showLatency() {
  const d = meta.latency, box = $("latency").querySelector("div");
  if (d.count === 0) return box.append(element("p", { class: "soft" }, WITHOUT_DATA));
  const width = 640, height = 128, [from, to] = range([d.buckets]), w = width / (to - from);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height + 22}`, width: "100%", role: "img", "aria-label": "Histogram of the time from runnable to running" });
  svg.append(bars(d.buckets, from, to, width, height, "var(--runnable)"));
  svg.append(element("line", { x1: 0, x2: width, y1: height + 0.5, y2: height + 0.5, stroke: "var(--line)" }));
  const every = Math.ceil((to - from) / 9);
  for (let b = from; b < to && (b - from) * w < width - 40; b += every) svg.append(element("text", { x: (b - from) * w, y: height + 16, "text-anchor": "start" }, duration(limitOf(b) / 2)));
  box.append(svg, element("p", { class: "soft" }, `${d.count.toLocaleString("en")} times · half within ${duration(d.p50)} · 90 % within ${duration(d.p90)} · `
    + `99 % within ${duration(d.p99)} · longest ${duration(d.max)} · widths and heights are powers of two`));
}

function table(heads, rows) {
  const head = element("tr");
  for (const [name, numeric] of heads) head.append(element("th", numeric ? { class: "n" } : {}, name));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
}

function showBlocking() {
  const box = $("blocking").querySelector("div"), all = meta.blocking;
  if (all.length === 0) return box.append(element("p", { class: "soft" }, WITHOUT_DATA));
  const width = 300, height = 20, [from, to] = range(all.map(b => b.waits.buckets));
  const rows = all.map(({ reason, waits }) => {
    const svg = element("svg", { width, height: height + 1, role: "img", "aria-label": "Histogram" });
    svg.append(element("line", { x1: 0, x2: width, y1: height + 0.5, y2: height + 0.5, stroke: "var(--line)" }),
      bars(waits.buckets, from, to, width, height, "var(--accent)"));
    return element("tr", {}, element("td", {}, meta.texts[reason] || "not known"), ...[waits.count.toLocaleString("en"), duration(waits.sum),
      duration(waits.p50), duration(waits.p99), duration(waits.max)].map(text => element("td", { class: "n" }, text)), element("td", {}, svg));
  });
  const scale = `${duration(limitOf(from) / 2)} to ${duration(limitOf(to) / 2)}, bars and heights in powers of two`;
  box.append(table([["reason"], ["waits", true], ["sum", true], ["half within", true], ["99 % within", true], ["longest", true], [scale]], rows));
}

// ---- The table of waits

const waitColumns = [["goroutine", null], ["longest wait", 1], ["why", null], ["where", null], ["waiting in all", 6], ["runnable in all", 7],
  ["running in all", 8]];
let waitsBy = 1;
// Goroutines of the runtime wait for ever, and say nothing about the program.
const waitRows = meta.rows.filter(row => meta.texts[meta.whys[row[4]][0]] !== "system goroutine wait" || !row[3]);

function showWaits() {
  const box = $("waits").querySelector("div");
  box.replaceChildren();
  const rows = [...waitRows].sort((a, b) => b[waitsBy] - a[waitsBy]).slice(0, 50).map(row => {
    const [index, longest, at, waiting, whyId, open] = row, g = trace.gs[index], why = meta.whys[whyId];
    const reason = waiting ? meta.texts[why[0]] || "reason not known" : "runnable, without a P";
    const tr = element("tr", { tabindex: 0, "data-row": index }, element("td", { class: "cut", title: g.name }, element("b", {}, laneName(g)), "  " + short(g.name)),
      element("td", { class: "n" }, duration(longest)), element("td", {}, reason + (open ? " (not over)" : "")),
      element("td", { class: "cut", title: why[2] }, short(why[2])), ...[6, 7, 8].map(k => element("td", { class: "n" }, duration(row[k]))));
    const go = () => { select(g, find(g, at)); zoomToSelection(); lanes.scrollIntoView({ block: "nearest" }); };
    tr.addEventListener("click", go);
    tr.addEventListener("keydown", e => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); go(); } });
    return tr;
  });
  if (rows.length === 0) return box.append(element("p", { class: "soft" }, WITHOUT_DATA));
  const t = table(waitColumns.map(([name, key]) => [name, key !== null]), rows);
  t.querySelectorAll("th").forEach((th, k) => {
    const key = waitColumns[k][1];
    if (key === null) return;
    const b = element("button", {}, th.textContent);
    b.addEventListener("click", () => { waitsBy = key; showWaits(); });
    th.replaceChildren(b);
    if (key === waitsBy) th.setAttribute("aria-sort", "descending");
  });
  box.append(t);
}

// ---- The beginning

$("title").textContent = meta.title;
$("facts").textContent = [duration(meta.duration), plural(meta.events, "event"), plural(trace.ps.length, "P"), plural(meta.gs, "goroutine"),
  meta.tasks.length ? plural(meta.tasks.length, "task") : "", meta.samples ? plural(meta.samples, "sample") : ""].filter(Boolean).join(" · ");
if (meta.problem) $("problem").textContent = "This is a part of the trace. " + meta.problem;
theme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
look();
showDetails();
showLatency();
showBlocking();
showWaits();
layOut();
draw();
