// The runtime in a child of fork (fork.cc).
#ifndef RUNTIME_SCHED_FORK_H_
#define RUNTIME_SCHED_FORK_H_

#include "runtime/sys/atomic.h"

namespace gump::rt {

// forked is set in a child of fork, which has no threads of ours. Only slow
// paths look at it.
extern Atomic<bool> forked;
// forkinit makes each child of fork set `forked`. Called by schedinit.
// On: any.  P: either.  Locks: libc's.  Parks: no.
void forkinit();
// inOwnProcess tells whether this process is the one in which the runtime
// started. In a child of fork it returns false from the first instruction on.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool inOwnProcess();
// dieForked ends a child of fork that uses the runtime.
// On: any.  P: either.  Locks: none.  Parks: no.
[[noreturn]] void dieForked();
// dieIfForked ends the process if it is a child of fork. It is for slow paths
// of threads that have no G, because acquirem does not tell these.
// On: any.  P: either.  Locks: none.  Parks: no.
inline void dieIfForked() {
  if (forked.load(relaxed)) dieForked();  // this very thread has set it
}

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_FORK_H_
