// The program's hooks for the threads that run goroutines (threadhooks.cc).
#ifndef RUNTIME_SCHED_THREADHOOKS_H_
#define RUNTIME_SCHED_THREADHOOKS_H_

#include "runtime/sched/runtime2.h"

namespace gump::rt {

// sealThreadHooks makes the hooks constant, because there will be threads that
// call them. Called by schedinit.
// On: a thread of the user's.  P: either.  Locks: takes a leaf.  Parks: no.
void sealThreadHooks();
// hasStartHook returns true if a thread has to call a hook before it runs
// goroutines.
// On: any, after schedinit.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool hasStartHook();
// threadStarts calls the hook that each thread calls before its first
// goroutine. threadEnds calls the one for the end of a thread. Both:
// On: g0, outside of gumpMstart.  P: none.  Locks: none.  Parks: blocks the
// thread, as long as the hook does.
void threadStarts();
void threadEnds();
// inThreadHook returns true if mp's thread is in a hook.
// On: the thread of mp.  P: either.  Locks: none.  Parks: no.
inline bool inThreadHook(const M* mp) {
  return (mp->presumed.load(relaxed) & kPresumedHook) != 0;  // written by us
}
// leaveThreadHook allows this thread to use the runtime for a report of a
// failure in the hook, which shows the hook's stack. The process must end.
// On: g0, in a hook.  P: none.  Locks: none.  Parks: no.
void leaveThreadHook();
// dieInThreadHook reports a hook that uses goroutines.
// On: g0, in a hook.  P: none.  Locks: none.  Parks: no.
[[noreturn]] void dieInThreadHook();

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_THREADHOOKS_H_
