#!/usr/bin/env python3
"""Writes the tables of docs/comparison.md, and docs/pictures/comparison-*.svg, from the results in docs/comparison.json.

    page.py             writes the page and the pictures
    page.py --check     writes nothing, and fails if one of them differs from what the results give

compare.py measures, and writes the results. The text around the tables is written by hand.
"""

import argparse
import collections
import json
import pathlib
import statistics
import sys
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "tools/bench"))
sys.dont_write_bytecode = True
import host  # noqa: E402

# What is written lies between two comments.
FIGURES = "<!-- comparison: begin -->\n", "<!-- comparison: end -->\n"
AHEAD = "<!-- ahead: begin -->\n", "<!-- ahead: end -->\n"
TITLES = {"gump": "gumption", "go": "Go", "boost_fiber": "Boost.Fiber", "asio": "asio", "marl": "marl", "tmc": "TooManyCooks",
          "libgo": "libgo", "photon": "PhotonLibOS"}
Row = collections.namedtuple("Row", "workload metric title unit")
ROWS = (
    Row("W1", "ns/task", "start a task and wait for it", "ns"),
    Row("W2/1000", "ns/switch", "yield, 1000 tasks", "ns"),
    Row("W3", "ns/roundtrip", "a round trip between two tasks", "ns"),
    Row("W7/8", "ns/op", "lock and unlock, eight tasks", "ns"),
    Row("W8/join", "ms", "a tree of 111,111 tasks", "ms"),
    Row("W11", "cpu-ms", "10,000 sleepers: CPU time", "ms"),
    Row("W11", "p99-us", "10,000 sleepers: late, p99", "µs"),
    Row("W13/100", "cpu-us", "TCP echo: CPU time a request", "µs"),
)
PROCS = (1, 2)
# Sizes of a picture.
LEFT, BAR, PITCH, PANEL, WIDTH, LABEL, VALUE = 16, 13, 18, 26, 760, 110, 90
CUT = 10


def load(folder):
    result = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    if result["format"] != 1:
        sys.exit(f"page: comparison.json has format {result['format']}; this program reads format 1")
    return result


def values_of(peer, row, procs):
    for entry in peer["results"]:
        if (entry["workload"], entry["metric"], entry["procs"]) == (row.workload, row.metric, procs):
            return entry["values"]
    return []


