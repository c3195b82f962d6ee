// The actions of the user: zoom, move, select and search.

const $ = id => document.getElementById(id);
let pending = false;
function redraw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(draw);
}

function draw() {
  pending = false;
  if ($("active").checked) refresh();
  drawLanes();
  drawMap();
  const [count, drawn] = view.wakes;
  const shown = drawn || count === 0 ? "" : " (zoom in to see them)";
  say(`${duration(view.to - view.from)} from ${moment(view.from, view.to - view.from)} · ${plural(view.list.length, "goroutine")} · ${plural(count, "wake-up")}${shown}`);
}

function say(text) {
  if ($("said").textContent !== text) $("said").textContent = text;
}

// ---- The list of goroutines

let found = trace.gs;  // those that pass the search, in order

// A goroutine passes if its number is in the text, or its function or a reason for which it waited contains the text.
function search(query) {
  const wanted = query.trim().toLowerCase();
  if (wanted === "") return trace.gs;
  const id = /^g?(\d+)$/.exec(wanted);
  if (id) return trace.gs.filter(g => String(g.id) === id[1]);
  const whys = new Uint8Array(meta.whys.length);
  meta.whys.forEach((why, i) => { if (meta.texts[why[0]].toLowerCase().includes(wanted)) whys[i] = 1; });
  const some = whys.includes(1);
  return trace.gs.filter(g => {
    if (g.name.toLowerCase().includes(wanted) || g.start.toLowerCase().includes(wanted)) return true;
    for (let i = g.begin; some && i < g.end; i++) {
      if ((trace.state[i] === WAITING || trace.state[i] === RUNNABLE) && whys[trace.detail[i]]) return true;
    }
    return false;
  });
}

const sums = new Map();
function sumOf(g, kind) {
  let s = sums.get(g);
  if (!s) {
    s = { running: 0, waits: 0, changes: g.end - g.begin };
    for (let i = g.begin; i < g.end; i++) {
      const state = trace.state[i], length = endOf(g, i) - trace.time[i];
      if (state === RUNNING) s.running += length;
      if (state === WAITING || state === RUNNABLE) s.waits = Math.max(s.waits, length);
    }
    sums.set(g, s);
  }
  return s[kind];
}

function look() {
  found = search($("search").value);
  const order = $("order").value;
  if (order !== "number") found = [...found].sort((a, b) => sumOf(b, order) - sumOf(a, order));
  refresh();
}

// Active goroutines are in other states than waiting somewhere in the view.
function isActive(g) {
  let i = Math.max(find(g, view.from), g.begin);
  for (; i < g.end && trace.time[i] <= view.to; i++) if (trace.state[i] !== WAITING && trace.state[i] !== NONE) return true;
  return false;
}

function refresh() {
  view.list = $("active").checked ? found.filter(isActive) : found;
  rowOf.clear();
  view.list.forEach((g, row) => rowOf.set(g, row));
  scrollTo(view.top);
}

function scrollTo(top) {
  const room = view.height - pAreaEnd();
  view.top = Math.max(0, Math.min(top, view.list.length * G_HEIGHT - room));
  redraw();
}

// ---- The view

function show(from, to) {
  const length = Math.min(Math.max(to - from, 20), trace.duration);
  const begin = Math.min(Math.max(from, 0), trace.duration - length);
  view.from = begin;
  view.to = begin + length;
  redraw();
}
const zoom = (factor, at = (view.from + view.to) / 2) => show(at - (at - view.from) * factor, at + (view.to - at) * factor);
const move = share => show(view.from + (view.to - view.from) * share, view.to + (view.to - view.from) * share);

function select(lane, change = -1) {
  view.selected = lane;
  view.change = change;
  if (lane && !lane.p) {
    if (!rowOf.has(lane)) {  // the search hides it
      $("search").value = "";
      $("active").checked = false;
      look();
    }
    const y = yOf(lane);
    if (y < pAreaEnd()) scrollTo(view.top + y - pAreaEnd());
    else if (y + G_HEIGHT > view.height) scrollTo(view.top + y + G_HEIGHT - view.height);
  }
  showDetails();
  redraw();
}

function zoomToSelection() {
  if (view.change < 0) return;
  const from = trace.time[view.change], to = endOf(view.selected, view.change), margin = Math.max((to - from) * 0.25, 50);
  show(from - margin, to + margin);
}

function stepChange(by) {
  const lane = view.selected;
  if (!lane || lane.begin === lane.end) return;
  const now = view.change < 0 ? find(lane, (view.from + view.to) / 2) : view.change + by;
  const change = Math.min(Math.max(now, lane.begin), lane.end - 1);
  const from = trace.time[change], to = endOf(lane, change), length = view.to - view.from;
  if (to < view.from || from > view.to) show((from + to) / 2 - length / 2, (from + to) / 2 + length / 2);
  select(lane, change);
}

function stepLane(by) {
  const all = [...trace.ps, ...view.list];
  if (all.length === 0) return;
  const now = all.indexOf(view.selected);
  select(all[now < 0 ? 0 : Math.min(Math.max(now + by, 0), all.length - 1)]);
}

// The lane at a point of the canvas, and its change there, or -1.
function hit(x, y) {
  const area = pAreaEnd();
  const lane = y < AXIS ? undefined : y < area - GAP ? trace.ps[Math.floor((y - AXIS) / P_HEIGHT)]
    : y >= area - GAP / 2 ? view.list[Math.floor((y - area + view.top) / G_HEIGHT)] : undefined;
  if (!lane) return null;
  if (x < GUTTER) return { lane, change: -1 };
  // A state that is narrower than a pixel can still be pointed at.
  const i = find(lane, tOf(x));
  return { lane, change: i < lane.begin || trace.state[i] === NONE ? -1 : i };
}

