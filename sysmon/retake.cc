#include "sysmon/retake.h"

#include "runtime/proc.h"

namespace gump::rt {

bool retakeP(P* pp, int64_t now) {
  if (pp->status.load(acquire) != kPrunning)
    return false;  // a hint: a wrong request only costs a yield
  P::SysmonTick* seen = &pp->sysmontick;
  uint32_t tick = pp->schedtick.load(
      relaxed);  // written by the P's owner; only its change matters
  if (seen->schedtick != tick) {
    seen->schedtick = tick;
    seen->schedwhen = now;
    return false;
  }
  return seen->schedwhen + kForcePreemptNS <= now && preemptone(pp);
}

void retake(int64_t now) {
  LockScope l(&allpLock);
  int32_t n = gomaxprocs.load(acquire);  // pairs with procresize
  for (int32_t i = 0; i < n; i++) retakeP(allp[i], now);
}

}  // namespace gump::rt
