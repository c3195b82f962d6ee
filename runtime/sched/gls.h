// Goroutine-local values, for the ends of goroutines and threads (gls.cc).
#ifndef RUNTIME_SCHED_GLS_H_
#define RUNTIME_SCHED_GLS_H_

namespace gump::rt {

struct G;

// glsDestroyAll runs the destructors of gp's goroutine-local values.
// On: user, gp itself, or its foreign thread.  P: either.  Parks: as they do.
void glsDestroyAll(G* gp);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_GLS_H_
