#!/usr/bin/env python3
"""Writes the tables of docs/metrics.md from api/metrics/table.cc, and compares the names with those of Go.

    metrics_page.py           writes the table of all metrics
    metrics_page.py --check   compares the page with the sources; the exit code is 1 if it is out of date

The page has a second table, by hand: the metrics of Go that the library does not have, each with the reason. With --check,
and if there is a Go toolchain, each metric of that Go must be in one of the two tables, with the same kind, and cumulative
in both or in neither. If it is Go 1.27 or later, each name in the tables must also exist there, unless it begins with
/gump/. GUMP_GO names the toolchain; otherwise it is the `go` of PATH.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "api" / "metrics" / "table.cc"
PAGE = ROOT / "docs" / "metrics.md"
BEGIN, END = "<!-- metrics: begin -->\n", "<!-- metrics: end -->\n"
KINDS = {"kUint64": "number", "kFloat64": "float", "kFloat64Histogram": "histogram"}

STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
ROW = re.compile(r'\{\{((?:\s*"(?:[^"\\]|\\.)*"\s*,?)+)\s*Kind::(\w+),\s*(kCumulative|kCurrent)\}', re.S)
GO_ROW = re.compile(r'Name:\s*"([^"]+)",(.*?)\n\t\},', re.S)


def ours():
    """Yields (name, description, kind, cumulative) of each metric."""
    text = TABLE.read_text()
    text = text[text.index("kMetrics[] = {"):]
    for strings, kind, cumulative in ROW.findall(text):
        name, rest = strings.split(",", 1)
        yield (STRING.match(name.strip()).group(1), "".join(STRING.findall(rest)), kind, cumulative == "kCumulative")


def table(metrics):
    lines = ["| metric | kind | what it is |", "|---|---|---|"]
    for name, description, kind, cumulative in metrics:
        lines.append(f"| `{name}` | {KINDS[kind]}{', cumulative' if cumulative else ''} | {description} |")
    return "\n".join(lines) + "\n"


def absent(page):
    """The names in the second table of the page."""
    section = page[page.index("## Metrics of Go that do not exist here"):]
    return re.findall(r"^\| `(/[^`]+)`", section, re.M)


def go_metrics(go):
    """Returns the version of Go, such as (1, 27), and {name: (kind, cumulative)}."""
    def ask(what):
        return subprocess.run([go, "env", what], capture_output=True, text=True, check=True,
                              env={**os.environ, "GOTOOLCHAIN": "local"}).stdout.strip()
    version = tuple(int(n) for n in re.match(r"go(\d+)\.(\d+)", ask("GOVERSION")).groups())
    source = pathlib.Path(ask("GOROOT"), "src/runtime/metrics/description.go").read_text()
    found = {}
    for name, rest in GO_ROW.findall(source):
        kind = re.search(r"Kind:\s+Kind(\w+)", rest).group(1)
        found[name] = ("k" + kind, bool(re.search(r"Cumulative:\s+true", rest)))
    return version, found


def compare_with_go(go, metrics, missing):
    """Yields what is wrong."""
    version, theirs = go_metrics(go)
    have = {name: (kind, cumulative) for name, _, kind, cumulative in metrics}
    for name, entry in theirs.items():
        if name in have:
            if have[name] != entry:
                yield f"{name}: Go has {entry}, and here it is {have[name]}"
        elif name not in missing:
            yield f"{name}: Go {version[0]}.{version[1]} has it, and docs/metrics.md does not mention it"
    if version >= (1, 27):
        for name in [n for n in have if not n.startswith("/gump/")] + missing:
            if name not in theirs and not name.startswith("/godebug/"):
                yield f"{name}: Go {version[0]}.{version[1]} has no such metric"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    metrics = list(ours())
    page = PAGE.read_text()
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    wanted = page[:begin] + table(metrics) + page[end:]
    missing = absent(page)
    problems = [f"{n}: in both tables" for n in missing if n in {m[0] for m in metrics}]
    if not args.check:
        PAGE.write_text(wanted)
    elif page != wanted:
        problems.append("docs/metrics.md is out of date; run tools/docs/metrics_page.py")
    go = os.environ.get("GUMP_GO") or shutil.which("go")
    if go is not None:
        problems += compare_with_go(go, metrics, missing)
    for p in problems:
        print(f"metrics_page: {p}")
    print(f"metrics_page: {len(metrics)} metrics, {len(missing)} of Go's are absent, "
          f"{'compared with Go' if go else 'no Go to compare with'}, {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
