#!/usr/bin/env python3
"""Follows README, the first chapter of the guide and the page on packages as a new user does, and measures how long that
takes.

    fresh.py                in a clean root of Debian 12, which has nothing but what the documents say; needs root
    fresh.py --here WORK    a short form in this tree, with the packages of this machine; WORK is an empty folder

The commands, programs, files and outputs are those of the documents. This script has the order of the steps, and what each
must print. It fails if

* a document has lost a command that a step needs, or has a command that no step runs;
* a command fails, or a program does not print what the document says;
* the whole takes longer than ten minutes on two quiet processors.

The last point has two limits. The CPU time of all steps is at most twenty minutes, on any machine. The wall time is at
most ten minutes, unless other programs have used more than a tenth of the processors meanwhile, or there is only one.
The wall time is then printed only. The time to make the clean root is not counted, because a user has a machine already.

If this machine cannot make such a root, the script says why, and its exit code is 77.
"""

import argparse
import collections
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/docs"), str(ROOT / "tools/bench")]
sys.dont_write_bytecode = True
import extract  # noqa: E402
import host  # noqa: E402
import run as docs_run  # noqa: E402

WALL_LIMIT_S = 600
CPU_LIMIT_S = 2 * WALL_LIMIT_S
QUIET = 0.1  # the share of the processors that other programs may use
SKIPPED = 77
# Sections of README whose commands a step must run.
SECTIONS = ("Try it", "A program", "Install")
# The section of packages.md, whose commands a step must run as well.
DEBIAN = "Packages for Debian"
# Commands of README that no step runs, with the reason.
LEFT_OUT = {"tools/gump test": "takes 20 to 45 minutes"}
# A new user of Debian 12 has this, and tar.
BASE_PACKAGES = "ca-certificates"


class DocumentError(Exception):
    """A document does not have what a step needs."""


class StepError(Exception):
    """A command did not end as the document says."""


# ---- The documents


def section(page, heading, name="README"):
    """The text below a heading of level two."""
    match = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    if not match:
        raise DocumentError(f'{name} has no section "{heading}"')
    return match[1]


def commands(text):
    """The commands of a section: the lines of its indented blocks, without their comments."""
    without_fences = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    lines = re.findall(r"^ {4}(\S.*)$", without_fences, re.M)
    return [re.sub(r"\s+# .*", "", line) for line in lines]


def one(pattern, text, what):
    """The only match of a pattern."""
    found = list(dict.fromkeys(re.findall(pattern, text)))
    if len(found) != 1:
        raise DocumentError(f"README or the guide should have {what} once, and has {found or 'none'}")
    return found[0]


class Documents:
    """What the steps take from README, the guide, and packages.md."""

    def __init__(self, readme, guide, packages):
        sections = {name: section(readme, name) for name in SECTIONS}
        self.unused = [c for name in SECTIONS for c in commands(sections[name]) if c not in LEFT_OUT]
        self.demo = self.command(r"tools/gump demo")
        self.run = self.command(r"tools/gump run \S+\.cc")
        self.install = self.command(r"tools/gump install \S+")
        self.project = [self.command(r"cmake .*-B build .*"), self.command(r"cmake --build build"),
                        self.command(r"build/\w+")]
        prefix = r" -DCMAKE_PREFIX_PATH=\S+"
        one(prefix, self.project[0], "the option that names the prefix")
        self.project_without_prefix = [re.sub(prefix, "", c) for c in self.project]
        self.debian = commands(section(packages, DEBIAN, "packages.md"))
        if [c.split()[:2] for c in self.debian] != [["tools/gump", "package"], ["apt-get", "install"]]:
            raise DocumentError(f"packages.md should build packages for Debian and install them: {self.debian or 'no command'}")
        if self.unused:
            raise DocumentError(f"README has commands that no step runs: {', '.join(self.unused)}")
        self.packages = one(r"Debian's packages ([^.]*)\.", sections["Install"], "a list of packages")
        self.packages = re.split(r",\s*|\s+and\s+", self.packages)
        cmake = re.findall(r"^```cmake\n(.*?)^```$", sections["Install"], re.M | re.S)
        if len(cmake) != 2:
            raise DocumentError(f"README's Install should have two cmake blocks, and has {len(cmake)}")
        self.by_find_package = cmake[0]
        self.by_add_subdirectory = re.sub(r"^find_package\(gump.*\n", cmake[1], cmake[0], flags=re.M)
        self.tree = one(r"add_subdirectory\((\w+)\)", cmake[1], "add_subdirectory")
        if self.by_add_subdirectory.count(cmake[1]) != 1:
            raise DocumentError("README's CMakeLists.txt has no line of find_package to replace")
        self.program = one(r"Save it as `(\S+)`", sections["A program"], "the name of the program")
        self.mistake = one(r"Without the `(\w+)`", sections["A program"], "the call to leave out")
        self.deadlock = one(r"`(fatal error: [^`]*)`", sections["A program"], "the fatal error")
        # Several programs stand on the page. The first is the one that is saved.
        self.squares = extract.programs(ROOT / "README.md")[0]
        self.run_any = one(r"`(tools/gump run FILE\.cc)`", guide, "the command for its programs")
        first = one(r"(?m)^## 1\. (.*)$", guide, "a first chapter")
        self.chapter = [p for p in extract.programs(ROOT / "docs/guide.md") if p.block.heading == first]
        if not self.chapter:
            raise DocumentError("the first chapter of the guide has no program")

    def command(self, pattern):
        found = [c for c in self.unused if re.fullmatch(pattern, c)]
        if len(found) != 1:
            raise DocumentError(f"README should have one command like {pattern!r}, and has {found or 'none'}")
        self.unused.remove(found[0])
        return found[0]

    def without_mistake(self):
        """README's program without the call that the text below it leaves out."""
        lines = self.squares.block.text.splitlines(True)
        kept = [line for line in lines if f".{self.mistake}(" not in line]
        if len(kept) != len(lines) - 1:
            raise DocumentError(f"README's program should call {self.mistake} in one line")
        return "".join(kept)


