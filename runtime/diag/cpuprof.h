// The CPU profile: which stacks use processor time (gump/pprof.h).
#ifndef RUNTIME_DIAG_CPUPROF_H_
#define RUNTIME_DIAG_CPUPROF_H_

#include <signal.h>

#include "runtime/sched/runtime2.h"

namespace gump::rt {

// cpuProfileThreadStarts gives the calling thread, which is mp's, a timer now
// or when the next CPU profile begins. cpuProfileThreadEnds takes it away.
// On: the thread of mp.  P: either.  Locks: takes a leaf.  Parks: no.
void cpuProfileThreadStarts(M* mp);
void cpuProfileThreadEnds(M* mp);
// cpuProfileSignal counts a sample for a SIGPROF. Returns false if the signal
// is the program's, and not one of our profile.
// On: any, in the handler.  P: either.  Locks: spins for a moment.  Parks: no.
[[nodiscard]] bool cpuProfileSignal(const siginfo_t* info, const void* context);

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_CPUPROF_H_
