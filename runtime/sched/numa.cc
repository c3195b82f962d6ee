// NUMA: the topology that the scheduler goes by, and how the Ps are dealt to
// the nodes.
//
// Two numbers name a node. Its index in topology.nodes is the same for the life
// of the process. Its index in sched.nodes counts only the nodes that have Ps,
// so it may change with GOMAXPROCS and with the affinity mask. The second one
// is what programs see (runtime::Node). So a program may keep an array with an
// element for each node, and if there is only one node, its index is 0.
#include "runtime/sched/numa.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "runtime/diag/debugvars.h"
#include "runtime/diag/goroutine_profile.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/gqueue.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"

namespace gump::rt {

constinit Topology topology;

namespace {

constexpr char kVariable[] = "GUMP_TOPOLOGY";

// The mask with which the topology was read.
constinit CpuSet maskRead;
// What topologyChanged has read for topologyAdopt.
constinit Topology foundTopology;
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
  foundTopology = topology;
  readTopology("", maskFound, &foundTopology);
  return true;
}

void topologyAdopt() {
  topology = foundTopology;
  maskRead = maskFound;
}

// ---- Memory -----------------------------------------------------------------

namespace {

// There have been several nodes, and they are real.
Atomic<bool> mapsOnNodes;

}  // namespace

void preferNode(void* p, size_t n, uint32_t node) {
  if (!mapsOnNodes.load(relaxed)) return;  // written with the world stopped
  // The id of a node never changes, and the node has or had a P.
  sysPreferNode(p, n, peek(topology.nodes[node].id));
}

// ---- Dealing ----------------------------------------------------------------

namespace {

// Kept is what the nodes hold while they are dealt anew.
struct Kept {
  GQueue queues[kMaxNodes];  // by index in topology.nodes
  M* idle = nullptr;         // linked by schedlink; of each node the last first
};

void takeFromNodes(Kept* kept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  globrunqcollect();
  // All of them: a thread without a P may have set a flag of a node that had
  // just lost its Ps (leaveToNode).
  for (int32_t k = 0; k < kMaxNodes; k++) {
    SchedNode* np = &sched.nodes[k];
    np->runq.moveTo(&kept->queues[np->topologyIndex.load(relaxed)]);
    for (M* mp = np->midle; mp != nullptr;) {
      M* next = mp->schedlink;
      mp->schedlink = kept->idle;
      kept->idle = mp;
      mp = next;
    }
    np->midle = nullptr;
    np->runqsize.store(0, relaxed);  // the world is stopped, here and below
    np->needspinning.store(0, relaxed);
    np->nmspinning.store(0, relaxed);
    np->waits.store(0, relaxed);
  }
}

void giveToNodes(Kept* kept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  for (int32_t i = 0; i < kMaxNodes; i++) {
    SchedNode* np = &sched.nodes[sched.nodeIndex[i]];
    np->runq.pushBackAll(&kept->queues[i]);
    np->runqsize.store(np->runq.size(), relaxed);
  }
  while (M* mp = kept->idle) {
    kept->idle = mp->schedlink;
    mp->idleNode = static_cast<int8_t>(sched.nodeIndex[mp->node]);
    SchedNode* np = &sched.nodes[mp->idleNode];
    mp->schedprev = nullptr;
    mp->schedlink = np->midle;
    if (np->midle != nullptr) np->midle->schedprev = mp;
    np->midle = mp;
  }
}

// findNearest fills in `nearest`. Of nodes at the same distance, those that
// follow the node come first, so that not all nodes turn to the same one.
void findNearest(int32_t nnodes) {
  for (int32_t k = 0; k < nnodes; k++) {
    SchedNode* np = &sched.nodes[k];
    uint8_t order[kMaxNodes];
    for (int32_t j = 0; j < nnodes; j++) {
      order[j] = static_cast<uint8_t>((k + j) % nnodes);
    }
    const auto distance = [np](uint8_t other) {
      // The world is stopped.
      return topology.distance[np->topologyIndex.load(relaxed)]
                              [sched.nodes[other].topologyIndex.load(relaxed)];
    };
    // An insertion sort, because std::stable_sort allocates.
    for (int32_t j = 2; j < nnodes; j++) {
      for (int32_t i = j; i > 1; i--) {
        if (distance(order[i]) >= distance(order[i - 1])) break;
        std::swap(order[i], order[i - 1]);
      }
    }
    for (int32_t j = 0; j < nnodes; j++) {
      np->nearest[j].store(order[j], relaxed);  // as above
    }
  }
}

}  // namespace

void dealPs(int32_t nprocs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  Kept kept;
  takeFromNodes(&kept);
  int64_t all = 0;
  for (int32_t i = 0; i < topology.nnodes; i++) {
    all += topology.nodes[i].processors;
  }
  int64_t processors = 0;  // of the nodes so far
  int32_t first = 0;
  int32_t nnodes = 0;
  for (int32_t i = 0; i < topology.nnodes; i++) {
    processors += topology.nodes[i].processors;
    // Rounded up: of three Ps, the first of two equal nodes has two.
    const auto end =
        static_cast<int32_t>((nprocs * processors + all - 1) / all);
    sched.nodeIndex[i] = 0;
    if (end == first) continue;
    SchedNode* np = &sched.nodes[nnodes];
    // The world is stopped, here and below.
    np->topologyIndex.store(static_cast<int16_t>(i), relaxed);
    np->firstP.store(static_cast<int16_t>(first), relaxed);
    np->nprocs.store(static_cast<int16_t>(end - first), relaxed);
    sched.nodeIndex[i] = static_cast<uint8_t>(nnodes);
    for (; first < end; first++) {
      allp[first]->node.store(static_cast<uint8_t>(nnodes), relaxed);
    }
    nnodes++;
  }
  for (int32_t i = 0; i < nprocs; i++) {
    const int records = (allp[i]->fuzz != 0 ? kRecordThread : 0) |
                        (nnodes > 1 ? kRecordNode : 0) |
                        (profilesGoroutines() ? kRecordProfile : 0);
    allp[i]->records.store(static_cast<uint8_t>(records), relaxed);
  }
  findNearest(nnodes);
  if (nnodes > 1 && !sched.places.load(relaxed)) {
    mapsOnNodes.store(!topology.simulated, relaxed);  // as below
    sched.places.store(true, relaxed);
  }
  sched.nnodes.store(nnodes, relaxed);  // the world is stopped
  sched.wakeMode.store(nprocs == 1  ? WakeMode::kOneP
                       : nnodes > 1 ? WakeMode::kSeveralNodes
                                    : WakeMode::kOneNode,
                       relaxed);
  giveToNodes(&kept);
}

}  // namespace gump::rt
