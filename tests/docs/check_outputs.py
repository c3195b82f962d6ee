#!/usr/bin/env python3
"""Runs the commands in docs/examples/README.md, and compares what they print with what the page says.

    check_outputs.py BUILD             BUILD is the folder of a build with the examples
    check_outputs.py BUILD EXAMPLE     only the blocks of an example that needs a package of its own; without this argument,
                                       such blocks are left out
    check_outputs.py --check           only looks whether each example has commands and an output on the page

A ```sh block has the commands, and the ```text block behind it what they print.

* `tools/gump demo NAME` stands for the built example. If it or another program is missing, the block is skipped, and the
  last line says so.
* A line that ends in & goes on beside the next ones. These begin when it has printed a line. If it prints to /dev/null, they
  begin when its port answers.
* Ports are replaced by free ones.
* In the output, a line "..." stands for any lines. After "```text numbers vary", a number stands for any number.

The output is read until it is as the page says. A wait ends with an error after a minute. Exit code 77: no block could run.
"""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from extract import ROOT, blocks

PAGE = ROOT / "docs/examples/README.md"
DEMO = re.compile(r"tools/gump demo (\w+)")
# The examples that are built only if a package of Debian is installed. Each has a test of its own (docs.cmake), so ctest
# lists it as skipped if it is not there.
PACKAGES = dict(re.findall(r"^ *gump_(?:bridge|client_example)\((\w+) (\S+) ", (ROOT / "docs/examples/CMakeLists.txt").read_text(), re.M))
PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+|(?<=127\.0\.0\.1 )\d+|(?<=--port )\d+")
TIMEOUT = 60


def pairs():
    """(block of commands, block of output) of the page."""
    found = [b for b in blocks(PAGE.read_text()) if b is not None]
    for block, following in zip(found, found[1:] + [None]):
        if block.info == "sh":
            if following is None or following.info not in ("text", "text numbers vary"):
                sys.exit(f"{PAGE.name}:{block.line}: no output follows")
            yield block, following


def check():
    """Each example has a block, and each block is of an example."""
    shown = {name for block, _ in pairs() for name in DEMO.findall(block.text)}
    listed = subprocess.run([ROOT / "tools/gump", "complete", "demo", ""], check=True, capture_output=True, text=True).stdout.split()
    bad = [f"{name}: no output in {PAGE.relative_to(ROOT)}" for name in sorted(set(listed) - shown)]
    bad += [f"{name}: in {PAGE.relative_to(ROOT)}, but no example" for name in sorted(shown - set(listed))]
    # What the page says matches itself, and nothing longer or shorter.
    for block, expected in pairs():
        wanted = pattern(expected.text, expected.info == "text numbers vary")
        first, _, rest = expected.text.partition("\n")
        if not wanted.fullmatch(expected.text) or wanted.fullmatch(expected.text + "more\n") or wanted.fullmatch(first + "x\n" + rest):
            bad.append(f"{PAGE.relative_to(ROOT)}:{expected.line}: the output cannot be compared")
    # Without a build, each such example is skipped, and the reason names its package.
    with tempfile.TemporaryDirectory() as folder:
        for name, package in PACKAGES.items():
            runs = [Run(pathlib.Path(folder), pathlib.Path(folder), block) for block, _ in pairs() if name in DEMO.findall(block.text)]
            if not runs or any(f"{name} ({package} is not installed)" not in lack(r.missing()) for r in runs):
                bad.append(f"{name}: a test without {package} does not say so")
    for text in bad:
        print(text)
    print(f"check_outputs: {len(listed)} examples, {len(bad)} problems")
    return 1 if bad else 0


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def pattern(expected, numbers_vary):
    """What the whole output must match. Whether it ends with an end of line does not matter."""
    parts = [re.escape(part) for part in re.split(r"(?m)^\.\.\.\n", expected)]
    if numbers_vary:
        # A number may also have another width in its column.
        parts = [re.sub(r"((?:\\ )*)\d+(?:\\\.\d+)*", lambda m: (r"\ *" if m[1] else "") + r"[\d.]+", part) for part in parts]
    return re.compile("(?:.*\n)*?".join(parts).removesuffix("\\\n") + "\n?")


class Run:
    """The commands of one block."""

    def __init__(self, build, folder, block):
        self.block, self.output = block, folder / "output"
        self.ports = {port: free_port() for port in PORT.findall(block.text)}
        text = DEMO.sub(lambda m: str(build / "docs/examples" / m[1]), block.text)
        self.lines = PORT.sub(lambda m: self.ports[m[0]], text).splitlines()
        self.background = []

    def missing(self):
        words = [w for line in self.lines for w in re.findall(r"(?:^|\| )(\S+)", line)]
        return [w for w in words if not shutil.which(w)]

    def printed(self):
        text = self.output.read_text() if self.output.exists() else ""
        for page, used in self.ports.items():
            text = re.sub(rf"(?<=127\.0\.0\.1:){used}\b", page, text)
        return text

    def start(self, line):
        with open(self.output, "a") as out:
            return subprocess.Popen(["bash", "-c", line], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)

    def wait(self, condition, why):
        end = time.monotonic() + TIMEOUT
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(why)
            time.sleep(0.01)

    def answers(self, line):
        port = next(p for p in self.ports.values() if p in line)
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", int(port))) == 0

    def run(self):
        for line in self.lines:
            if not line.endswith("&"):
                end = self.start(line)
                if end.wait(TIMEOUT):
                    raise RuntimeError(f"{line} ended with {end.returncode}")
                continue
            before = len(self.printed())
            line = line[:-1].strip()
            self.background.append(self.start(line))
            if "/dev/null" in line:
                self.wait(lambda line=line: self.answers(line), f"{line} does not answer")
            else:
                self.wait(lambda before=before: "\n" in self.printed()[before:], f"{line} prints nothing")

    def stop(self):
        for process in reversed(self.background):
            os.killpg(process.pid, signal.SIGTERM)
        for process in self.background:
            try:
                process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def problem(run, expected):
    """Why the output is not as expected, or None."""
    wanted = pattern(expected.text, expected.info == "text numbers vary")
    try:
        run.run()
        # What goes on in the background may print its last line later.
        run.wait(lambda: wanted.fullmatch(run.printed()), "another output")
    except (TimeoutError, RuntimeError, subprocess.TimeoutExpired) as e:
        return f"{e}\n{run.printed()}"
    finally:
        run.stop()
    return None


def lack(missing):
    """What to install: the package if an example is missing."""
    names = [pathlib.Path(m).name for m in missing]
    return ", ".join(f"{n} ({PACKAGES[n]} is not installed)" if n in PACKAGES else n for n in names)


def main():
    if sys.argv[1:] == ["--check"]:
        return check()
    build, example = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else None
    bad, skipped, count = 0, [], 0
    for block, expected in pairs():
        needed = PACKAGES.keys() & DEMO.findall(block.text)
        if example not in needed if example else needed:
            continue
        count += 1
        with tempfile.TemporaryDirectory() as folder:
            run = Run(build, pathlib.Path(folder), block)
            if missing := run.missing():
                skipped.append(lack(missing))
            elif why := problem(run, expected):
                print(f"{PAGE.name}:{block.line}: {why}")
                bad += 1
    left_out = f", because there is no {'; no '.join(dict.fromkeys(skipped))}" if skipped else ""
    print(f"check_outputs: {count} blocks, {bad} problems, {len(skipped)} skipped{left_out}")
    return 1 if bad else 77 if len(skipped) == count else 0


if __name__ == "__main__":
    sys.exit(main())
