// Goroutines that only one thread may run, and m0 (proc_locked.cc).
#ifndef RUNTIME_SCHED_LOCKED_H_
#define RUNTIME_SCHED_LOCKED_H_

#include "absl/base/thread_annotations.h"
#include "runtime/sched/runtime2.h"

namespace gump::rt {

// stoplockedm gives the P away and sleeps until the M's locked G must run. It
// returns without a P in two cases: m0 must leave Run, or releasePreempted has
// released the G. If a P comes while the world stops, stoplockedm gives it
// back, but not twice in a row (requeueDuringStop).
// On: g0.  P: given away; then maybe one.  Locks: takes sched.lock.
// Parks: blocks the thread.
void stoplockedm();
// awaitLocked is stoplockedm for an M whose locked goroutine visits a home, and
// so is bound to that home's M for the moment.
// On, P, Locks, Parks: as stoplockedm.
void awaitLocked();
// startlockedm gives our P to the M that gp is locked to, then calls stopm. In
// two cases it queues gp again and keeps the P: while the world stops
// (requeueDuringStop), and if that M is m0 and main has ended.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: blocks the thread,
// unless gp is queued again.
void startlockedm(G* gp);
// wakeLocked records that mp's locked goroutine is about to run. The caller
// then hands mp a P and wakes it.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void wakeLocked(const M* mp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);
// m0Stop sleeps until Run is to return. m0 runs main and nothing else. If it
// ran another goroutine when main ends, that goroutine could keep Run from
// returning for as long as it likes.
// On: g0 of m0.  P: none.  Locks: takes sched.lock.  Parks: blocks the thread.
void m0Stop();
// m0Sleeps tells whether m0 sleeps without a P.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
[[nodiscard]] bool m0Sleeps() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);
// wakeM0ToLeave wakes m0 wherever it sleeps, after mainEnded has been set.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void wakeM0ToLeave();

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_LOCKED_H_
