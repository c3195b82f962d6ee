#!/usr/bin/env python3
"""Runs the benchmark workloads on gumption and on their Go twins, in turn, and compares medians.

`tools/gump bench` builds the programs and calls this script. The sides take turns, A B A B ..., so a drift of the machine
affects both in the same way. The script prints one row for each workload and GOMAXPROCS, with

* the medians and their spread;
* the ratio of the medians;
* the floor, which is a limit for the ratio or, for some workloads, for the figure itself.

Without a Go toolchain it fills only our own column. Above the table it describes the machine. --json keeps all of this
in a file, and --compare prints such files beside each other.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import host
import servers

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 900  # for a single process of either side


class Workload:
    """A row of the table: a metric that a program prints, where it is measured and the limit that it must keep."""

    def __init__(self, name, problem, metric, procs=(1, 2), ratio=None, limit=None):
        self.name = name
        self.problem = problem
        self.metric = metric
        self.procs = procs
        # Floors. Our median is at most ratio times Go's, or at most limit. Where ratio is a dict, its keys are values of
        # GOMAXPROCS, and the others have no floor.
        self.ratio = ratio
        self.limit = limit

    def ratio_at(self, procs):
        return self.ratio.get(procs) if isinstance(self.ratio, dict) else self.ratio


MANY = (1, 2, 8, 64)
WORKLOADS = [
    Workload("W1", "spawn_join", "ns/task", procs=MANY, ratio={1: 0.28, 2: 0.35}),
    Workload("W2/2", "yield", "ns/switch", procs=(1,), ratio=0.25),
    Workload("W2/1000", "yield", "ns/switch", procs=(1,), ratio=0.25),
    Workload("W3", "pingpong", "ns/roundtrip", procs=MANY, ratio={1: 0.32, 2: 0.32}),
    Workload("W4", "chan_queue", "ns/item", procs=MANY, ratio={1: 0.4, 2: 0.4}),
    Workload("W5", "chan_queue", "ns/item", procs=MANY, ratio={1: 0.4, 2: 0.4, 8: 0.5, 64: 0.5}),
    Workload("W5b", "chan_queue", "ns/item", procs=MANY, ratio={1: 0.38, 2: 0.38, 8: 0.6, 64: 0.6}),
    Workload("W6", "select", "ns/item", procs=MANY, ratio={1: 0.4, 2: 0.4}),
    Workload("W7/1", "mutex", "ns/op", procs=(1,), ratio=1.0),
    Workload("W7/8", "mutex", "ns/op", procs=(2,), ratio=0.85),
    Workload("W8/chan", "skynet", "ms", procs=MANY, ratio={1: 0.25, 2: 0.25, 8: 0.4}),
    Workload("W8/join", "skynet", "ms"),
    Workload("W9", "ring", "ns/hop", procs=MANY, ratio={1: 0.28, 2: 0.32}),
    Workload("W10", "park_mem", "B/task", procs=(1,), limit=4400),
    Workload("W10", "park_mem", "create-ms", procs=(1,), ratio=1.2),
    Workload("W10", "park_mem", "release-ms", procs=(1,), ratio=0.7),
    Workload("W10h", "park_mem", "B/task", procs=(1,), limit=1000),
    Workload("W10h", "park_mem", "tables-B/task", procs=(1,)),
    Workload("W10h", "park_mem", "release-ms", procs=(1,)),
    Workload("W10h", "park_mem", "wake-awake-p50-ns", procs=(1,)),
    Workload("W10h", "park_mem", "wake-asleep-p50-ns", procs=(1,)),
    Workload("RECLAIM", "park_mem", "before-B/task", procs=(2,)),
    Workload("RECLAIM", "park_mem", "cycle-ms", procs=(2,)),
    Workload("RECLAIM", "park_mem", "B/task", procs=(2,), limit=4800),
    Workload("W11", "sleepers", "cpu-ms", ratio=0.6),
    Workload("W11", "sleepers", "p50-us", procs=(2,), ratio=1.0),
    Workload("W11", "sleepers", "p99-us", procs=(2,), ratio=1.0),
    Workload("W12", "fib", "ns/spawn", procs=MANY, ratio=0.25),
    Workload("W13/100", "echo", "cpu-us", procs=(1,), ratio=0.85),
    Workload("W13/1000", "echo", "cpu-us", procs=(1,), ratio=0.85),
    Workload("W13/1000", "echo", "p99-us", procs=(1,), ratio=1.0),
    Workload("W13/5000", "echo", "cpu-us", procs=(1,), ratio=0.85),
    Workload("W13raw/100", "echo", "cpu-us", procs=(1,)),
    Workload("W13raw/1000", "echo", "cpu-us", procs=(1,)),
    Workload("W13raw/5000", "echo", "cpu-us", procs=(1,)),
    Workload("W13http/100", "http", "cpu-us", procs=(1,)),
    Workload("W13http/100", "http", "p99-us", procs=(1,)),
    Workload("W13http/1000", "http", "cpu-us", procs=(1,)),
    Workload("W13http/1000", "http", "p99-us", procs=(1,), ratio=1.0),
    Workload("W13rawhttp/100", "http", "cpu-us", procs=(1,), ratio=0.9),
    Workload("W13rawhttp/100", "http", "p99-us", procs=(1,)),
    Workload("W13rawhttp/1000", "http", "cpu-us", procs=(1,), ratio=0.9),
    Workload("W13rawhttp/1000", "http", "p99-us", procs=(1,), ratio=1.0),
    Workload("W14", "ticker", "p50-us", procs=(2,), ratio=0.6),
    Workload("W14", "ticker", "p99-us", procs=(2,), limit=3000),
    Workload("W15a", "syscall", "ns/op", procs=(1,)),
    Workload("W15a", "syscall", "raw-ns", procs=(1,)),
    Workload("W15a", "syscall", "over-ns", procs=(1,), limit=18),
    Workload("W15b/declared", "block", "wall-ms", procs=(2,), limit=200),
    Workload("W15b/declared", "block", "compute-%", procs=(2,)),
    Workload("W15b/raw", "block", "wall-ms", procs=(2,)),
    Workload("W15b/raw", "block", "compute-%", procs=(2,)),
    Workload("LIMIT", "block", "p99-us", procs=(2,), limit=25000),
    Workload("LIMIT", "block", "threads", procs=(2,), limit=4),
    Workload("W16/go", "wake", "p50-us", procs=(2,), ratio=0.55),
    Workload("W16/go", "wake", "p99-us", procs=(2,)),
    Workload("W16/chan", "wake", "p50-us", procs=(2,), ratio=0.55),
    Workload("W16/chan", "wake", "p99-us", procs=(2,)),
    Workload("THREAD/pair", "thread", "ns/roundtrip"),
    Workload("THREAD/apart", "thread", "p50-us"),
    Workload("THREAD/post", "thread", "p50-us", procs=(2,)),
    Workload("THREAD/net", "thread", "p50-us", procs=(2,)),
    Workload("THREAD/run", "thread", "p50-us"),
    Workload("POLL/trip", "poll", "ns/roundtrip"),
    Workload("POLL/trip", "poll", "cpu-ns/roundtrip"),
    Workload("POLL/threads", "poll", "ns/roundtrip"),
    Workload("POLL/threads", "poll", "cpu-ns/roundtrip"),
    Workload("POLL/many", "poll", "ns/roundtrip"),
    Workload("POLL/many", "poll", "cpu-ns/roundtrip"),
    Workload("POLL/many-threads", "poll", "ns/roundtrip"),
    Workload("POLL/many-threads", "poll", "cpu-ns/roundtrip"),
    Workload("POLL/ready", "poll", "ns/op"),
    Workload("POLL/ready", "poll", "raw-ns"),
    Workload("W17", "idle", "cpu-ms", procs=(2,), limit=0.6),
    Workload("W18", "file", "ns/read", procs=(2,), ratio=0.5),
    Workload("W18", "file", "cpu-us", procs=(2,), ratio=0.2),
    Workload("W20", "start", "ms"),
    Workload("W20", "start", "over-ms", limit=0.8),
    Workload("SCOPE/one", "scope", "group-ns"),
    Workload("SCOPE/one", "scope", "ns/task"),
    Workload("SCOPE/one", "scope", "times", limit=1.5),
    Workload("SCOPE/batch", "scope", "group-ns"),
    Workload("SCOPE/batch", "scope", "ns/task"),
    Workload("SCOPE/batch", "scope", "times"),
    Workload("TIMER/stop", "timers", "ns/timer", procs=(2,), ratio=0.5),
    Workload("TIMER/func", "timers", "p50-us", procs=(2,), limit=40),
    Workload("TIMER/sleep", "timers", "p50-us", procs=(2,), limit=20),
    Workload("TIMER/far", "timers", "cpu-ms", procs=(2,), limit=5),
    Workload("CO/await", "co", "make-ns", procs=(1,)),
    Workload("CO/await", "co", "ns/await", procs=(1,), limit=5),
    Workload("CO/chan", "co", "recv-ns", procs=(1,), limit=10),
    Workload("CO/chan", "co", "plain-recv-ns", procs=(1,)),
    Workload("CO/chan", "co", "send-ns", procs=(1,)),
    Workload("CO/chan", "co", "plain-send-ns", procs=(1,)),
    Workload("CO/wait", "co", "ns/op", procs=(1,)),
    Workload("CO/wait", "co", "plain-ns", procs=(1,)),
    Workload("STW/thread", "stop_world", "p50-us"),
    Workload("STW/thread", "stop_world", "p99-us", limit=1000),
    Workload("STOP/thread", "stop_world", "p99-us", limit=1000),
    Workload("STW/thread", "stop_world", "max-us"),
    Workload("STW/goroutine", "stop_world", "p50-us"),
    Workload("STW/goroutine", "stop_world", "p99-us"),
    Workload("STOP/goroutine", "stop_world", "p99-us", limit=1000),
    Workload("STW/goroutine", "stop_world", "max-us"),
    Workload("METRICS/read", "metrics", "p50-us"),
    Workload("METRICS/read", "metrics", "p99-us", limit=1000),
    Workload("METRICS/text", "metrics", "p50-us"),
    Workload("HOST/stop", "host", "p50-us"),
    Workload("HOST/stop", "host", "p99-us"),
    Workload("HOST/restart", "host", "p99-us"),
    Workload("HOST/gaps", "host", "per-s"),
    Workload("HOST/1ms", "host", "p50-us", procs=(2,)),
    Workload("HOST/50us", "host", "p50-us", procs=(2,)),
    Workload("CONNS/idle", "conns", "B/conn", procs=(1,), limit=6144),
    Workload("CONNS/idle", "conns", "cpu-%", procs=(1,), limit=0.5),
    Workload("CONNS/accept", "conns", "us/conn", procs=(1,), ratio=1.0),
    Workload("CONNS/accept", "conns", "cpu-us", procs=(1,), ratio=1.0),
    Workload("OVERHEAD/2", "overhead", "off-ms", procs=(2,)),
    Workload("OVERHEAD/2", "overhead", "lost-%", procs=(2,)),
    Workload("OVERHEAD/2", "overhead", "cpu-lost-%", procs=(2,), limit=1),
    Workload("OVERHEAD/8", "overhead", "off-ms", procs=(2,)),
    Workload("OVERHEAD/8", "overhead", "lost-%", procs=(2,)),
    Workload("OVERHEAD/8", "overhead", "cpu-lost-%", procs=(2,), limit=1),
    Workload("PROFILE/compute", "profile", "off-ms", procs=(2,)),
    Workload("PROFILE/compute", "profile", "lost-%", procs=(2,)),
    Workload("PROFILE/compute", "profile", "cpu-lost-%", procs=(2,), limit=1),
    Workload("PROFILE/spawn", "profile", "off-ms"),
    Workload("PROFILE/spawn", "profile", "cpu-lost-%", limit=1),
    Workload("PROFILE/pingpong", "profile", "off-ms"),
    Workload("PROFILE/pingpong", "profile", "cpu-lost-%", limit=1),
    Workload("LOCALITY/chan", "numa", "moves-%", procs=(8,), limit=2),
    Workload("LOCALITY/chan", "numa", "resumed-%", procs=(8,)),
    Workload("LOCALITY/join", "numa", "moves-%", procs=(8,), limit=2),
    Workload("LOCALITY/join", "numa", "resumed-%", procs=(8,)),
    Workload("LOCALITY/fib", "numa", "moves-%", procs=(8,), limit=2),
    Workload("LOCALITY/fib", "numa", "resumed-%", procs=(8,)),
    Workload("LOCALITY/echo", "numa", "moves-%", procs=(8,), limit=2),
    Workload("NUMA/oneside", "numa", "one-node-ms", procs=(8,)),
    Workload("NUMA/oneside", "numa", "ms", procs=(8,)),
    Workload("NUMA/oneside", "numa", "times", procs=(8,), limit=1.05),
    Workload("NUMA/steals", "numa", "across-%", procs=(8,), limit=5),
    Workload("NUMA/wait", "numa", "p50-us", procs=(8,)),
    Workload("NUMA/wait", "numa", "p99-us", procs=(8,), limit=1000),
    Workload("NUMA/wait", "numa", "late-%", procs=(8,)),
    Workload("NUMA/wait1", "numa", "p50-us", procs=(8,)),
    Workload("NUMA/wait1", "numa", "p99-us", procs=(8,)),
    Workload("NUMA/wait1", "numa", "late-%", procs=(8,)),
    Workload("GROUP/park", "group", "cpu-ns/switch"),
    Workload("GROUP/park", "group", "ratio", limit=1.3),
    Workload("GROUP/yield", "group", "cpu-ns/switch"),
    Workload("GROUP/yield", "group", "ratio", limit=1.3),
    Workload("GROUP/full", "group", "ratio"),
    Workload("GROUP/alone", "group", "p99-us", procs=(2,)),
    Workload("GROUP/ticker", "group", "p99-us", procs=(2,)),
    Workload("HOOKS/mutex", "hooks", "raw-ns", procs=(1,)),
    Workload("HOOKS/mutex", "hooks", "ns/pair", procs=(1,)),
    Workload("HOOKS/mutex", "hooks", "over-ns", procs=(1,), limit=2),
]


def w19(name, cpu):
    """The rows of W19 for one server and one number of clients. `cpu` is the floor for the CPU time of a request."""
    limits = {"cpu-ratio": cpu, "rate-ratio": 1, "p99-ratio": 1, "rss-ratio": 0.5, "hooked-unserved": 0, "plain-unserved": 0}
    figures = ("req/s", "cpu-us", "p99-us", "rss-MB", "unserved", "threads")
    metrics = [f"{way}-{figure}" for way in ("hooked", "thread", "plain") for figure in figures]
    metrics += [m for m in limits if m not in metrics]
    return [Workload(f"W19/{name}", "clients", m, procs=(2,), limit=limits.get(m)) for m in metrics]


WORKLOADS += w19("redis-64", 1) + w19("redis-1000", 0.8) + w19("postgres-64", 1) + w19("postgres-1000", 0.8)

# What io_uring could give a server over epoll: each form of server under each load.
LOOP_SHAPES = ("echo/100", "echo/1000", "echo/5000", "big/100", "few/5000", "accept/100", "http/100")
LOOP_SERVERS = ("goroutines", "epoll", "epoll-edge", "epoll-again", "epoll-batch", "single", "linked", "multi")
LOOP_SERVERS += ("single-send", "multi-send", "try", "poll", "multi-fixed", "multi-coop", "multi-plain")
for shape, connections in (s.split("/") for s in LOOP_SHAPES):
    WORKLOADS += [Workload(f"LOOP/{shape}/{server}/{connections}", "loops", "cpu-us", procs=(1,)) for server in LOOP_SERVERS]

# A side is started twice for each problem and GOMAXPROCS, and makes --reps repetitions each time. The exceptions:
# Started --reps times, because a second repetition would find its pages warm, or would come minutes after the first.
ONE_REPETITION_PER_PROCESS = {"loops", "park_mem"}
ONE_PROCESS = {"clients", "file", "idle", "overhead", "profile", "sleepers", "ticker", "timers"}  # started once: each repetition takes seconds.
NO_TWIN = {"co", "thread"}  # Go has nothing of the kind
MACHINE_ONLY = {"host"}  # no runtime takes part, so one program serves for all sides
IF_NAMED = {"loops"}  # takes long, and says more about the kernel than about the library
OURS_ONLY = {"clients", "group", "hooks", "loops", "numa", "profile"}  # their rows compare with work without hooks, groups and so on


def selected(args):
    """The workloads that were asked for: W8 means W8/chan and W8/join."""
    if not args.workloads:
        return [w for w in WORKLOADS if w.problem not in IF_NAMED]
    wanted = {w.lower() for w in args.workloads}
    known = {name.lower() for w in WORKLOADS for name in (w.name, w.name.split("/")[0])}
    if unknown := wanted - known:
        names = " ".join(dict.fromkeys(w.name for w in WORKLOADS))
        sys.exit(f"bench: no workload {', '.join(sorted(unknown))}; there are {names}")
    return [w for w in WORKLOADS if {w.name.lower(), w.name.split("/")[0].lower()} & wanted]


def build_commit(tree, build):
    configure = ["cmake", "-S", tree, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DGUMP_BUILD_BENCH=ON"]
    configure += ["-DGUMP_BUILD_TESTS=OFF", "-DGUMP_BUILD_EXAMPLES=OFF"]
    for command in (configure, ["cmake", "--build", build, "--target", "gump_bench", "--parallel"]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def build_go(go, build):
    """Builds the Go twin into build; returns its path, or None when there is no Go toolchain."""
    if shutil.which(go) is None:
        return None
    binary = build.resolve() / "gumpbench"
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    subprocess.run([go, "build", "-buildvcs=false", "-o", binary, "."], cwd=ROOT / "tools/bench/go", check=True, env=environment)
    return binary


def write_data(path):
    """Writes the file that W18 reads: 1 GiB, on the disk, not in the page cache."""
    size, block = 1 << 30, os.urandom(1 << 20)
    if not path.exists() or path.stat().st_size != size:
        with path.open("wb") as f:
            for _ in range(size // len(block)):
                f.write(block)
            f.flush()
            os.fsync(f.fileno())
    os.environ["BENCH_DATA"] = str(path.resolve())


def figure(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


class Contender:
    """One column: how to start the program of a problem, and the results by (workload, procs, metric)."""

    def __init__(self, title, command=None, environment=None):
        self.title = title
        self.command = command  # problem -> argv; None: the results are from a file
        self.environment = environment or {}
        self.values = {}
        self.failures = []

    @classmethod
    def of_json(cls, title, entries):
        contender = cls(title)
        for e in entries:
            contender.values[(e["workload"], e["procs"], e["metric"])] = e["values"]
        return contender

    def to_json(self):
        return [
            {"workload": name, "procs": procs, "metric": metric, "values": values}
            for (name, procs, metric), values in sorted(self.values.items())
        ]

    def run(self, problem, names, procs, reps, args):
        argv = [*map(str, self.command(problem)), "--reps", str(reps), "--divide", str(args.divide), "--only", ",".join(names)]
        if args.beside:
            argv += ["--beside", args.beside]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GUMP_")}
        environment["GOMAXPROCS"] = str(procs)
        environment.update(self.environment)
        try:
            done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
            problem_text = done.stderr.strip()[-2000:] if done.returncode != 0 else ""
            failed, output = done.returncode != 0, done.stdout
        except subprocess.TimeoutExpired:
            failed, output, problem_text = True, "", f"no end after {TIMEOUT_S} s"
        if failed:
            self.failures.append(f"{self.title} {problem} procs={procs}: {problem_text or 'exit ' + str(done.returncode)}")
        for line in output.splitlines():
            name, procs_field, metric, value = line.split()
            self.values.setdefault((name, int(procs_field.removeprefix("procs=")), metric), []).append(float(value))

    def cell(self, key):
        values = self.values.get(key)
        if not values:
            return "-"
        return f"{figure(statistics.median(values))} ({figure(min(values))}–{figure(max(values))})"

    def median(self, key):
        values = self.values.get(key)
        return statistics.median(values) if values else None


def progress(text):
    if sys.stderr.isatty():
        print(text.ljust(60), end="\r", file=sys.stderr, flush=True)


def measure(contenders, workloads, args):
    """Runs every problem with every GOMAXPROCS; the contenders take turns."""
    problems = dict.fromkeys(w.problem for w in workloads)
    for problem in problems:
        for procs in args.procs:
            names = list(dict.fromkeys(w.name for w in workloads if w.problem == problem and procs in w.procs))
            if not names:
                continue
            if problem in ONE_REPETITION_PER_PROCESS:
                starts, reps = args.reps, 1
            elif problem in ONE_PROCESS:
                starts, reps = 1, args.reps
            else:
                starts, reps = (2, args.reps) if args.reps > 1 else (1, 1)
            for _ in range(starts):
                for contender in contenders[:1] if problem in MACHINE_ONLY | OURS_ONLY else contenders:
                    if contender.command is None or problem in NO_TWIN and contender.title.startswith("go"):
                        continue
                    progress(f"  {contender.title}: {problem} procs={procs}")
                    contender.run(problem, names, procs, reps, args)
    progress("")


def verdict(workload, procs, ours, go):
    """The floor as text, and whether it is met: `pass`, `MISS` and by how much, or nothing if there is nothing to compare."""
    ratio = workload.ratio_at(procs)
    if workload.limit is not None:
        floor, have, allowed = f"≤ {workload.limit:g}", ours, workload.limit
    elif ratio is not None:
        floor = f"≤ {ratio:g} × Go"
        have, allowed = (ours / go if ours is not None and go else None), ratio
    else:
        return "", ""
    if have is None:
        return floor, ""
    if have <= allowed:
        return floor, "pass"
    return floor, f"MISS {have / allowed:.2f}×" if allowed else f"MISS {figure(have)}"


def table(contenders, workloads, procs_list):
    ours, others = contenders[0], contenders[1:]
    traced = next((c for c in contenders if c.title == "gump traced"), None)
    header = ["workload", "metric", "procs", ours.title]
    for other in others:
        header += [other.title, "ratio"]
    rows = [header + ["floor", ""]]
    for workload in workloads:
        for procs in procs_list:
            if procs not in workload.procs:
                continue
            key = (workload.name, procs, workload.metric)
            mine, go = ours.median(key), None
            row = [workload.name, workload.metric, str(procs), ours.cell(key)]
            for other in others:
                theirs = other.median(key)
                go = theirs if go is None and is_twin(ours.title, other.title) else go
                # A traced twin is compared with our traced program.
                base = traced.median(key) if traced and other.title == "go traced" else mine
                row += [other.cell(key), f"{base / theirs:.2f}" if base is not None and theirs else "-"]
            rows.append(row + list(verdict(workload, procs, mine, go)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def is_twin(ours, other):
    """Whether a column is that of the Go twin, in the same run and without a trace."""
    run = ours.removesuffix("gump")
    name = other.removeprefix(run)
    return other.startswith(run) and name.startswith("go") and " " not in name


def ours_in(build):
    return lambda problem: [build.resolve() / "tools/bench" / f"bench_{problem}"]


def commit():
    """The commit of this tree, with -dirty if files differ from it."""
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def write_json(path, here, contenders):
    result = {
        "format": 1,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "host": here,
        "contenders": [{"title": c.title, "results": c.to_json()} for c in contenders],
    }
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def from_json(path):
    """Returns the host and the contenders in a file of --json. The columns are named after the file."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        if result["format"] != 1:
            sys.exit(f"bench: {path} has format {result['format']}; this program reads format 1")
        return result["host"], [Contender.of_json(f"{path.stem}: {c['title']}", c["results"]) for c in result["contenders"]]
    except (OSError, ValueError, KeyError, TypeError) as e:
        sys.exit(f"bench: {path} is no file of --json: {e}")


