#!/usr/bin/env python3
"""The short way of a switch saves no registers: check_switch_code.py LIBRARY.

directNext (proc_next.cc) contains only the usual case, and ends with a jump to another function in all others. If it calls
one function and goes on, it must save registers in each switch, which costs 4 % of a yield with one P. This happens if a
function that it uses is no longer inlined. So this reads the disassembly of an optimised x86-64 library.
"""

import re
import subprocess
import sys

FUNCTION = "gump::rt::directNext(gump::rt::M*)"


def main():
    listing = subprocess.run(["objdump", "--disassemble", "--demangle", "--no-show-raw-insn", "--section=.text", sys.argv[1]],
                             check=True, capture_output=True, text=True).stdout
    found = re.search(rf"^[0-9a-f]+ <{re.escape(FUNCTION)}>:\n(.*?)(?:\n\n|\Z)", listing, re.M | re.S)
    if not found:
        sys.exit(f"check_switch_code: {sys.argv[1]} has no {FUNCTION}")
    code = found[1].split("\n")
    bad = [line.strip() for line in code if re.search(r"\t(call|push)\b", line)]
    for line in bad:
        print(f"check_switch_code: {FUNCTION}: {line}")
    print(f"check_switch_code: {len(code)} instructions, {len(bad)} of them save registers or call")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
