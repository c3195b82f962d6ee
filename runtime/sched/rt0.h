// Start-up and the end of main (rt0.cc).
#ifndef RUNTIME_SCHED_RT0_H_
#define RUNTIME_SCHED_RT0_H_

namespace gump::rt {

struct G;

// schedinit starts the runtime; idempotent.
// On: any thread.  P: either.  Locks: takes sched.lock.  Parks: no.
void schedinit();
// mainBegins is the first call of main. From here on main may move to another
// thread, unless the caller of Run has locked it to m0.
// On: user, main.  P: needed.  Locks: none.  Parks: as acquirem.
void mainBegins(G* gp);
// endMain ends the scheduling, because the main goroutine's function has
// returned.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: no.
void endMain();
// unsetInitialised makes schedinit check again whether the runtime can start.
// On: the only thread of a child of fork.  P: either.  Locks: none.  Parks: no.
void unsetInitialised();

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_RT0_H_
