// Goroutine-local values, for the ends of goroutines and threads (gls.cc).
#ifndef RUNTIME_SCHED_GLS_H_
#define RUNTIME_SCHED_GLS_H_

namespace gump::rt {

struct G;

// glsOwner returns the G whose list of local values the caller uses. A hook of
// a thread has a list of its own, on g0, because what it throws keeps records
// there (gump/panic.h). All others enter the runtime.
// On: any but g0 outside of a hook.  P: either.  Locks: none.
// Parks: as runtimeEntry.
[[nodiscard]] G* glsOwner();
// glsDestroyAll runs the destructors of gp's goroutine-local values.
// On: user, gp itself, or its foreign thread.  P: either.  Parks: as they do.
void glsDestroyAll(G* gp);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_GLS_H_
