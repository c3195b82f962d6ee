#!/usr/bin/env python3
"""check_symbols.py [--write] LIBRARY: compares the names that libgump.so exports with symbols.txt, beside this file.

symbols.txt is what a program may be linked with, so each change of it is a change of the ABI (docs/versions.md). A name that
should not be there is one of a header: hide it, or move it. `--write` writes the file anew.

Code that compilers copy into each object is left out: functions of templates, and inline functions. So is the code of
the standard library and of Abseil.
"""

import difflib
import pathlib
import re
import subprocess
import sys

LIST = pathlib.Path(__file__).with_name("symbols.txt")
KINDS = "TDBRVi"  # functions and data; V is a vtable or the like, and W, an inline function, is not among them
DATA_OF_A_CLASS = re.compile(r"(?:vtable|typeinfo|typeinfo name|VTT) for ")


def exported(library):
    out = subprocess.run(["nm", "--dynamic", "--defined-only", "--demangle", library], capture_output=True, text=True,
                         check=True).stdout
    names = set()
    for line in out.splitlines():
        kind, name = line.split(maxsplit=1)[1].split(maxsplit=1)
        plain = DATA_OF_A_CLASS.sub("", name)
        if kind in KINDS and re.match(r"(?!std::|absl::|void absl::)", plain) and not (kind == "V" and "<" in plain):
            names.add(name)
    return sorted(names)


def main():
    write = "--write" in sys.argv
    (library,) = [a for a in sys.argv[1:] if a != "--write"]
    now = exported(library)
    if write:
        LIST.write_text("".join(f"{name}\n" for name in now))
        return 0
    kept = LIST.read_text().splitlines()
    changes = [line for line in difflib.unified_diff(kept, now, "symbols.txt", "libgump.so", lineterm="", n=0)]
    if not changes:
        return 0
    print("\n".join(changes))
    print(f"The exported names have changed. If that is intended: tools/gump symbols, and see docs/versions.md.")
    return 1


sys.exit(main())
