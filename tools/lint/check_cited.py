#!/usr/bin/env python3
"""Documents cite only tests that exist: `Suite.Name`, `Suite.Na*`, or `Suite.*`, in docs/, README.md and tools/gump.

A renamed test that a page still cites under its old name proves nothing to a reader.
"""

import fnmatch
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEST = re.compile(r"^\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\((\w+),\s*(\w+)\)", re.M)
CITED = re.compile(r"(?<![\w./*])(\w+Test)\.(\*?\w[\w*]*\*?|\*)(?!\w)(?!\.(?:cc|h|py)\b)")


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
    for problem in problems:
        print(problem)
    print(f"check_cited: {count} citations of {len(tests)} tests, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
