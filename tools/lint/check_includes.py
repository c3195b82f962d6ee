#!/usr/bin/env python3
"""Checks every #include against the layers of the library.

The call graph has cycles, because the scheduler polls and the poller makes goroutines runnable. The include graph must
have none. The table below says what a file may include; the first pattern that matches its path counts.

Every public header must compile when it is the only one included. Its own source proves that, because it includes the
header first. A header without a source must be in the set that lint/headers compiles.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("runtime", "netpoll", "sysmon", "api", "tests", "tools", "docs/examples")

ANY_STD = r"<[a-z0-9_]+>|<(?:arpa|linux|net|netinet|sys)/[a-z0-9_]+\.h>|<[a-z0-9_]+\.h>"
SANITIZER = r"<sanitizer/[a-z_]+\.h>"
ABSL_ANY = r'"absl/[a-z0-9_/]+\.h"'
ABSL_BASE = r'"absl/base/[a-z_]+\.h"'
ABSL_DEBUGGING = r'"absl/debugging/[a-z_]+\.h"'
RUNTIME = r'"runtime/[a-z0-9_]+\.h"'
NETPOLL = r'"netpoll/[a-z0-9_]+\.h"'
WINDOW = r'"gump/internal/(?:linkname|atomic)\.h"'
API_INTERNAL = r'"gump/internal/(?:list_chain|node_arena)\.h"'
PUBLIC = r'[<"]gump/[a-z0-9_]+\.h[>"]'
EVERYTHING = r".*"

# (files, what they may include, what they may not include even if the second entry allows it)
NO_STD_LOCKS = r"<(?:mutex|thread|shared_mutex|condition_variable|semaphore|latch|barrier|future)>"
RULES = [
    (r"runtime/include/gump/internal/.*", [ANY_STD, WINDOW, r"GUMP_ATOMIC_HEADER"], NO_STD_LOCKS),
    (r"runtime/sanitizer\.(h|cc)", [ANY_STD, ABSL_BASE, RUNTIME, WINDOW, SANITIZER], NO_STD_LOCKS),
    (r"runtime/traceback_frames\.cc",
     [ANY_STD, ABSL_BASE, ABSL_DEBUGGING, r'"absl/base/internal/low_level_alloc\.h"', RUNTIME, WINDOW], NO_STD_LOCKS),
    (r"runtime/traceback[a-z_]*\.cc", [ANY_STD, ABSL_BASE, RUNTIME, WINDOW], NO_STD_LOCKS),
    (r"runtime/.*", [ANY_STD, ABSL_BASE, RUNTIME, WINDOW], NO_STD_LOCKS),
    (r"netpoll/ring\.cc", [ANY_STD, ABSL_ANY, RUNTIME, NETPOLL, WINDOW, r"<liburing\.h>"], NO_STD_LOCKS),
    (r"netpoll/.*", [ANY_STD, ABSL_ANY, RUNTIME, NETPOLL, WINDOW], r"<liburing\.h>|" + NO_STD_LOCKS),
    (r"sysmon/.*", [ANY_STD, RUNTIME, WINDOW, r'"sysmon/[a-z0-9_]+\.h"'], NO_STD_LOCKS),
    (r"api/include/.*", [ANY_STD, ABSL_ANY, PUBLIC, WINDOW, API_INTERNAL], None),
    (r"api/.*", [ANY_STD, ABSL_ANY, PUBLIC, WINDOW, RUNTIME, r'"netpoll/fd\.h"', r'"api/[a-z0-9_]+\.h"'], None),
    (r"docs/examples/.*|tools/bench/.*|tests/install/.*",
     [ANY_STD, ABSL_ANY, PUBLIC, r'"docs/examples/[a-z0-9_]+\.h"', r'"tools/bench/[a-z0-9_]+\.h"',
      r'"[a-z0-9_]+\.h"'], None),
    (r"tests/.*|tools/.*", [EVERYTHING], None),
]
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"][^>"]+[>"]|\w+)', re.M)


def violations(path):
    name = path.relative_to(ROOT).as_posix()
    allowed, forbidden = next((a, f) for pattern, a, f in RULES if re.fullmatch(pattern, name))
    for match in INCLUDE.finditer(path.read_text()):
        target = match.group(1)
        if any(re.fullmatch(a, target) for a in allowed) and not (forbidden and re.fullmatch(forbidden, target)):
            continue
        line = path.read_text().count("\n", 0, match.start(1)) + 1
        yield f"{name}:{line}: may not include {target}"


def not_first(path):
    """A source that has a header of its own, beside it or among the public ones, and does not include it first."""
    beside = path.with_suffix(".h")
    own = []
    if beside.exists():
        own += [f'"{beside.relative_to(ROOT).as_posix()}"', f'"{beside.name}"']
    if (path.parent / "include" / "gump" / beside.name).exists():
        own.append(f'"gump/{beside.name}"')
    if path.suffix != ".cc" or not own:
        return
    first = INCLUDE.search(path.read_text()).group(1)
    if first not in own:
        yield f"{path.relative_to(ROOT).as_posix()}: includes {first} before its own header"


def unproven(listing):
    """The headers in the set HEADERS of listing that have no source of their own; lint/headers compiles the other set."""
    for files in re.findall(r"FILE_SET HEADERS [^)]*FILES([^)]*)", listing.read_text()):
        for name in files.split():
            if not (listing.parent / pathlib.Path(name).name).with_suffix(".cc").exists():
                yield f"{listing.relative_to(ROOT).as_posix()}: {name} has no source of its own: to compiled_alone"


def main():
    files = [p for f in FOLDERS for p in sorted((ROOT / f).rglob("*")) if p.suffix in {".h", ".cc", ".S"}]
    problems = [v for p in files for check in (violations, not_first) for v in check(p)]
    problems += [v for f in FOLDERS for listing in (ROOT / f).glob("CMakeLists.txt") for v in unproven(listing)]
    for problem in problems:
        print(problem)
    print(f"check_includes: {len(files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
