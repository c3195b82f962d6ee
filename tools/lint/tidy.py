#!/usr/bin/env python3
"""clang-tidy over the library's sources, once per content: tidy.py BUILD_DIR.

A clean result is remembered in BUILD_DIR under a hash of the source, its compile command, all headers and the
configuration, so that a run after a small change looks only at what can have changed.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("runtime", "netpoll", "sysmon", "api")


def digest(paths, *words):
    h = hashlib.sha256()
    for path in paths:
        h.update(path.read_bytes())
    for word in words:
        h.update(word.encode())
    return h.hexdigest()


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    commands = {c["file"]: c["command"] for c in json.loads((build / "compile_commands.json").read_text())}
    sources = [p for f in FOLDERS for p in sorted((ROOT / f).glob("*.cc")) if str(p) in commands]
    headers = [p for f in FOLDERS for p in sorted((ROOT / f).rglob("*.h"))]
    common = digest([ROOT / ".clang-tidy", *headers])
    cache = build / "tidy"
    cache.mkdir(exist_ok=True)

    def check(path):
        stamp = cache / digest([path], commands[str(path)], common)
        if stamp.exists():
            return None
        run = subprocess.run(["clang-tidy", "-p", str(build), "--quiet", "--warnings-as-errors=*", str(path)],
                             capture_output=True, text=True, check=False)
        if run.returncode == 0:
            stamp.touch()
            return None
        return run.stdout + run.stderr

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = [text for text in pool.map(check, sources) if text is not None]
    for text in problems:
        print(text)
    print(f"tidy: {len(sources)} files, {len(problems)} with problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