def figure(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def rows_of(result):
    """(row, procs) that at least one peer has."""
    return [(row, procs) for row in ROWS for procs in PROCS if any(values_of(p, row, procs) for p in result["peers"])]


def cell(values):
    if not values:
        return "–"
    return f"{figure(statistics.median(values))} ({figure(min(values))}–{figure(max(values))})"


def line(cells):
    return f"| {' | '.join(cells)} |"


def table(result):
    """The host, the versions and the figures, in Markdown."""
    text = [f"Measured on {result['date'][:10]}, in {result['seconds']} s. Other programs used {result['others']:.0%} of the"
            " processors meanwhile. The machine:", "", "```text"]
    if result["divide"] > 1:  # a quick look
        text.insert(0, f"Counts are divided by {result['divide']}.")
    text += list(host.lines(result["host"])) + ["```", ""]
    text += [line(["program", "version"]), "|---|---|"]
    text += [line([TITLES[p["name"]], p["version"]]) for p in result["peers"]]
    text += ["", line(["workload", "threads", *(TITLES[p["name"]] for p in result["peers"])])]
    text += ["|---|---|" + "---|" * len(result["peers"])]
    for row, procs in rows_of(result):
        cells = [cell(values_of(p, row, procs)) for p in result["peers"]]
        text.append(line([f"{row.title}, {row.unit}", str(procs), *cells]))
    return "\n".join(text) + "\n"


def ahead(result):
    """Where other programs are ahead of gumption's median, and what part of it they take, in Markdown."""
    text = [line(["workload", "threads", "ahead of gumption"]), "|---|---|---|"]
    for row, procs in rows_of(result):
        medians = {p["name"]: statistics.median(v) for p in result["peers"] if (v := values_of(p, row, procs))}
        if "gump" not in medians:
            continue
        parts = sorted((value / medians["gump"], TITLES[name]) for name, value in medians.items() if value < medians["gump"])
        if parts:
            text.append(line([row.title, str(procs), ", ".join(f"{name} {part:.2f}" for part, name in parts)]))
    return "\n".join(text) + "\n"


def picture(result, procs):
    """Bars for each workload at one number of threads. The longest bar of a workload has the full width. If it were more than
    CUT times as long as the next, it is cut, or the others could not be told apart."""
    body, y, any_cut = [], 54, False
    shown = [row for row, n in rows_of(result) if n == procs]
    for row in shown:
        body.append(f'<text x="{LEFT}" y="{y}" class="bold">{escape(row.title)}, {row.unit}</text>')
        medians = [(p["name"], statistics.median(values_of(p, row, procs)))
                   for p in result["peers"] if values_of(p, row, procs)]
        *_, second, longest = sorted([0, *(value for _, value in medians)])
        cut = second > 0 and longest > CUT * second
        any_cut = any_cut or cut
        full = second * 1.25 if cut else longest or 1
        room = WIDTH - 2 * LEFT - LABEL - VALUE
        for name, value in medians:
            y += PITCH
            width = max(1, room * min(1, value / full))
            body.append(f'<text x="{LEFT + LABEL - 8}" y="{y}" text-anchor="end">{TITLES[name]}</text>')
            body.append(f'<rect x="{LEFT + LABEL}" y="{y - BAR + 2}" width="{width:.1f}" height="{BAR}"'
                        f' class="{"ours" if name == "gump" else "other"}"/>')
            if value > full:
                gap = LEFT + LABEL + width * 0.9
                body.append(f'<path d="M{gap:.1f} {y + 4}l8 {-BAR - 4}" class="gap"/>')
            body.append(f'<text x="{LEFT + LABEL + width + 6:.1f}" y="{y}" class="faint">{figure(value)}</text>')
        y += PANEL + 4
    title = f"Medians with {procs} thread{'s' if procs > 1 else ''}; shorter is better"
    title += "; a bar with a gap is cut" if any_cut else ""
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img">',
        f"<title>{title}</title>",
        f"<desc>The figures of the table in comparison.md for {procs} thread{'s' if procs > 1 else ''}, as bars.</desc>",
        '<style>text{font-family:Helvetica,Arial,"DejaVu Sans",sans-serif;font-size:12px;fill:#24303b}.bold{font-weight:600}'
        '.faint{fill:#5d6b78}.page{fill:#ffffff}.ours{fill:#2f6fa8}.other{fill:#b9c4ce}.gap{stroke:#ffffff;stroke-width:4}',
        '@media (prefers-color-scheme:dark){text{fill:#dfe5ea}.faint{fill:#97a3ae}.page{fill:#0d1117}.ours{fill:#4f8fc9}'
        '.other{fill:#4a5865}.gap{stroke:#0d1117}}</style>',
        f'<rect width="{WIDTH}" height="{y}" class="page"/>',
        f'<text x="{LEFT}" y="26" class="bold">{title}</text>',
    ]
    return "\n".join(head + body + ["</svg>"]) + "\n"


def made(folder):
    """The text of each file that the results give, by its path."""
    result = load(folder)
    page = folder / "comparison.md"
    text = page.read_text(encoding="utf-8")
    for (begin, end), part in ((FIGURES, table(result)), (AHEAD, ahead(result))):
        before, rest = text.split(begin)
        text = f"{before}{begin}{part}{end}{rest.split(end)[1]}"
    files = {page: text}
    for procs in PROCS:
        files[folder / "pictures" / f"comparison-{procs}.svg"] = picture(result, procs)
    return files


def write(folder):
    for path, text in made(folder).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=DOCS)
    arguments = parser.parse_args()
    if not arguments.check:
        write(arguments.folder)
        return 0
    stale = [path for path, text in made(arguments.folder).items()
             if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path.name}: differs from comparison.json; tools/bench/peers/page.py writes it")
    print(f"page: {len(stale)} problems")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
