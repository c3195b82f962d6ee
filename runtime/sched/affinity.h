// Binding threads to processors (affinity.cc).
#ifndef RUNTIME_SCHED_AFFINITY_H_
#define RUNTIME_SCHED_AFFINITY_H_

#include <cstdint>

#include "runtime/sched/runtime2.h"
#include "runtime/sys/topology_linux.h"

namespace gump::rt {

// affinityInit notes the affinity mask with which the program has begun, and
// reads GUMP_AFFINITY. If that variable is malformed, it is ignored, and
// standard error says so.
// On: schedinit, after topologyInit.
void affinityInit();
// followsAffinity says that the program's affinity mask is that of the calling
// thread, which the runtime never binds.
// On: sysmon.  P: none.  Locks: none.  Parks: no.
void followsAffinity();
// programAffinity writes the affinity mask of the program: the processors that
// taskset, a cpuset or the program itself has given it. Returns false if the
// kernel does not tell.
// On: any, also in a child of fork.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool programAffinity(CpuSet* out);
// programProcessors returns the number of processors in that mask. On a thread
// that the runtime has not bound, it reads the mask of the thread itself. A
// foreign thread may have inherited that from a bound thread.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] int32_t programProcessors();

// bindPs decides to which processors each of the first nprocs Ps binds its
// threads. Called by procresize.
// On: any.  P: world stopped.  Locks: caller holds sched.lock.  Parks: no.
void bindPs(int32_t nprocs);
// boundFor returns true if the thread of mp is bound as pp demands.
// On: the thread of mp.  P: pp.  Locks: none.  Parks: no.
inline bool boundFor(const M* mp, const P* pp) {
  return mp->binding.load(relaxed) == pp->binding.load(relaxed);
}
// bindThread binds the thread of mp to the processors of its P, if it may. It
// is called if it is not bound as the P demands.
// On: the thread of mp.  P: needed.  Locks: takes a kMem lock.  Parks: no.
void bindThread(M* mp);
// forgetBinding is for an M that gets another thread.
// On: the thread of mp.  P: none.  Locks: none.  Parks: no.
void forgetBinding(M* mp);
// unbindThread gives the thread of mp the mask of the program again, if the
// runtime has bound it.
// On: the thread of mp.  P: either.  Locks: none.  Parks: no.
void unbindThread(M* mp);
// childAffinity returns the mask for a child process that the thread of mp is
// about to make, or nullptr if the child is to inherit the mask of the thread.
// The set is valid until the next call for mp.
// On: the thread of mp.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] const CpuSet* childAffinity(M* mp);
// updateAffinity looks whether the mask of the program has changed, or whether
// a thread has been freed from outside. If so, it reads the topology, and
// starts a goroutine that adopts it and binds the Ps and their threads anew.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
void updateAffinity();

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_AFFINITY_H_
