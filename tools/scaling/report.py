#!/usr/bin/env python3
"""Counts the cache lines that Ps share, and prints two tables.

report.py PROGRAM [--procs 2,8,64] [--reps N] [--top N] [OPERATION...]

PROGRAM is gump_scaling (operations.cc). For each operation and number of Ps, the first table says how often an operation
writes a line that several caches have held. It also says how often a line moves from one cache to another. The second table
names the functions and the objects with the most moves. The figures are medians over the repetitions.
"""

import argparse
import bisect
import collections
import os
import re
import statistics
import subprocess
import sys

# Frames of these files only pass an access on.
PASSED_ON = re.compile(r"/(gump/internal/atomic\.h|c\+\+/\d+/|bits/|gump/internal/compiler\.h)")


class Symbols:
    """Names of the code and of the data of a program."""

    def __init__(self, program):
        self.program = program
        self.names = {}
        self.data = []
        nm = subprocess.run(["nm", "-C", "-S", "--defined-only", program], capture_output=True, text=True, check=True)
        for line in nm.stdout.splitlines():
            parts = line.split(None, 3)
            if len(parts) == 4 and parts[2] in "bBdD":
                self.data.append((int(parts[0], 16), int(parts[1], 16), parts[3]))
        self.data.sort()

    def object_at(self, address):
        """The global object on a line, with the line's offset in it, or None."""
        i = bisect.bisect_right(self.data, (address + 63, 1 << 62, "")) - 1
        if i >= 0 and self.data[i][0] + self.data[i][1] > address:
            start, _, name = self.data[i]
            return offset_of(name, start, address)
        return None

    def resolve(self, pcs):
        """Fills self.names for these addresses. A pc is the address after a call."""
        todo = sorted(pc for pc in pcs if pc not in self.names)
        if not todo:
            return
        lookup = subprocess.run(["addr2line", "-e", self.program, "-a", "-f", "-i", "-C"], capture_output=True, text=True,
                                check=True, input="".join(f"{pc - 1:#x}\n" for pc in todo))
        answers = re.split(r"^0x[0-9a-f]+\n", lookup.stdout, flags=re.MULTILINE)[1:]
        for pc, frames in zip(todo, answers):
            self.names[pc] = name_of(frames.splitlines())


def offset_of(name, start, line):
    return f"{short(name) if '::' in name else name}+{max(0, line - start)}"


def short(name):
    name = re.sub(r"\(anonymous namespace\)::", "", name)
    name = re.sub(r"<.*", "", re.sub(r"\(.*", "", name))
    return re.sub(r"^(?:.* )?(?:gump::)(?:rt::)?", "", name)


def name_of(frames):
    """The innermost function that is not a part of std::atomic. frames: function and place, in turn, innermost first."""
    pairs = list(zip(frames[::2], frames[1::2]))
    for function, place in pairs:
        if not PASSED_ON.search(place):
            return short(function)
    return short(pairs[0][0])


class Count:
    def __init__(self, name, procs, operations, missed):
        self.name, self.procs, self.operations, self.missed = name, procs, operations, missed
        self.writes = self.moves = 0
        self.sites = collections.Counter()  # moves by pc
        self.objects = collections.Counter()  # moves by line
        self.ranges = []  # (start, end, name) of objects of the runtime

    def range_at(self, line):
        i = bisect.bisect_right(self.ranges, (line + 63, 1 << 64, "")) - 1
        return self.ranges[i] if i >= 0 and self.ranges[i][1] > line else None


def measure(program, procs, operations):
    environment = dict(os.environ, GODEBUG="asyncpreemptoff=1")  # a thread that is preempted in place may hold an entry
    run = subprocess.run([program, str(procs), *operations], capture_output=True, text=True, env=environment)
    if run.returncode != 0:
        sys.exit(f"report.py: {program} {procs} failed: {run.stderr}")
    counts = []
    for line in run.stdout.splitlines():
        kind, *fields = line.split("\t")
        if kind == "operation":
            counts.append(Count(fields[0], *map(int, fields[1:])))
        elif kind == "range":
            counts[-1].ranges.append((int(fields[0], 16), int(fields[1], 16), fields[2]))
        elif kind == "line":
            counts[-1].writes += int(fields[1])
            counts[-1].moves += int(fields[2])
            counts[-1].objects[int(fields[0], 16)] += int(fields[2])
        elif kind == "site":
            counts[-1].sites[int(fields[0], 16)] += int(fields[2])
    for count in counts:
        count.ranges.sort()
    return counts


def median(values):
    return f"{statistics.median(values):.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("operations", nargs="*", metavar="OPERATION")
    parser.add_argument("--procs", default="2,8,64")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--top", type=int, default=6)
    args = parser.parse_args()
    procs = [int(p) for p in args.procs.split(",")]
    if not procs or min(procs) < 1 or max(procs) > 64:
        parser.error("--procs takes numbers from 1 to 64")

    runs = collections.defaultdict(list)
    for p in procs:
        for _ in range(args.reps):
            for count in measure(args.program, p, args.operations):
                runs[count.name, p].append(count)
    names = list(dict.fromkeys(name for name, _ in runs))

    print("Writes of shared lines and moves of lines, per operation:\n")
    print("| operation | " + " | ".join(f"writes, {p} Ps | moves, {p} Ps" for p in procs) + " | not counted |")
    print("|---|" + "---:|" * (2 * len(procs) + 1))
    for name in names:
        cells = []
        for p in procs:
            cells.append(median([c.writes / c.operations for c in runs[name, p]]))
            cells.append(median([c.moves / c.operations for c in runs[name, p]]))
        missed = max(c.missed / c.operations for p in procs for c in runs[name, p])
        print(f"| {name} | " + " | ".join(cells) + f" | {missed:.2f} |")

    symbols = Symbols(args.program)
    last = procs[-1]
    print(f"\nThe functions and the global objects with the most moves, per operation, at {last} Ps:\n")
    print("| operation | functions | objects |")
    print("|---|---|---|")
    for name in names:
        all_runs = runs[name, last]
        operations = sum(c.operations for c in all_runs)
        symbols.resolve({pc for c in all_runs for pc in c.sites})
        functions = collections.Counter()
        objects = collections.Counter()
        for c in all_runs:
            for pc, moves in c.sites.items():
                functions[symbols.names[pc]] += moves
            for address, moves in c.objects.items():
                found = c.range_at(address)
                if found is None:
                    objects[symbols.object_at(address) or "other memory"] += moves
                elif found[2] == "a stack":
                    objects["a stack"] += moves
                else:
                    objects[offset_of(found[2], found[0], address)] += moves

        def top(counter):
            return ", ".join(f"{n} {moves / operations:.2f}" for n, moves in counter.most_common(args.top)
                             if moves / operations >= 0.005) or "none"

        print(f"| {name} | {top(functions)} | {top(objects)} |")


if __name__ == "__main__":
    main()
