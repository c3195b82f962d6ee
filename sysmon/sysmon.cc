// The monitor: a thread without a P that looks after what the scheduler cannot
// see while everybody is busy, or asleep.
//
// It wakes every 20 µs while something happens, and ever more rarely, down to
// every 10 ms, while nothing does, or every 2 ms while somebody waits for whom
// slices are short (retake.h). When it then finds every P idle it sleeps
// for up to a minute, until somebody says that work has begun again; not at
// once, because to wake it costs more than a short pause in the work is worth.
// That is not a call but two words: under sched.lock it sets sysmonwait and
// then sleeps on sysmonnote; whoever finds sysmonwait set, under sched.lock,
// clears it and wakes the note. Both hold the lock, so each sleep has at most
// one wake-up, and sysmon, which clears the note under the lock after it has
// cleared sysmonwait, meets none that is still to come.
//
// Timers are run by Ms with a P. sysmon only sees to it that they come by: it
// presses a P whose timers are late (retake.cc). So it does not sleep past the
// moment at which the next one would be late (nap), as far as it knows; of an
// earlier one that is added while all Ps are busy it is told (hurrySysmon). And
// if all is idle but for a timer, so that a P will run for a moment every now
// and then, it need not be woken each time: it sleeps at most a slice longer
// than the poller.
#include "runtime/sysmon.h"

#include <algorithm>

#include "runtime/netpoll.h"
#include "runtime/os_linux.h"
#include "runtime/panic.h"
#include "runtime/proc.h"
#include "runtime/stats.h"
#include "sysmon/pace.h"
#include "sysmon/retake.h"

namespace gump::rt {

namespace {

// ns since somebody last looked at the network.
constexpr int64_t kPollStale = 10'000'000;
constexpr int64_t kDeepSleep = 60'000'000'000;  // ns
// ns between looks at affinity and quota.
constexpr int64_t kMaxProcsPeriod = 1'000'000'000;
// ns for which an idle thread beyond one per P is kept for what may come.
constexpr int64_t kTrimPeriod = 2'000'000'000;
// ns between two tries to find a stack for those who cannot begin without.
constexpr int64_t kStackRetry = 10'000'000;
constexpr int64_t kNsPerMs = 1'000'000;

bool nothingRuns() {
  return sched.gcwaiting.load(relaxed) ||  // checked again under sched.lock
         sched.npidle.load(relaxed) == gomaxprocs.load(relaxed);
}

// DeadCheck repeats checkdead, and looks closer, for as long as there are
// threads that it does not know: after 10 ms at first, then ever more rarely,
// every second at last.
class DeadCheck {
 public:
  int64_t delay() const {
    return sched.deadSuspect.load(relaxed) ? delay_ : kDeepSleep;  // a hint
  }
  void run(int64_t now) {
    if (!sched.deadSuspect.load(relaxed)) {  // rechecked every round
      delay_ = kFirst;
      next_ = now + delay_;
      return;
    }
    if (now < next_) return;
    delay_ = delay_ * 2 > kLast ? kLast : delay_ * 2;
    next_ = now + delay_;
    LockScope l(&sched.lock);
    sched.deadSuspect.store(false, relaxed);  // written under sched.lock
    recheckdead();
  }

 private:
  static constexpr int64_t kFirst = 10 * kNsPerMs;
  static constexpr int64_t kLast = 1000 * kNsPerMs;
  int64_t delay_ = kFirst;
  int64_t next_ = 0;
};

// untilLate is in how many ns a timer that nobody has run until then will be
// late by `by`; at most 0: one is. kMaxWhen: there is none, or nobody may run
// it.
int64_t untilLate(int64_t by) {
  // Rechecked every round.
  if (sched.mainEnded.load(relaxed)) return kMaxWhen;
  const int64_t next = timeSleepUntil();
  const int64_t left = next - nanotime();
  return next == kMaxWhen || left > kDeepSleep ? kMaxWhen : left + by;
}

// nap sleeps for delay (µs), or less: until a timer is late, and then until a
// quarter of the time has passed that it is late by, for whoever has to be
// pressed. hurrySysmon ends it.
void nap(uint32_t delay) {
  int64_t ns = int64_t{delay} * 1000;
  // seq_cst: store sysmonLook, then read the timers / publish a timer, then
  // read sysmonLook (hurrySysmon).
  sched.sysmonLook.store(nanotime() + ns, seq_cst);
  const int64_t left = untilLate(kTimerLateNS);
  ns = std::min(ns, std::max(left < 0 ? -left / 4 : left, kPressFirstNS));
  // Relaxed: a hurry that is lost here, or comes too late, is one for a time
  // that we have just read, or are about to.
  if (sched.sysmonHurry.load(relaxed) == 0) {
    futexsleep(&sched.sysmonHurry, 0, ns);
  }
  sched.sysmonLook.store(0, relaxed);  // awake: need not be hurried
  sched.sysmonHurry.store(0, relaxed);
}

// runForgotten wakes an M if a timer is late although a P is idle: the M that
// slept in the poller for it has found something else to do there.
void runForgotten() {
  // A hint; wakep looks under the lock.
  if (sched.npidle.load(relaxed) > 0 && untilLate(kTimerLateNS) <= 0) {
    wakep();
  }
}

// Waiter is a goroutine that waits in some queue for its turn.
struct Waiter {
  const G* gp = nullptr;  // nullptr: there is none
  int32_t queue = 0;      // the P whose it is; -1: the global one
  uint32_t place = 0;     // changes when the queue moves

