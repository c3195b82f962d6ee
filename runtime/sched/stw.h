// Stopping the world, starting it, and running a function on every P
// (proc_stw.cc).
#ifndef RUNTIME_SCHED_STW_H_
#define RUNTIME_SCHED_STW_H_

#include "runtime/sched/waitreason.h"

namespace gump::rt {

struct P;

// stopTheWorld returns when every P is kPgcstop. If another stop is under way,
// the caller first waits for its end. Running goroutines are asked to yield,
// and soon forced to (forcePreempt). The caller keeps its M until it calls
// startTheWorld.
// On: user, or a foreign thread.  P: either.  Locks: takes worldsema,
// sched.lock.  Parks: yes.
void stopTheWorld(WaitReason reason);
// countStopped gives pp, which is idle and the caller's, to the thread that
// stops the world.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void countStopped(P* pp);
// keepsNext tells whether the goroutine that pp gives up to a stop of the world
// stays its next one. It does, for at most a time slice. Without the limit, a
// goroutine would keep its P from all others if the world is stopped again and
// again, because each stop ends the request by which sysmon ends its slice.
// On: any.  P: pp, running, the caller's.  Locks: none.  Parks: no.
[[nodiscard]] bool keepsNext(P* pp);
// startTheWorld resizes the Ps if GOMAXPROCS asked for it, and lets the Ps run.
// On: as stopTheWorld.  P: stopped.
// Locks: takes sched.lock; releases worldsema.  Parks: no.
void startTheWorld();
// updateMaxProcs starts a goroutine that adapts the number of Ps. It does so if
// affinity or quota give another number than the current one, and the program
// has not chosen one.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
void updateMaxProcs();
// forEachP runs fn once for every P, at a safe point of that P: idle, in a
// system call, or in the scheduler. It forces Ps that reach none
// (forcePreempt). fn may be called with sched.lock held. `last` runs when all
// Ps have been visited, and before the next stop of the world can begin.
// On: user, or a foreign thread.  P: either.  Locks: takes worldsema,
// sched.lock.  Parks: yes.
void forEachP(WaitReason reason, void (*fn)(P*), void (*last)() = nullptr);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_STW_H_
