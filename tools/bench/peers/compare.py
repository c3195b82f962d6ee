#!/usr/bin/env python3
"""Runs workloads on gumption, on Go and on other libraries, in turn, and writes docs/comparison.md and its pictures.

    tools/gump bench --peers [DIR] [--go GO] [--reps N] [--starts N] [--divide N] [--only PEER,...] [--out FOLDER]

DIR has the sources of peers that Debian does not have: DIR/marl, DIR/TooManyCooks, DIR/libgo, DIR/PhotonLibOS. tools/gump
builds all programs with the compiler and the flags of the release build. Each program makes a warm-up and --reps
repetitions, and is started --starts times, in turn with the others. The results go to FOLDER/comparison.json (FOLDER is
docs by default), and page.py makes the page and the pictures from that file.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools/bench"))
sys.dont_write_bytecode = True
import host  # noqa: E402
import page  # noqa: E402
import run  # noqa: E402

# (problem, workloads, values of GOMAXPROCS, the number by which the counts of tools/bench are divided)
# W8 and W11 need memory for each task that waits. W13 takes 3.5 s each time, so a third is enough.
MEASURED = [
    ("spawn_join", "W1", (1, 2), 4),
    ("yield", "W2/1000", (1, 2), 5),
    ("pingpong", "W3", (1, 2), 5),
    ("mutex", "W7/8", (2,), 4),
    ("skynet", "W8/join", (1, 2), 10),
    ("sleepers", "W11", (1, 2), 10),
    ("echo", "W13/100", (1,), 3),
]
PEERS = ("boost_fiber", "asio", "marl", "tmc", "libgo", "photon")
# The folders of the peers that Debian does not have.
FOLDERS = {"marl": "marl", "tmc": "TooManyCooks", "libgo": "libgo", "photon": "PhotonLibOS"}


def first(pattern, path):
    """The first group of a pattern in a file, or nothing."""
    match = re.search(pattern, path.read_text(errors="replace")) if path.is_file() else None
    return match[1] if match else ""


def described(folder):
    """The commit of a folder with sources, and its date."""
    done = subprocess.run(["git", "-C", folder, "log", "-1", "--format=%h of %cs"], capture_output=True, text=True)
    return f"commit {done.stdout.strip()}" if done.returncode == 0 else "a copy without a commit"


def version(peer, sources):
    """The version of a peer, as text."""
    if peer == "boost_fiber":
        return first(r'#define BOOST_LIB_VERSION "([\d_]+)"', pathlib.Path("/usr/include/boost/version.hpp")).replace("_", ".")
    if peer == "asio":
        number = int(first(r"#define ASIO_VERSION (\d+)", pathlib.Path("/usr/include/asio/version.hpp")) or 0)
        return f"{number // 100000}.{number // 100 % 1000}.{number % 100}"
    return described(sources / FOLDERS[peer])


def contenders_of(args):
    """The columns: gumption, Go if it is there, and each peer whose program is built."""
    bench = args.build.resolve() / "tools/bench"
    found = [("gump", run.commit(), run.Contender("gump", run.ours_in(args.build)))]
    go = run.build_go(args.go, args.build)
    if go is not None:
        said = subprocess.run([args.go, "env", "GOVERSION"], capture_output=True, text=True).stdout.strip()
        found.append(("go", said.removeprefix("go"), run.Contender("go", lambda problem: [go, problem])))
    for peer in PEERS:
        program = bench / "peers" / f"bench_peer_{peer}"
        # A program of an earlier build is no peer of this run.
        if program.exists() and (peer not in FOLDERS or args.sources and (args.sources / FOLDERS[peer]).is_dir()):
            contender = run.Contender(peer, lambda problem, program=program: [program])
            found.append((peer, version(peer, args.sources), contender))
    wanted = args.only.split(",") if args.only else []
    return [c for c in found if not wanted or c[0] in wanted]


def measure(found, args):
    for problem, workload, all_procs, divide in MEASURED:
        args.divide = max(1, divide * args.slower)
        for procs in all_procs:
            # One repetition of the server takes seconds.
            starts, reps = (1, 2) if problem == "echo" else (args.starts, args.reps)
            for _ in range(starts):
                for _, _, contender in found:
                    run.progress(f"  {contender.title}: {workload} procs={procs}")
                    contender.run(problem, [workload], procs, reps, args)
    run.progress("")


def main():
    parser = argparse.ArgumentParser(prog="tools/gump bench --peers", description=__doc__.split("\n\n")[0])
    parser.add_argument("--sources", type=pathlib.Path, help="the folder with the sources of peers")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="build directory")
    parser.add_argument("--go", default="go", help="the Go tool (default: go)")
    parser.add_argument("--reps", type=int, default=3, help="repetitions a process, after a warm-up (default 3)")
    parser.add_argument("--starts", type=int, default=2, help="how often each program is started (default 2)")
    parser.add_argument("--divide", type=int, default=1, dest="slower", help="divide all counts further, for a quick look")
    parser.add_argument("--only", help="only these columns, such as gump,boost_fiber")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs", help="where comparison.json goes (default: docs)")
    args = parser.parse_args()
    args.beside = None
    os.environ["BENCH_LOADGEN"] = str(args.build.resolve() / "tools/bench/bench_loadgen")
    found = contenders_of(args)
    here = host.describe(args.build)
    for line in host.lines(here):
        print(line)
    load = host.Load()
    began = datetime.datetime.now(datetime.timezone.utc)
    measure(found, args)
    seconds = (datetime.datetime.now(datetime.timezone.utc) - began).total_seconds()
    result = {
        "format": 1,
        "date": began.isoformat(timespec="seconds"),
        "seconds": round(seconds),
        "divide": args.slower,
        "others": round(load.others(), 2),
        "host": here,
        "peers": [{"name": name, "version": text, "results": c.to_json()} for name, text, c in found],
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "comparison.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    failures = [failure for _, _, c in found for failure in c.failures]
    for failure in failures:
        print(f"bench: FAILED {failure}", file=sys.stderr)
    if not failures:
        if args.out.resolve() != ROOT / "docs":  # page.py needs the text around the table
            shutil.copy(ROOT / "docs/comparison.md", args.out)
        page.write(args.out)
    print(page.table(result))
    print(f"bench: measured for {seconds:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
