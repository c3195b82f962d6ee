#!/usr/bin/env python3
"""What the library needs is missing, and CMake ends with one error that says what to install or to change.

    refusals.py SOURCE CXX WORK

Nothing is compiled but CMake's own tests of the compiler. An old compiler is a script that calls CXX and gives it the
version macros of an old one. The other cases hide a package from CMake, or name another system. find_package is tested
with the file that the installation gets. tests/flags has the same for the headers.
"""

import json
import pathlib
import re
import shutil
import stat
import subprocess
import sys

SOURCE, CXX, WORK = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
NOT_LINKED = "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY"  # a compiler that cannot link for the other system will do
LIBRARIES = "/usr/lib;/usr/lib/x86_64-linux-gnu;/usr/lib/aarch64-linux-gnu"
IGNORED = f"-DCMAKE_IGNORE_PATH={LIBRARIES};{LIBRARIES.replace('/usr', '')}"
# The parts of a project that uses the library.
BEGIN = "cmake_minimum_required(VERSION 3.18)\nproject(p LANGUAGES CXX)"
FIND = "find_package(gump CONFIG REQUIRED)"


def old(name, compiler, macros):
    """A compiler that says that it is an old one."""
    path = WORK / name
    path.write_text(f'#!/bin/sh\nexec {shutil.which(compiler)} {macros} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"-DCMAKE_CXX_COMPILER={path}"


def is_tested(compiler):
    """Whether versions.md has this compiler in the row of the library."""
    macros = subprocess.run([compiler, "-dM", "-E", "-x", "c++", "/dev/null"], capture_output=True, text=True, check=True).stdout
    clang = re.search(r"^#define __clang_major__ (\d+)", macros, re.M)
    return clang[1] == "14" if clang else "#define __GNUC__ 12\n" in macros


def configure(source, *options):
    """Returns the exit code of CMake, and its errors, each as one line."""
    folder = WORK / "build"
    shutil.rmtree(folder, ignore_errors=True)
    command = ["cmake", "-G", "Ninja", "-S", source, "-B", folder, "-DGUMP_BUILD_TESTS=OFF", "-DGUMP_BUILD_EXAMPLES=OFF"]
    if not any(o.startswith("-DCMAKE_CXX_COMPILER") for o in options):
        command.append(f"-DCMAKE_CXX_COMPILER={CXX}")
    done = subprocess.run([*command, *options], capture_output=True, text=True)
    texts = re.split(r"^CMake Error.*\n", done.stderr, flags=re.M)[1:]
    # The message ends where the list of callers begins.
    return done.returncode, [" ".join(re.split(r"^Call Stack|^-- ", t, flags=re.M)[0].split()) for t in texts]


def installed_config():
    """A project that finds the installed package, which has no targets yet: Abseil is looked for before them."""
    package, project = WORK / "package", WORK / "project"
    package.mkdir()
    project.mkdir()
    shutil.copy(SOURCE / "tools/package/gumpConfig.cmake", package)
    (package / "gump-static-targets.cmake").write_text("add_library(gump::gump STATIC IMPORTED)\n")
    (project / "CMakeLists.txt").write_text(f"{BEGIN}\n{FIND}\n")
    return project, f"-Dgump_DIR={package}"


def old_cmake(name, before, text):
    """A project that this CMake reads, from some line on, as if it were an older one."""
    folder = WORK / name
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(f"{before}\nset(CMAKE_VERSION 3.18.4)\n{text}\n")
    return folder


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    project, package = installed_config()
    no_absl = "-DCMAKE_DISABLE_FIND_PACKAGE_absl=ON"
    cases = [
        ("no Abseil", SOURCE, [no_absl], "gumption needs Abseil, .* libabsl-dev"),
        ("no liburing", SOURCE, [IGNORED], "gumption needs liburing, .* liburing-dev"),
        ("g++ 11", SOURCE, [old("old_g++", "g++", "-U__GNUC__ -D__GNUC__=11")],
         r"gumption needs g\+\+ 12 or later, and this is g\+\+ 11\..* -DCMAKE_CXX_COMPILER=g\+\+-12"),
        ("FreeBSD", SOURCE, ["-DCMAKE_SYSTEM_NAME=FreeBSD", NOT_LINKED],
         "gumption runs on Linux, and this build is for FreeBSD"),
        ("RISC-V", SOURCE, ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=riscv64", NOT_LINKED],
         "gumption runs on x86-64 and AArch64 .* riscv64 with 64-bit pointers"),
        ("an old CMake", old_cmake("old_cmake", "", f"include({SOURCE}/CMakeLists.txt)"), [],
         r"gumption needs CMake 3\.24 or later, and this is CMake 3\.18\.4\. Install a later one"),
        ("a project with an old CMake", old_cmake("old_project", BEGIN, FIND), [package],
         r"gump needs CMake 3\.24 or later, and this is CMake 3\.18\.4\. Install a later one"),
        ("a project without Abseil", project, [package, no_absl], "gump needs Abseil, .* libabsl-dev"),
        ("a project without liburing", project, [package, IGNORED], "gump needs liburing, .* liburing-dev"),
    ]
    if shutil.which("clang++"):
        compiler = old("old_clang++", "clang++", "-U__clang_major__ -D__clang_major__=13")
        cases.append(("clang++ 13", SOURCE, [compiler], r"gumption needs clang\+\+ 14 or later, and this is clang\+\+ 13\."))
    if subprocess.run([CXX, "-m32", "-fsyntax-only", "-x", "c++", "/dev/null"], capture_output=True).returncode == 0:
        small = ["-DCMAKE_CXX_FLAGS=-m32", "-DCMAKE_ASM_FLAGS=-m32", NOT_LINKED]
        cases.append(("32 bits", SOURCE, small, "with 32-bit pointers"))
    bad = 0
    for name, source, options, text in cases:
        code, errors = configure(source, *options)
        if code == 0 or len(errors) != 1 or not re.search(text, errors[0]):
            bad += 1
            print(f"{name}: expected one error like {text!r}; exit code {code}")
            print("\n".join(f"  {e}" for e in errors))
    # The flags of a library with a sanitizer reach the programs that find it.
    code, errors = configure(SOURCE, "-DGUMP_SANITIZE=thread")
    exported = [p.read_text() for p in (WORK / "build").glob("CMakeFiles/Export/**/gump-static-targets.cmake")]
    for of in ("COMPILE", "LINK"):
        if not any(re.search(rf'INTERFACE_{of}_OPTIONS "[^"]*-fsanitize=thread', text) for text in exported):
            bad += 1
            print(f"a library with ThreadSanitizer does not give its {of} option to programs; exit code {code}, {errors}")
    for module in ("gump", "gump-static"):
        file = WORK / "build" / f"{module}.pc"
        for of in ("Cflags", "Libs"):
            if not re.search(rf"^{of}: .* -fsanitize=thread( |$)", file.read_text(), re.M):
                bad += 1
                print(f"{file.name} of a library with ThreadSanitizer does not have its option in {of}")
    # A warning of a compiler that the tests do not use, or of the user's own flags, stops no build of the preset release.
    newer = [old("newer_g++", "g++", "-U__GNUC__ -D__GNUC__=99")]
    for what, options, expected in [(CXX, [], is_tested(CXX)), ("a newer g++", newer, False),
                                    (f"{CXX} with flags", ["-DCMAKE_CXX_FLAGS=-Weffc++"], False)]:
        code, errors = configure(SOURCE, *options, "-DGUMP_WERROR=TESTED", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
        strict = [" -Werror " in c["command"] for c in json.loads((WORK / "build/compile_commands.json").read_text())
                  if c["file"].startswith(f"{SOURCE}/runtime/") and c["file"].endswith(".cc")]
        if code != 0 or not strict or set(strict) != {expected}:
            bad += 1
            print(f"{what}: {sum(strict)} of {len(strict)} sources have -Werror; exit code {code}, {errors}")
    if "sanitize" in (WORK / "build/gump.pc").read_text():
        bad += 1
        print("gump.pc of a library without a sanitizer names one")
    print(f"refusals: {len(cases) + 7} cases, {bad} problems")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
