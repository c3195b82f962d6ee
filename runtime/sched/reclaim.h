// The reclamation cycle (reclaim.cc), which stands where Go has its collector;
// see docs/scheduler.md.
#ifndef RUNTIME_SCHED_RECLAIM_H_
#define RUNTIME_SCHED_RECLAIM_H_

#include <cstdint>

#include "runtime/sys/atomic.h"

namespace gump::rt {

struct G;

// forcegcperiod is the time in ns after the last reclamation cycle at which
// sysmon forces one. Tests change it. forceReclaim forces a cycle if it is due.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
extern Atomic<int64_t> forcegcperiod;
void forceReclaim(int64_t now);
// Steps 6 and 9 of findRunnable. reclaimWorkAvailable tells whether an idle P
// could help. reclaimIdleWorker returns the goroutine that helps, runnable, or
// nullptr. Both:
// On: g0.  P: either.  Locks: none; takes a leaf.  Parks: no.
[[nodiscard]] bool reclaimWorkAvailable();
[[nodiscard]] G* reclaimIdleWorker();

// hibernatePass visits all goroutines once, and puts those to sleep that have
// been parked for long (hibernate.cc). It is a cycle that does only that.
// On: a system goroutine.  P: needed.  Locks: takes sched.lock.  Parks: yes.
void hibernatePass();

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_RECLAIM_H_
