#!/usr/bin/env python3
"""Runs generated programs and compares their outcomes with the expected ones (generate.py).

compare.py EXPECTED BINARY... [--procs 1,2,4] [--jobs N]

Each program of EXPECTED (expected.json) is run by each BINARY at each GOMAXPROCS. Prints the seeds that differ, and last
the number that agreed. Variables such as GODEBUG are passed on.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys

TIMEOUT = 60  # s; a program takes milliseconds


def outcome(binary, seed, procs):
    env = dict(os.environ, GOMAXPROCS=str(procs), GOTRACEBACK="single")
    try:
        r = subprocess.run([binary, seed], env=env, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired as e:
        return {"stdout": [], "code": "timeout", "stderr": ""}, str(e.stderr or "")
    lines = r.stdout.splitlines()
    return {"stdout": lines, "code": r.returncode, "stderr": r.stderr.split("\n", 1)[0]}, r.stderr


def difference(want, got):
    for key in ("code", "stderr", "stdout"):
        if want[key] == got[key]:
            continue
        if key == "stdout":
            missing = [x for x in want[key] if x not in got[key]][:5]
            extra = [x for x in got[key] if x not in want[key]][:5]
            return f"stdout: {len(got[key])} lines for {len(want[key])}; missing {missing}, extra {extra}"
        return f"{key}: {got[key]!r}, want {want[key]!r}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("expected")
    parser.add_argument("binaries", nargs="+")
    parser.add_argument("--procs", default="1,2,4")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    with open(arguments.expected, encoding="utf-8") as f:
        expected = json.load(f)
    for want in expected.values():
        want["stdout"].sort(key=str.encode)
    arguments.binaries = [os.path.abspath(b) for b in arguments.binaries]
    runs = [(b, s, p) for s in expected for b in arguments.binaries for p in arguments.procs.split(",")]
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for run, result in zip(runs, pool.map(lambda r: outcome(*r), runs)):
            binary, seed, procs = run
            got, stderr = result
            problem = difference(expected[seed], got)
            if problem is None:
                continue
            bad += 1
            print(f"seed {seed}, GOMAXPROCS={procs}, {os.path.basename(binary)}: {problem}", flush=True)
            if bad <= 5:
                print("  " + "\n  ".join(stderr.splitlines()[:40]), flush=True)
    print(f"diff: {len(expected)} programs, {len(runs)} runs, {bad} differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
