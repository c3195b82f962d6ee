#!/usr/bin/env python3
"""Runs clang-tidy over the sources of the library that have changed since they were last clean: tidy.py BUILD_DIR.

clang-tidy spends most of its time in the headers of other libraries. So tidy.py checks sixteen sources as one file, which
includes them as in a unity build. It remembers a clean result in BUILD_DIR under a hash of the sources, their compile
command, all headers and the configuration. So a run after a small change checks only the sources that the change may
affect.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import platform
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("runtime", "netpoll", "sysmon", "api")
EACH = 16
OTHER_ARCHITECTURE = "_arm64" if platform.machine() == "x86_64" else "_amd64"


def digest(paths, *words):
    h = hashlib.sha256()
    for path in paths:
        h.update(path.read_bytes())
    for word in words:
        h.update(word.encode())
    return h.hexdigest()


def batches(build):
    """Yields (command without source and object, sources), at most EACH sources, all of one folder.

    The sources are found in the folder, because the CMake list has a single entry for all sources of a unity group.
    """
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"].endswith(".cc"):
            source = pathlib.Path(entry["file"])
            if source.is_relative_to(ROOT):
                commands.setdefault(source.relative_to(ROOT).parts[0], entry["command"].partition(" -o ")[0])
    for folder in (ROOT / f for f in FOLDERS):
        # A file for the other architecture defines the same functions again.
        sources = sorted(p for p in folder.rglob("*.cc") if not p.stem.endswith(OTHER_ARCHITECTURE))
        for i in range(0, len(sources), EACH):
            yield commands[folder.name], sources[i:i + EACH]


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    headers = [p for f in FOLDERS for p in sorted((ROOT / f).rglob("*.h"))]
    common = digest([ROOT / ".clang-tidy", *headers])
    cache = build / "tidy"
    cache.mkdir(exist_ok=True)

    def check(batch):
        command, sources = batch
        name = digest(sources, command, common)
        if (cache / name).exists():
            return None
        together = cache / f"{name}.cc"
        together.write_text("".join(f'#include "{s}"\n' for s in sources))
        run = subprocess.run(["clang-tidy", f"--config-file={ROOT / '.clang-tidy'}", "--quiet", "--warnings-as-errors=*",
                              str(together), "--", *shlex.split(command)[1:]], capture_output=True, text=True, check=False)
        together.unlink()
        if run.returncode == 0:
            (cache / name).touch()
            return None
        return run.stdout + run.stderr

    todo = list(batches(build))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = [text for text in pool.map(check, todo) if text is not None]
    for text in problems:
        print(text)
    print(f"tidy: {sum(len(sources) for _, sources in todo)} files, {len(problems)} of {len(todo)} batches with problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
