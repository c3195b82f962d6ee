#!/usr/bin/env python3
"""A program of tools/bench/peers gives a right result for each of its workloads, with 1, 2 and 4 threads.

    peer_test.py PEER [PROGRAM]

The program checks its sums and counts, and fails if one is wrong. Speed is not looked at. Without PROGRAM, the test is
skipped, because the library or its sources are not there.
"""

import os
import subprocess
import sys

WORKLOADS = {
    "boost_fiber": ["W1", "W2/1000", "W3", "W7/8", "W8/join", "W11"],
    "asio": ["W1", "W2/1000", "W3", "W8/join", "W11"],
    "marl": ["W1", "W3", "W7/8", "W8/join", "W11"],
    "tmc": ["W1", "W2/1000", "W3", "W7/8", "W8/join", "W11"],
    "libgo": ["W1", "W2/1000", "W3", "W7/8", "W8/join", "W11"],
    "photon": ["W1", "W2/1000", "W3", "W7/8", "W8/join", "W11"],
}
PACKAGES = {"boost_fiber": "libboost-fiber-dev", "asio": "libasio-dev"}


def main():
    peer, *program = sys.argv[1:]
    if not program:
        missing = f"Debian's package {PACKAGES[peer]}" if peer in PACKAGES else "the folder with its sources (GUMP_PEERS)"
        print(f"peer_test: skipped: {peer} needs {missing}")
        return 77
    bad = 0
    for threads in (1, 2, 4):
        command = [*program, "--reps", "2", "--divide", "1000", "--only", ",".join(WORKLOADS[peer])]
        done = subprocess.run(command, env={**os.environ, "GOMAXPROCS": str(threads)}, capture_output=True, text=True)
        lines = done.stdout.splitlines()
        ran = list(dict.fromkeys(line.split()[0] for line in lines))
        wrong = [line for line in lines if f" procs={threads} " not in line]
        if done.returncode != 0 or ran != WORKLOADS[peer] or wrong:
            bad += 1
            print(f"{threads} threads: exit code {done.returncode}, workloads {ran}\n{done.stdout}{done.stderr}")
    print(f"peer_test: {peer}, {bad} problems")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