# ---- The places: where the commands run

Result = collections.namedtuple("Result", "code out err wall cpu")


def execute(command, environment, folder):
    """Runs a command, and measures it and its descendants. If this script ends, so does the command."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        began = time.monotonic()
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                   start_new_session=True)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - began
        texts = [(f.seek(0), f.read())[1] for f in (out, err)]
    return Result(process.returncode, *texts, wall, usage.ru_utime + usage.ru_stime)


class Here:
    """This tree and this machine's packages. HOME is an empty folder. ccache keeps its folder, so little is compiled."""

    short = True

    def __init__(self, work):
        shutil.rmtree(work, ignore_errors=True)
        self.home = work / "home"
        self.home.mkdir(parents=True)
        self.tree = ROOT
        self.environment = {**os.environ, "HOME": str(self.home)}
        if shutil.which("ccache"):
            where = subprocess.run(["ccache", "--get-config", "cache_dir"], capture_output=True, text=True, check=True)
            self.environment["CCACHE_DIR"] = where.stdout.strip()

    def path(self, file):
        return file

    def run(self, line, folder):
        return execute(["bash", "-c", line], self.environment, folder)

    def close(self):
        pass


def debian_sources():
    """The lines of sources.list for Debian's own archives, as apt of this machine knows them."""
    line = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(REPO_URI) $(RELEASE) $(COMPONENT)"
    done = subprocess.run(["apt-get", "indextargets", "Created-By: Packages", "Origin: Debian", "--format", line],
                          capture_output=True, text=True)
    return sorted(set(done.stdout.splitlines())) if done.returncode == 0 else []


def why_no_root():
    """Why this machine cannot make a clean root, or nothing if it can."""
    if os.geteuid() != 0:
        return "only root can make a clean root of Debian"
    for program, package in (("mmdebstrap", "mmdebstrap"), ("unshare", "util-linux"), ("apt-get", "apt")):
        if shutil.which(program) is None:
            return f"there is no {program}; it is in Debian's package {package}"
    if not any(" bookworm " in line for line in debian_sources()):
        return "apt knows no archive of Debian 12 (bookworm); apt-get update first"
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode != 0:
        return "root may not make namespaces here (unshare)"
    return ""


