#include "sysmon/retake.h"

#include <algorithm>

#include "runtime/diag/debugvars.h"
#include "runtime/diag/fuzzsched.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/group.h"
#include "runtime/sched/mfinal.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/preempt.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/threadhooks.h"
#include "runtime/sched/time.h"
#include "runtime/sys/os_linux.h"

namespace gump::rt {

namespace {
// localWaiting returns true if goroutines wait in pp's own queues, or if the
// finalizer goroutine waits for the next M that looks for work. (nyielded
// counts the part of the global queue that a sole P uses without a lock.) It
// reads only hints.
bool localWaiting(const P* pp) {
  return !runqempty(pp) || pp->nyielded.load(relaxed) > 0 ||
         fingwake.load(relaxed);
}

// unpreemptedWaiting returns true if goroutines wait for pp or for any P of its
// node, except those that have been preempted in place. Of the global queue it
// looks only at the head.
bool unpreemptedWaiting(const P* pp) {
  if (localWaiting(pp)) return true;
  if (queuedOn(nodeOf(pp)) == 0) return false;  // a hint
  LockScope l(&sched.lock);
  globrunqcollect();
  const G* head = nodeOf(pp)->runq.head();
  return head != nullptr && !head->inPlace;
}

// computesLong returns true if the thread on pp has used kShortCpuNS of CPU
// time since the first such look at it in this slice. Elapsed time would not
// do: a thread that the kernel keeps waiting has not used its slice. (In a
// declared call pp has no thread, so there the elapsed time counts.)
bool computesLong(P* pp) {
  const M* mp = pp->m.load(acquire);  // pairs with acquirep
  if (mp == nullptr) return true;
  const int32_t tid = mp->procid.load(acquire);  // pairs with minit
  const int64_t cpu = tid == 0 ? -1 : threadCpuTime(tid);
  if (cpu < 0) return false;
  P::SysmonTick* seen = &pp->sysmontick;
  if (seen->cpuTid != tid) {
    seen->cpuTid = tid;
    seen->cpu = cpu;
  }
  return cpu - seen->cpu >= kShortCpuNS;
}

// sliceUsedUp returns true if pp has been on one slice for kForcePreemptNS. If
// unpreemptedWaiting, less is enough: kShortSliceNS, and after that kShortCpuNS
// of CPU time. Goroutines that were preempted in place do not make the slices
// of others short.
bool sliceUsedUp(P* pp, int64_t now) {
  P::SysmonTick* seen = &pp->sysmontick;
  // Written by the P's owner; only its change matters.
  const uint32_t tick = pp->schedtick.load(relaxed);
  if (seen->schedtick != tick) {
    seen->schedtick = tick;
    seen->schedwhen = now;
    seen->forcewhen = 0;
    seen->forcedelay = kForcePreemptFirstNS;
    seen->lookwhen = now + kAsleepNS;
    seen->lookdelay = kAsleepNS;
    seen->cpuTid = 0;
    return false;
  }
  const int64_t used = now - seen->schedwhen;
  return used >= kForcePreemptNS ||
         (used >= kShortSliceNS && unpreemptedWaiting(pp) && computesLong(pp));
}

// timersOverdue returns true if timers of pp are overdue and only pp's owner
// can run them. An M that spins or gets an idle P would steal them.
bool timersOverdue(const P* pp, int64_t now) {
  const int64_t when = wakeTime(&pp->timers);
  // Hints: the next look comes soon.
  return when != 0 && now - when >= kTimerLateNS &&
         sched.nmspinning.load(relaxed) + sched.npidle.load(relaxed) == 0;
}

// timersLate returns true if timersOverdue, and sysmon has seen the slice for
// kForcePreemptFirstNS, because an owner that has just begun a slice has run
// the timers. Its goroutine may be one that the timers readied, which would
// lose its turn if it were asked to yield.
bool timersLate(const P* pp, int64_t now) {
  return now - pp->sysmontick.schedwhen >= kForcePreemptFirstNS &&
         timersOverdue(pp, now);
}

// repeats returns true if the schedule has to be the same in each run with the
// same seed. Then the seed and not the clock decides when goroutines yield.
// Only a goroutine that sleeps in the kernel for a whole slice loses its P.
bool repeats() { return fuzzing() && debug.asyncpreemptoff != 0; }

// othersWait returns true if another goroutine would use pp, or the slot that
// the goroutine on pp has in its group.
bool othersWait(const P* pp) {
  return localWaiting(pp) || queuedOn(nodeOf(pp)) > 0 ||  // hints
         groupWants(pp);
}
}  // namespace

bool retakeP(P* pp, int64_t now) {
  // A hint: a wrong request only costs a yield.
  if (pp->status.load(acquire) != kPrunning) return false;
  if (!sliceUsedUp(pp, now) && !timersLate(pp, now)) {
    // sysmon sees this slice for the first time. Most likely the slice began
    // before the timers were due, so the owner has not run them.
    if (now == pp->sysmontick.schedwhen &&
        timersOverdue(pp, now + kForcePreemptFirstNS)) {
      expectForce(pp);
      pp->sysmontick.expectwhen = now;
    }
    return false;
  }
  const bool asked = repeats() || preemptone(pp);
  P::SysmonTick* seen = &pp->sysmontick;
  if (timersLate(pp, now)) seen->latewhen = now;
  if (!asked || now < seen->forcewhen) return asked;
  seen->forcewhen = now + seen->forcedelay;
  seen->forcedelay = std::min(2 * seen->forcedelay, kForcePreemptNS);
  const AwakeScope awake;
  // A goroutine that computes while none waits for its P goes on, because
  // stopping it costs something.
  const bool wanted = othersWait(pp) || timersLate(pp, now);
  const ForcePreempt how =
      wanted ? ForcePreempt::kHandOff : ForcePreempt::kIfAsleep;
  if (forcePreempt(pp, how) != nullptr) handoffp(pp);
  return true;
}

bool retakeAsleep(P* pp, int64_t now) {
  // A hint: presumeBlocked decides.
  if (pp->status.load(acquire) != kPrunning || sliceUsedUp(pp, now) ||
      repeats()) {
    return false;
  }
  P::SysmonTick* seen = &pp->sysmontick;
  if (now < seen->lookwhen || !othersWait(pp)) return false;
  seen->lookwhen = now + seen->lookdelay;
  seen->lookdelay *= 2;
  const AwakeScope awake;
  const bool taken = forcePreempt(pp, ForcePreempt::kIfAsleep) != nullptr;
  if (taken) handoffp(pp);
  return taken;
}

bool retakeSyscall(P* pp, int64_t now) {
  if (pp->status.load(acquire) != kPsyscall) return false;  // the cas decides
  P::SysmonTick* seen = &pp->sysmontick;
  const uint32_t tick = pp->syscalltick.load(relaxed);  // compared for change
  // A goroutine that makes one short call after another is hardly ever seen
  // outside of a call, where it could be asked to yield.
  const bool usedUp = sliceUsedUp(pp, now);
  if (seen->syscalltick != tick) {
    seen->syscalltick = tick;
    seen->syscallwhen = now;
    if (!usedUp) return false;
  }
  const bool others = othersWait(pp);
  // Hints: the next look comes soon.
  const bool idle =
      sched.nmspinning.load(relaxed) + sched.npidle.load(relaxed) > 0;
  if (!others && idle && seen->syscallwhen + kForcePreemptNS > now) {
    return false;
  }
  const AwakeScope awake;  // the M in the call may return and park just now
  const bool taken = takeFromCall(pp, kPidle);
  if (taken) {
    pp->syscalltick.add(1, relaxed);
    handoffp(pp);
  }
  return taken;
}

Retaken retake(int64_t now) {
  Retaken r;
  const int32_t n = gomaxprocs.load(acquire);  // pairs with procresize
  for (int32_t i = 0; i < n; i++) {
    P* pp = allp[i];
    if (retakeAsleep(pp, now)) r.taken++;
    // True from the first forcePreempt of the slice to the second.
    if (retakeP(pp, now) &&
        pp->sysmontick.forcedelay == 2 * kForcePreemptFirstNS) {
      r.forcing = true;
    }
    if (pp->sysmontick.expectwhen == now) r.forcing = true;
    if (retakeSyscall(pp, now)) r.taken++;
    if (pp->status.load(acquire) == kPrunning && unpreemptedWaiting(pp))
      r.waiting = true;
    const int64_t late = pp->sysmontick.latewhen;
    if (late != 0 && now - late < kForcePreemptNS) r.timers = true;
  }
  return r;
}

bool replacesStartingMs() { return hasStartHook() || idleThread(); }

void replaceStartingMs() {
  const AwakeScope awake;
  const int32_t n = gomaxprocs.load(relaxed);  // only bounds the attempts
  for (int32_t i = 0; i < n && idleThread(); i++) {
    P* pp = takeStartingP(StartingP::kAny);
    if (pp == nullptr) break;
    handoffp(pp);
  }
  for (int32_t i = 0; i < n && hasStartHook(); i++) {
    P* pp = takeStartingP(StartingP::kLate);
    if (pp == nullptr) break;
    handoffp(pp);
  }
  if (idleThread()) wakep();
}

}  // namespace gump::rt