def compare(paths, workloads, procs_list):
    """Prints the hosts and the results in files of --json, without those workloads that no file has."""
    contenders = []
    for path in paths:
        here, found = from_json(path)
        print(f"{path}:")
        for line in host.lines(here):
            print(f"  {line}")
        contenders += found
    table(contenders, [w for w in workloads if any(k[0] == w.name for c in contenders for k in c.values)], procs_list)
    return 0


def main():
    parser = argparse.ArgumentParser(prog="tools/gump bench", description=__doc__.split("\n\n")[0])
    parser.add_argument("workloads", nargs="*", metavar="W", help="workloads, such as W1 or W8/chan (default: all)")
    parser.add_argument("--reps", type=int, default=5, help="repetitions a process, after a warm-up (default 5)")
    parser.add_argument("--procs", default="1,2,8,64", help="values of GOMAXPROCS (default 1,2,8,64)")
    parser.add_argument("--baseline", type=pathlib.Path, help="also run the programs of this other build directory")
    parser.add_argument("--vs-commit", help="also build and run this commit")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="build directory")
    parser.add_argument("--go", default="go", help="the Go tool (default: go)")
    parser.add_argument("--divide", type=int, default=1, help="divide all counts, for a quick look")
    parser.add_argument("--beside", choices=("stack", "procs"), help="stop the world every 10 ms: Stack(true), or GOMAXPROCS twice")
    parser.add_argument("--traced", action="store_true", help="also run both sides while they write an execution trace")
    parser.add_argument("--json", type=pathlib.Path, help="also write the host and all results to this file")
    parser.add_argument("--with", type=pathlib.Path, dest="beside_files", action="append", default=[], metavar="FILE",
                        help="also show the results in this file of --json (may be repeated)")
    parser.add_argument("--compare", type=pathlib.Path, nargs="+", metavar="FILE",
                        help="measure nothing; compare files of --json, each with the first")
    args = parser.parse_args()
    args.reps = max(1, args.reps)
    args.procs = [int(p) for p in args.procs.split(",")]
    workloads = selected(args)
    if args.compare:
        return compare(args.compare, workloads, args.procs)
    if not (args.build / "tools/bench").is_dir():
        sys.exit(f"bench: {args.build} holds no benchmarks; `tools/gump bench` builds them")

    if any(w.problem in ("http", "loops") for w in workloads) and shutil.which("wrk") is None:
        print("bench: no wrk: what runs over HTTP is left out", file=sys.stderr)
        workloads = [w for w in workloads if w.problem != "http" and not w.name.startswith("LOOP/http/")]
    if any(w.problem == "clients" for w in workloads):
        if not (args.build / "tools/bench/bench_clients").exists() or servers.programs() is None:
            print("bench: W19 is left out; it needs libhiredis-dev, libpq-dev, redis-server and postgresql", file=sys.stderr)
            workloads = [w for w in workloads if w.problem != "clients"]
    os.environ["BENCH_LOADGEN"] = str(args.build.resolve() / "tools/bench/bench_loadgen")
    if any(w.problem == "file" for w in workloads):
        write_data(args.build / "bench-data")
    os.environ["BENCH_DIALER"] = str(args.build.resolve() / "tools/bench/bench_dialer")
    os.environ["BENCH_LINE"] = str(args.build.resolve() / "tools/bench/bench_start_line")
    contenders = [Contender("gump", ours_in(args.build))]
    go_binary = build_go(args.go, args.build)
    if go_binary is not None:
        version = subprocess.run([args.go, "env", "GOVERSION"], capture_output=True, text=True).stdout.strip()
        contenders.append(Contender(version or "go", lambda problem: [go_binary, problem]))
    else:
        print("bench: no Go toolchain: ratios and the floors that rest on them are left out", file=sys.stderr)
    if args.traced:
        contenders.append(Contender("gump traced", ours_in(args.build), {"GUMP_TRACE": os.devnull}))
        if go_binary is not None:
            contenders.append(Contender("go traced", lambda problem: [go_binary, problem], {"BENCH_GOTRACE": os.devnull}))
    here = host.describe(args.build)
    for line in host.lines(here):
        print(line)

    with tempfile.TemporaryDirectory(prefix="gump-bench-") as scratch:
        if args.vs_commit:
            tree = pathlib.Path(scratch) / "tree"
            git = ["git", "-C", ROOT, "worktree"]
            subprocess.run([*git, "add", "--detach", tree, args.vs_commit], check=True, capture_output=True)
            try:
                args.baseline = pathlib.Path(scratch) / "build"
                build_commit(tree, args.baseline)
            finally:
                subprocess.run([*git, "remove", "--force", tree], check=True)
        if args.baseline:
            contenders.append(Contender(args.vs_commit or "baseline", ours_in(args.baseline)))
        with servers.running() if any(w.problem == "clients" for w in workloads) else contextlib.nullcontext():
            measure(contenders, workloads, args)

    if args.json:
        write_json(args.json, here, contenders)
    for path in args.beside_files:
        contenders += from_json(path)[1]
    table(contenders, workloads, args.procs)
    failures = [failure for contender in contenders for failure in contender.failures]
    for failure in failures:
        print(f"bench: FAILED {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