  friend bool operator==(const Waiter&, const Waiter&) = default;
};

// firstWaiter is the one at the head of the first queue that is not empty. All
// that it reads are hints.
Waiter firstWaiter() {
  if (sched.runqsize.load(relaxed) > 0) {
    LockScope l(&sched.lock);
    if (sched.runq.head != nullptr) return {sched.runq.head, -1, 0};
  }
  const int32_t n = gomaxprocs.load(acquire);  // pairs with procresize
  for (int32_t i = 0; i < n; i++) {
    const P* pp = allp[i];
    const uint32_t h = pp->runqhead.load(acquire);
    if (h != pp->runqtail.load(acquire)) {
      return {pp->runq[h % kRunqSize].load(relaxed), i, h};
    }
    const G* next = pp->runnext.load(relaxed);
    if (next != nullptr) return {next, i, pp->schedtick.load(relaxed)};
  }
  return {};
}

// Watchdog notices that a goroutine waits for a slice's time although a P is
// idle and nobody looks for work: somebody was not woken, which must not
// happen. While somebody is awake in the runtime that may only be late, and it
// waits for longer. It counts what it has noticed, and wakes somebody. GODEBUG
// watchdog=1 makes it say so, watchdog=2 die of it.
class Watchdog {
 public:
  // suspicious tells that sysmon must not sleep deeply.
  bool suspicious() const { return since_ != 0; }
  void run(int64_t now) {
    const Waiter w = idleP() ? firstWaiter() : Waiter();
    if (w.gp == nullptr || w != waiter_ || since_ == 0) {
      waiter_ = w;
      since_ = w.gp == nullptr ? 0 : now;
      return;
    }
    const int64_t waited = now - since_;
    if (waited < kForcePreemptNS) return;
    if (waited < kLate && somebodyInRuntime()) return;
    since_ = now;
    stats.stalls.add(1, relaxed);
    if (debug.watchdog > 0) {
      printf("runtime: goroutine %U waits beside an idle P\n",
             peek(w.gp->goid));
      if (debug.watchdog > 1) fatalthrow("sysmon: work and an idle P");
    }
    const AwakeScope awake;
    wakep();
  }

 private:
  // ns for which the kernel may keep a thread from running.
  static constexpr int64_t kLate = 1'000'000'000;

  // idleP tells whether a P is idle on which somebody could run at once, if he
  // knew.
  static bool idleP() {
    // Hints: all of it has to stay so for long.
    return sched.npidle.load(relaxed) > 0 &&
           sched.nmspinning.load(relaxed) == 0 &&
           !sched.gcwaiting.load(relaxed) && !sched.mainEnded.load(relaxed);
  }

  // somebodyInRuntime tells whether an M other than ours is awake in the
  // runtime, or has been woken, or is being made. It may be between the two
  // halves of waking somebody, or of going to sleep, and the kernel may let it
  // wait there for longer than a slice: the look that it still owes comes late,
  // but comes.
  static bool somebodyInRuntime() {
    if (sched.nmstarting.load(relaxed) > 0) return true;  // all hints
    const M* self = getg()->m;
    for (M* mp = allm.load(acquire); mp != nullptr;
         mp = mp->alllink) {  // pairs with mcommoninit
      const bool asleep =
          mp->blocked.load(relaxed) && mp->park.key.load(relaxed) == 0;
      if (mp != self && mp->procid.load(relaxed) != 0 &&
          mp->locks.load(relaxed) > 0 && !asleep) {
        return true;
      }
    }
    return false;
  }

