// The poller's portable half. There is no descriptor type yet, so nothing is
// ever registered: the M that blocks here waits for a time, or to be woken.
//
// A break is a flag that stays up until the next blocking poll takes it, so one
// that comes before the sleep ends it as well, and many are as good as one.
#include "runtime/netpoll.h"

#include "runtime/os_linux.h"
#include "runtime/runtime2.h"

namespace gump::rt {

namespace {
Atomic<bool> inited;
Atomic<uint32_t> wakeSig;  // 1: break; the futex word
}  // namespace

void netpollGenericInit() {
  // Nothing hangs on it but that somebody polls.
  if (!inited.load(relaxed)) inited.store(true, relaxed);
}
bool netpollinited() { return inited.load(relaxed); }

NetpollResult netpoll(int64_t delay) {
  if (delay == 0) return {};
  // Acquire: pairs with netpollBreak; what the breaker did before is seen.
  if (wakeSig.xchg(0, acquire) == 0) {
    preciseSleeps(getg()->m);
    futexsleep(&wakeSig, 0, delay < kMaxDelay ? delay : kMaxDelay);
    wakeSig.xchg(0, acquire);  // as above
  }
  return {};
}

void netpollBreak() {
  // Pairs with the xchg in netpoll. Already up: whoever polls next will see it.
  if (wakeSig.cas(0, 1, release)) futexwakeup(&wakeSig, 1);
}

bool netpollAnyWaiters() { return false; }
void netpollAdjustWaiters(int32_t) {}

}  // namespace gump::rt
