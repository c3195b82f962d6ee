// What the scheduler needs of a poller. Defined in netpoll/; the scheduler owns
// the declaration, the neighbour the definition, so that calls go both ways and
// includes one way.
#ifndef RUNTIME_NETPOLL_H_
#define RUNTIME_NETPOLL_H_

#include <cstdint>

#include "runtime/gqueue.h"

namespace gump::rt {

// NetpollResult is what a poll found. The Gs of toRun are still kGwaiting and
// belong to the caller, who readies them (injectglist) and only then calls
// netpollAdjustWaiters(delta), so that "no waiters" is never seen while work is
// in flight. Empty toRun implies delta == 0.
struct NetpollResult {
  GList toRun;
  int32_t delta = 0;
};

// Unless it says otherwise:
// On: any.  P: either.  Locks: none.  Parks: no.

// netpollGenericInit is idempotent; every timer that may sleep calls it. Until
// then (netpollinited) nobody polls.
void netpollGenericInit();
[[nodiscard]] bool netpollinited();
// netpoll polls: delay < 0 blocks, 0 does not, > 0 waits that many ns, or less:
// who waits for a time looks at the clock again.
// P: none when it blocks.  Parks: blocks the thread.
[[nodiscard]] NetpollResult netpoll(int64_t delay);
// netpollBreak ends a blocking netpoll, or the next one if none is under way;
// coalesced.
void netpollBreak();
// netpollAnyWaiters tells whether anybody waits for a descriptor;
// netpollAdjustWaiters changes their number.
[[nodiscard]] bool netpollAnyWaiters();
void netpollAdjustWaiters(int32_t delta);

}  // namespace gump::rt

#endif  // RUNTIME_NETPOLL_H_
