// Retaking the P of a goroutine that does not enter the runtime by itself,
// either because it is asleep in an undeclared system call or because it
// computes. This file has the request, the choice between the ways, and the
// looks at a thread.
//
// m.locks tells where a thread is. Above 0, it is in the runtime, will soon
// reach a point where it looks at the requests, and is left alone. At 0, and
// with a goroutine in m.curg, it is in code of the program, which never touches
// the P. So the P can be taken without its help.
//
// There are three ways, and the thread's state decides between the last two:
//  * A request (preemptone): the goroutine yields at its next entry into the
//    runtime.
//  * A thread that sleeps is presumed blocked (preempt_blocked.cc). It loses
//    its P, and notices that at its next entry into the runtime.
//  * A thread that computes gets a signal, and is preempted in place
//    (preempt_signal.cc). Its goroutine waits for its turn inside the handler.
//
// A goroutine preempted while holding a lock always runs again: the global
// queue is FIFO. (A goroutine that returned its P to a stop-the-world before it
// could run goes back to the front, but not twice in a row; see
// requeueDuringStop.) Other goroutines that block on that lock are presumed
// blocked and lose their Ps. The template thread may block on the lock too, for
// example on malloc's in pthread_create. So a P never waits for a new thread
// while a goroutine is preempted in place. If there is no idle thread, the P
// goes to the oldest such goroutine, and a thread is ordered for later
// (startm). A P that waits for a thread which does not come is taken back
// (takeStartingP).
#include "runtime/sched/preempt.h"

#include <algorithm>

#include "runtime/diag/debugvars.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/threadstate_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

// look is the first step of forcePreempt and of preemptPless, and recordClock
// is a step of expectForce. Their comments are below.
ThreadState look(M* mp, int32_t tid, ForcePreempt how);
void recordClock(M* mp, int32_t tid);

}  // namespace

bool preemptone(P* pp) {
  // Best effort: the request may reach the wrong G, or be ignored. It is then
  // repeated.
  M* mp = pp->m.load(acquire);  // pairs with acquirep
  if (mp == nullptr || mp == getg()->m) return false;
  G* gp = mp->curg.load(acquire);  // pairs with execute
  if (gp == nullptr) return false;
  gp->preempt.store(true, relaxed);  // read at each runtime entry
  pp->preempt.store(true, relaxed);
  return true;
}

void preemptall() {
  int32_t n = gomaxprocs.load(acquire);  // pairs with procresize
  for (int32_t i = 0; i < n; i++) {
    if (allp[i]->status.load(acquire) == kPrunning) preemptone(allp[i]);
  }
}

M* forcePreempt(P* pp, ForcePreempt how) {
  M* mp = pp->m.load(acquire);  // pairs with acquirep
  if (mp == nullptr) return nullptr;
  G* gp = mp->curg.load(acquire);  // pairs with execute
  // In the scheduler, or elsewhere in the runtime: it looks at the request by
  // itself.
  if (gp == nullptr || mp->locks.load(relaxed) != 0) return nullptr;
  const int32_t tid = mp->procid.load(acquire);  // pairs with minit
  if (tid == 0) return nullptr;
  const ThreadState state = look(mp, tid, how);
  if (state == ThreadState::kAsleep && haveMembarrier()) {
    const bool take = how == ForcePreempt::kStop || threadForP();
    return take && presumeBlocked(pp, mp, gp) ? mp : nullptr;
  }
  // Without membarrier a thread that sleeps is sent the signal too. Its call
  // may return EINTR; see docs/preemption.md.
  if (how != ForcePreempt::kIfAsleep &&
      (state == ThreadState::kAsleep || state == ThreadState::kRunning)) {
    preemptM(mp);
  }
  return nullptr;
}

void expectForce(P* pp) {
  M* mp = pp->m.load(acquire);  // pairs with acquirep
  // With asyncpreemptoff, preemptM sends no signal.
  if (mp == nullptr || debug.asyncpreemptoff != 0) return;
  // In the scheduler, or elsewhere in the runtime: see forcePreempt.
  if (mp->curg.load(acquire) == nullptr ||  // pairs with execute
      mp->locks.load(relaxed) != 0) {
    return;
  }
  const int32_t tid = mp->procid.load(acquire);  // pairs with minit
  if (tid == 0) return;
  // The answer comes with the second look. Only the records matter here.
  uint64_t sleeps;
  const ThreadState state = threadState(tid, &sleeps);
  if (state == ThreadState::kUnseen) {
    recordClock(mp, tid);
  } else if (state == ThreadState::kRunning) {
    (void)computes(mp, tid, sleeps, ForcePreempt::kHandOff);
  }
}

