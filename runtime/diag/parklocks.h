// GODEBUG=parklocks=1 reports on standard error where a goroutine leaves its
// thread while it holds a lock that belongs to a thread. Such locks are pthread
// mutexes and rwlocks, and so std::mutex and std::shared_mutex.
//
//   parklocks: shop::Fetch has locked a mutex (0x7ffd1080), and shop::Wait
//   parks [chan receive], in goroutine 7
//   locked at:
//   shop::Fetch(...)
//   	/usr/bin/shop +0x41d2
//   parks at:
//   shop::Wait(...)
//   	/usr/bin/shop +0x3b07
//
// The first two lines are one. There is one report for each pair of places, and
// the program goes on. parklocks.cc has the protocol.
#ifndef RUNTIME_DIAG_PARKLOCKS_H_
#define RUNTIME_DIAG_PARKLOCKS_H_

#include "runtime/diag/debugvars.h"
#include "runtime/sys/base.h"

namespace gump::rt {

struct G;

// parklocksinit begins to watch locks, if GODEBUG asks for it. Called by
// schedinit, once there is a symboliser. If it cannot work, it prints a line
// that says why, and switches the setting off.
// On: a thread of the user's.  P: none.  Locks: none (the loader's).
// Parks: no.
void parklocksinit();

// reportHeldLocks reports the locks of gp, which is about to leave its thread.
// `verb` says how, such as "parks". `reason` is the one that dumps would show.
// On: user, gp; m.locks > 0.  P: either.  Locks: takes a leaf; any may be held.
// Parks: no.
void reportHeldLocks(const G* gp, const char* verb, const char* reason);

// checkHeldLocks calls reportHeldLocks if it is switched on. It is for slow
// paths.
// On, P, Locks, Parks: as reportHeldLocks.
GUMP_ALWAYS_INLINE void checkHeldLocks(const G* gp, const char* verb,
                                       const char* reason) {
  if (GUMP_UNLIKELY(debug.parklocks == 1)) reportHeldLocks(gp, verb, reason);
}

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_PARKLOCKS_H_
