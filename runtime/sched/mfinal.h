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

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_MFINAL_H_
