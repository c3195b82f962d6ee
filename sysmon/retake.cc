#include "sysmon/retake.h"

#include <algorithm>

#include "runtime/proc.h"

namespace gump::rt {

namespace {
// sliceUsedUp tells whether pp has been on one slice for kForcePreemptNS.
bool sliceUsedUp(P* pp, int64_t now) {
  P::SysmonTick* seen = &pp->sysmontick;
  // Written by the P's owner; only its change matters.
  const uint32_t tick = pp->schedtick.load(relaxed);
  if (seen->schedtick != tick) {
    seen->schedtick = tick;
    seen->schedwhen = now;
    seen->presswhen = 0;
    seen->pressdelay = kPressFirstNS;
    return false;
  }
  return seen->schedwhen + kForcePreemptNS <= now;
}
}  // namespace

bool retakeP(P* pp, int64_t now) {
  // A hint: a wrong request only costs a yield.
  if (pp->status.load(acquire) != kPrunning) return false;
  if (!sliceUsedUp(pp, now)) return false;
  const bool asked = preemptone(pp);
  P::SysmonTick* seen = &pp->sysmontick;
  if (!asked || now < seen->presswhen) return asked;
  seen->presswhen = now + seen->pressdelay;
  seen->pressdelay = std::min(2 * seen->pressdelay, kForcePreemptNS);
  incidlelocked(-1);  // as in retakeSyscall
  if (pressP(pp)) handoffp(pp);
  incidlelocked(1);
  return true;
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
  const bool others = !runqempty(pp) || sched.runqsize.load(relaxed) > 0;
  // Hints: looked at again soon.
  const bool hands =
      sched.nmspinning.load(relaxed) + sched.npidle.load(relaxed) > 0;
  if (!others && hands && seen->syscallwhen + kForcePreemptNS > now) {
    return false;
  }
  // Until handoffp has found the P a thread, every M may look idle to
  // checkdead, should the one in the call return and park just now.
  incidlelocked(-1);
  const bool taken = pcasstatus(pp, kPsyscall, kPidle);
  if (taken) {
    pp->syscalltick.add(1, relaxed);
    handoffp(pp);
  }
  incidlelocked(1);
  return taken;
}

int32_t retake(int64_t now) {
  int32_t taken = 0;
  const int32_t n = gomaxprocs.load(acquire);  // pairs with procresize
  for (int32_t i = 0; i < n; i++) {
    retakeP(allp[i], now);
    if (retakeSyscall(allp[i], now)) taken++;
  }
  return taken;
}

}  // namespace gump::rt
