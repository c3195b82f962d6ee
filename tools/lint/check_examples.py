#!/usr/bin/env python3
"""Holds the example at the head of each public header against tests/api/header_examples*_test.cc, where it is compiled.

The example is the first indented block of the header's leading comment. Each of its paragraphs has to stand in a test,
but for comments and white space; an ellipsis in the header stands for anything.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
UMBRELLAS = {"gump.h", "sync.h"}
ELLIPSIS = re.compile(r"\.\.\.|…")
TOKEN = re.compile(r"\.\.\.|…|\w+|\S")


def leading_example(text):
    """The lines of the first block that is indented by three spaces in the comment before the include guard."""
    block = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        if line.startswith("//   ") or (block and line == "//"):
            block.append(line[2:])
        elif block:
            break
    return block


def paragraphs(lines):
    return [p for p in "\n".join(lines).split("\n\n") if p.strip()]


def tokens(code):
    """The words and signs of code, without its comments."""
    return TOKEN.findall(re.sub(r"(?m)(^|\s)//.*$", "", code))


def pattern(paragraph):
    parts = [".*?" if ELLIPSIS.fullmatch(t) else re.escape(t) for t in tokens(paragraph)]
    return re.compile(" ".join(parts).replace(" .*? ", " (?:[^\n]*? )??"), re.DOTALL)


def main():
    tests = sorted((ROOT / "tests/api").glob("header_examples*_test.cc"))
    compiled = [" ".join(tokens(path.read_text())) for path in tests]
    problems = []
    headers = sorted(p for p in (ROOT / "api/include/gump").glob("*.h") if p.name not in UMBRELLAS)
    for header in headers:
        example = leading_example(header.read_text())
        name = header.relative_to(ROOT)
        if not example:
            problems.append(f"{name}: no example in the comment at its head")
        for paragraph in paragraphs(example):
            if not any(pattern(paragraph).search(text) for text in compiled):
                problems.append(f"{name}: in no tests/api/header_examples*_test.cc:\n{paragraph}")
    for problem in problems:
        print(problem)
    print(f"check_examples: {len(headers)} headers, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
