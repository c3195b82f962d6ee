#!/usr/bin/env python3
"""Documents cite only tests that exist: `Suite.Name`, `Suite.Na*`, or `Suite.*`, in docs/, README.md and tools/gump.
A row of the table of Go's tests that says "under the same names in `gotest/x_test`" cites those names there.

A renamed test that a page still cites under its old name proves nothing to a reader.
"""

import fnmatch
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEST = re.compile(r"^\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\((\w+),\s*(\w+)\)", re.M)
CITED = re.compile(r"(?<![\w./*])(\w+Test)\.(\*?\w[\w*]*\*?|\*)(?!\w)(?!\.(?:cc|h|py)\b)")

SAME = re.compile(r"^\| [^|]*\| ([^|]+) \| under the same names in ([^|]+) \|$", re.M)


def same_names(text):
    """Yields the position and name of each of Go's tests that has no test of its name, or of its name with a part."""
    for row in SAME.finditer(text):
        files = [ROOT / "tests" / f"{name}.cc" for name in re.findall(r"`([\w/]+)`", row[2])]
        have = {name for path in files if path.exists() for _, name in TEST.findall(path.read_text())}
        have |= {part for name in have for part in name.split("And")} | {name.split("_")[0] for name in have}
        for name in row[1].split(", "):
            if any(path.exists() for path in files) and name not in have:
                yield row.start(), name


def main():
    tests = {f"{suite}.{name}" for path in (ROOT / "tests").rglob("*.cc") for suite, name in TEST.findall(path.read_text())}
    pages = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "tools/gump"]
    problems = []
    count = 0
    for page in pages:
        text = page.read_text()
        for match in CITED.finditer(text):
            count += 1
            name = f"{match[1]}.{match[2]}"
            if not any(fnmatch.fnmatchcase(test, name) for test in tests):
                line = text.count("\n", 0, match.start()) + 1
                problems.append(f"{page.relative_to(ROOT)}:{line}: no test is called {name}")
        for at, name in same_names(text):
            line = text.count("\n", 0, at) + 1
            problems.append(f"{page.relative_to(ROOT)}:{line}: no test in tests/gotest is called {name}")
    for problem in problems:
        print(problem)
    print(f"check_cited: {count} citations of {len(tests)} tests, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
