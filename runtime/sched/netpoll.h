// The scheduler's interface to the poller. The scheduler owns the declarations
// and netpoll/ owns the definitions. So calls go both ways and includes go one
// way.
#ifndef RUNTIME_SCHED_NETPOLL_H_
#define RUNTIME_SCHED_NETPOLL_H_

#include <cstdint>

#include "runtime/sched/gqueue.h"

namespace gump::rt {

// NetpollResult is the result of a poll. The Gs of toRun are still kGwaiting
// and belong to the caller. The caller readies them (injectglist) and only then
// calls netpollAdjustWaiters(delta), so that "no waiters" is never seen while
// work is in flight. An empty toRun implies delta == 0.
struct NetpollResult {
  GList toRun;
  int32_t delta = 0;
};

// Unless a comment says otherwise:
// On: any.  P: either.  Locks: none.  Parks: no.

// netpollGenericInit is idempotent. Every timer that may sleep calls it. Until
// then (netpollinited) no M polls.
void netpollGenericInit();
[[nodiscard]] bool netpollinited();
// netpoll polls. delay < 0 blocks, 0 does not block, > 0 waits that many ns. It
// may return earlier than that. Callers that wait for a time look at the clock
// again.
// P: none when it blocks.  Parks: blocks the thread.
[[nodiscard]] NetpollResult netpoll(int64_t delay);
// netpollBreak ends a blocking netpoll, or the next one if none is in progress.
// Several calls may count as one.
void netpollBreak();
// netpollAnyWaiters tells whether a goroutine waits for a descriptor.
// netpollCountWaiters is the number of those that do, as a figure.
// netpollAdjustWaiters changes the number of waiters.
[[nodiscard]] bool netpollAnyWaiters();
[[nodiscard]] int32_t netpollCountWaiters();
void netpollAdjustWaiters(int32_t delta);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_NETPOLL_H_
