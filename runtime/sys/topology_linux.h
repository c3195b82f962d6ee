// The NUMA nodes of the machine, and the processors of each, as the kernel says
// in /sys/devices/system/node, or as GUMP_TOPOLOGY simulates them. Parsing is
// separate from reading, and files are found below a prefix, so that tests
// bring their own.
#ifndef RUNTIME_SYS_TOPOLOGY_LINUX_H_
#define RUNTIME_SYS_TOPOLOGY_LINUX_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gump::rt {

// No kernel has more processors: this is the highest NR_CPUS that it can be
// built with.
inline constexpr int32_t kMaxProcessors = 8192;
// Nodes with processors that the program may use. If there are more, the
// machine counts as one node.
inline constexpr int32_t kMaxNodes = 64;

// CpuSet is a set of processors, in the form that the kernel wants
// (sched_setaffinity).
class CpuSet {
 public:
  bool has(int32_t cpu) const { return (words_[cpu / 64] & bit(cpu)) != 0; }
  void add(int32_t cpu) { words_[cpu / 64] |= bit(cpu); }
  int32_t count() const {
    int32_t n = 0;
    for (uint64_t w : words_) n += __builtin_popcountll(w);
    return n;
  }
  const uint64_t* words() const { return words_; }
  uint64_t* words() { return words_; }
  friend bool operator==(const CpuSet&, const CpuSet&) = default;

 private:
  static uint64_t bit(int32_t cpu) { return uint64_t{1} << (cpu % 64); }
  uint64_t words_[kMaxProcessors / 64] = {};
};

// Topology is the nodes of the machine. A node keeps its index for the life of
// the process, even if all its processors go offline or leave the affinity
// mask. Then it has no processors.
struct Topology {
  struct Node {
    int32_t id = 0;  // the kernel's number; of a simulated node its index
    // How many processors of the node the program may use. A simulated node has
    // as many as the text says.
    int32_t processors = 0;
    // Threads may be bound to the node's processors. False for a simulated node
    // with a processor that does not exist.
    bool bindable = false;
  };
  static constexpr uint8_t kNoNode = 0xff;     // in nodeOf: on no known node
  static constexpr uint8_t kOwnDistance = 10;  // as the kernel counts distance
  static constexpr uint8_t kOtherDistance = 20;  // if the kernel tells none

  int32_t nnodes = 0;  // at least 1 once the topology is known
  bool simulated = false;
  Node nodes[kMaxNodes];
  // distance[i][j] tells what an access from node i to memory of j costs.
  uint8_t distance[kMaxNodes][kMaxNodes] = {};
  uint8_t nodeOf[kMaxProcessors] = {};  // by processor; valid if nnodes > 0
};

// threadAffinity writes the set of processors that a thread may use now; if tid
// is 0, that is the calling thread. Returns false if the kernel does not tell.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool threadAffinity(int32_t tid, CpuSet* out);

// parseCpuList adds the processors of a list, such as "0-3,8", to *out. Returns
// nullptr, or what is wrong with the list, as an English clause.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] const char* parseCpuList(std::string_view list, CpuSet* out);

// parseTopology makes the simulated topology of a text: "2x4" (nodes,
// processors of each), or "0-3,8-11/4-7,12-15" (a list for each node). Returns
// nullptr, or what is wrong with the text, as an English clause; then *t is
// unspecified. No node is bindable yet.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] const char* parseTopology(std::string_view text, Topology* t);
// findProcessors sets `bindable` for the nodes of a simulated topology. A
// processor exists if it is in /sys/devices/system/cpu/online or, if that
// cannot be read, in mask. prefix comes before the path; outside of tests it is
// "". One thread at a time may call findProcessors and readTopology.
// On: any.  P: either.  Locks: may take a leaf.  Parks: as newDescriptor.
void findProcessors(const char* prefix, const CpuSet& mask, Topology* t);

// readTopology finds the nodes of the machine that have processors in mask. If
// *t is known already, readTopology brings it up to date: nodes keep their
// indices, and new ones follow them. If the kernel's files are missing or
// contradict each other, a topology that is not known yet becomes one node with
// all of mask. One that is known keeps its nodes, and each has those of its
// processors that are in mask; if none is left, the first node gets all.
// t must not be simulated.
// On: any.  P: either.  Locks: may take a leaf.  Parks: as newDescriptor.
void readTopology(const char* prefix, const CpuSet& mask, Topology* t);

// nodeProcessors writes the processors of a node that are in mask: those to
// which a thread of that node may be bound. The set is empty if a thread must
// not be bound, because the node is not bindable or has none in mask.
// On: any.  P: either.  Locks: none.  Parks: no.
void nodeProcessors(const Topology& t, int32_t node, const CpuSet& mask,
                    CpuSet* out);

}  // namespace gump::rt

#endif  // RUNTIME_SYS_TOPOLOGY_LINUX_H_
