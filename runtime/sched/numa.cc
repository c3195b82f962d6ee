// NUMA: the topology that the scheduler goes by.
#include "runtime/sched/numa.h"

#include "runtime/diag/debugvars.h"
#include "runtime/diag/panic.h"

namespace gump::rt {

constinit Topology topology;

namespace {

constexpr char kVariable[] = "GUMP_TOPOLOGY";

// The mask with which the topology was read.
constinit CpuSet maskRead;
// What topologyChanged has read for topologyAdopt.
constinit Topology found;
constinit CpuSet maskFound;

}  // namespace

void topologyInit() {
  // If the kernel does not tell, the set is empty, and one node has all.
  if (!threadAffinity(/*tid=*/0, &maskRead)) maskRead = CpuSet();
  const char* text = gogetenv(kVariable, kVariable);
  if (text != nullptr && text[0] != '\0') {
    const char* wrong = parseTopology(text, &topology);
    if (wrong == nullptr) {
      findProcessors("", maskRead, &topology);
      return;
    }
    printf("runtime: %s=%Q is ignored: %s\n", kVariable, text, wrong);
    topology = Topology();
  }
  readTopology("", maskRead, &topology);
}

bool topologyChanged() {
  if (topology.simulated || !threadAffinity(/*tid=*/0, &maskFound) ||
      maskFound == maskRead) {
    return false;
  }
  found = topology;
  readTopology("", maskFound, &found);
  return true;
}

void topologyAdopt() {
  topology = found;
  maskRead = maskFound;
}

}  // namespace gump::rt
