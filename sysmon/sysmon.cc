// The monitor: a thread without a P. It looks after everything that the
// scheduler cannot see while all Ms are busy, or asleep.
//
// It wakes every 20 µs while something happens. While nothing does, it wakes
// ever more rarely. The delay grows to 10 ms, but only to 2 ms while a
// goroutine that has not been preempted in place waits for a P, and only to
// 1 ms for a slice after timers were late (sleep_policy.h). When sysmon then
// finds every P idle, it sleeps for up to a minute, until it is told that work
// has begun again. It does not sleep so long in every short pause of the work,
// because waking it costs more than such a sleep would save.
//
// Two words serve to wake sysmon from that sleep. sysmon sets sysmonwait
// under sched.lock, unlocks, and sleeps on sysmonnote. A thread that finds
// sysmonwait set, under sched.lock, clears it and wakes the note. Both hold the
// lock, so each sleep has at most one wake-up. After the sleep sysmon clears
// first sysmonwait and then the note, under the lock. So no wake-up is still to
// come when it clears the note.
//
// Timers are run by Ms with a P. sysmon only makes sure that this happens: it
// forces a goroutine off a P with late timers (retake.cc). So it does not sleep
// past the moment at which the next timer that it knows of would be late
// (shortSleep). If an earlier timer is added while all Ps are busy,
// wakeSysmonBy tells it. If all Ps are idle and timers are left, each timer
// makes a P run for a moment. sysmon need not be woken for that (pidleget): its
// deep sleep ends at most a slice after the sleep of the M in the poller.
#include "runtime/sched/sysmon.h"

#include <algorithm>

#include "runtime/diag/debugvars.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/stats.h"
#include "runtime/diag/trace.h"
#include "runtime/sched/affinity.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/hibernate.h"
#include "runtime/sched/home.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sched/preempt.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/reclaim.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stw.h"
#include "runtime/sched/thread.h"
#include "runtime/sched/time.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"
#include "sysmon/retake.h"
#include "sysmon/sleep_policy.h"

namespace gump::rt {

namespace {

// ns since the last look at the network after which sysmon looks itself.
constexpr int64_t kPollStale = 10'000'000;
constexpr int64_t kDeepSleep = 60'000'000'000;  // ns
// ns between checks of affinity and quota.
constexpr int64_t kMaxProcsPeriod = 1'000'000'000;
// ns by which the kernel may prolong a sleep, unless the thread has another
// slack (prctl(2), PR_SET_TIMERSLACK) or is in a real-time class.
constexpr int64_t kTimerSlackNS = 50'000;
// ns for which an idle thread beyond one per P is kept in case it is needed.
constexpr int64_t kTrimPeriod = 2'000'000'000;
// ns between looks at the homes of hooks.
constexpr int64_t kHomesPeriod = 500'000'000;
// ns between two attempts to find a stack for goroutines that cannot begin
// without one.
constexpr int64_t kStackRetry = 10'000'000;
constexpr int64_t kNsPerMs = 1'000'000;

bool nothingRuns() {
  return sched.gcwaiting.load(relaxed) ||  // checked again under sched.lock
         sched.npidle.load(relaxed) == gomaxprocs.load(relaxed);
}

// DeadCheck repeats checkdead, and looks closer, for as long as there are
// threads that checkdead does not know. It begins after 10 ms and then repeats
// ever more rarely, in the end every second.
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

// untilLate returns the time in ns from now until the next timer is overdue by
// `by`, if no M runs it before. The result is at most 0 if a timer is that late
// already. It is kMaxWhen if there is no timer before kDeepSleep has passed, or
// if no M may run one.
int64_t untilLate(int64_t by) {
  // Rechecked every round.
  if (sched.mainEnded.load(relaxed)) return kMaxWhen;
  const int64_t next = timeSleepUntil();
  const int64_t left = next - nanotime();
  return next == kMaxWhen || left > kDeepSleep ? kMaxWhen : left + by;
}

// shortSleep sleeps for delay (µs), or until a timer becomes late. If a timer
// is late already, a goroutine has to be forced off its P. Then shortSleep
// sleeps for a quarter of the time since the timer became late, but at least
// for kForcePreemptFirstNS. wakeSysmonBy ends the sleep.
void shortSleep(uint32_t delay) {
  int64_t ns = int64_t{delay} * 1000;
  // seq_cst: sysmon stores sysmonLook and then reads the timers. A thread that
  // adds a timer publishes it and then reads sysmonLook (wakeSysmonBy). So
  // one of them sees the store of the other.
  sched.sysmonLook.store(nanotime() + ns, seq_cst);
  const int64_t left = untilLate(kTimerLateNS);
  const int64_t toLook = left < 0 ? -left / 4 : left - kTimerSlackNS;
  ns = std::min(ns, std::max(toLook, kForcePreemptFirstNS));
  if (nodesWait()) ns = std::min(ns, kNodePatience);
  // Relaxed: a request of wakeSysmonBy may be lost here, or come too late. Then
  // untilLate has just read the timer of the request, or will read it before
  // the next sleep.
  if (sched.sysmonWakeNow.load(relaxed) == 0) {
    futexsleep(&sched.sysmonWakeNow, 0, ns);
  }
  sched.sysmonLook.store(0, relaxed);  // awake: no need to hurry us
  sched.sysmonWakeNow.store(0, relaxed);
}

// wakeForLateTimer wakes an M if a timer is late although a P is idle. This
// happens if the M that slept in the poller for that timer has found other work
// there.
void wakeForLateTimer() {
  // A hint; wakep looks under the lock.
  if (sched.npidle.load(relaxed) > 0 && untilLate(kTimerLateNS) <= 0) {
    wakep();
  }
}

// Waiter is a goroutine that waits for its turn in some run queue.
struct Waiter {
  const G* gp = nullptr;  // nullptr if no goroutine waits
  int32_t queue = 0;      // the P that has the queue; below 0: that of a node
  uint32_t place = 0;     // changes when the queue moves

