#!/usr/bin/env python3
"""Compiles the public headers as programs with other flags than ours do.

A program may have any standard from C++20 on, no RTTI, a checking standard library, and warnings that are errors. Our
headers are ordinary headers for it, if it does not find them through the installed package. So this script compiles

  * one file that includes every public header and the consumers of tests/install, which instantiate the templates, with
    each set of flags, by each compiler;
  * the same file with flags that cannot work. The only error must say what is needed.

With --full it also compiles each header alone, with each single flag. With --refused it only tries flags that cannot
work, and one of them with each header alone. That takes seconds, because the compilers stop at the first error.

usage: check_flags.py [--full | --refused] [--jobs N] [COMPILER...]
"""

import argparse
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = ["-I", str(ROOT / "api/include"), "-I", str(ROOT / "runtime/include")]

# g++ 12 and clang++ 14 know C++23 as c++2b.
STANDARDS = ["-std=c++20", "-std=c++2b"]
WARNINGS = ("-Wall -Wextra -Wconversion -Wshadow -Wold-style-cast -Wsign-conversion -pedantic "
            "-Wnon-virtual-dtor -Woverloaded-virtual -Wnull-dereference -Wcast-align -Werror").split()
GCC_WARNINGS = WARNINGS + ["-Wuseless-cast", "-Wduplicated-cond", "-Wlogical-op", "-Wextra-semi"]
# What -Weverything says of every program: that it is not C++98, 14 or 17, and that structs have padding. Class templates
# of the standard library deduce their arguments without a deduction guide (std::scoped_lock). The vtable of a class whose
# functions are all inline is in every object file.
EVERYTHING = ["-Weverything", "-Werror"] + [
    f"-Wno-{w}" for w in ("c++98-compat", "c++98-compat-pedantic", "pre-c++14-compat", "pre-c++17-compat",
                          "pre-c++20-compat", "padded", "ctad-maybe-unsupported", "weak-vtables")]
# What it says of programs that are included.
OF_PROGRAMS = ["header-hygiene", "unused-macros", "global-constructors"]
DEBUG = ["-D_GLIBCXX_DEBUG"]
ASSERTIONS = ["-D_GLIBCXX_ASSERTIONS"]
NO_RTTI = ["-fno-rtti"]

STOP = "gump/internal/see_the_error_above.h"
CXX20 = "gumption needs C++20: compile with -std=c++20 or a later standard"
EXCEPTIONS = "gumption needs exceptions: compile without -fno-exceptions"
PLATFORM = "gumption needs Linux on x86-64 or AArch64, with 64-bit pointers"
OLD_GCC = "gumption needs g++ 12 or later: compile with g++-12"
OLD_CLANG = "gumption needs clang++ 14 or later: compile with clang++-14"
# Flags that cannot work, with the error that says so. Old compilers are only their macros here.
REFUSED = [(["-std=c++17"], CXX20), (["-std=c++20", "-fno-exceptions"], EXCEPTIONS)]
OLD = {False: (["-std=c++20", "-U__GNUC__", "-D__GNUC__=11"], OLD_GCC),
       True: (["-std=c++20", "-U__clang_major__", "-D__clang_major__=13"], OLD_CLANG)}
# Other systems and processors are only their macros, too. With these, the C library has errors of its own, so only the header
# with the check is compiled.
OTHERS = [["-U__linux__"], ["-U__x86_64__", "-U__aarch64__"], ["-D__ILP32__"]]
# A macro with the name of something in a header, and the one header that refuses it.
MACROS = [("defer", "defer(f)", "defer"), ("go", "go(f)", "go or blocking"), ("go", "blocking", "go or blocking"),
          ("chan", "chan", "chan or make_chan"), ("chan", "make_chan(n)", "chan or make_chan"),
          ("select", "select(a,b)", "select"), ("panic", "panic(x)", "panic"), ("gls", "gls", "gls")]


def is_clang(compiler):
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    return "clang" in version


def single_flags(clang):
    warnings = [WARNINGS, EVERYTHING] if clang else [GCC_WARNINGS]
    return [[], NO_RTTI, DEBUG, ASSERTIONS] + warnings


def flag_sets(clang):
    """The flags in as few sets as possible. _GLIBCXX_DEBUG includes the assertions."""
    warnings = WARNINGS if clang else GCC_WARNINGS
    return [warnings + NO_RTTI, warnings + DEBUG] + ([EVERYTHING + ASSERTIONS] if clang else [])


