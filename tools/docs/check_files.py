#!/usr/bin/env python3
"""Compares the tables of docs/architecture.md with the folders that they describe.

Below a heading that is the name of a folder, the first column of a table has the sources of that folder. There, `proc`
stands for proc.cc and proc.h, and `proc_m*` for all names that begin so. `sync/mutex` is a source further down. Every
source must be in its table, and every name must have a source.
"""

import fnmatch
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
SOURCES = {".cc", ".h", ".S"}


def tables(text):
    """(folder, names) of each table."""
    for section in re.split(r"^### ", text, flags=re.M)[1:]:
        folder, body = section.split("\n", 1)
        cells = re.findall(r"^\|([^|]*)\|", re.split(r"^#", body, flags=re.M)[0], re.M)
        yield folder.strip(), [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def main():
    problems = []
    count = 0
    for folder, names in tables(PAGE.read_text()):
        files = {str(p.relative_to(ROOT / folder).with_suffix("")) for p in (ROOT / folder).rglob("*")
                 if p.suffix in SOURCES and "include" not in p.relative_to(ROOT / folder).parts}
        count += len(files)
        for name in names:
            if not fnmatch.filter(files, name):
                problems.append(f"{PAGE.name}: {folder} has no {name}")
        for file in sorted(files):
            if not any(fnmatch.fnmatch(file, name) for name in names):
                problems.append(f"{PAGE.name}: the table of {folder} lacks {file}")
    for problem in problems:
        print(problem)
    print(f"check_files: {count} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
