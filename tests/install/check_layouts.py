#!/usr/bin/env python3
"""check_layouts.py [--write] WORK COMPILER...: compares the layouts of the classes in the public headers with layouts.txt.

Programs contain inline functions of the headers, so the size of a class and the offsets of its fields are a part of the
ABI (docs/versions.md). layouts.txt, beside this file, lists them, with virtual functions in their order and the values of
enumerations. Internal classes are in the list as well: inline functions use them. Each compiler compiles layouts.cc, and
gdb reads the debug information. `--write` writes the list anew, of the classes that all the compilers describe, and then
compares. The folder WORK gets the objects. Exit code 77: gdb is not installed.

A template has no layout of its own, so the list has only those that layouts.cc names, and the classes within them. Clang
does not describe the alignment that a member asks for, so the alignments of classes are those of g++.
"""

import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIST = HERE / "layouts.txt"
SKIPPED = 77


# ---- In gdb


def print_layouts():
    """Prints the layout of each class, with an empty line behind it. gdb runs this file, and has the module gdb."""
    import gdb

    classes = (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION)
    found, seen = {}, set()

    def plain(t):
        """The class of an object, of the elements of an array, or of what a pointer points to."""
        t = t.strip_typedefs().unqualified()
        while t.code in (gdb.TYPE_CODE_ARRAY, gdb.TYPE_CODE_PTR, gdb.TYPE_CODE_REF):
            t = t.target().strip_typedefs().unqualified()
        return t

    def spelled(name):
        """Returns the name without default arguments of templates: in a name within another, g++ omits them and clang does not."""
        return re.sub(r", absl::[\w:]*Hash<(\w+)>, std::equal_to<\1> ?>", ">", name)

    def visit(t):
        t = plain(t)
        name = t.name
        if t.code not in (*classes, gdb.TYPE_CODE_ENUM) or not name or name in seen:
            return
        seen.add(name)
        for i in range(name.count(",") + 1 if name.endswith(">") else 0):  # what a std::unique_ptr points to, and the like
            try:
                argument = t.template_argument(i)
            except (gdb.error, RuntimeError):  # there are fewer
                break
            if isinstance(argument, gdb.Type):
                visit(argument)
        if not name.startswith("gump::") or t.sizeof == 0:  # the size of a class that is only declared is 0
            return
        described = name
        name = spelled(name)
        if t.code == gdb.TYPE_CODE_ENUM:
            found[name] = [f"enum {name} size {t.sizeof}", *(f"  {f.enumval} {f.name.split('::')[-1]}" for f in t.fields())]
            return
        fields = [f for f in t.fields() if hasattr(f, "bitpos")]  # static ones have none
        lines = found[name] = [f"{name} size {t.sizeof} align {t.alignof}"]
        for f in sorted(fields, key=lambda f: f.bitpos):
            bit = f":{f.bitpos % 8}" if f.bitsize else ""
            base = f"base {spelled(f.type.name)}" if f.is_base_class else None
            what = base or ("vptr" if (f.name or "").startswith("_vptr") else f.name)
            size = f"{f.bitsize} bits" if f.bitsize else f.type.sizeof
            lines.append(f"  {f.bitpos // 8}{bit} {what or 'unnamed'} ({size})")
        body = gdb.execute(f"ptype '{described}'", to_string=True) if any("vptr" in line for line in lines) else ""
        lines += [f"  virtual {v}" for v in re.findall(r"^ +virtual [^~]*?(\w+)\(", body, re.M)]
        for f in fields:
            visit(f.type)

    for line in gdb.execute("info types -q ^gump::", to_string=True).splitlines():
        listed = re.fullmatch(r"\d+:\t(?:enum )?(gump::[\w:]+);", line)
        if listed and "typedef" not in line:
            try:
                visit(gdb.lookup_type(listed[1]))
            except gdb.error:  # a namespace, or a class that is only declared
                pass
    for f in gdb.lookup_type("Templates").fields():
        visit(f.type)
    for name in sorted(found):
        print("\n".join(found[name]) + "\n")


# ---- Outside of gdb


def layouts(compiler, work):
    """Whether the compiler is clang, and {name: text} of the classes, as it describes them."""
    macros = subprocess.run([compiler, "-dM", "-E", "-x", "c++", "/dev/null"], capture_output=True, text=True, check=True).stdout
    clang = "__clang__" in macros
    # A compiler describes by itself only what a source uses, and a class with virtual functions only where its first is.
    describe = ["-fstandalone-debug", "-fno-eliminate-unused-debug-types"]
    if not clang:
        describe = ["-femit-class-debug-always", "-fno-eliminate-unused-debug-types"]
    objects = work / f"layouts-{pathlib.Path(compiler).name}.o"
    includes = [f"-I{ROOT / folder}" for folder in ("api/include", "runtime/include")]
    subprocess.run([compiler, "-std=c++20", "-g", *describe, *includes, "-c", HERE / "layouts.cc", "-o", objects], check=True)
    command = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", objects, "-x", __file__]
    out = subprocess.run(command, env=os.environ | {"GUMP_LAYOUTS_IN_GDB": "1"}, capture_output=True, text=True)
    if out.returncode != 0 or not out.stdout:
        sys.exit(f"gdb does not describe {objects}: {out.stderr}")
    return clang, parse(out.stdout)


def parse(text):
    """{name: text} of classes with an empty line between them."""
    return {re.match(r"(?:enum )?(.*?) size", one)[1]: one for one in text.strip().split("\n\n")}


def render(classes, names, alignments):
    text = "\n\n".join(classes[name] for name in sorted(names) if name in classes)
    return text if alignments else re.sub(r" align \d+$", "", text, flags=re.M)


def main():
    write = "--write" in sys.argv
    work, *compilers = [a for a in sys.argv[1:] if a != "--write"]
    if not shutil.which("gdb"):
        print("skipped: gdb is not installed")
        return SKIPPED
    work = pathlib.Path(work)
    work.mkdir(parents=True, exist_ok=True)
    seen = [(c, *layouts(c, work)) for c in dict.fromkeys(compilers) if shutil.which(c)]
    common = set.intersection(*(set(classes) for _, _, classes in seen))
    if write:
        classes = next((classes for _, clang, classes in seen if not clang), None)
        if classes is None:
            sys.exit("the list needs the alignments that g++ describes: name a g++")
        LIST.write_text(render(classes, common, True) + "\n")
    kept = parse(LIST.read_text())
    bad = 0
    for compiler, clang, classes in seen:
        names = kept.keys() | common
        changes = list(difflib.unified_diff(render(kept, names, not clang).splitlines(),
                                            render(classes, names, not clang).splitlines(),
                                            "layouts.txt", compiler, lineterm="", n=3))
        print("\n".join(changes) if changes else f"{compiler}: {len(kept)} classes as in layouts.txt")
        bad += bool(changes)
    if bad:
        print("Layouts have changed. If that is intended: tools/gump symbols, and see docs/versions.md.")
    return 1 if bad else 0


if "GUMP_LAYOUTS_IN_GDB" in os.environ:
    print_layouts()
else:
    sys.exit(main())