void preemptPless() {
  // While a thread is being made, a running goroutine may hold a lock that
  // pthread_create waits for. If that goroutine were preempted, it would need a
  // P to go on, and the only P may wait for the new thread.
  if (sched.nmstarting.load(relaxed) > 0) return;  // a hint; asked again soon
  for (M* mp = allm.load(acquire); mp != nullptr;
       mp = mp->alllink) {  // pairs with mcommoninit
    // Hints: the handler decides.
    if ((mp->presumed.load(relaxed) & kPresumedTaken) == 0) continue;
    if (mp->locks.load(relaxed) != 0) continue;
    const int32_t tid = mp->procid.load(acquire);  // pairs with minit
    if (tid != 0 &&
        look(mp, tid, ForcePreempt::kHandOff) == ThreadState::kRunning) {
      preemptM(mp);
    }
  }
}

// ---- What a thread does -----------------------------------------------------

namespace {

// ns after which a stop of the world assumes that a running thread computes,
// even if the thread has had no processor.
constexpr int64_t kStopLook = 1'000'000;

int64_t gapFor(ForcePreempt how) {
  return how == ForcePreempt::kStop ? kStopGap : kForcePreemptGap;
}

// ClockLook is what a thread has done since the last look at its CPU clock.
struct ClockLook {
  bool valid;       // there was such a look, and it was long enough ago
  int64_t elapsed;  // ns since then
  int64_t used;     // CPU time in ns since then; -1: the clock cannot be read
};

// lookAtClock looks at the clock of mp's thread, if the last look was at least
// gap ns ago.
// On: any, but mp's thread.  P: either.  Locks: none.  Parks: no.
ClockLook lookAtClock(M* mp, int32_t tid, int64_t gap) {
  constexpr int64_t kStaleLookNS = 100'000'000;
  // Read before cpu, so the CPU time used in between counts as well.
  const int64_t now = nanotime();
  const int64_t cpu = threadCpuTime(tid);
  // Several threads may look at once. A mixed pair costs one more look.
  const int64_t elapsed = now - mp->clockTime.load(relaxed);
  const int64_t before = mp->clockCpu.load(relaxed);
  if (elapsed < gap) return {};
  mp->clockTime.store(now, relaxed);
  mp->clockCpu.store(cpu, relaxed);
  const bool known = cpu >= 0 && before >= 0;
  return {elapsed < kStaleLookNS, elapsed, known ? cpu - before : -1};
}

// recordClock only records what the next lookAtClock compares with.
// On: any, but mp's thread.  P: either.  Locks: none.  Parks: no.
void recordClock(M* mp, int32_t tid) {
  (void)lookAtClock(mp, tid, kForcePreemptGap);
}

// hasProcessor returns true if the thread's CPU clock runs, so if the thread is
// on a processor at this moment.
// On: any.  P: either.  Locks: none.  Parks: no.
bool hasProcessor(int32_t tid) {
  const int64_t before = threadCpuTime(tid);
  return before >= 0 && threadCpuTime(tid) > before;
}

// stateByClock estimates the state of mp's thread from its CPU clock. It is for
// threads whose state /proc does not show. If the clock cannot be read either,
// a thread that is outside of the runtime at two looks counts as asleep.
//
// A wrong answer has one of two effects, if there is a membarrier
// (forcePreempt):
//  * After kRunning the caller sends the thread a signal. If the thread is
//    asleep, the signal cuts its system call short, which must not happen. So
//    this answer needs proof: the thread has used nearly all of a span of time
//    that has just ended, and has a processor now, or would have one if the
//    caller did not use it. The span is so short that hardly any sleep had room
//    in it.
//  * After kAsleep the caller takes the P. If the thread computes, or waits for
//    a processor, it runs on without the P, and does not touch it
//    (preempt_blocked.cc). It notices the loss at its next entry into the
//    runtime. Until then it may compute in addition to the GOMAXPROCS threads
//    that have a P. preemptPless signals it once there is proof that it does.
// So kAsleep does no harm to any thread, and is the answer where there is no
// proof. A goroutine that waits for the P does not wait for proof.
//
// If the last look is too long ago, the thread may have computed since, and
// gone to sleep. So there is a second look, kForcePreemptGap later. The caller
// sleeps in between, because the thread may need our processor to show that it
// computes. (A stop of the world needs no second look in its first 20 µs, when
// it spins.)
//
// It is not for kIfAsleep, which has asleepByClock.
// On: any, but mp's thread.  P: either.  Locks: none.
// Parks: blocks the thread, briefly.
ThreadState stateByClock(M* mp, int32_t tid, ForcePreempt how) {
  constexpr int64_t kShortSpanNS = 4 * kForcePreemptGap;
  const int64_t gap = gapFor(how);
  ClockLook l = lookAtClock(mp, tid, gap);
  if (!l.valid) return ThreadState::kUnknown;
  if (l.used == 0) return ThreadState::kAsleep;
  if (l.used > 0 && l.elapsed > kShortSpanNS) {
    usleep(static_cast<uint32_t>(kForcePreemptGap / 1000));
    l = lookAtClock(mp, tid, gap);
    // Another thread has looked meanwhile, and acts on what it has seen.
    if (!l.valid) return ThreadState::kUnknown;
  }
  const bool computed =
      l.elapsed <= kShortSpanNS && l.used >= l.elapsed - l.elapsed / 8;
  // A thread that may use only the caller's processor has none now. The kernel
  // is asked each time, because the program, or its operator, may change what
  // processors a thread may use.
  return computed && (hasProcessor(tid) || isConfinedHere(tid))
             ? ThreadState::kRunning
             : ThreadState::kAsleep;
}

// asleepByClock is stateByClock for kIfAsleep. The thread is asleep only if it
// has used no CPU time, because a thread that computes is to keep its P.
ThreadState asleepByClock(const ClockLook& l) {
  return l.valid && l.used == 0 ? ThreadState::kAsleep : ThreadState::kUnknown;
}

// computesAllAlong returns true if the last look at the thread's clock was at
// most 1 ms ago, and the thread has used nearly all of the time since. So it
// does not sleep, or has slept for at most an eighth of that time. (If the
// caller lost its processor between reading the two clocks, the thread seems to
// have used more than all of the time. Such a look proves nothing.)
bool computesAllAlong(const ClockLook& l) {
  constexpr int64_t kLongestNS = 1'000'000;
  const int64_t eighth = l.elapsed / 8;
  return l.valid && l.elapsed <= kLongestNS && l.used >= l.elapsed - eighth &&
         l.used <= l.elapsed + eighth;
}

// look returns the state of mp's thread. It says kRunning only if the thread
// has computed for long enough.
//
// The kernel takes some 20 µs to write a status. sysmon asks again and again
// whether a thread sleeps, on a processor that the thread may need. So for
// kIfAsleep the first look is at the clock, which takes less than a microsecond
// and shows whether the thread computes.
//
// After kRunning the caller sends a signal, which cuts a sleep short that has
// begun in between. To read a status and to judge it takes longer than most
// threads take to go to sleep. So the last look is at the clock, too. A thread
// that has no processor is asleep by now, or waits for a processor, and a
// second status tells. It can go to sleep only if it gets one before the signal
// is sent.
// On: any, but mp's thread.  P: either.  Locks: none.
// Parks: blocks the thread, briefly.
ThreadState look(M* mp, int32_t tid, ForcePreempt how) {
  const bool ifAsleep = how == ForcePreempt::kIfAsleep;
  const ClockLook clock =
      ifAsleep ? lookAtClock(mp, tid, kForcePreemptGap) : ClockLook{};
  if (computesAllAlong(clock)) return ThreadState::kUnknown;
  uint64_t sleeps;
  const ThreadState state = threadState(tid, &sleeps);
  if (state == ThreadState::kUnseen) {
    return ifAsleep ? asleepByClock(clock) : stateByClock(mp, tid, how);
  }
  if (state != ThreadState::kRunning) return state;
  if (!computes(mp, tid, sleeps, how)) return ThreadState::kUnknown;
  if (hasProcessor(tid)) return ThreadState::kRunning;
  uint64_t now = 0;
  const ThreadState second = threadState(tid, &now);
  const bool slept = second == ThreadState::kRunning && now != sleeps;
  return slept ? ThreadState::kUnknown : second;
}

}  // namespace