class CleanRoot:
    """A root of Debian 12 with the packages that every Debian has, and a copy of this tree in /root."""

    short = False

    def __init__(self, tree):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="gump-fresh-"))
        self.home = self.root / "root"
        try:
            self.make(tree)
        except BaseException:
            self.close()
            raise

    def make(self, tree):
        # Directories of apt's sandbox user must be reachable.
        self.root.chmod(0o755)
        with tempfile.NamedTemporaryFile("w", suffix=".list") as sources:
            sources.write("\n".join(debian_sources()) + "\n")
            sources.flush()
            command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={BASE_PACKAGES}", "bookworm", self.root,
                       sources.name]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise StepError(f"mmdebstrap failed:\n{done.stderr[-2000:]}")
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        self.tree = self.home / tree
        self.tree.mkdir()
        copy_tree(self.tree)

    def path(self, file):
        """The name of a file of the root inside of it."""
        return pathlib.Path("/") / file.relative_to(self.root)

    def run(self, line, folder):
        inside = f"cd {shlex.quote(str(self.path(folder)))} && {line}"
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                       "LC_ALL": "C.UTF-8"}
        # When the first process of the namespace ends, the kernel ends all others.
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={self.root / 'proc'}",
                   "chroot", self.root, "bash", "-c", inside]
        return execute(command, environment, "/")

    def close(self):
        shutil.rmtree(self.root, ignore_errors=True)


def copy_tree(to):
    """Copies the files that git knows: what a clone has, with the changes of this tree."""
    files = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, check=True).stdout
    present = b"\0".join(f for f in files.split(b"\0") if f and (ROOT / os.fsdecode(f)).exists())
    pack = subprocess.Popen(["tar", "-C", ROOT, "--null", "-T", "-", "-cf", "-"], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE)
    unpack = subprocess.Popen(["tar", "-C", to, "-xf", "-"], stdin=pack.stdout)
    pack.stdout.close()
    pack.stdin.write(present)
    pack.stdin.close()
    if pack.wait() != 0 or unpack.wait() != 0:
        raise StepError("the tree cannot be copied")


# ---- The steps


def expect(result, good, what):
    if not good:
        raise StepError(f"expected {what}\nexit code {result.code}\n{result.out[-3000:]}\n{result.err[-3000:]}")


def succeed(result):
    expect(result, result.code == 0, "exit code 0")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class Steps:
    """Each step is a method that returns the results of its commands."""

    def __init__(self, documents, place):
        self.documents, self.place = documents, place

    def demo(self):
        result = self.place.run(self.documents.demo, self.place.tree)
        succeed(result)
        expect(result, "Requests/sec:" in result.out, "the report of wrk")
        expect(result, re.search(r"^SCHED \d+ms: ", result.out, re.M), "the lines of schedtrace")
        return [result]

    def run_program(self, command, text, output, code):
        """Saves a program under the name in the command, runs the command, and compares the output."""
        name = re.search(r"\S+\.cc", command)[0]
        folder = self.place.home / "programs"
        write(folder / name, text)
        tool = self.place.path(self.place.tree / "tools/gump")
        result = self.place.run(command.replace("tools/gump", shlex.quote(str(tool)), 1), folder)
        said = result.out if code == 0 else re.sub(r"^gump: .*\n", "", result.out + result.err, flags=re.M)
        good = output is None or (said == output if code == 0 else docs_run.begins(said, output))
        expect(result, result.code == code and good, f"exit code {code} and the output\n{output}")
        return [result]

    def squares(self):
        d = self.documents
        return self.run_program(d.run, d.squares.block.text, d.squares.output, 0)

    def deadlock(self):
        d = self.documents
        # A terminal also shows the line of squares. In a file, it would still be in a buffer at the end.
        output = f"...\n{d.deadlock}\n...\ngoroutine 1 ["
        return self.run_program(d.run, d.without_mistake(), output, 2)

    def chapter(self):
        d = self.documents
        programs = d.chapter[:1] if self.place.short else d.chapter
        results = []
        for p in programs:
            results += self.run_program(d.run_any, p.block.text, p.output, p.exit)
        return results

    def install(self):
        result = self.place.run(self.documents.install, self.place.tree)
        succeed(result)
        return [result]

    def packages(self):
        """README names the packages that tools/gump installs, and no others are needed."""
        text = (ROOT / "tools/gump").read_text()
        needed = one(r"(?m)^packages_build=\((.*)\)$", text, "packages_build").split()
        if sorted(needed) != sorted(self.documents.packages):
            raise DocumentError(f"README says that the library needs {self.documents.packages}, and tools/gump {needed}")
        return []

    def project(self, folder, cmake, commands_of_project=None):
        d = self.documents
        write(folder / "CMakeLists.txt", cmake)
        write(folder / d.program, d.squares.block.text)
        results = []
        for command in commands_of_project or d.project:
            results.append(self.place.run(command, folder))
            succeed(results[-1])
        expect(results[-1], results[-1].out == d.squares.output, f"the output\n{d.squares.output}")
        return results

    def find_package(self):
        return self.project(self.place.home / "found", self.documents.by_find_package)

    def add_subdirectory(self):
        folder = self.place.home / "added"
        tree = folder / self.documents.tree
        tree.mkdir(parents=True)
        copy_tree(tree)
        return self.project(folder, self.documents.by_add_subdirectory)

    def debian(self):
        """The same project, with the library from packages, which needs no prefix."""
        d, folder = self.documents, self.place.home / "packaged"
        results = []
        for command in d.debian:
            results.append(self.place.run(command, self.place.tree))
            succeed(results[-1])
        results += self.project(folder, d.by_find_package, d.project_without_prefix)
        found = re.search(r"^gump_DIR:PATH=/usr/lib/", (folder / "build/CMakeCache.txt").read_text(), re.M)
        expect(results[-1], found, "the library of the packages, and not another one")
        return results

    def all(self):
        """(title, step) in the order of a new user."""
        d = self.documents
        steps = [
            (f"README, Try it: {d.demo}", self.demo),
            (f"README, A program: {d.run}", self.squares),
            (f"README, A program: the same without {d.mistake}", self.deadlock),
            (f"guide, chapter 1: {d.run_any}", self.chapter),
            ("README, Install: the packages", self.packages),
            (f"README, Install: {d.install}", self.install),
            ("README, Install: a project with find_package", self.find_package),
            ("README, Install: a project with add_subdirectory", self.add_subdirectory),
            (f"packages.md, {DEBIAN}: an own project with find_package", self.debian),
        ]
        # The demo has a test in tests/peers. The last two steps compile the library again, and the last one installs packages.
        return [s for s in steps if not self.place.short or s[1] not in (self.demo, self.add_subdirectory, self.debian)]


