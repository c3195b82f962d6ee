#!/usr/bin/env python3
"""Prints which lines of the library the tests have run: report.py [--lines] LIMIT FOLDER PROFDATA PROGRAM...

Prints a line for each source below FOLDER's runtime/, netpoll/, sysmon/ and api/. Fails if the tests have run less than
LIMIT per cent of the lines in runtime/, netpoll/ and sysmon/ together. With --lines it also prints every group of lines
that has not run, with its function.
"""

import argparse
import collections
import os
import pathlib
import shutil
import subprocess
import sys

COUNTED = ("runtime", "netpoll", "sysmon")
SHOWN = COUNTED + ("api",)


def tool(name):
    """The tool that belongs to clang++, because only the same version can read its profiles."""
    path = subprocess.run(["clang++", f"--print-prog-name={name}"], capture_output=True, text=True).stdout.strip()
    return path if shutil.which(path) else name


def demangled(names):
    if not names:
        return {}
    out = subprocess.run([tool("llvm-cxxfilt")], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return dict(zip(names, out.splitlines()))


class Source:
    def __init__(self):
        self.counts = {}  # line: how often it has run
        self.functions = []  # (line, mangled name)

    def missed(self):
        return sorted(line for line, count in self.counts.items() if count == 0)

    def groups(self):
        """Yields (first, last, mangled name) of each run of missed lines; a line without a count does not end a run."""
        begins = sorted(self.functions)
        lines = sorted(self.counts)
        group = []
        for line in lines:
            if self.counts[line] == 0:
                group.append(line)
            elif group:
                yield group[0], group[-1], owner(begins, group[0])
                group = []
        if group:
            yield group[0], group[-1], owner(begins, group[0])


def owner(begins, line):
    names = [name for begin, name in begins if begin <= line]
    return names[-1] if names else ""


def read(folder, profile, programs):
    """Sources by their path below folder, from what llvm-cov reports about all programs together."""
    command = [tool("llvm-cov"), "export", "-format=lcov", f"-instr-profile={profile}", programs[0]]
    for program in programs[1:]:
        command += ["-object", program]
    command.append("-ignore-filename-regex=/tests/|/docs/|^/usr/")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"llvm-cov: {done.stderr}")
    sources = collections.defaultdict(Source)
    for line in done.stdout.splitlines():
        key, _, value = line.partition(":")
        if key == "SF":
            source = sources[os.path.relpath(value, folder)]
        elif key == "FN":
            begin, name = value.split(",", 1)
            source.functions.append((int(begin), name.rpartition(":")[2]))
        elif key == "DA":
            number, count = map(int, value.split(",")[:2])
            source.counts[number] = max(count, source.counts.get(number, 0))
    return sources


def row(name, lines, missed):
    percent = 100 * (lines - missed) / lines if lines else 100
    print(f"{name:<40} {lines:6} {missed:6} {percent:6.1f} %")
    return percent


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", action="store_true", help="print the lines that have not run")
    parser.add_argument("limit", type=float)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("profile")
    parser.add_argument("programs", nargs="+")
    args = parser.parse_args()
    sources = read(args.folder.resolve(), args.profile, args.programs)
    if args.lines:
        names = demangled(sorted({n for s in sources.values() for _, _, n in s.groups() if n}))
        for path, source in sorted(sources.items()):
            for first, last, name in source.groups():
                print(f"{path}:{first}-{last}: {names.get(name, name)}")
    print(f"{'file':<40} {'lines':>6} {'missed':>6}    run")
    total = [0, 0]
    for folder in SHOWN:
        sums = [0, 0]
        for path, source in sorted(sources.items()):
            if path.startswith(folder + "/"):
                row(path, len(source.counts), len(source.missed()))
                sums[0] += len(source.counts)
                sums[1] += len(source.missed())
        row(folder + "/", *sums)
        if folder in COUNTED:
            total = [a + b for a, b in zip(total, sums)]
    percent = row(", ".join(COUNTED), *total)
    if percent < args.limit:
        print(f"less than {args.limit:g} % has run")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
