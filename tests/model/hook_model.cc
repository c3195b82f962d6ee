// A thread that stays in the program's hook for long, beside sysmon, which
// takes the P that is meant for it (runtime/sched/threadhooks.cc). All other Ms
// are in declared calls, or run a goroutine that keeps its P, all for ever. So
// whatever else is to run needs a new thread. Each schedule begins with the
// first new thread in its hook. In half of the schedules that hook ends at the
// moment at which sysmon looks, and in the others it does not end.
//
// There is no sysmon but the one that the models play, and it looks once or
// twice only. The table at the end lists the models.
#include "gump/internal/linkname.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stw.h"
#include "runtime/sched/thread.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/os_linux.h"
#include "sysmon/retake.h"
#include "tests/model/model.h"
#include "tests/model/sched_kit.h"

namespace gump::model {
namespace {

constexpr uint32_t kSliceUS = rt::kForcePreemptNS / 1000;

// How many of the threads that start from now on wait in their hook, and how
// many of them have. The k-th of these waits until mayEnd[k] is 1.
rt::Atomic<int> toBlock, begun;
rt::Atomic<uint32_t> mayEnd[8];
rt::Atomic<int> inHooks;
rt::Note never, ofCall[4];
int calls;
// sysmon counts as starting, because here it has no thread.
int32_t startingAlways;

void endHook(int k) {
  mayEnd[k].store(1, rt::release);
  rt::futexwakeup(&mayEnd[k], 1);
}

void onStart(void*) {
  if (toBlock.load(rt::relaxed) == 0) return;  // one thread at a time is here
  toBlock.add(-1, rt::relaxed);
  const int k = begun.add(1, rt::relaxed) - 1;
  inHooks.add(1, rt::relaxed);
  while (mayEnd[k].load(rt::acquire) == 0) rt::futexsleep(&mayEnd[k], 0, -1);
  inHooks.add(-1, rt::relaxed);
}

void work() {}

void setUpHooksOf(const char* procs) {
  void* old = nullptr;
  check(rt::setThreadHooks({.on_start = onStart}, &old), "setThreadHooks");
  setUpSchedulerOf(procs);
  nameWord(&mayEnd[0], "mayEnd");
  nameWord(&rt::sched.nmstarting, "nmstarting");
  // All Ms but one are in calls from now on, without a P.
  while (rt::sched.nmidle > 1) {
    check(calls < 4, "too many Ms");
    plainThread("call", [] { startG([] { callUntil(&ofCall[calls++]); }); });
    settle();
    plainThread("retake", [] { retakeFromCalls(rt::nanotime()); });
    settle();
  }
  check(rt::sched.npidle.load(rt::relaxed) == rt::gomaxprocs.load(rt::relaxed),
        "a P is not idle");
  check(rt::sched.nmidle == 1, "not one idle M");
  startingAlways = rt::sched.nmstarting.load(rt::relaxed);
}

// sysmonLooks is what sysmon does about threads that do not start.
void sysmonLooks(int times) {
  for (; times > 0; times--) {
    rt::usleep(kSliceUS);
    if (rt::replacesStartingMs()) rt::replaceStartingMs();
  }
}

// hookMayEnd ends the hook at the moment at which sysmon looks for the first
// time, or never.
void hookMayEnd() {
  if (choose(2) == 0) return;
  rt::usleep(kSliceUS);
  endHook(0);
}

// allStarted: n goroutines have run, `idle` Ps are idle, and the Ms that are to
// come are those in their hooks.
template <int n, int idle>
void allStarted() {
  check(ran.load(rt::relaxed) == n, "a goroutine has not run");
  check(rt::sched.npidle.load(rt::relaxed) == idle, "a P is not idle");
  check(rt::sched.nmspinning.load(rt::relaxed) == 0, "an M spins asleep");
  check(rt::sched.nodes[0].runq.empty(), "the global queue is not empty");
  rt::LockScope l(&rt::sched.lock);
  const int starting = rt::sched.nmstarting.load(rt::relaxed) - startingAlways;
  check(starting == inHooks.load(rt::relaxed), "nmstarting");
  check(rt::sched.nmlate >= 0 && rt::sched.nmlate <= starting, "nmlate");
  int32_t ms = 0;
  for (const rt::M* mp = rt::sched.nodes[0].midle; mp != nullptr;
       mp = mp->schedlink) {
    check(mp->p == nullptr && mp->nextp == nullptr, "an idle M has a P");
    ms++;
  }
  check(ms == rt::sched.nmidle, "nmidle");
}

// ---- The models -------------------------------------------------------------

// beginLate starts the goroutine that keeps its P, and `work`. The first n new
// threads stay in their hooks.
void beginLate(int n) {
  toBlock.store(n, rt::relaxed);
  plainThread("go", [] {
    startG([] {
      startG(work);
      rt::notesleep(&first);
      startG(work);
      rt::notesleep(&never);
    });
  });
  settle();
  check(begun.load(rt::relaxed) == 1, "no thread is in its hook");
}

// The thread that was to look for work is in its hook.
void late() {
  beginLate(1);
  plainThread("sysmon", [] { sysmonLooks(1); });
  plainThread("hook", hookMayEnd);
}

// While sysmon takes the P of a thread that is to look for work, the goroutine
// that keeps its P readies another, and relies on that thread. A third P is
// idle, so the one that sysmon takes goes idle, too.
void lateSearch() {
  beginLate(1);
  plainThread("sysmon", [] { sysmonLooks(1); });
  plainThread("later", [] {
    rt::usleep(kSliceUS);
    rt::notewakeup(&first);
  });
}

constexpr int kMayBeLate = 4;  // two for each P

// As many threads are late as may be, so the P waits for one of them. Then
// another of them comes, or the one for which it waits.
void lateLimit() {
  beginLate(8);
  plainThread("sysmon", [] { sysmonLooks(kMayBeLate + 1); });
  settle();
  check(rt::sched.nmlate == kMayBeLate, "not as many late threads as may be");
  check(begun.load(rt::relaxed) == kMayBeLate, "a thread above the limit");
  plainThread("sysmon", [] { sysmonLooks(2); });
  plainThread("hook", [] {
    const int k = choose(2) == 0 ? 0 : kMayBeLate - 1;
    rt::usleep(kSliceUS);
    endHook(k);
  });
}

// A stop of the world takes the P of a thread in its hook, and its start hands
// a P to that thread again. The other P is in a declared call.
void lateStop() {
  toBlock.store(1, rt::relaxed);
  plainThread("go", [] {
    startG([] {
      startG(work);
      callUntil(&first);
    });
  });
  settle();
  plainThread("stopper", [] {
    const int64_t begin = rt::nanotime();
    rt::stopTheWorld(rt::WaitReason::kStoppingTheWorld);
    check(rt::nanotime() - begin < rt::kForcePreemptNS, "the stop has waited");
    rt::startTheWorld();
  });
  plainThread("hook", [] {
    if (choose(2) == 0) return;
    endHook(0);
  });
  plainThread("sysmon", [] { sysmonLooks(1); });
}

// ---- The table --------------------------------------------------------------

// row adds what all of them have in common.
Registered row(Model m) {
  if (m.common == nullptr) m.common = [] { setUpHooksOf("2"); };
  m.delayable = ofSchedOrP;
  m.hasty = false;
  return Registered(m);
}

const Registered kModels[] = {
    row({.name = "hook_late",
         .about = "sysmon takes the P of a thread in its hook",
         .setup = late,
         .finish = allStarted<1, 1>,
         .quick = {1, 1, 300},
         .full = {2, 1, 5000, 1}}),
    row({.name = "hook_search",
         .about = "the same, while a thread relies on the search of that one",
         .common = [] { setUpHooksOf("3"); },
         .setup = lateSearch,
         .finish = allStarted<2, 2>,
         .quick = {1, 0, 300},
         .full = {2, 1, 5000, 1}}),
    row({.name = "hook_limit",
         .about = "more threads stay in their hooks than may be late",
         .setup = lateLimit,
         .finish = allStarted<1, 1>,
         .quick = {2, 1, 300},
         .full = {3, 1, 5000, 2}}),
    row({.name = "hook_stop",
         .about = "a stop of the world takes the P of a thread in its hook",
         .setup = lateStop,
         .finish = allStarted<1, 2>,
         .quick = {1, 1, 300},
         .full = {2, 1, 5000, 1}}),
};

}  // namespace
}  // namespace gump::model
