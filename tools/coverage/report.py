#!/usr/bin/env python3
"""Prints which lines of the library the tests have run.

    report.py [--lines | --table] LIMIT FOLDER PROFDATA PROGRAM...
    report.py --check FOLDER

Prints a line for each source below FOLDER's runtime/, netpoll/, sysmon/ and api/. Fails if the tests have run less than
LIMIT per cent of the lines in runtime/, netpoll/ and sysmon/ together.

* --lines also prints every group of lines that has not run, with its function.
* --table prints a table in Markdown instead: the functions of runtime/, netpoll/ and sysmon/ that have such lines, each
  with its reasons from reasons.txt.
* --check needs no run. It fails if reasons.txt names a file or a function that FOLDER does not have.
"""

import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys

COUNTED = ("runtime", "netpoll", "sysmon")
SHOWN = COUNTED + ("api",)
REASONS = pathlib.Path(__file__).with_name("reasons.txt")
CLASSES = "abcdef"  # docs/coverage.md explains them


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
        """Yields (first, last, mangled name) of each run of missed lines in one function.

        A line without a count does not end a run.
        """
        begins = sorted(self.functions)
        group, name = [], ""
        for line in sorted(self.counts):
            missed = self.counts[line] == 0
            if group and not (missed and owner(begins, line) == name):
                yield group[0], group[-1], name
                group = []
            if missed:
                name = owner(begins, line)
                group.append(line)
        if group:
            yield group[0], group[-1], name


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
    return parse(folder, done.stdout)


def parse(folder, lcov):
    """Sources by their path below folder, from a report in lcov's format."""
    sources = collections.defaultdict(Source)
    for line in lcov.splitlines():
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


class Reason(collections.namedtuple("Reason", "path function kind text")):
    """Why lines of a function are not run, as a row of reasons.txt tells it."""

    def explains(self, path, name):
        """Returns true if this is a reason for the function with the demangled name."""
        return path == self.path and f"::{plain(name)}".endswith(f"::{self.function}")


def reasons(text):
    rows = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [Reason(*(cell.strip() for cell in row.split("|", 3))) for row in rows]


def plain(name):
    """A demangled name without its return type, its parameters and the arguments of templates."""
    name = name.replace("(anonymous namespace)::", "")
    while (shorter := re.sub(r"<[^<>]*>", "", name)) != name:
        name = shorter
    return name.partition("(")[0].rpartition(" ")[2]


def table(sources, names, why):
    """Yields the lines of the table in Markdown, and then the reasons whose functions have run."""
    missed = collections.defaultdict(list)  # (path, demangled name): groups of lines
    for path, source in sources.items():
        if path.split("/")[0] in COUNTED:
            for first, last, name in source.groups():
                missed[path, names.get(name, name)].append(f"{first}-{last}" if last > first else f"{first}")
    yield "| file | function | lines | why they have not run |"
    yield "|---|---|---|---|"
    for (path, name), groups in sorted(missed.items()):
        found = [r for r in why if r.explains(path, name)]
        text = " ".join(f"({r.kind}) {r.text}" for r in found) or "No reason is known."
        yield f"| `{path}` | `{found[0].function if found else plain(name)}` | {', '.join(groups)} | {text} |"
    for r in why:
        if not any(r.explains(path, name) for path, name in missed):
            yield f"Has run: `{r.path}`, `{r.function}`: ({r.kind}) {r.text}"


def stale(folder, why):
    """Yields what is wrong with the reasons: a class, file or function that does not exist."""
    for r in why:
        path = folder / r.path
        if r.kind not in CLASSES:
            yield f"{r.path}, {r.function}: there is no class ({r.kind})"
        if not path.is_file():
            yield f"{r.path}: there is no such file"
        elif not re.search(rf"\b{r.function.rpartition(':')[2]}\b", path.read_text()):
            yield f"{r.path}: there is no {r.function}"


def row(name, lines, missed):
    percent = 100 * (lines - missed) / lines if lines else 100
    print(f"{name:<40} {lines:6} {missed:6} {percent:6.1f} %")
    return percent


def check(folder):
    problems = list(stale(folder, reasons(REASONS.read_text())))
    for problem in problems:
        print(f"{REASONS.name}: {problem}")
    return 1 if problems else 0


def main():
    if sys.argv[1:2] == ["--check"]:
        return check(pathlib.Path(sys.argv[2]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("limit", type=float)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("profile")
    parser.add_argument("programs", nargs="+")
    args = parser.parse_args()
    # A pattern such as tests/test_* also matches folders.
    programs = [p for p in args.programs if pathlib.Path(p).is_file()]
    sources = read(args.folder.resolve(), args.profile, programs)
    names = {}
    if args.lines or args.table:
        names = demangled(sorted({n for s in sources.values() for _, _, n in s.groups() if n}))
    if args.table:
        print("\n".join(table(sources, names, reasons(REASONS.read_text()))))
        return 0
    if args.lines:
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
