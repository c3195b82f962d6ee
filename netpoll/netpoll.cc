// The poller's portable half. There is no descriptor type yet, so nothing is
// ever registered: it reports itself uninitialised, and the scheduler never
// blocks in it.
#include "runtime/netpoll.h"

namespace gump::rt {

void netpollGenericInit() {}
bool netpollinited() { return false; }
NetpollResult netpoll(int64_t) { return {}; }
void netpollBreak() {}
bool netpollAnyWaiters() { return false; }
void netpollAdjustWaiters(int32_t) {}

}  // namespace gump::rt
