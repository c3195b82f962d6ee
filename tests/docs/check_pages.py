#!/usr/bin/env python3
"""Holds the blocks of the pages for users to the programs beside them.

    check_pages.py [-i] PAGE...     -i: format the programs

* A cpp block without main is a fragment of a program on the same page. Its lines stand there in a row, except that a line
  "// ..." stands for any lines. A block that shows a mistake is marked "```cpp wrong" and is not compared. A fragment of
  an example is marked with its file: "```cpp docs/examples/pubsub.cc".
* A program is formatted as clang-format formats it, if that is installed.
* The word after ``` is spelt as extract.py expects it.
* The table "If you know Go" of README.md: each piece of code of its right column is in know_go_test.cc. There, "..." of the
  page is any code.
"""

import argparse
import re
import shutil
import subprocess
import sys

from extract import MAIN, ROOT, blocks

# Blocks that look like ours must be spelt exactly, or the tests would pass them over.
OURS = re.compile(r"(?i)(cc|cpp|cxx|text|txt)\b|c\+\+")
EXAMPLE = re.compile(r"cpp (docs/examples/[a-z0-9_/]+\.cc)")
SPELT = re.compile(rf"cpp|cpp wrong|{EXAMPLE.pattern}|text|text exit=\d+")


def lines_of(code):
    return [line.strip() for line in code.split("\n") if line.strip()]


def stretches(fragment):
    """The parts of a fragment between lines "// ..."."""
    parts = [[]]
    for line in lines_of(fragment):
        if line == "// ...":
            parts.append([])
        else:
            parts[-1].append(line)
    return [p for p in parts if p]


def is_part(fragment, program):
    """Returns whether the stretches of the fragment stand in the program, one after the other."""
    at = 0
    for part in stretches(fragment):
        starts = [i for i in range(at, len(program) - len(part) + 1) if program[i:i + len(part)] == part]
        if not starts:
            return False
        at = starts[0] + len(part)
    return True


def formatted(program):
    style = ["clang-format", "--assume-filename", str(ROOT / "docs/program.cc")]
    return subprocess.run(style, input=program, capture_output=True, text=True, check=True).stdout


def cells_that_no_test_has(text):
    """(line, code) for each piece of code in the right column of the table "If you know Go" that the test does not have."""
    program = "".join((ROOT / "tests/docs/know_go_test.cc").read_text().split())
    start = text.index("\n| Go | here |\n") + 1
    for number, row in enumerate(text[start:].split("\n\n")[0].split("\n")[2:], text.count("\n", 0, start) + 3):
        for code in re.findall(r"`([^`]+)`", row.strip("|").rsplit(" | ", 1)[1]):
            if not re.search(".+?".join(map(re.escape, "".join(code.split()).split("..."))), program):
                yield number, code


def first_difference(a, b):
    pairs = zip(a.split("\n"), b.split("\n"))
    return next((i for i, (x, y) in enumerate(pairs, 1) if x != y), 1)


def problems(page, mend):
    text = page.read_text()
    found = [b for b in blocks(text) if b is not None]
    complete = [b for b in found if b.info == "cpp" and MAIN.search(b.text)]
    programs = [lines_of(b.text) for b in complete]
    for block in found:
        if OURS.match(block.info) and not SPELT.fullmatch(block.info):
            yield block.line, f"not understood: ```{block.info}"
        elif block.info == "cpp" and block not in complete and not any(is_part(block.text, p) for p in programs):
            yield block.line, "no program on the page has these lines"
        elif example := EXAMPLE.fullmatch(block.info):
            path = ROOT / example[1]
            if not path.exists() or not is_part(block.text, lines_of(path.read_text())):
                yield block.line, f"{example[1]} does not have these lines"
    if page.name == "README.md":
        for line, code in cells_that_no_test_has(text):
            yield line, f"tests/docs/know_go_test.cc does not have {code}"
    if not shutil.which("clang-format"):
        return
    for block in complete:
        better = formatted(block.text)
        if better != block.text and mend:
            text = text.replace(block.text, better)
        elif better != block.text:
            yield block.line + first_difference(block.text, better), "clang-format would change this"
    if mend:
        page.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-i", action="store_true")
    parser.add_argument("pages", nargs="+")
    arguments = parser.parse_args()
    bad = 0
    for name in arguments.pages:
        for line, problem in problems(ROOT / name, arguments.i):
            print(f"{name}:{line}: {problem}")
            bad += 1
    print(f"check_pages: {len(arguments.pages)} pages, {bad} problems")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