// A thread that has woken only to go to sleep again must not be sent a signal,
// which could cut that sleep short. A thread that has woken but has no
// processor yet is still in the call in which it slept: poll would return EINTR
// although its time is up. Its CPU clock stands still, which distinguishes it
// from a thread that computes.
bool computes(M* mp, int32_t tid, uint64_t sleeps, ForcePreempt how) {
  const int64_t gap = gapFor(how);
  const int64_t now = nanotime();
  const int64_t cpu = threadCpuTime(tid);
  // Several threads may force the same goroutine at once. The acquire pairs
  // with the release below. So we read the clocks that belong to this count, or
  // those of a later look with the same count.
  if (mp->forcePreemptSleeps.load(acquire) != sleeps ||
      mp->forcePreemptTime.load(relaxed) == 0) {
    mp->forcePreemptTime.store(now, relaxed);
    mp->forcePreemptCpu.store(cpu, relaxed);
    mp->forcePreemptSleeps.store(sleeps, release);
    return false;
  }
  const int64_t seen = now - mp->forcePreemptTime.load(relaxed);
  if (seen < gap) return false;
  // The thread last slept in our own handler.
  if (mp->resumedSleeps.load(relaxed) == sleeps) return true;
  // Half of the gap, because the hypervisor's share is on no clock. If the CPU
  // clock cannot be read (-1), the time awake has to do.
  return cpu < 0 || cpu - mp->forcePreemptCpu.load(relaxed) >= gap / 2 ||
         (how == ForcePreempt::kStop && seen >= kStopLook);
}

}  // namespace gump::rt
