#!/usr/bin/env python3
"""find_package.py STATIC SHARED WORK: the installed CMake package does what docs/packages.md says of it.

STATIC and SHARED are prefixes with an installed library, as run.sh makes them. WORK/prefix gets both, as a machine has them
after an installation of the packages for Debian. Nothing is compiled but CMake's own tests of the compiler.
Exit code 77: a prefix is missing.
"""

import pathlib
import re
import shutil
import subprocess
import sys

STATIC, SHARED, WORK = (pathlib.Path(a).resolve() for a in sys.argv[1:])
SKIPPED = 77
BEGIN = "cmake_minimum_required(VERSION 3.24)\nproject(p LANGUAGES CXX)\n"
KIND = "get_target_property(type gump::gump TYPE)\nmessage(STATUS \"gump is a ${type}\")\n"


def configure(text, *options, prefix=WORK / "prefix"):
    """Configures a project with these lines, and returns the exit code and all that CMake prints, as one line."""
    project = WORK / "project"
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir()
    (project / "CMakeLists.txt").write_text(BEGIN + text)
    command = ["cmake", "-G", "Ninja", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={prefix}", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def with_version(version):
    """A prefix that claims to have another version."""
    prefix = WORK / version
    shutil.copytree(WORK / "prefix", prefix, symlinks=True)
    file = next(prefix.rglob("gumpConfigVersion.cmake"))
    text, count = re.subn(r'set\(PACKAGE_VERSION "[\d.]+"\)', f'set(PACKAGE_VERSION "{version}")', file.read_text())
    assert count == 1, file
    # The file has the parts of the version as well.
    text = re.sub(r'(?<=")\d+\.\d+\.\d+(?=")', version, text)
    file.write_text(text)
    return prefix


def cases():
    """(claim, lines of the project, options, prefix, exit code, what CMake prints)"""
    both = WORK / "prefix"
    header = next(both.rglob("gump/version.h")).read_text()
    major, minor, patch = (int(re.search(rf"^#define GUMP_VERSION_{p} (\d+)", header, re.M)[1]) for p in ("MAJOR", "MINOR", "PATCH"))
    # The first line of packages.md has the version that a program asks for.
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs/packages.md").read_text()
    asks = re.search(r"^ {4}(find_package\(gump .*\))$", page, re.M)[1] + "\n"
    later = with_version(f"{major}.{minor}.{patch + 9}")
    yield "the package has the version that packages.md asks for", asks, [], both, 0, ""
    yield "a later patch is accepted", asks, [], later, 0, ""
    yield "an earlier patch than the one asked for is refused", asks.replace(f"{minor} ", f"{minor}.{patch + 1} "), [], both, 1, \
        rf"compatible with requested version \"{major}\.{minor}\.{patch + 1}\""
    yield "the next minor version is refused", asks, [], with_version(f"{major}.{minor + 1}.0"), 1, \
        rf"compatible with requested version \"{major}\.{minor}\""

    find = "find_package(gump CONFIG REQUIRED)\n" + KIND
    yield "of both kinds, the shared library is the default", find, [], both, 0, "gump is a SHARED_LIBRARY"
    yield "BUILD_SHARED_LIBS=ON chooses the shared library", find, ["-DBUILD_SHARED_LIBS=ON"], both, 0, "gump is a SHARED_LIBRARY"
    yield "BUILD_SHARED_LIBS=OFF chooses the archive", find, ["-DBUILD_SHARED_LIBS=OFF"], both, 0, "gump is a STATIC_LIBRARY"
    yield "a component goes before BUILD_SHARED_LIBS", find.replace("REQUIRED", "REQUIRED COMPONENTS shared"), \
        ["-DBUILD_SHARED_LIBS=OFF"], both, 0, "gump is a SHARED_LIBRARY"
    for first, second in (("static", "shared"), ("shared", "static")):
        lines = "".join(f"find_package(gump CONFIG REQUIRED COMPONENTS {kind})\n" for kind in (first, second))
        yield f"after the component {first}, {second} is refused", lines, [], both, 1, \
            f"gump::gump is a {first.upper()}_LIBRARY already, and this asks for the component {second}"
        lines = lines.replace(second, first)
        yield f"the component {first} may be asked for again", lines, [], both, 0, ""


def main():
    if not STATIC.is_dir() or not SHARED.is_dir():
        print("skipped: the tests install/static and install/shared have not run")
        return SKIPPED
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    for prefix in (STATIC, SHARED):
        subprocess.run(["cp", "-a", f"{prefix}/.", WORK / "prefix"], check=True)
    count = bad = 0
    for claim, lines, options, prefix, expected, text in cases():
        count += 1
        code, said = configure(lines, *options, prefix=prefix)
        if code != expected or not re.search(text, said):
            bad += 1
            print(f"not so: {claim}: expected exit code {expected} and {text!r}; exit code {code}\n  {said}")
    print(f"find_package: {count} claims, {bad} problems")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