  Waiter waiter_;
  int64_t since_ = 0;  // 0: there is none
};

enum class Slept : uint8_t { kNot, kToTheEnd, kWoken };

// deepSleep sleeps while nothing runs: a minute at most, and at most a slice
// longer than whoever is in the poller.
Slept deepSleep(const DeadCheck& deadCheck) {
  lock(&sched.lock);
  if (!nothingRuns()) {
    unlock(&sched.lock);
    return Slept::kNot;
  }
  sched.sysmonwait.store(true, relaxed);  // written and read under sched.lock
  // Under the lock too: checkdead either sees sysmonwait, or is seen here.
  int64_t ns =
      std::min(std::max(untilLate(kForcePreemptNS), kForcePreemptNS / 2),
               deadCheck.delay());
  if (sched.nmidle > gomaxprocs.load(relaxed)) {  // trimIdleMs will end some
    ns = std::min(ns, kTrimPeriod);
  }
  // checkdead is not patient for long, and each round is a try.
  if (!sched.nostack.empty()) ns = std::min(ns, kStackRetry);
  sched.sysmonUntil = nanotime() + ns;
  unlock(&sched.lock);
  const bool woken = notetsleep(&sched.sysmonnote, ns);
  LockScope l(&sched.lock);
  sched.sysmonwait.store(false, relaxed);
  noteclear(&sched.sysmonnote);
  return woken ? Slept::kWoken : Slept::kToTheEnd;
}

// pollNetwork looks at the network if all Ms have been too busy to.
void pollNetwork(int64_t now) {
  // Pairs with the stores around a blocking poll: 0 while one goes on.
  int64_t last = sched.lastpoll.load(acquire);
  if (!netpollinited() || last == 0 || last + kPollStale >= now) return;
  // Somebody polls after all.
  if (!sched.lastpoll.cas(last, now, acq_rel)) return;
  NetpollResult r = netpoll(0);
  if (r.toRun.empty()) return;
  const AwakeScope awake;
  injectglist(&r.toRun);
  netpollAdjustWaiters(r.delta);
}

// retryNostack lets a goroutine that could not begin for want of a stack try
// again: stacks may have come back to a pool that the last try did not see. All
// Ms may be on their way to sleep, beyond their last look at the global queue;
// so one is woken.
void retryNostack() {
  if (sched.nnostack.load(relaxed) == 0) return;  // a hint
  const AwakeScope awake;
  nostackWake();
  wakep();
}

// replaceUnborn gives Ps that wait for threads which do not come to threads
// that are there. Then wakep: the M that was to begin by looking for work may
// never begin.
void replaceUnborn() {
  const AwakeScope awake;
  const int32_t n = gomaxprocs.load(relaxed);  // a number to aim at
  for (int32_t i = 0; i < n && idleThread(); i++) {
    P* pp = claimUnborn(/*ofSafePoint=*/false);
    if (pp == nullptr) break;
    handoffp(pp);
  }
  if (idleThread()) wakep();
}

// Every is something to be done once in a period.
class Every {
 public:
  explicit Every(int64_t period) : period_(period) { restart(nanotime()); }
  void restart(int64_t now) { next_ = now + period_; }
  void beginNow() { next_ = 0; }
  bool due(int64_t now) {
    if (now < next_) return false;
    restart(now);
    return true;
  }

 private:
  const int64_t period_;
  int64_t next_ = 0;
};

// Chores is what sysmon does now and then.
class Chores {
 public:
  void run(int64_t now) {
    // A hint. Once a slice: they are many if calls are slow.
    if (sched.npresumed.load(relaxed) > 0 && strays_.due(now)) pressStrays();
    // Not at once: a thread is made in less than a slice. A hint.
    if (sched.nmstarting.load(relaxed) == 0 || !idleThread()) {
      unborn_.restart(now);
    } else if (unborn_.due(now)) {
      replaceUnborn();
    }
    if (maxProcs_.due(now)) {
      updateMaxProcs();
      LockScope l(&sched.lock);
      checkIdleLists();
    }
    if (trim_.due(now)) trimIdleMs();
    forceReclaim(now);
  }

 private:
  Every strays_{kForcePreemptNS};
  Every unborn_{kForcePreemptNS};
  Every maxProcs_{kMaxProcsPeriod};
  Every trim_{kTrimPeriod};
};

}  // namespace

void sysmon() {
  becomeSystemThread();
  (void)shortSlices();
  const bool tracing = debug.schedtrace > 0;
  Every trace(debug.schedtrace * kNsPerMs);
  trace.beginNow();
  DeadCheck deadCheck;
  Chores chores;
  Watchdog watchdog;
  Slept slept = Slept::kNot;
  for (Pace pace;;) {
    if (slept != Slept::kToTheEnd) nap(pace.delay());
    const bool tired = !tracing && pace.slow() && !watchdog.suspicious();
    slept = tired && nothingRuns() ? deepSleep(deadCheck) : Slept::kNot;
    if (slept == Slept::kWoken) pace.reset();
    const int64_t now = nanotime();
    pollNetwork(now);
    runForgotten();
    deadCheck.run(now);
    retryNostack();
    watchdog.run(now);
    chores.run(now);
    pace.end(retake(now));
    if (tracing && trace.due(now)) schedtrace(debug.scheddetail > 0);
  }
}

}  // namespace gump::rt