# ---- The whole


def follow(steps):
    """Runs the steps, prints a row for each, and returns the results, or None if one has failed."""
    results = []
    print(f"{'step':<60} {'wall s':>7} {'CPU s':>7}")
    for title, step in steps:
        try:
            found = step()
        except (DocumentError, StepError) as e:
            print(f"{title:<60} {'FAILED':>7}\n{e}")
            return None
        print(f"{title:<60} {sum(r.wall for r in found):7.1f} {sum(r.cpu for r in found):7.1f}", flush=True)
        results += found
    return results


def over_limit(wall, cpu, others, processors):
    """The limit that was exceeded, as text, and whether the wall time has a limit here."""
    limited = processors >= 2 and others <= QUIET
    if cpu > CPU_LIMIT_S:
        return f"the CPU time is above {CPU_LIMIT_S} s", limited
    if limited and wall > WALL_LIMIT_S:
        return f"the wall time is above {WALL_LIMIT_S} s", limited
    return "", limited


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--here", type=pathlib.Path, metavar="WORK")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so the command under way and the clean root end, too
    try:
        documents = Documents((ROOT / "README.md").read_text(), (ROOT / "docs/guide.md").read_text(),
                              (ROOT / "docs/packages.md").read_text())
    except DocumentError as e:
        print(f"fresh: {e}")
        return 1
    if arguments.here is None and (why := why_no_root()):
        print(f"fresh: skipped: {why}")
        return SKIPPED
    if arguments.here is None:
        print("fresh: making a clean root of Debian 12", file=sys.stderr)
    place = Here(arguments.here.resolve()) if arguments.here else CleanRoot(documents.tree)
    try:
        load = host.Load()
        results = follow(Steps(documents, place).all())
        others = load.others()
    finally:
        place.close()
    if results is None:
        return 1
    wall, cpu = sum(r.wall for r in results), sum(r.cpu for r in results)
    processors = len(os.sched_getaffinity(0))
    print(f"{'in all':<60} {wall:7.1f} {cpu:7.1f}")
    problem, limited = over_limit(wall, cpu, others, processors)
    print(f"fresh: {processors} processors; other programs used {others:.0%} of them")
    if not limited:
        print(f"fresh: so the limit of {WALL_LIMIT_S} s of wall time does not hold, but that of {CPU_LIMIT_S} s of CPU time")
    if problem:
        print(f"fresh: too slow: {problem}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
