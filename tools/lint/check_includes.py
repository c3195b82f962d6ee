#!/usr/bin/env python3
"""Checks every #include against the layers of the library.

The call graph has cycles, because the scheduler polls and the poller makes goroutines runnable. The include graph must
have none. The table below says what a file may include; the first pattern that matches its path counts.

Wrong flags must end a compilation in gump/internal/compiler.h, before any declaration of the library. So each header
that includes no other one of the library includes that one.

A public header says that a shared library exports what it declares (docs/decisions/019-*.md).

Every public header must compile when it is the only one included. Its own source proves that, because it includes the
header first. A header without a source must be in the set that the test lint/headers compiles.
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
SYS = r'"runtime/sys/[a-z0-9_]+\.h"'
SCHED = r'"runtime/sched/[a-z0-9_]+\.h"'
WAIT = r'"runtime/wait/[a-z0-9_]+\.h"'
DIAG = r'"runtime/diag/[a-z0-9_]+\.h"'
RUNTIME = r'"runtime/(?:sys|sched|wait|diag)/[a-z0-9_]+\.h"'
NETPOLL = r'"netpoll/[a-z0-9_]+\.h"'
WINDOW = r'"gump/internal/(?:linkname(?:_[a-z]+)?|arch(?:_[a-z0-9]+)?|atomic|compiler|layout_entry|see_the_error_above)\.h"'
WHOLE_WINDOW = r'"gump/internal/linkname\.h"'
API_INTERNAL = r'"gump/internal/(?!linkname|arch|atomic|compiler|layout_entry)[a-z0-9_]+\.h"'
PUBLIC = r'[<"]gump/(?!internal/)(?:[a-z0-9_]+/)?[a-z0-9_]+\.h[>"]'
EVERYTHING = r".*"

# The folders of runtime/ are levels: sys < sched < wait, and diag beside them. A header includes its own level and those
# below. A source may also include diag, because any code can fail. Each entry of this table allows a source to include
# headers of a level above its own, for a call upwards, with the reason.
UPWARDS = {
    "sys/asm_offsets.cc": [r'"runtime/sched/runtime2\.h"'],      # asserts the offsets that the assembly uses
    "sys/cgroup_linux.cc": [r'"runtime/sched/runtime2\.h"'],     # there are at most kMaxGomaxprocs Ps
    "sys/descriptor.cc": [r'"runtime/sched/(?:fork|mlocks)\.h"'],  # m.locks: it has a lock; no child of fork may take it
    "sys/lock_futex.cc": [r'"runtime/sched/runtime2\.h"'],       # m.locks, and the Note of an M
    "sys/lockrank.cc": [r'"runtime/sched/runtime2\.h"'],         # the locks that an M holds
    "sys/mem.cc": [r'"runtime/sched/mlocks\.h"'],                # m.locks: memory is mapped outside of preemption
    "sys/os_linux.cc": [r'"runtime/sched/(?:runtime2|thread)\.h"'],  # the entry of a new thread, and its signal mask
    "sys/sanitizer.cc": [r'"runtime/sched/(?:mlocks|runtime2|stack)\.h"'],  # the stacks of a G and of an M
    "sys/signal.cc": [r'"runtime/sched/(?:fork|preempt|runtime2|stack)\.h"'],  # SIGURG preempts, SIGSEGV may be a guard
    "sched/proc_new.cc": [r'"runtime/wait/synctest\.h"'],        # a new goroutine is in the bubble of its maker
    "sched/proc_park.cc": [r'"runtime/wait/synctest\.h"'],       # a bubble counts its goroutines that park
    "sched/proc_stw.cc": [r'"runtime/wait/sema\.h"'],            # worldsema
    "sched/rt0.cc": [r'"runtime/wait/sema\.h"'],                 # the table of semaphores is made at start-up
    "sched/time.cc": [r'"runtime/wait/(?:synctest|timechan)\.h"'],  # the clock of a bubble; timers that send
    "diag/debugger.cc": [r'"runtime/wait/(?:chan|synctest)\.h"'],  # a debugger prints channels and bubbles
    "diag/goroutine_profile.cc": [r'"runtime/wait/sema\.h"'],    # one thread at a time takes a profile
    "diag/leak_roots.cc": [r'"runtime/wait/sema\.h"'],           # the table of semaphores has waiters
    "diag/leaks.cc": [r'"runtime/wait/(?:chan|select|timechan|waitlist)\.h"'],  # what goroutines wait for
    "diag/trace.cc": [r'"runtime/wait/sema\.h"'],               # one thread at a time starts, advances or stops a trace
    "diag/snapshot.cc": [r'"runtime/wait/synctest\.h"'],         # a dump names the bubble
    "diag/traceback.cc": [r'"runtime/wait/synctest\.h"'],        # the same
}

# Each rule: the pattern of the files, the patterns that they may include, and a pattern that they may not include even
# if one of those matches.
NO_STD_LOCKS = r"<(?:mutex|thread|shared_mutex|condition_variable|semaphore|latch|barrier|future)>"
RULES = [
    (r"runtime/include/gump/internal/.*", [ANY_STD, WINDOW, r"GUMP_ATOMIC_HEADER"], NO_STD_LOCKS),
    (r"runtime/sys/sanitizer\.h", [ANY_STD, ABSL_BASE, SYS, WINDOW, SANITIZER], NO_STD_LOCKS),
    (r"runtime/sys/sanitizer\.cc", [ANY_STD, ABSL_BASE, SYS, DIAG, WINDOW, SANITIZER], NO_STD_LOCKS),
    (r"runtime/sys/.*\.h", [ANY_STD, ABSL_BASE, SYS, WINDOW], NO_STD_LOCKS),
    (r"runtime/sys/.*", [ANY_STD, ABSL_BASE, SYS, DIAG, WINDOW], NO_STD_LOCKS),
    (r"runtime/sched/.*\.h", [ANY_STD, ABSL_BASE, SYS, SCHED, WINDOW], NO_STD_LOCKS),
    (r"runtime/sched/.*", [ANY_STD, ABSL_BASE, SYS, SCHED, DIAG, WINDOW], NO_STD_LOCKS),
    (r"runtime/wait/.*\.h", [ANY_STD, ABSL_BASE, SYS, SCHED, WAIT, WINDOW], NO_STD_LOCKS),
    (r"runtime/wait/.*", [ANY_STD, ABSL_BASE, SYS, SCHED, WAIT, DIAG, WINDOW], NO_STD_LOCKS),
    (r"runtime/diag/traceback_frames\.cc",
     [ANY_STD, ABSL_BASE, ABSL_DEBUGGING, r'"absl/base/internal/low_level_alloc\.h"', SYS, SCHED, DIAG, WINDOW],
     NO_STD_LOCKS),
    (r"runtime/diag/.*", [ANY_STD, ABSL_BASE, SYS, SCHED, DIAG, WINDOW], NO_STD_LOCKS),
    (r"netpoll/ring\.cc", [ANY_STD, ABSL_ANY, RUNTIME, NETPOLL, WINDOW, r"<liburing\.h>"], NO_STD_LOCKS),
    (r"netpoll/.*", [ANY_STD, ABSL_ANY, RUNTIME, NETPOLL, WINDOW], r"<liburing\.h>|" + NO_STD_LOCKS),
    (r"sysmon/.*", [ANY_STD, RUNTIME, WINDOW, r'"sysmon/[a-z0-9_]+\.h"'], NO_STD_LOCKS),
    (r"api/include/gump/internal/asio_(?:boost|standalone)\.h",
     [ANY_STD, API_INTERNAL, r"<(?:boost/)?(?:asio|system)/[a-z_]+\.hpp>"], None),
    (r"api/include/.*", [ANY_STD, ABSL_ANY, PUBLIC, WINDOW, API_INTERNAL], WHOLE_WINDOW),
    (r"api/.*", [ANY_STD, ABSL_ANY, PUBLIC, WINDOW, API_INTERNAL, RUNTIME, r'"netpoll/(?:fd|once)\.h"',
                 r'"api/(?:[a-z0-9_]+/)?[a-z0-9_]+\.h"'], WHOLE_WINDOW),
    (r"tools/bench/clients/.*", [ANY_STD, PUBLIC, r"<(?:hiredis/hiredis|libpq-fe)\.h>", r'"tools/bench/[a-z0-9_]+\.h"'], None),
    # These are for other libraries. Those of the peers do not use ours.
    (r"tools/bench/peers/.*", [EVERYTHING], r'[<"]gump/.*'),
    (r"docs/examples/bridges/.*|tests/install/consumer_asio\.cc", [EVERYTHING], None),
    (r"docs/examples/jobs_.*", [ANY_STD, ABSL_ANY, PUBLIC, r"<(?:hiredis/hiredis|nats/nats)\.h>", r'"jobs\.h"'], None),
    (r"docs/examples/.*|tools/bench/.*|tests/install/.*",
     [ANY_STD, ABSL_ANY, PUBLIC, r'"docs/examples/[a-z0-9_]+\.h"', r'"tools/bench/[a-z0-9_]+\.h"',
      r'"[a-z0-9_]+\.h"'], None),
    (r"tests/.*|tools/.*", [EVERYTHING], None),
]
PUBLIC_HEADERS = sorted((ROOT / "api/include/gump").rglob("*.h"))
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"][^>"]+[>"]|\w+)', re.M)


def violations(path):
    name = path.relative_to(ROOT).as_posix()
    allowed, forbidden = next((a, f) for pattern, a, f in RULES if re.fullmatch(pattern, name))
    allowed = allowed + UPWARDS.get(name.removeprefix("runtime/"), [])
    for match in INCLUDE.finditer(path.read_text()):
        target = match.group(1)
        if any(re.fullmatch(a, target) for a in allowed) and not (forbidden and re.fullmatch(forbidden, target)):
            continue
        line = path.read_text().count("\n", 0, match.start(1)) + 1
        yield f"{name}:{line}: may not include {target}"


def unchecked(path):
    """A public header that includes no other one, and so must include the one that checks the compiler."""
    name = path.relative_to(ROOT).as_posix()
    if not re.fullmatch(r"(?:api|runtime)/include/.*", name) or path.name == "compiler.h":
        return
    if not any(re.match(r'"gump/(?!internal/see_the_error_above)', i) for i in INCLUDE.findall(path.read_text())):
        yield f'{name}: includes no header of the library, not even "gump/internal/compiler.h"'


def sources_of(header):
    """Where the source of a public header may be: chan.h has api/chan.cc, context.h api/context/context.cc."""
    name = header.relative_to(ROOT / "api/include/gump")
    return [ROOT / "api" / name.with_suffix(".cc"), ROOT / "api" / name.with_suffix("") / name.with_suffix(".cc").name]


def not_first(path):
    """A source that has a header of its own, beside it or among the public ones, and does not include that first."""
    beside = path.with_suffix(".h")
    own = []
    if beside.exists():
        own += [f'"{beside.relative_to(ROOT).as_posix()}"', f'"{beside.name}"']
    own += [f'"gump/{header.relative_to(ROOT / "api/include/gump").as_posix()}"'
            for header in PUBLIC_HEADERS if path in sources_of(header)]
    if path.suffix != ".cc" or not own:
        return
    first = INCLUDE.search(path.read_text()).group(1)
    if first not in own:
        yield f"{path.relative_to(ROOT).as_posix()}: includes {first} before its own header"


def unproven(listing):
    """The headers in listing's set HEADERS that have no source of their own. The test lint/headers compiles the other set."""
    for files in re.findall(r"FILE_SET HEADERS [^)]*FILES([^)]*)", listing.read_text()):
        for name in files.split():
            if not any(source.exists() for source in sources_of(listing.parent / name)):
                yield f"{listing.relative_to(ROOT).as_posix()}: {name} has no source of its own: to compiled_alone"


def unexported(path):
    """A public header whose declarations a shared library hides."""
    name = str(path.relative_to(ROOT))
    if not re.fullmatch(r"(?:api|runtime)/include/.*", name):
        return
    text = path.read_text()
    inside = re.findall(r"^#pragma GCC visibility (?:push\(default\)|pop)$|^namespace gump\b.*\{$", text, re.M)
    if inside and (not inside[0].endswith("push(default)") or not inside[-1].endswith("pop") or len(inside) < 3):
        yield f"{name}: its namespaces are not between #pragma GCC visibility push(default) and pop"


def main():
    files = [p for f in FOLDERS for p in sorted((ROOT / f).rglob("*")) if p.suffix in {".h", ".cc", ".S"}]
    problems = [v for p in files for check in (violations, not_first, unchecked, unexported) for v in check(p)]
    problems += [v for f in FOLDERS for listing in (ROOT / f).glob("CMakeLists.txt") for v in unproven(listing)]
    for problem in problems:
        print(problem)
    print(f"check_includes: {len(files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
