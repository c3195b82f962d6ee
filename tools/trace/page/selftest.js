// With #selftest in its address the page tests itself. Each line of the verdict is a claim, and the last one says whether all
// of them hold.

function selftest() {
  const lines = [];
  let failures = 0;
  const check = (claim, holds, more = "") => {
    if (!holds) failures++;
    lines.push(`${holds ? "ok" : "FAILED"}: ${claim}${more ? " (" + more + ")" : ""}`);
  };
  try {
    if (trace.gs.length > 0) testAll(check);
    else check("a trace without goroutines has a problem, and no lanes", meta.problem !== "" && view.list.length === 0);
  } catch (e) {
    check(`no exception: ${e.stack}`, false);
  }
  lines.push(failures === 0 ? `all ${lines.length} claims hold` : `${failures} of ${lines.length} claims FAILED`);
  $("verdict").textContent = lines.join("\n");
}

function testAll(check) {
  const key = (name, target = lanes) => target.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
  const pixels = canvas => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height), seen = new Set();
    for (let i = 0; i < data.length; i += 4) seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
    return seen;
  };
  const rgb = name => parseInt(colour[name].slice(1), 16);

  // The data
  check("every change of the file is read", trace.used === meta.changes, plural(trace.used, "change"));
  check("every lane is there", pByIndex.length === meta.ps.length && trace.gs.length === meta.gs);
  check("regions and messages are on their lanes", meta.regions + meta.logs
    === trace.gs.reduce((n, g) => n + (g.regions ?? []).length + (g.logs ?? []).length, 0), `${plural(meta.regions, "region")}, ${plural(meta.logs, "message")}`);
  const marks = trace.gs.flatMap(g => g.samples ?? []);
  check("samples are on their lanes, and have stacks", marks.length <= meta.samples && (marks.length > 0 || meta.samples === 0)
    && marks.every(s => s.time >= 0 && s.time <= trace.duration && meta.stacks[s.stack]?.length > 0), plural(marks.length, "sample"));
  check("time never goes back", [...trace.ps, ...trace.gs].every(lane => {
    for (let i = lane.begin + 1; i < lane.end; i++) if (trace.time[i] < trace.time[i - 1]) return false;
    return true;
  }));
  check("details refer to what exists", [...trace.gs].every(g => {
    for (let i = g.begin; i < g.end; i++) if (whyOf(i) === undefined) return false;
    return true;
  }));
  const off = [];
  for (const [index, , , , , , , runnable, running, call] of meta.rows) {
    const s = new Float64Array(3), g = trace.gs[index];
    addShares(g, g.begin - 1, 0, trace.duration, s);
    if (Math.abs(s[0] - running) > 1 || Math.abs(s[1] - call) > 1 || Math.abs(s[2] - runnable) > 1) off.push(laneName(g));
  }
  check("sums over groups of changes agree with the converter's", off.length === 0, off.slice(0, 5).join(" "));
  const parts = new Float64Array(3), whole = new Float64Array(3), longest = [...trace.gs].sort((a, b) => (b.end - b.begin) - (a.end - a.begin))[0];
  if (longest) {
    addShares(longest, longest.begin - 1, 0, trace.duration, whole);
    for (let x = 0, i = longest.begin - 1; x < 997; x++) i = addShares(longest, i, trace.duration * x / 997, trace.duration * (x + 1) / 997, parts);
    check("columns add up to the whole", parts.every((n, k) => Math.abs(n - whole[k]) < 1e-6 * trace.duration));
  }

  // Pictures
  const slowest = [];
  const time = (what, act) => {
    const begin = performance.now();
    act();
    draw();
    slowest.push([performance.now() - begin, what]);
  };
  time("all", () => show(0, trace.duration));
  const colours = pixels(lanes);
  check("the lanes show running goroutines", colours.has(rgb("running")));
  check("the map shows busy Ps", pixels(map).has(rgb("running")));
  for (let k = 0; k < 12; k++) time("zoom " + k, () => zoom(0.35));
  check("zooming in ends at a length that can be seen", view.to - view.from >= 20);
  for (let k = 0; k < 12; k++) time("zoom out " + k, () => zoom(1 / 0.35));
  show(0, trace.duration);
  if (trace.wakes.time.length > 0) {
    // A window around a wake-up that has few others, with both lanes on the canvas.
    const at = trace.wakes.from.findIndex((from, i) => from & 1 && (from >> 1) - 1 !== trace.wakes.to[i]);
    if (at >= 0) {
      const t = trace.wakes.time[at], from = trace.gs[(trace.wakes.from[at] >> 1) - 1], to = trace.gs[trace.wakes.to[at]];
      $("search").value = "";
      look();
      found = [from, to];
      refresh();
      time("wake-ups", () => show(t - 50, t + 50));
      check("wake-ups are arrows", view.wakes[1] > 0 && pixels(lanes).size > 3, plural(view.wakes[1], "arrow"));
    }
  }
  $("search").value = "";
  look();
  show(0, trace.duration);

  // Search
  const g = trace.gs.find(each => each.name) ?? trace.gs[0];
  $("search").value = "g" + g.id;
  look();
  check("a number finds its goroutine", view.list.includes(g) && view.list.every(each => each.id === g.id));
  $("search").value = g.name.slice(0, 12);
  look();
  check("a part of a name finds its goroutines", view.list.includes(g) && view.list.length <= trace.gs.length);
  const blocked = meta.blocking[0] && meta.texts[meta.blocking[0].reason];
  if (blocked) {
    $("search").value = blocked;
    look();
    check("a reason finds the goroutines that waited for it", view.list.length > 0, blocked);
  }
  $("search").value = "no goroutine has this name";
  look();
  draw();
  check("a search without result shows no goroutine", view.list.length === 0);
  key("Escape", $("search"));
  check("Escape ends a search", view.list.length === trace.gs.length && $("search").value === "");
  $("order").value = "running";
  look();
  check("the order by time running is descending", view.list.every((each, i) => i === 0 || sumOf(view.list[i - 1], "running") >= sumOf(each, "running")));
  $("order").value = "number";
  look();

  // Keys
  show(0, trace.duration);
  key("w");
  check("W zooms in", view.to - view.from < trace.duration);
  const before = view.from;
  key("d");
  check("D moves right", view.from > before);
  key("0");
  check("0 shows all", view.from === 0 && view.to === trace.duration);
  key("ArrowDown");
  check("an arrow key selects a lane", view.selected !== null);
  for (let k = 0; k < trace.ps.length; k++) key("ArrowDown");
  key("ArrowRight");
  check("an arrow key selects a state", view.change >= 0 && $("details").textContent.includes("state"));
  key("Enter");
  draw();
  check("Enter zooms to the selection", view.to - view.from <= trace.duration && xOf(trace.time[view.change]) >= GUTTER - 1);
  key("Escape");
  check("Escape clears the selection", view.selected === null);
  const scheme = document.documentElement.dataset.theme;
  key("t");
  draw();
  check("T changes between light and dark", document.documentElement.dataset.theme !== scheme);
  theme(scheme);

  // Panels
  const row = $("waits").querySelector("tbody tr");
  check("the table of waits has a row with a reason", row !== null && row.children[2].textContent !== "");
  if (row) {
    row.click();
    check("a row of the table leads to its wait", view.change >= 0 && trace.gs[row.dataset.row] === view.selected);
  }
  const bar = $("latency").querySelectorAll("rect").length;
  check("the histogram of latencies has bars", meta.latency.count === 0 || bar > 0);
  check("waits have a histogram for each reason", $("blocking").querySelectorAll("tbody tr").length === meta.blocking.length);
  check("the page loads nothing", performance.getEntriesByType("resource").length === 0);
  key("Escape");
  key("0");
  draw();

  slowest.sort((a, b) => b[0] - a[0]);
  const half = slowest[slowest.length >> 1][0];
  check("half of the pictures take less than 50 ms", half < 50, `${half.toFixed(1)} ms, slowest ${slowest[0][0].toFixed(1)} ms, ${slowest[0][1]}`);
}
if (location.hash === "#selftest") selftest();
