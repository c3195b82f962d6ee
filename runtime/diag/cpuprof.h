// The CPU profile: which stacks use processor time (gump/pprof.h).
#ifndef RUNTIME_DIAG_CPUPROF_H_
#define RUNTIME_DIAG_CPUPROF_H_

#include <signal.h>

#include "runtime/sched/runtime2.h"

namespace gump::rt {

// cpuProfileThreadStarts gives the calling thread, mp's, a timer if there is a
// CPU profile, or else when one begins. cpuProfileThreadEnds takes it away.
// On: the thread of mp.  P: either.  Locks: takes a leaf.  Parks: no.
void cpuProfileThreadStarts(M* mp);
void cpuProfileThreadEnds(M* mp);
// cpuProfileSignal is the handler of SIGPROF. Returns false if the signal does
// not come from a profile of ours, but from the program.
// On: any, in the handler.  P: either.  Locks: spins for a moment.  Parks: no.
[[nodiscard]] bool cpuProfileSignal(const siginfo_t* info, const void* context);

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_CPUPROF_H_
