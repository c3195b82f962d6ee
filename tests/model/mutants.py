#!/usr/bin/env python3
"""Breaks the library in known ways, one at a time, and lets the models find each of them.

mutants.txt lists the ways. `mutants.py` applies each to a copy of the sources, builds the model checker and runs the
models that are named; it fails unless all are caught. `mutants.py --check` only checks that every text that is to be
replaced is still there, once, and that models, tests and mutants fit each other.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = pathlib.Path(__file__).with_suffix(".txt")
# The tests compile the programs of the documents, and the library contains the script for gdb.
FOLDERS = ("runtime", "netpoll", "sysmon", "api", "tests", "docs", "tools")
TIMEOUT_S = 300


class Mutant:
    def __init__(self, name):
        self.name = name
        self.file = None
        self.models = []
        self.edits = []  # [old, new]

    def apply(self, text):
        for old, new in self.edits:
            text = text.replace(old, new)
        return text


def parse():
    mutants = []
    last = ""
    for number, line in enumerate(LIST.read_text().splitlines(), 1):
        if line.startswith("== "):
            mutants.append(Mutant(line[3:]))
        elif line.startswith("in "):
            mutants[-1].file = line[3:]
        elif line.startswith("by "):
            mutants[-1].models = line[3:].split()
        elif line.startswith("-"):
            if last != "-":
                mutants[-1].edits.append(["", ""])
            mutants[-1].edits[-1][0] += line[1:] + "\n"
        elif line.startswith("+"):
            mutants[-1].edits[-1][1] += line[1:] + "\n"
        elif line and not line.startswith("#"):
            sys.exit(f"{LIST.name}:{number}: neither an edit nor a comment")
        last = line[:1]
    return mutants


def models():
    """The models that the sources define."""
    sources = sorted(LIST.parent.glob("*_model.cc"))
    return {name for path in sources for name in re.findall(r'\.name = "(\w+)"', path.read_text())}


def in_cmake(variable):
    """The words of a list in CMakeLists.txt."""
    return re.search(rf"set\({variable}\s([^)]*)\)", (LIST.parent / "CMakeLists.txt").read_text()).group(1).split()


def problems(mutants):
    defined = models()
    listed = in_cmake("models")
    for name in sorted(set(in_cmake("deep_models")) - defined):
        yield f"{name}: deep, but no model"
    for name in sorted(defined.symmetric_difference(listed)):
        yield f"{name}: not both a model and in CMakeLists.txt"
    for name in sorted(defined - {name for m in mutants for name in m.models}):
        yield f"{name}: no mutant is to be caught by it"
    names = set()
    for m in mutants:
        if m.name in names:
            yield f"{m.name}: twice"
        names.add(m.name)
        if not m.models:
            yield f"{m.name}: no model is to catch it"
        for name in set(m.models) - defined:
            yield f"{m.name}: there is no model {name}"
        text = (ROOT / m.file).read_text()
        for old, _ in m.edits:
            if text.count(old) != 1:
                yield f"{m.name}: {m.file} has {text.count(old)} times: {old.splitlines()[0].strip()}"


class Copy:
    """A copy of the sources with a build of its own."""

    def __init__(self):
        self.top = ROOT / "build" / "mutants"
        self.src = self.top / "src"
        self.build = self.top / "build"

    def refresh(self):
        """Copies the files that have changed, so that no other file is built again."""
        files = [ROOT / "CMakeLists.txt", ROOT / "README.md", ROOT / "tools/gdb/gump_gdb.py"]  # runtime/ embeds the last
        for folder in FOLDERS:
            files += [p for p in (ROOT / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
        wanted = {p.relative_to(ROOT) for p in files}
        for path in wanted:
            self.put(path, (ROOT / path).read_bytes())
            shutil.copymode(ROOT / path, self.src / path)
        for path in [p for p in self.src.rglob("*") if p.is_file()]:
            if path.relative_to(self.src) not in wanted:
                path.unlink()

    def put(self, path, data):
        target = self.src / path
        if target.exists() and target.read_bytes() == data:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def configure(self):
        self.top.mkdir(parents=True, exist_ok=True)
        run(["cmake", "-G", "Ninja", "-S", self.src, "-B", self.build, "-DCMAKE_BUILD_TYPE=Release",
             "-DGUMP_BUILD_EXAMPLES=OFF", "-DGUMP_INSTALL=OFF", "-DGUMP_MODEL_UNITY=OFF"])

    def make(self, jobs):
        """What the build printed if it failed, or None."""
        done = subprocess.run(["cmake", "--build", self.build, "--target", "gump_model", "-j", str(jobs)],
                              capture_output=True, text=True)
        return None if done.returncode == 0 else done.stdout + done.stderr

    def explore(self, models):
        """The first line of the first failure, or None. The bounds are those of the test of the model."""
        program = self.build / "tests/model/gump_model"
        deep, bounds = in_cmake("deep_models"), in_cmake("deep_bounds")
        for model in models:
            command = [program, model, *(bounds if model in deep else [])]
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
            if done.returncode == 0:
                continue
            if done.returncode < 0:
                return f"{model}: signal {-done.returncode}"
            found = re.search(r"^(\S+): FAILED: (.*)$", done.stdout, re.M)
            if not found and "in the setup of" in done.stderr or "settle:" in done.stderr:
                return f"{model}: {done.stderr.strip()}"
            if not found:
                sys.exit(f"{model}: {done.stdout}{done.stderr}")
            return f"{found.group(1)}: {found.group(2)}"
        return None


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="only look whether the list still fits the sources")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*", help="mutants; all, if none is named")
    args = parser.parse_args()
    mutants = parse()
    bad = list(problems(mutants))
    if args.check or bad:
        for problem in bad:
            print(problem)
        print(f"mutants: {len(mutants)} listed, {len(bad)} problems")
        return 1 if bad else 0
    mutants = [m for m in mutants if not args.names or m.name in args.names]
    copy = Copy()
    copy.refresh()
    copy.configure()
    if output := copy.make(args.jobs):
        sys.exit(f"without any mutant: {output}")
    escaped = copy.explore(sorted({model for m in mutants for model in m.models}))
    if escaped:
        sys.exit(f"without any mutant: {escaped}")
    caught = 0
    for m in mutants:
        begin = time.monotonic()
        original = (ROOT / m.file).read_text()
        copy.put(m.file, m.apply(original).encode())
        try:
            output = copy.make(args.jobs)
            how = output or copy.explore(m.models)
        finally:
            copy.put(m.file, original.encode())
        caught += how is not None and not output
        verdict = "BROKEN " if output else "caught " if how else "ESCAPED"
        print(f"{verdict} {m.name:<24} {time.monotonic() - begin:5.1f} s  {how or ' '.join(m.models)}", flush=True)
    print(f"{caught} of {len(mutants)} caught")
    return 0 if caught == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