  friend bool operator==(const Waiter&, const Waiter&) = default;
};

// firstWaiter returns the goroutine at the head of the first queue that is not
// empty. All that it reads are hints.
Waiter firstWaiter() {
  if (globalSize(relaxed) > 0) {
    LockScope l(&sched.lock);
    globrunqcollect();
    const int32_t nodes = sched.nnodes.load(relaxed);  // changes under the lock
    for (int32_t k = 0; k < nodes; k++) {
      const G* head = sched.nodes[k].runq.head();
      if (head != nullptr) return {head, -1 - k, 0};
    }
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
// idle and no M looks for work. Then a wake-up has been lost, which must not
// happen. While another M is awake in the runtime, perhaps the wake-up is only
// late, so Watchdog waits for longer. It counts the stalls that it has noticed,
// and wakes an M. GODEBUG watchdog=1 makes it report them, and watchdog=2 makes
// it end the process.
class Watchdog {
 public:
  // suspicious returns true if sysmon must not sleep deeply.
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
    if (waited < kLate && anyMInRuntime()) return;
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

  // idleP returns true if there is an idle P that an M could use at once, if it
  // knew of the work.
  static bool idleP() {
    // Hints: all of it has to stay so for long.
    return sched.npidle.load(relaxed) > 0 &&
           sched.nmspinning.load(relaxed) == 0 &&
           !sched.gcwaiting.load(relaxed) && !sched.mainEnded.load(relaxed);
  }

  // anyMInRuntime returns true if an M other than ours is awake in the
  // runtime, or has been woken, or is being made. It may be between the two
  // halves of waking another M, or of going to sleep, and the kernel may keep
  // it there for longer than a slice. Such an M will still look at the queues,
  // only late.
  static bool anyMInRuntime() {
    if (sched.nmstarting.load(relaxed) > 0) return true;  // all hints
    const M* self = getg()->m;
    for (M* mp = allm.load(acquire); mp != nullptr;
         mp = mp->alllink) {  // pairs with mcommoninit
      const bool sleeps =
          mp->blocked.load(relaxed) && mp->park.key.load(relaxed) == 0;
      if (mp != self && mp->procid.load(relaxed) != 0 &&
          mp->locks.load(relaxed) > 0 && !sleeps) {
        return true;
      }
    }
    return false;
  }

  Waiter waiter_;
  int64_t since_ = 0;  // when its wait began to count; 0: no goroutine waits
};

enum class Slept : uint8_t { kNot, kToTheEnd, kWoken };

// deepSleep sleeps while nothing runs: for a minute at most, and at most a
// slice longer than the M in the poller.
Slept deepSleep(const DeadCheck& deadCheck) {
  lock(&sched.lock);
  if (!nothingRuns()) {
    unlock(&sched.lock);
    return Slept::kNot;
  }
  sched.sysmonwait.store(true, relaxed);  // written and read under sched.lock
  // Still under the lock: either checkdead sees sysmonwait, or we see its
  // deadSuspect.
  int64_t ns =
      std::min(std::max(untilLate(kForcePreemptNS), kForcePreemptNS / 2),
               deadCheck.delay());
  // trimIdleMs ends idle Ms beyond one per P. It can end none if as many are
  // idle as the last retireIdleMs had to keep for their children (nmidleKept).
  // Relaxed: both numbers are hints.
  if (sched.nmidle >
      std::max(gomaxprocs.load(relaxed), sched.nmidleKept.load(relaxed))) {
    ns = std::min(ns, kTrimPeriod);
  }
  // If no stack comes, checkdead soon reports a deadlock. Each round tries to
  // find one (retryNostack), so there must be several rounds before that.
  if (!sched.nostack.empty()) ns = std::min(ns, kStackRetry);
  ns = std::min(ns, hibernateSleep(nanotime()));
  ns = std::min(ns, nextLookAtHomes());
  sched.sysmonUntil = nanotime() + ns;
  unlock(&sched.lock);
  const bool woken = notetsleep(&sched.sysmonnote, ns);
  LockScope l(&sched.lock);
  sched.sysmonwait.store(false, relaxed);
  noteclear(&sched.sysmonnote);
  return woken ? Slept::kWoken : Slept::kToTheEnd;
}

// pollNetwork polls the network if all Ms have been too busy to.
void pollNetwork(int64_t now) {
  // Pairs with the stores around a blocking poll: lastpoll is 0 during one.
  int64_t last = sched.lastpoll.load(acquire);
  if (!netpollinited() || last == 0 || last + kPollStale >= now) return;
  // If this fails, another M has polled in the meantime.
  if (!sched.lastpoll.cas(last, now, acq_rel)) return;
  NetpollResult r = netpoll(0);
  if (r.toRun.empty()) return;
  const AwakeScope awake;
  injectglist(&r.toRun);
  netpollAdjustWaiters(r.delta);
}

// retryNostack lets a goroutine that could not begin for want of a stack try
// again. Stacks may have come back to a pool that the last attempt did not see.
// All Ms may be on their way to sleep, past their last look at the global
// queue, so one is woken.
void retryNostack() {
  if (sched.nnostack.load(relaxed) == 0) return;  // a hint
  const AwakeScope awake;
  nostackWake();
  wakep();
}

// Interval is a task that is due once in a period.
class Interval {
 public:
  explicit Interval(int64_t period) : period_(period) { restart(nanotime()); }
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

// PeriodicTasks are the tasks that sysmon does now and then.
class PeriodicTasks {
 public:
  void run(int64_t now) {
    // A hint. preemptPless runs at most once a slice, because it may have many
    // Ms to look at if calls are slow.
    if (sched.npresumed.load(relaxed) > 0 && pless_.due(now)) preemptPless();
    // A hint. replaceStartingMs waits for a slice's time, because making a
    // thread takes less.
    if (sched.nmstarting.load(relaxed) == 0 || !replacesStartingMs()) {
      starting_.restart(now);
    } else if (starting_.due(now)) {
      replaceStartingMs();
    }
    if (maxProcs_.due(now)) {
      updateMaxProcs();
      updateAffinity();
      LockScope l(&sched.lock);
      checkIdleLists();
    }
    if (homes_.due(now)) lookAtHomes(now);
    if (trim_.due(now)) trimIdleMs();
    forceReclaim(now);
    hibernateDue(now);
    if (traceAdvanceDue(now)) traceAdvance();
  }

 private:
  Interval pless_{kForcePreemptNS};
  Interval starting_{kForcePreemptNS};
  Interval maxProcs_{kMaxProcsPeriod};
  Interval trim_{kTrimPeriod};
  Interval homes_{kHomesPeriod};
};

}  // namespace

void sysmon() {
  becomeSystemThread();
  systemThreadRunsOnWake();
  followsAffinity();
  const bool tracing = debug.schedtrace > 0;
  Interval trace(debug.schedtrace * kNsPerMs);
  trace.beginNow();
  DeadCheck deadCheck;
  PeriodicTasks tasks;
  Watchdog watchdog;
  Slept slept = Slept::kNot;
  for (SleepPolicy policy;;) {
    if (slept != Slept::kToTheEnd) shortSleep(policy.delay());
    const bool tired = !tracing && policy.slow() && !watchdog.suspicious();
    slept = tired && nothingRuns() ? deepSleep(deadCheck) : Slept::kNot;
    if (slept == Slept::kWoken) policy.reset();
    const int64_t now = nanotime();
    pollNetwork(now);
    wakeForLateTimer();
    lookAtNodes(now);
    deadCheck.run(now);
    retryNostack();
    watchdog.run(now);
    tasks.run(now);
    policy.end(retake(now));
    if (tracing && trace.due(now)) schedtrace(debug.scheddetail > 0);
  }
}

}  // namespace gump::rt
