#!/usr/bin/env python3
"""Runs one program of a page and compares how it ends with what the page says.

    run.py [--skip TEXT] EXPECTED PROGRAM COMMAND...

EXPECTED is expected.json of extract.py, COMMAND the page's executable. A program with TEXT in its output is skipped: 77.
"""

import argparse
import difflib
import json
import re
import subprocess
import sys


def begins(output, expected):
    """Returns whether output begins as expected. A line "..." stands for any lines, a goroutine's number for any number."""
    output, expected = (re.sub(r"\bgoroutine \d+", "goroutine N", text) for text in (output, expected))
    parts = re.split(r"^\.\.\.\n", expected, flags=re.M)
    return re.match("[\\s\\S]*?".join(re.escape(p) for p in parts), output) is not None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--skip")
    parser.add_argument("expected")
    parser.add_argument("program")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    with open(arguments.expected, encoding="utf-8") as f:
        expected = json.load(f)[arguments.program]
    if arguments.skip and arguments.skip in (expected["output"] or ""):
        return 77
    end = subprocess.run(arguments.command + [arguments.program], capture_output=True, text=True)
    if expected["exit"] == 0:
        output = end.stdout
        good = expected["output"] in (None, output)
    else:
        output = end.stdout + end.stderr
        good = begins(output, expected["output"])
    if good and end.returncode == expected["exit"]:
        return 0
    print(f"exit code {end.returncode}, expected {expected['exit']}")
    if expected["output"] is not None:
        sys.stdout.writelines(difflib.unified_diff(
            expected["output"].splitlines(True), output.splitlines(True), "the page", "the program"))
    print(end.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
