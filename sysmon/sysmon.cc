// The monitor: a thread without a P that looks after what the scheduler cannot
// see while everybody is busy, or asleep.
//
// It wakes every 20 µs while something happens, and ever more rarely, down to
// every 10 ms, while nothing does. When it then finds every P idle it sleeps
// for up to a minute, until somebody says that work has begun again; not at
// once, because to wake it costs more than a short pause in the work is worth.
// That is not a call but two words: under sched.lock it sets sysmonwait and
// then sleeps on sysmonnote; whoever finds sysmonwait set, under sched.lock,
// clears it and wakes the note. Both hold the lock, so each sleep has at most
// one wake-up, and sysmon, which clears the note under the lock after it has
// cleared sysmonwait, meets none that is still to come.
#include "runtime/sysmon.h"

#include "runtime/netpoll.h"
#include "runtime/os_linux.h"
#include "runtime/proc.h"
#include "sysmon/retake.h"

namespace gump::rt {

namespace {

constexpr uint32_t kShortDelay = 20;     // µs
constexpr uint32_t kLongDelay = 10'000;  // µs
constexpr uint32_t kIdleRounds = 50;  // 1 ms of short delays before they grow
// ns since somebody last looked at the network.
constexpr int64_t kPollStale = 10'000'000;
constexpr int64_t kDeepSleep = 60'000'000'000;  // ns
// ns between looks at affinity and quota.
constexpr int64_t kMaxProcsPeriod = 1'000'000'000;
constexpr int64_t kNsPerMs = 1'000'000;

bool nothingRuns() {
  return sched.gcwaiting.load(relaxed) ||  // checked again under sched.lock
         sched.npidle.load(relaxed) == gomaxprocs.load(relaxed);
}

// DeadCheck repeats checkdead for as long as there are threads that it does not
// know: after 10 ms at first, then ever more rarely, every second at last.
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
    checkdead();
  }

 private:
  static constexpr int64_t kFirst = 10 * kNsPerMs;
  static constexpr int64_t kLast = 1000 * kNsPerMs;
  int64_t delay_ = kFirst;
  int64_t next_ = 0;
};

// deepSleep sleeps while nothing runs, a minute at most. True: somebody woke
// us.
bool deepSleep(const DeadCheck& deadCheck) {
  lock(&sched.lock);
  if (!nothingRuns()) {
    unlock(&sched.lock);
    return false;
  }
  sched.sysmonwait.store(true, relaxed);  // written and read under sched.lock
  // Under the lock too: checkdead either sees sysmonwait, or is seen here.
  const int64_t ns = deadCheck.delay();
  unlock(&sched.lock);
  const bool woken = notetsleep(&sched.sysmonnote, ns);
  LockScope l(&sched.lock);
  sched.sysmonwait.store(false, relaxed);
  noteclear(&sched.sysmonnote);
  return woken;
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
  // While the goroutines are on their way from the poller to a queue, every M
  // may look idle.
  incidlelocked(-1);
  injectglist(&r.toRun);
  incidlelocked(1);
  netpollAdjustWaiters(r.delta);
}

}  // namespace

void sysmon() {
  const int64_t tracePeriod = debug.schedtrace * kNsPerMs;
  int64_t lasttrace = 0;
  uint32_t delay = kShortDelay;
  DeadCheck deadCheck;
  int64_t strays = 0;
  int64_t unborn = 0;
  int64_t maxProcs = nanotime() + kMaxProcsPeriod;
  for (uint32_t idle = 0;; idle++) {
    if (idle == 0) {
      delay = kShortDelay;
    } else if (idle > kIdleRounds) {
      delay = delay * 2 > kLongDelay ? kLongDelay : delay * 2;
    }
    usleep(delay);
    if (tracePeriod <= 0 && idle > kIdleRounds && nothingRuns() &&
        deepSleep(deadCheck)) {
      idle = 0;
      delay = kShortDelay;
    }
    int64_t now = nanotime();
    pollNetwork(now);
    deadCheck.run(now);
    // Stacks may have come back to a pool that the last try did not see.
    if (sched.nnostack.load(relaxed) != 0) nostackWake();  // a hint
    // A hint. Once a slice: they are many if calls are slow.
    if (sched.npresumed.load(relaxed) > 0 && now >= strays) {
      strays = now + kForcePreemptNS;
      pressStrays();
    }
    // Not at once: a thread is made in less than a slice. Both are hints.
    if (sched.nmstarting.load(relaxed) == 0 ||
        sched.ninplace.load(relaxed) == 0) {
      unborn = now + kForcePreemptNS;
    } else if (now >= unborn) {
      unborn = now + kForcePreemptNS;
      incidlelocked(-1);  // as in retakeSyscall
      if (P* pp = claimUnborn(/*ofSafePoint=*/false)) handoffp(pp);
      incidlelocked(1);
    }
    if (now >= maxProcs) {
      maxProcs = now + kMaxProcsPeriod;
      updateMaxProcs();
    }
    forceReclaim(now);
    if (retake(now) > 0) idle = UINT32_MAX;  // the loop makes it 0
    if (tracePeriod > 0 && lasttrace + tracePeriod <= now) {
      lasttrace = now;
      schedtrace(debug.scheddetail > 0);
    }
  }
}

}  // namespace gump::rt
