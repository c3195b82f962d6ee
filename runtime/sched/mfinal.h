// The finalizer goroutine, as the scheduler sees it (mfinal.cc).
#ifndef RUNTIME_SCHED_MFINAL_H_
#define RUNTIME_SCHED_MFINAL_H_

#include "runtime/sys/atomic.h"

namespace gump::rt {

struct G;

// fingwake is set while the finalizer goroutine has work; see mfinal.cc.
extern Atomic<bool> fingwake;
// wakefing returns the finalizer goroutine if the caller must ready it now
// (step 1 of findRunnable).
// On: any.  P: either.  Locks: takes a leaf.  Parks: no.
[[nodiscard]] G* wakefing();
// isSystemGoroutine returns true if gp is one of the runtime's own now. Dumps
// pass over those, and the deadlock detector does not count them. The finalizer
// goroutine is the program's while it runs a finalizer, as in Go.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool isSystemGoroutine(const G* gp);
// runFinalizers is the function of the finalizer goroutine. Dumps find it by
// its name (interestsUsers), which a stripped shared library keeps for that.
// On: user, the finalizer goroutine.  P: needed.  Locks: none.  Parks: yes.
__attribute__((visibility("default"))) void runFinalizers(void*);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_MFINAL_H_
