#!/usr/bin/env python3
"""Checks that every source is named in its CMake list, that no file is too long, and that no "using x::name;" is unused.

A test that exists and is not built never runs. Sources are listed by hand, so this program compares the lists with the
files.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("runtime", "netpoll", "sysmon", "api", "tests", "docs/examples", "tools")
LISTED = {".cc", ".S"}  # a header is listed only where CMake installs it
CODE = {".cc", ".h", ".S", ".py"}
MAX_LINES = 900


def listing_of(path):
    """The CMakeLists.txt that lists path: the one in its folder, or in the nearest folder above."""
    for folder in path.parents:
        if (folder / "CMakeLists.txt").exists():
            return folder / "CMakeLists.txt"
    raise AssertionError(path)


def is_named(path, listing):
    text = re.sub(r"#.*", "", listing.read_text())
    names = set(re.findall(r"[\w./+-]+", text))
    name = path.relative_to(listing.parent)
    # A test or an example is listed by its stem, a benchmark by its folder.
    return not names.isdisjoint({str(name), str(name.with_suffix("")), str(name.parent)} - {"."})


def unused_names(path):
    """The names that a "using x::name;" brings in and that are not used."""
    text = re.sub(r'^#include.*|"(?:\\.|[^"\\\n])*"|//.*', "", path.read_text(), flags=re.M)
    return [n for n in re.findall(r"^using [\w:]+::(\w+);", text, re.M) if len(re.findall(rf"\b{n}\b", text)) == 1]


def main():
    problems = []
    files = [p for f in FOLDERS for p in sorted((ROOT / f).rglob("*")) if p.is_file() and p.suffix in CODE]
    for path in files:
        listing = listing_of(path)
        installed = "include" in path.parts and path.suffix == ".h"
        if (path.suffix in LISTED or installed) and not is_named(path, listing):
            problems.append(f"{path.relative_to(ROOT)}: not in {listing.relative_to(ROOT)}")
        if path.suffix == ".cc":
            problems += [f"{path.relative_to(ROOT)}: using {name} is unused" for name in unused_names(path)]
        lines = path.read_bytes().count(b"\n")
        if lines > MAX_LINES:
            problems.append(f"{path.relative_to(ROOT)}: {lines} lines, the limit is {MAX_LINES}")
    for problem in problems:
        print(problem)
    print(f"check_sources: {len(files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
