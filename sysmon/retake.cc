#include "sysmon/retake.h"

#include <algorithm>

#include "runtime/fuzzsched.h"
#include "runtime/os_linux.h"

namespace gump::rt {

namespace {
// waitForIt tells whether goroutines wait in pp's own queues, or for whoever
// looks next. (A sole P keeps the global queue to itself.) Hints.
bool waitForIt(const P* pp) {
  return !runqempty(pp) || pp->nyielded.load(relaxed) > 0 ||
         fingwake.load(relaxed);
}

// freshWait tells whether goroutines wait for pp, or for any P, that have not
// been preempted themselves.
bool freshWait(const P* pp) {
  if (waitForIt(pp)) return true;
  if (sched.runqsize.load(relaxed) == 0) return false;  // a hint
  LockScope l(&sched.lock);
  return sched.runq.head != nullptr && !sched.runq.head->inPlace;
}

// computesLong tells whether the thread on pp has used kShortCpuNS of CPU time
// since the first such look at it in this slice. A thread that the kernel lets
// wait has no more had its slice than the others. (In a declared call there is
// no thread on pp: there the time that passes counts.)
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

// sliceUsedUp tells whether pp has been on one slice for kForcePreemptNS, or
// for kShortSliceNS and then kShortCpuNS of CPU time while others wait who need
// not wait so long: it is those who compute that take turns of a whole slice.
bool sliceUsedUp(P* pp, int64_t now) {
  P::SysmonTick* seen = &pp->sysmontick;
  // Written by the P's owner; only its change matters.
  const uint32_t tick = pp->schedtick.load(relaxed);
  if (seen->schedtick != tick) {
    seen->schedtick = tick;
    seen->schedwhen = now;
    seen->presswhen = 0;
    seen->pressdelay = kPressFirstNS;
    seen->lookwhen = now + kAsleepNS;
    seen->lookdelay = kAsleepNS;
    seen->cpuTid = 0;
    return false;
  }
  const int64_t used = now - seen->schedwhen;
  return used >= kForcePreemptNS ||
         (used >= kShortSliceNS && freshWait(pp) && computesLong(pp));
}

// timersLate tells whether timers of pp are overdue and only its owner can run
// them: an idle M, or one that looks for work, would steal them. The slice must
// have been seen before: who has just begun one has run the timers, and may be
// the one they woke, who would lose his turn if he was asked to yield.
bool timersLate(const P* pp, int64_t now) {
  const int64_t when = wakeTime(&pp->timers);
  // Hints: looked at again soon.
  return when != 0 && now - when >= kTimerLateNS &&
         now - pp->sysmontick.schedwhen >= kPressFirstNS &&
         sched.nmspinning.load(relaxed) + sched.npidle.load(relaxed) == 0;
}

// repeats tells whether the schedule is to repeat itself: that everybody yields
// is the seed's doing then, not the clock's, and only who sleeps in the kernel
// for a whole slice loses his P.
bool repeats() { return fuzzing() && debug.asyncpreemptoff != 0; }

// othersWait tells whether somebody would use pp.
bool othersWait(const P* pp) {
  return waitForIt(pp) || sched.runqsize.load(relaxed) > 0;  // a hint
}
}  // namespace

bool retakeP(P* pp, int64_t now) {
  // A hint: a wrong request only costs a yield.
  if (pp->status.load(acquire) != kPrunning) return false;
  if (!sliceUsedUp(pp, now) && !timersLate(pp, now)) return false;
  const bool asked = repeats() || preemptone(pp);
  P::SysmonTick* seen = &pp->sysmontick;
  if (!asked || now < seen->presswhen) return asked;
  seen->presswhen = now + seen->pressdelay;
  seen->pressdelay = std::min(2 * seen->pressdelay, kForcePreemptNS);
  const AwakeScope awake;
  // Who computes and is in nobody's way goes on: to stop it costs something.
  const bool wanted = othersWait(pp) || timersLate(pp, now);
  const Press how = wanted ? Press::kHandOff : Press::kIfAsleep;
  if (pressP(pp, how) != nullptr) handoffp(pp);
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
  const bool taken = pressP(pp, Press::kIfAsleep) != nullptr;
  if (taken) handoffp(pp);
  return taken;
}

bool retakeSyscall(P* pp, int64_t now) {
  if (pp->status.load(acquire) != kPsyscall) return false;  // the cas decides
  P::SysmonTick* seen = &pp->sysmontick;
  const uint32_t tick = pp->syscalltick.load(relaxed);  // compared for change
  // A goroutine that makes one short call after the other is hardly ever seen
  // outside of one, where it could be asked to yield.
  const bool usedUp = sliceUsedUp(pp, now);
  if (seen->syscalltick != tick) {
    seen->syscalltick = tick;
    seen->syscallwhen = now;
    if (!usedUp) return false;
  }
  const bool others = othersWait(pp);
  // Hints: looked at again soon.
  const bool idle =
      sched.nmspinning.load(relaxed) + sched.npidle.load(relaxed) > 0;
  if (!others && idle && seen->syscallwhen + kForcePreemptNS > now) {
    return false;
  }
  const AwakeScope awake;  // who is in the call may return and park just now
  const bool taken = pcasstatus(pp, kPsyscall, kPidle);
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
    // The first press of a slice.
    if (retakeP(pp, now) && pp->sysmontick.pressdelay == 2 * kPressFirstNS) {
      r.pressing = true;
    }
    if (retakeSyscall(pp, now)) r.taken++;
    if (pp->status.load(acquire) == kPrunning && freshWait(pp))
      r.waiting = true;
  }
  return r;
}

}  // namespace gump::rt
