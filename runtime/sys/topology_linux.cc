// Finding the NUMA nodes.
//
// Three kinds of file are read, all in /sys/devices/system/node:
//  * online, a list of the nodes;
//  * node*/cpulist, the processors of a node that are online. A node without
//    processors has only memory, and does not count here.
//  * node*/distance, a number for each node that is online, in the order of
//    their numbers.
// The processors outside of the affinity mask count for no node, because no
// thread of ours runs there. The kernel takes processors that go offline out of
// the mask, so a changed mask is the sign to read again.
//
// Firmware and containers may show files that contradict each other: a
// processor on two nodes, or a node without a list. Then all of them are worth
// nothing, and the machine counts as one node. (The user may know better, and
// set GUMP_TOPOLOGY.)
//
// Nothing here allocates, because it runs before main on behalf of static
// constructors, and on sysmon.
#include "runtime/sys/topology_linux.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "runtime/sys/base.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/keep_errno.h"
#include "runtime/sys/next_field.h"
#include "runtime/sys/raw_syscall.h"

namespace gump::rt {
namespace {

constexpr char kMalformed[] = "it is neither like 2x4 nor like 0-3/4-7";
constexpr char kTwice[] = "it names a processor twice";
constexpr char kTooManyNodes[] = "it has more than 64 nodes";
constexpr char kTooManyProcessors[] = "it has a processor above 8191";
static_assert(kMaxNodes == 64 && kMaxProcessors == 8192);

// A list that fills a buffer of this size counts as unreadable. Even if every
// second processor is offline, the lists of the largest machines fit.
constexpr size_t kListSize = 24576;
// The kernel's numbers of nodes end here (NODES_SHIFT is at most 10).
constexpr int32_t kMaxNodeIds = 1024;

// Number is a decimal without a sign. One that is too large for an int32_t is
// kHuge, which is above every limit here.
constexpr int32_t kHuge = INT32_MAX;
bool parseNumber(std::string_view s, int32_t* out) {
  if (s.empty() || s.front() < '0' || s.front() > '9') return false;
  const char* end = s.data() + s.size();
  const auto [at, err] = std::from_chars(s.data(), end, *out);
  if (at != end) return false;
  if (err == std::errc::result_out_of_range) *out = kHuge;
  return err == std::errc() || err == std::errc::result_out_of_range;
}

// Each calls f(first, last) for every range of a list, such as "0-3,8", until
// f returns false. Returns false if f did, or if the list is malformed.
template <class F>
bool eachRange(std::string_view list, F&& f) {
  if (list.empty()) return false;
  for (bool more = true; more;) {
    more = list.find(',') != list.npos;
    std::string_view range = nextField(&list, ',');
    const bool single = range.find('-') == range.npos;
    int32_t first;
    int32_t last;
    if (!parseNumber(nextField(&range, '-'), &first)) return false;
    if (single) {
      last = first;
    } else if (!parseNumber(range, &last) || last < first) {
      return false;
    }
    if (!f(first, last)) return false;
  }
  return true;
}

// readWhole reads fd to its end, at most n bytes. Returns how many, or -1. It
// is not inlined, because it reads errno, and readFile may park (see
// KeepErrno).
GUMP_NOINLINE ssize_t readWhole(int fd, char* buf, size_t n) {
  size_t size = 0;
  while (size < n) {
    const ssize_t got = read(fd, buf + size, n - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  return static_cast<ssize_t>(size);
}

// readFile reads a file below prefix as one line, and returns it without its
// newline. Returns false if it cannot be read, or does not fit into n bytes.
bool readFile(const char* prefix, const char* name, char* buf, size_t n,
              std::string_view* line) {
  char path[4096];
  const size_t lengths[] = {strlen(prefix), strlen(name)};
  if (lengths[0] + lengths[1] >= sizeof(path)) return false;
  memcpy(path, prefix, lengths[0]);
  memcpy(path + lengths[0], name, lengths[1] + 1);
  const int fd =
      newDescriptor([&] { return ::open(path, O_RDONLY | O_CLOEXEC); });
  if (fd < 0) return false;
  const ssize_t size = readWhole(fd, buf, n);
  close(fd);
  if (size < 0 || static_cast<size_t>(size) == n) return false;
  *line = std::string_view(buf, static_cast<size_t>(size));
  if (!line->empty() && line->back() == '\n') line->remove_suffix(1);
  return true;
}

// NodeFile is the name of a file of a node.
struct NodeFile {
  NodeFile(int32_t id, std::string_view file) {
    constexpr std::string_view kDir = "/sys/devices/system/node/node";
    memcpy(name, kDir.data(), kDir.size());
    char* at = std::to_chars(name + kDir.size(), name + sizeof(name), id).ptr;
    *at++ = '/';
    memcpy(at, file.data(), file.size());
    at[file.size()] = '\0';
  }
  char name[64];
};

// Found is the nodes of the machine as one reading of the files shows them.
struct Found {
  Topology t;  // begins as the known topology, whose indices are kept
  CpuSet mask;
  const char* prefix = nullptr;
  char buf[kListSize] = {};
  // The processors of all nodes so far, to find one that is on two nodes.
  CpuSet seen;
  // The numbers of the nodes that are online, in their order.
  int32_t ids[kMaxNodeIds] = {};
  int32_t nids = 0;
};
// Static, because the callers may have small stacks. One thread at a time reads
// the topology.
constinit Found scratch;

// indexOf returns the index of the node with a number. If t has no such node,
// it is added. Returns -1 if there is no room.
int32_t indexOf(Topology* t, int32_t id) {
  for (int32_t i = 0; i < t->nnodes; i++) {
    if (t->nodes[i].id == id) return i;
  }
  if (t->nnodes == kMaxNodes) return -1;
  t->nodes[t->nnodes].id = id;
  return t->nnodes++;
}

// findNode adds the node with a number, if it has processors in the mask.
// Returns false if its list cannot be read, or contradicts another one.
bool findNode(Found* f, int32_t id) {
  std::string_view list;
  if (!readFile(f->prefix, NodeFile(id, "cpulist").name, f->buf, sizeof(f->buf),
                &list)) {
    return false;
  }
  if (list.empty()) return true;  // only memory
  CpuSet cpus;
  if (parseCpuList(list, &cpus) != nullptr) return false;
  int32_t usable = 0;
  for (int32_t cpu = 0; cpu < kMaxProcessors; cpu++) {
    if (!cpus.has(cpu)) continue;
    if (f->seen.has(cpu)) return false;
    f->seen.add(cpu);
    if (f->mask.has(cpu)) usable++;
  }
  if (usable == 0) return true;
  const int32_t i = indexOf(&f->t, id);
  if (i < 0) return false;
  f->t.nodes[i].processors = usable;
  f->t.nodes[i].bindable = true;
  for (int32_t cpu = 0; cpu < kMaxProcessors; cpu++) {
    if (cpus.has(cpu)) f->t.nodeOf[cpu] = static_cast<uint8_t>(i);
  }
  return true;
}

// giveAll adds the only node of the machine, which has all processors. So most
// programs read no file of a node at their start.
bool giveAll(Found* f, int32_t id) {
  const int32_t i = indexOf(&f->t, id);
  f->t.nodes[i].processors = f->mask.count();
  f->t.nodes[i].bindable = true;
  memset(f->t.nodeOf, i, sizeof(f->t.nodeOf));
  return true;
}

// findDistances fills in the row of one node. A file that cannot be read, or
// has not one number for each node that is online, changes nothing.
void findDistances(Found* f, int32_t node) {
  Topology* t = &f->t;
  std::string_view line;
  if (!readFile(f->prefix, NodeFile(t->nodes[node].id, "distance").name, f->buf,
                sizeof(f->buf), &line)) {
    return;
  }
  uint8_t row[kMaxNodes];
  memcpy(row, t->distance[node], sizeof(row));
  for (int32_t k = 0; k < f->nids; k++) {
    int32_t d;
    if (!parseNumber(nextField(&line, ' '), &d) || d > UINT8_MAX) return;
    for (int32_t i = 0; i < t->nnodes; i++) {
      if (t->nodes[i].id == f->ids[k]) row[i] = static_cast<uint8_t>(d);
    }
  }
  if (line.empty()) memcpy(t->distance[node], row, sizeof(row));
}

// find reads all files. Returns false if they are worth nothing; then f->t is
// unspecified.
bool find(Found* f) {
  std::string_view online;
  if (!readFile(f->prefix, "/sys/devices/system/node/online", f->buf,
                sizeof(f->buf), &online)) {
    return false;
  }
  const bool good = eachRange(online, [&](int32_t first, int32_t last) {
    if (last >= kMaxNodeIds) return false;
    for (int32_t id = first; id <= last; id++) {
      if (f->nids == kMaxNodeIds) return false;
      f->ids[f->nids++] = id;
    }
    return true;
  });
  if (!good) return false;
  if (f->nids == 1 && f->t.nnodes == 0) return giveAll(f, f->ids[0]);
  for (int32_t k = 0; k < f->nids; k++) {
    if (!findNode(f, f->ids[k])) return false;
  }
  return true;
}

void setOrdinaryDistances(Topology* t) {
  for (int32_t i = 0; i < kMaxNodes; i++) {
    for (int32_t j = 0; j < kMaxNodes; j++) {
      t->distance[i][j] =
          i == j ? Topology::kOwnDistance : Topology::kOtherDistance;
    }
  }
}

void forgetProcessors(Topology* t) {
  memset(t->nodeOf, Topology::kNoNode, sizeof(t->nodeOf));
  for (Topology::Node& n : t->nodes) n.processors = 0;
}

int32_t usableProcessors(const Topology& t) {
  int32_t n = 0;
  for (int32_t i = 0; i < t.nnodes; i++) n += t.nodes[i].processors;
  return n;
}

// keepKnown is readTopology when the files are worth nothing.
void keepKnown(const CpuSet& mask, Topology* t) {
  if (t->nnodes == 0) {
    forgetProcessors(t);
    t->nnodes = 1;
    t->nodes[0].id = 0;
  } else {
    for (Topology::Node& n : t->nodes) n.processors = 0;
    for (int32_t cpu = 0; cpu < kMaxProcessors; cpu++) {
      if (mask.has(cpu) && t->nodeOf[cpu] != Topology::kNoNode) {
        t->nodes[t->nodeOf[cpu]].processors++;
      }
    }
  }
  if (usableProcessors(*t) > 0) return;
  for (int32_t cpu = 0; cpu < kMaxProcessors; cpu++) {
    if (mask.has(cpu)) t->nodeOf[cpu] = 0;
  }
  t->nodes[0].processors = std::max(mask.count(), 1);
  t->nodes[0].bindable = mask.count() > 0;
}

// addNode makes the next node of a simulated topology. Returns nullptr, or what
// is wrong.
const char* addNode(const CpuSet& cpus, Topology* t) {
  if (t->nnodes == kMaxNodes) return kTooManyNodes;
  const int32_t i = t->nnodes++;
  t->nodes[i].id = i;
  t->nodes[i].processors = cpus.count();
  for (int32_t cpu = 0; cpu < kMaxProcessors; cpu++) {
    if (!cpus.has(cpu)) continue;
    if (t->nodeOf[cpu] != Topology::kNoNode) return kTwice;
    t->nodeOf[cpu] = static_cast<uint8_t>(i);
  }
  return nullptr;
}

// simulateEqual is parseTopology of "2x4".
const char* simulateEqual(std::string_view text, Topology* t) {
  int32_t nodes;
  int32_t each;
  if (!parseNumber(nextField(&text, 'x'), &nodes) ||
      !parseNumber(text, &each) || nodes == 0 || each == 0) {
    return kMalformed;
  }
  if (nodes > kMaxNodes) return kTooManyNodes;
  if (each > kMaxProcessors / nodes) return kTooManyProcessors;
  for (int32_t i = 0; i < nodes; i++) {
    CpuSet cpus;
    for (int32_t k = 0; k < each; k++) cpus.add(i * each + k);
    if (const char* wrong = addNode(cpus, t)) return wrong;
  }
  return nullptr;
}

}  // namespace

bool threadAffinity(int32_t tid, CpuSet* out) {
  const long n = rawSyscall(SYS_sched_getaffinity, tid, kMaxProcessors / 8,
                            asArg(out->words()), 0, 0, 0);
  if (n < 0) return false;
  // The kernel writes n bytes, as many as its own sets have.
  memset(reinterpret_cast<char*>(out->words()) + n, 0,
         kMaxProcessors / 8 - static_cast<size_t>(n));
  return true;
}

const char* parseCpuList(std::string_view list, CpuSet* out) {
  const char* wrong = nullptr;
  const bool good = eachRange(list, [&](int32_t first, int32_t last) {
    if (last >= kMaxProcessors) wrong = kTooManyProcessors;
    for (int32_t cpu = first; wrong == nullptr && cpu <= last; cpu++) {
      if (out->has(cpu)) wrong = kTwice;
      out->add(cpu);
    }
    return wrong == nullptr;
  });
  if (wrong != nullptr) return wrong;
  return good ? nullptr : kMalformed;
}

const char* parseTopology(std::string_view text, Topology* t) {
  *t = Topology{};
  t->simulated = true;
  forgetProcessors(t);
  setOrdinaryDistances(t);
  if (text.find('x') != text.npos) return simulateEqual(text, t);
  for (bool more = true; more;) {
    more = text.find('/') != text.npos;
    CpuSet cpus;
    if (const char* wrong = parseCpuList(nextField(&text, '/'), &cpus)) {
      return wrong;
    }
    if (const char* wrong = addNode(cpus, t)) return wrong;
  }
  return nullptr;
}

void findProcessors(const char* prefix, const CpuSet& mask, Topology* t) {
  const KeepErrno kept;
  std::string_view online;
  CpuSet exist;
  if (!readFile(prefix, "/sys/devices/system/cpu/online", scratch.buf,
                sizeof(scratch.buf), &online) ||
      parseCpuList(online, &exist) != nullptr) {
    exist = mask;
  }
  for (int32_t i = 0; i < t->nnodes; i++) t->nodes[i].bindable = true;
  for (int32_t cpu = 0; cpu < kMaxProcessors; cpu++) {
    const uint8_t node = t->nodeOf[cpu];
    if (node != Topology::kNoNode && !exist.has(cpu)) {
      t->nodes[node].bindable = false;
    }
  }
}

void readTopology(const char* prefix, const CpuSet& mask, Topology* t) {
  const KeepErrno kept;
  if (t->nnodes == 0) setOrdinaryDistances(t);
  Found* f = &scratch;
  f->t = *t;
  f->mask = mask;
  f->prefix = prefix;
  f->seen = CpuSet();
  f->nids = 0;
  forgetProcessors(&f->t);
  if (!find(f) || usableProcessors(f->t) == 0) {
    keepKnown(mask, t);
    return;
  }
  if (f->nids > 1) {
    for (int32_t i = 0; i < f->t.nnodes; i++) findDistances(f, i);
  }
  *t = f->t;
}

void nodeProcessors(const Topology& t, int32_t node, const CpuSet& mask,
                    CpuSet* out) {
  *out = CpuSet();
  if (!t.nodes[node].bindable) return;
  for (int32_t cpu = 0; cpu < kMaxProcessors; cpu++) {
    if (mask.has(cpu) && t.nodeOf[cpu] == node) out->add(cpu);
  }
}

}  // namespace gump::rt
