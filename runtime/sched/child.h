// Children: which thread makes a child process, and with which attributes
// (child.cc).
#ifndef RUNTIME_SCHED_CHILD_H_
#define RUNTIME_SCHED_CHILD_H_

#include <sys/types.h>

#include "runtime/sys/spawn_linux.h"

namespace gump::rt {

struct M;

// childStart makes a child, as spawn does; it sets mask and ignored of the spec
// itself. If it succeeds, it sets *maker, and childEnded must be called with
// that when the child has ended. *maker may be nullptr.
// On: user, in a declared call; or a plain thread.  P: none.  Locks: none.
// Parks: blocks the thread.
[[nodiscard]] pid_t childStart(ChildSpec* spec, M** maker);
// childBegins and childEnded say that this thread is about to make a child, and
// that a child of maker's has ended or was not made. childBegins returns
// the M of this thread, or nullptr if the thread is not ours.
// On: childBegins as childStart; childEnded any.  P: either.  Locks: none.
// Parks: no.
[[nodiscard]] M* childBegins();
void childEnded(M* maker);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_CHILD_H_