def public_headers():
    folder = ROOT / "api/include"
    return [h.relative_to(folder).as_posix() for h in sorted((folder / "gump").rglob("*.h")) if "internal" not in h.parts]


def include(header):
    """The line that includes a header. asio cannot be compiled without RTTI."""
    line = f"#include <{header}>"
    return f"#ifdef __cpp_rtti\n{line}\n#endif" if header == "gump/asio.h" else line


def everything():
    """The text of a file that includes every header, and instantiates their templates."""
    lines = [include(h) for h in public_headers()]
    lines += ["#ifdef __clang__", *[f'#pragma clang diagnostic ignored "-W{w}"' for w in OF_PROGRAMS], "#endif"]
    for program in sorted((ROOT / "tests/install").glob("consumer*.cc")):
        lines += [f"int {program.stem}_main();", f"#define main {program.stem}_main", f"#define Main {program.stem}_Main",
                  f'#include "{program}"', "#undef main", "#undef Main"]
    return "\n".join(lines) + "\n"


def run(command):
    return subprocess.run(command, capture_output=True, text=True)


def compiles(compiler, flags, name, path):
    """Returns the errors of a compilation, or ''."""
    result = run([compiler, "-fsyntax-only", "-D_GNU_SOURCE", *INCLUDE, *flags, str(path)])
    # A warning that is no error is about the flags themselves.
    if result.returncode == 0 and not result.stderr:
        return ""
    return f"{compiler} {' '.join(flags)} {name}:\n{result.stderr}"


def refuses(compiler, flags, header, text, path):
    """Returns what is wrong if the compiler does not stop at the error `text`."""
    result = run([compiler, "-fsyntax-only", *INCLUDE, *flags, str(path)])
    errors = re.findall(r"error: (.*)", result.stderr)
    if result.returncode != 0 and len(errors) == 2 and text in errors[0] and STOP in errors[1]:
        return ""
    return f"{compiler} {' '.join(flags)} {header}: expected only the error {text!r}:\n{result.stderr}"


def jobs_of(compilers, full, refused, folder):
    all_of_it = folder / "everything.cc"
    all_of_it.write_text(everything())
    platform = folder / "platform.cc"
    platform.write_text("#include <gump/internal/compiler.h>\n")
    alone = {}
    for header in public_headers():
        alone[header] = folder / (header.replace("/", "_") + ".cc")
        alone[header].write_text(f"{include(header)}\n")
    for compiler in compilers:
        clang = is_clang(compiler)
        for standard in STANDARDS if not refused else []:
            for flags in flag_sets(clang):
                yield compiles, compiler, [standard, *flags], "all headers", all_of_it
            for flags in single_flags(clang) if full else []:
                yield compiles, compiler, [standard, *flags], "all headers", all_of_it
                for header, path in alone.items():
                    yield compiles, compiler, [standard, *flags], header, path
        for flags, text in [*REFUSED, OLD[clang]]:
            yield refuses, compiler, flags, "all headers", text, all_of_it
            sample = refused and compiler == compilers[0] and (flags, text) == REFUSED[0]
            for header, path in alone.items() if full or sample else []:
                yield refuses, compiler, flags, header, text, path
        for flags in OTHERS:
            yield refuses, compiler, ["-std=c++20", *flags], "compiler.h", PLATFORM, platform
        for name, macro, names in MACROS:
            header = f"gump/{name}.h"
            text = f"{names} is a macro here: #undef it before {header}"
            yield refuses, compiler, ["-std=c++20", f"-D{macro}=other"], header, text, alone[header]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument("--full", action="store_true")
    how_much.add_argument("--refused", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("compilers", nargs="*", default=["g++", "clang++"])
    args = parser.parse_args()
    compilers = [c for c in args.compilers if shutil.which(c)]
    if not compilers:
        print("check_flags: no compiler")
        return 77
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        jobs = jobs_of(compilers, args.full, args.refused, pathlib.Path(folder))
        futures = [pool.submit(job[0], *job[1:]) for job in jobs]
        problems = [f.result() for f in futures]
    problems = [p for p in problems if p]
    for problem in problems:
        print(problem)
    print(f"check_flags: {len(futures)} compilations by {', '.join(compilers)}, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
