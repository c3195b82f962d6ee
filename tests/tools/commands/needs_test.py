#!/usr/bin/env python3
"""Runs commands of tools/gump where packages are missing, and looks at what they ask apt-get to install.

The programs of Debian that tools/gump calls are small scripts here. The one for apt-get records the packages and fails, so
the command ends there. Nothing is installed.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
LAST = "for package; do :; done"  # sets it to the last argument
SCRIPTS = {
    "apt-cache": f'{LAST}; grep -qx "$package" known && echo "Package: $package"',
    "apt-get": 'case " $* " in *" install "*) printf "%s\\n" "$@" >>asked; exit 1 ;; esac',
    "cmake": "exit 1",  # a command that needs nothing more builds nothing either
    "dpkg-query": f'{LAST}; grep -qx "$package" installed && echo "install ok installed"',
    "sudo": 'exec "$@"',
}


class Machine:
    """A machine with few packages."""

    def __init__(self, folder):
        self.folder = folder
        for name, script in SCRIPTS.items():
            (folder / name).write_text(f"#!/bin/sh\ncd {folder}\n{script}\n")
            (folder / name).chmod(0o755)

    def asked(self, *command, installed=(), known=()):
        """The packages that a command of tools/gump asks for, if these are installed and apt knows those."""
        for name, packages in (("installed", installed), ("known", known), ("asked", ())):
            (self.folder / name).write_text("".join(f"{p}\n" for p in packages))
        environment = os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        end = subprocess.run([ROOT / "tools/gump", *command], env=environment, capture_output=True, text=True, check=False)
        words = (self.folder / "asked").read_text().split()
        assert end.returncode != 0, f"{command}: it goes on:\n{end.stdout}{end.stderr}"
        return {w for w in words if w != "install" and not w.startswith("-")}


def claims(machine):
    """(claim, whether it holds)"""
    clean_root = {"mmdebstrap", "dpkg-dev", "debhelper", "lintian"}
    usual, full = machine.asked("test"), machine.asked("test", "--full")
    repeated = machine.asked("test", "--full", "--repeat", "2")
    yield "test --full needs what the tests in a clean root need", clean_root <= full and clean_root <= repeated
    yield "test needs less than test --full", usual < full and not clean_root & usual

    yield "test needs the packages of the examples that tests/docs runs", {"libasio-dev", "libglib2.0-dev", "libuv1-dev"} <= usual

    programs = machine.asked("matrix", "--programs")
    compilers = {f"{program}-{version}" for program in ("clang", "lld") for version in (15, 16, 19)}
    more = machine.asked("matrix", "--programs", installed=programs, known=compilers)
    yield "matrix --programs needs each compiler that apt knows, with its linker", more == compilers
    some = {"clang-16", "lld-16"}
    yield "matrix --programs asks for no other", machine.asked("matrix", "--programs", installed=programs, known=some) == some
    # Each package is built with it, and debian/control does not name it.
    yield "package needs build-essential", "build-essential" in machine.asked("package")


def main():
    with tempfile.TemporaryDirectory() as folder:
        made = list(claims(Machine(pathlib.Path(folder))))
    wrong = [claim for claim, holds in made if not holds]
    for claim in wrong:
        print(f"not so: {claim}")
    print(f"needs_test: {len(made)} claims, {len(wrong)} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
