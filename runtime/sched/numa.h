// NUMA: the topology that the scheduler goes by, and how the Ps are dealt to
// the nodes.
#ifndef RUNTIME_SCHED_NUMA_H_
#define RUNTIME_SCHED_NUMA_H_

#include <cstddef>
#include <cstdint>

#include "runtime/sys/topology_linux.h"

namespace gump::rt {

// The nodes. Written by schedinit, and later only while the world is stopped.
extern Topology topology;

// topologyInit sets `topology`: to the simulated one if the variable
// GUMP_TOPOLOGY has one, else to the kernel's. A variable that is malformed is
// ignored, and standard error says so.
// On: schedinit.
void topologyInit();

// topologyChanged returns true if the affinity mask has changed since
// `topology` was read. Then it has read the topology anew, and topologyAdopt
// makes that one `topology`. topologyChanged must not be called between the
// two. A simulated topology never changes.
// On: sysmon.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool topologyChanged();
// On: user.  P: world stopped.  Locks: none.  Parks: no.
void topologyAdopt();

// dealPs deals the first nprocs Ps, all of which exist, to the nodes of
// `topology`, in proportion to the processors of each, in blocks. It gives the
// goroutines in the global queue and the idle Ms to the nodes that there are
// then. Nodes without a P do not count.
// On: any.  P: world stopped.  Locks: caller holds sched.lock.  Parks: no.
void dealPs(int32_t nprocs);

// preferNode asks the kernel to place the n bytes at p, whole pages that no
// thread has touched, on a node (an index in topology.nodes). If it refuses, or
// if the topology is simulated, they lie where they are touched first.
// On: any.  P: either.  Locks: none.  Parks: no.
void preferNode(void* p, size_t n, uint32_t node);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_NUMA_H_