// ---- Events

let dragging = null;
lanes.addEventListener("pointerdown", e => {
  if (e.button !== 0) return;
  lanes.setPointerCapture(e.pointerId);
  dragging = { x: e.offsetX, y: e.offsetY, from: view.from, to: view.to, top: view.top, moved: false };
});
lanes.addEventListener("pointermove", e => {
  if (!dragging) return hover(e);
  const dx = e.offsetX - dragging.x, dy = e.offsetY - dragging.y;
  if (!dragging.moved && Math.hypot(dx, dy) < 4) return;
  dragging.moved = true;
  lanes.classList.add("drag");
  $("tip").style.visibility = "hidden";
  const dt = dx / plotWidth() * (dragging.to - dragging.from);
  show(dragging.from - dt, dragging.to - dt);
  scrollTo(dragging.top - dy);
});
lanes.addEventListener("pointerup", e => {
  const drag = dragging;
  dragging = null;
  lanes.classList.remove("drag");
  if (!drag || drag.moved) return;
  const at = hit(e.offsetX, e.offsetY);
  select(at ? at.lane : null, at ? at.change : -1);
});
lanes.addEventListener("pointercancel", () => { dragging = null; lanes.classList.remove("drag"); });
lanes.addEventListener("pointerleave", () => { $("tip").style.visibility = "hidden"; });
lanes.addEventListener("dblclick", zoomToSelection);
lanes.addEventListener("wheel", e => {
  const pixels = e.deltaMode === 1 ? 20 : 1;
  if (e.ctrlKey || e.metaKey) {
    zoom(Math.exp(Math.max(-1, Math.min(1, e.deltaY * pixels / 250))), Math.max(tOf(e.offsetX), view.from));
  } else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
    move((e.deltaX || e.deltaY) * pixels / plotWidth());
  } else {
    const before = view.top;
    scrollTo(view.top + e.deltaY * pixels);
    if (view.top === before) return;  // the page scrolls instead
  }
  e.preventDefault();
}, { passive: false });

function mapTo(e) {
  const at = e.offsetX / map.clientWidth * trace.duration, half = (view.to - view.from) / 2;
  if (half * 2 < trace.duration) show(at - half, at + half);
  else show(at - trace.duration / 20, at + trace.duration / 20);
}
map.addEventListener("pointerdown", e => { map.setPointerCapture(e.pointerId); mapTo(e); });
map.addEventListener("pointermove", e => { if (e.buttons & 1) mapTo(e); });

function hover(e) {
  const at = hit(e.offsetX, e.offsetY), tip = $("tip");
  if (!at || (at.change < 0 && e.offsetX >= GUTTER)) {
    tip.style.visibility = "hidden";
    return;
  }
  tip.replaceChildren();
  const title = document.createElement("b");
  title.textContent = laneName(at.lane) + (at.lane.p ? "" : "  " + short(at.lane.name));
  tip.append(title);
  if (at.change >= 0) tip.append(document.createElement("br"), describe(at.lane, at.change));
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.min(e.clientX + 14, innerWidth - box.width - 8) + "px";
  tip.style.top = (e.clientY + 18 + box.height > innerHeight ? e.clientY - box.height - 10 : e.clientY + 18) + "px";
  tip.style.visibility = "visible";
}

const keys = {
  w: () => zoom(0.6), s: () => zoom(1 / 0.6), "+": () => zoom(0.6), "-": () => zoom(1 / 0.6), a: () => move(-0.25), d: () => move(0.25),
  ArrowUp: () => stepLane(-1), ArrowDown: () => stepLane(1), ArrowLeft: () => stepChange(-1), ArrowRight: () => stepChange(1),
  Enter: zoomToSelection, 0: () => show(0, trace.duration), "/": () => $("search").focus(), t: () => theme(), "?": () => $("keys").showModal(),
  Escape: () => { $("search").value = ""; look(); select(null); },
};
document.addEventListener("keydown", e => {
  if (e.ctrlKey || e.altKey || e.metaKey || $("keys").open) return;
  const field = e.target.closest?.("input, select, button, [data-row]");
  if (field) {
    if (e.key === "Escape") { keys.Escape(); lanes.focus(); }
    return;
  }
  const act = keys[e.key.length === 1 ? e.key.toLowerCase() : e.key];
  if (!act) return;
  e.preventDefault();
  act();
});

function theme(name = document.documentElement.dataset.theme === "dark" ? "light" : "dark") {
  document.documentElement.dataset.theme = name;
  readColours();
  redraw();
}

function layOut() {
  const wanted = pAreaEnd() + trace.gs.length * G_HEIGHT + 8;
  lanes.style.height = Math.max(Math.min(wanted, Math.round(innerHeight * 0.6)), Math.min(wanted, pAreaEnd() + 6 * G_HEIGHT)) + "px";
  view.height = parseInt(lanes.style.height, 10);
  mapPicture.width = 0;
  scrollTo(view.top);
}
addEventListener("resize", layOut);
$("search").addEventListener("input", look);
$("order").addEventListener("change", look);
$("active").addEventListener("change", refresh);
$("fit").addEventListener("click", () => show(0, trace.duration));
$("theme").addEventListener("click", () => theme());
$("help").addEventListener("click", () => $("keys").showModal());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", e => theme(e.matches ? "dark" : "light"));
