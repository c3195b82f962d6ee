// sysmon beside the scheduler. A goroutine that keeps its P is asked to yield
// in time, for a timer or at the end of its slice. That must hold even if
// sysmon goes to sleep just as another thread asks it to look. Time passes only
// when no thread can run, so a timer that is late is late because no thread was
// told of it.
//
// The table at the end lists the models. Its `setup` names the function that
// starts the threads.
#include "gump/internal/linkname.h"
#include "netpoll/polldesc.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/time.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"
#include "tests/model/model.h"
#include "tests/model/os.h"
#include "tests/model/sched_kit.h"

namespace gump::model {
namespace {

constexpr int64_t kMs = 1'000'000;  // ns
// The time between two looks of a computing goroutine at its request to yield.
constexpr int64_t kStep = kMs;
// A timer is due in kSoon, and must have fired in kInTime. sysmon looks when
// the timer is half a millisecond late, and asks a goroutine to yield. The
// goroutine sees that a step later. sysmon's short sleep may go on for another
// millisecond (kWakeSysmonSlackNS of time.cc).
constexpr int64_t kSoon = 2 * kMs;
constexpr int64_t kInTime = kSoon + 3 * kMs;

rt::Timer timer;
rt::Atomic<int64_t> firedAt;  // 0: not yet
rt::Atomic<bool> done;

void sleepFor(int64_t ns) { rt::usleep(static_cast<uint32_t>(ns / 1000)); }

// compute keeps the P until `done`, and yields only when it is asked to. There
// is no signal here that would make it yield, so it looks at the request.
void compute() {
  rt::G* gp = rt::getg();
  // Each goroutine looks at a time of its own. Otherwise each order of their
  // looks would be explored.
  const int64_t step = kStep + static_cast<int64_t>(gp->goid) * 7'000;
  while (!done.load(rt::acquire)) {
    sleepFor(step);
    if (gp->preempt.load(rt::relaxed)) rt::gosched();
  }
}

int64_t mustFireBy;

void setTimer() {
  rt::M* mp = rt::acquirem();
  const int64_t now = rt::nanotime();
  mustFireBy = now + kInTime;
  timer.f = [](void*, uint64_t, int64_t) {
    firedAt.store(rt::nanotime(), rt::relaxed);
    done.store(true, rt::release);
  };
  rt::timerStart(&timer, now + kSoon);
  rt::releasem(mp);
}

// giveUp ends the others if nothing happens, so that the schedule ends.
void giveUp() {
  sleepFor(26 * kMs + 1'000);
  done.store(true, rt::release);
}

void firedInTime() {
  const int64_t at = firedAt.load(rt::relaxed);
  check(at != 0 && at <= mustFireBy, "the timer was late");
}

// sleepUntilLook sleeps until the short sleep of sysmon is to end.
void sleepUntilLook() {
  const int64_t look = rt::sched.sysmonLook.load(rt::relaxed);
  if (look != 0) sleepFor(look - rt::nanotime());
}

// awaitLongNap returns when sysmon has just begun a short sleep of almost 10
// ms, the longest that there is. Its caller keeps a P meanwhile.
void awaitLongNap() {
  while (rt::sched.sysmonLook.load(rt::relaxed) - rt::nanotime() < 9 * kMs) {
    sleepFor(kMs / 2);
  }
}

// startHog, in setup, starts a goroutine that has had a P for long. It calls
// hog when `first` is woken.
void startHog(void (*hog)()) {
  nameWord(&rt::sched.sysmonLook, "sysmonLook");
  nameWord(&rt::sched.sysmonWakeNow, "sysmonWakeNow");
  static void (*then)();
  then = hog;
  plainThread("hog", [] {
    startG([] {
      awaitLongNap();
      rt::notesleep(&first);
      // It was asked to yield during awaitLongNap.
      rt::getg()->preempt.store(false, rt::relaxed);
      then();
    });
  });
  settle();
}

// ---- A timer while all Ps compute -------------------------------------------

void timerInANap() {
  startHog(compute);
  plainThread("go", [] {
    startG([] {
      rt::notesleep(&second);
      compute();
    });
  });
  settle();
  plainThread("set", [] {
    rt::notewakeup(&first);
    rt::notewakeup(&second);
    // Set the timer at once, or at the very moment at which sysmon looks and
    // begins its next short sleep.
    if (choose(2) == 1) sleepUntilLook();
    setTimer();
  });
  plainThread("end", giveUp);
}

// The thread that sets the timer sees a spinning M counted. Then there is no P
// for that M, because a goroutine that came back from a call has the last one.
void spinnerWithoutAP() {
  startHog(compute);
  plainThread("go", [] {
    startG([] {
      callUntil(&second);
      compute();
    });
  });
  settle();
  plainThread("retake", [] { retakeFromCalls(rt::nanotime()); });
  settle();
  plainThread("begin", [] {
    rt::notewakeup(&first);
    rt::notewakeup(&second);
    sleepFor(1000);
    startG([] {});
  });
  plainThread("set", [] {
    sleepFor(1000);
    setTimer();
  });
  plainThread("end", giveUp);
}

// The goroutine that sets the timer sees a spinning M and relies on it. That M
// finds a goroutine that computes, and runs it.
void spinnerWithWork() {
  startHog([] {
    setTimer();
    startG(compute);
    compute();
  });
  plainThread("begin", [] { rt::notewakeup(&first); });
  plainThread("end", giveUp);
}

// The thread that sets the timer sees a spinning M, which another thread has
// woken for a goroutine that computes.
void wokenSpinner() {
  startHog([] {});
  plainThread("go", [] {
    rt::notewakeup(&first);
    sleepFor(1000);
    startG(compute);
  });
  plainThread("set", [] {
    sleepFor(1000);
    setTimer();
  });
  plainThread("end", giveUp);
}

// An M sleeps in the poller until the timer, and is given a goroutine that
// computes.
rt::PollDesc* pd;

void pollerWithWork() {
  startHog(compute);
  onPlainThread([] {
    int err = 0;
    pd = rt::pollOpen(3, &err);
    check(pd != nullptr, "pollOpen");
  });
  plainThread("go", [] {
    startG([] {
      check(rt::pollWait(pd, rt::PollMode::kRead) == rt::kPollOk, "pollWait");
      compute();
    });
  });
  settle();
  plainThread("set", [] {
    rt::notewakeup(&first);
    setTimer();
  });
  plainThread("kernel", [] { kernelEdge(pd); });
  plainThread("end", giveUp);
}

// A locked goroutine sets the timer and parks. Its M is bound to it, and looks
// for no other goroutine.
void lockedSleeper() {
  startHog(compute);
  plainThread("go", [] {
    startG([] {
      check(rt::lockOSThreadExternal(), "lock");
      rt::notesleep(&second);
      startG(compute);
      mustFireBy = rt::nanotime() + kInTime;
      rt::timeSleep(kSoon);
      firedAt.store(rt::nanotime(), rt::relaxed);
      done.store(true, rt::release);
      rt::unlockOSThreadExternal();
    });
  });
  settle();
  plainThread("begin", [] {
    rt::notewakeup(&first);
    rt::notewakeup(&second);
  });
  plainThread("end", giveUp);
}

// ---- Work that begins while sysmon sleeps -----------------------------------

// sysmon is about to sleep until it is told that work has begun.
void deepSleep() {
  nameWord(&rt::sched.sysmonwait, "sysmonwait");
  // Sleep as long as 50 short sleeps of sysmon. After one or two more, sysmon
  // begins its deep sleep.
  plainThread("idle", [] { sleepFor(50 * 20'000); });
  settle();
  plainThread("go", [] {
    for (int naps = choose(4); naps > 0; naps--) sleepUntilLook();
    startG([] {
      const int64_t begin = rt::nanotime();
      while (!rt::getg()->preempt.load(rt::relaxed)) {
        check(rt::nanotime() < begin + 40 * kMs, "not asked to yield");
        sleepFor(5 * kMs);
      }
    });
  });
}

// ---- The table --------------------------------------------------------------

bool ofSysmon(const void* addr) {
  return addr == &rt::sched.sysmonLook || addr == &rt::sched.sysmonWakeNow ||
         ofSchedOrP(addr);
}

// row adds what all of them have in common.
Registered row(Model m) {
  m.common = setUpScheduler;
  m.delayable = ofSysmon;
  m.hasty = false;
  m.sysmon = true;
  return Registered(m);
}

const Registered kModels[] = {
    row({.name = "sysmon_timer",
         .about = "a timer is set while all Ps compute and sysmon takes a nap",
         .setup = timerInANap,
         .finish = firedInTime,
         .quick = {2, 1, 300, 1},
         .full = {2, 1, 5000}}),
    row({.name = "sysmon_wakep",
         .about = "a timer is left to a spinner that finds no P",
         .setup = spinnerWithoutAP,
         .finish = firedInTime,
         .quick = {1, 0, 300},
         .full = {2, 1, 5000, 1}}),
    row({.name = "sysmon_spinner",
         .about =
             "a timer is left to a spinner, which finds work that computes",
         .setup = spinnerWithWork,
         .finish = firedInTime,
         .quick = {2, 1, 300, 1},
         .full = {2, 1, 5000}}),
    row({.name = "sysmon_woken",
         .about = "a timer is left to a spinner that a thread has woken",
         .setup = wokenSpinner,
         .finish = firedInTime,
         .quick = {1, 1, 300},
         .full = {2, 1, 5000}}),
    row({.name = "sysmon_poller",
         .about =
             "a timer is left to an M in the poller, which finds other work",
         .setup = pollerWithWork,
         .finish = firedInTime,
         .quick = {1, 0, 300},
         .full = {2, 1, 5000, 1}}),
    row({.name = "sysmon_locked",
         .about = "a locked goroutine sleeps, and all others compute",
         .setup = lockedSleeper,
         .finish = firedInTime,
         .quick = {1, 0, 300},
         .full = {2, 1, 5000, 1}}),
    row({.name = "sysmon_deep",
         .about = "work begins while sysmon goes to sleep for long",
         .setup = deepSleep,
         .finish = allRan<1>,
         .quick = {2, 1, 300, 1},
         .full = {3, 1, 5000, 2}}),
};

}  // namespace
}  // namespace gump::model
