#!/usr/bin/env python3
"""Checks that every example in the comments of the public headers is compiled by tests/api/header_examples*_test.cc.

An example is a block of code in a comment, indented by three spaces. Lists, tables and output are not code. Every header
must have an example in the comment at its head.

Each paragraph of an example must occur in a test; comments and white space may differ. An ellipsis in the header stands
for any code.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = {"gump.h", "net.h", "os.h", "sync.h", "time.h"}  # their heads list other headers
ELLIPSIS = re.compile(r"\.\.\.|…")
TOKEN = re.compile(r"\.\.\.|…|\w+|\S")
COMMENT = re.compile(r"\s*//( .*)?$")
# Indented text that is not code: the entry of a list, a message, a diagram; and a row of a table.
LIST = re.compile(r"[*|\"]")
ROW = re.compile(r"\S {2,}\S")


def is_code(block):
    first = re.sub(r"\s*//.*", "", block[0].strip()) or block[0].strip()
    return not LIST.match(first) and not ROW.search(first) and any(re.search(r"[;(]", line) for line in block)


def examples(text):
    """The blocks of code in the comments of text, each with the number of its first line and its lines without the //."""
    found = []
    block = []
    start = 0
    for number, line in enumerate(text.splitlines() + [""], 1):
        body = (COMMENT.match(line).group(1) or "") if COMMENT.match(line) else None
        begins = body and re.match(r" {3}\S", body)
        goes_on = block and body is not None and (body == "" or body.startswith("   "))
        if begins or goes_on:
            start = start if block else number
            block.append(body)
            continue
        if block and is_code(block):
            found.append((start, block))
        block = []
    return found


def head(text):
    """The number of lines of the comment before the include guard."""
    return next((n for n, line in enumerate(text.splitlines()) if not line.startswith("//")), 0)


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
    headers = sorted(p for p in (ROOT / "api/include/gump").rglob("*.h")
                     if p.name not in PACKAGES and p.parent.name != "internal")
    count = 0
    for header in headers:
        text = header.read_text()
        found = examples(text)
        name = header.relative_to(ROOT)
        count += len(found)
        if not found or found[0][0] > head(text):
            problems.append(f"{name}: no example in the comment at its head")
        for line, example in found:
            for paragraph in paragraphs(example):
                if not any(pattern(paragraph).search(test) for test in compiled):
                    problems.append(f"{name}:{line}: in no tests/api/header_examples*_test.cc:\n{paragraph}")
    for problem in problems:
        print(problem)
    print(f"check_examples: {len(headers)} headers, {count} examples, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
