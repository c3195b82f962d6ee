// The search for leaked goroutines.
//
// Go finds them with its garbage collector. The collector marks memory from the
// roots, but not from the stacks of blocked goroutines. It adds such a stack
// once the channel or lock for which the goroutine waits is marked. The
// goroutines that remain are leaked. C++ has no map of the heap, so memory
// cannot be marked forwards. The search goes backwards instead.
//
// A node is something that leaked goroutines may own:
//  - a goroutine that waits for a channel, a lock, a condition, an event, a
//    scope or a WaitGroup: its saved stack, and its cell with its closure;
//  - a channel for which such a goroutine waits: its header and its ring. Their
//    bounds are known in any build;
//  - a block of the heap that refers to a node, or that has the lock for which
//    a goroutine waits.
// All other memory that the process can read and write is the root: static
// memory, thread-local memory, timers, the stacks of threads and of all other
// goroutines, and the rest of the heap.
//
// A pass reads the root and the nodes, a word at a time. A word whose value
// lies between the ends of a node refers to that node. Where the word is,
// decides:
//  - in a node: the reference is an edge between two nodes;
//  - in a block of the heap: the block becomes a node, and the next pass looks
//    for what refers to the block;
//  - elsewhere: the root refers to the node.
// When a pass finds no new nodes, all nodes to which the root leads are live. A
// goroutine is live if its channel or lock is. The others are leaked. A block
// becomes a node only if it refers to a node that is not live yet, so there are
// few passes.
//
// Only a goroutine that waits for nothing is "certain": one that waits for nil
// channels, or in a select without cases. As in Go, the main goroutine in a
// select without cases is not a leak: programs wait for their end like that.
// All others are "suspected", because some references are not seen:
//  - an address inside of a closure, which lies in the cell of its goroutine,
//    such as a capture by reference of something that another closure holds;
//  - words in a page of shared memory that the process has not touched, in
//    memory that cannot be read, and in blocks that seem to be free.
//
// Why the search finds few that are none. The thread that wakes a goroutine has
// the address of its channel, lock, condition or event, or an address from
// which it gets that one. Let L be the set of nodes that are not live. No word
// outside of L refers to L, so only the goroutines in L can reach it. They all
// wait, and each can be woken only through L. So none of them ever runs.
//
// It follows that a stale word, in a slot that is not used any more or in
// memory that is free, can hide a leak but never make one up. The same holds
// for edges, which have no types, and for a reference to the middle of an
// object. A word that points to the stack of a node, such as a capture by
// reference, makes all of that stack live. The bounds of the variables on it
// are unknown.
//
// This needs five things. What is missing may make a leak up.
//  (S1) Nothing changes while the memory is read, and all registers are in
//       memory. That holds for goroutines, because the world is stopped: a
//       switch and a signal save their registers. It does not hold for a thread
//       that is not ours, nor for a thread that is inside a system call of a
//       goroutine. So all threads of the process must be Ms at rest, the
//       caller, or threads of the kernel's.
//       The thread of Run, and a plain thread that calls, must be the first
//       thread of the process: the stack of another may be a part of other
//       memory.
//  (S2) All memory could be read.
//  (S3) The bounds of blocks are right. AddressSanitizer tells them. Without
//       it, they are guesses (leak_heap.h).
//  (S4) The program keeps pointers as plain words: not compressed or encoded,
//       not only in the kernel, and not only in a file. A channel counts its
//       handles. If there are fewer words with its address than handles, the
//       search does not see some handle, and the channel belongs to the root.
//  (S5) AddressSanitizer may be asked while the world is stopped, because no
//       goroutine is preempted in place. Such a goroutine could hold a lock of
//       AddressSanitizer's. If there is one, blocks belong to the root.
//
// Some memory refers to everything and wakes nothing. The root leaves this out:
//  - the cells and the stacks of goroutines that have ended, and stacks below
//    the stack pointer;
//  - the table of semaphores. Its waiters are found there;
//  - the structs of Ms, because M::waitlock is stale;
//  - of an M at rest, its signal stack, and its stack below the point where it
//    left the program.
// A pending timer is in a heap of the root, so what it refers to is live.
//
// With AddressSanitizer's detect_stack_use_after_return, variables are not on
// the stack, but in memory of AddressSanitizer's. The variables of goroutines
// that have ended stay there. That memory belongs to the root, so the search
// finds little.
//
// Under ThreadSanitizer there is no answer. Its own memory has the address of
// each lock, and cannot be told from the program's.
//
// Rejected:
//  - __lsan_do_recoverable_leak_check, with the stacks of blocked goroutines
//    taken out of its roots. It prints its answer and does not return it. It
//    knows nothing of memory that the program maps itself. And it needs
//    AddressSanitizer, without which most leaks can be found, too.
//  - To rely on the number of a channel's handles. A stale copy counts too, so
//    it could make up for a handle that the search does not see.
//  - A registry of handles. Each copy of a handle would pay for it.
#include "runtime/diag/leaks.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>

#include "runtime/diag/leak_graph.h"
#include "runtime/diag/leak_heap.h"
#include "runtime/sched/mfinal.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stack_arena.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/chan.h"
#include "runtime/wait/select.h"
#include "runtime/wait/timechan.h"
#include "runtime/wait/waitlist.h"

namespace gump::rt {

namespace {

// Wait is what a goroutine waits for.
enum class Wait : uint8_t {
  kOther,    // not one of those below: the goroutine belongs to the root
  kForever,  // nothing
  kChan,
  kSelect,
  kSema,
  // A condition. Its list of waiters begins in the program's memory, so a
  // thread that can notify it can reach the waiters' stacks.
  kCond,
};

Wait waitOf(const G* gp) {
  switch (gp->waitreason) {
    case WaitReason::kChanReceiveNilChan:
    case WaitReason::kChanSendNilChan:
      return Wait::kForever;
    case WaitReason::kSelectNoCases:
      return gp->goid == kMainGoid ? Wait::kOther : Wait::kForever;
    case WaitReason::kChanReceive:
    case WaitReason::kChanSend:
    case WaitReason::kSynctestChanReceive:
    case WaitReason::kSynctestChanSend:
      return Wait::kChan;
    case WaitReason::kSelect:
    case WaitReason::kSynctestSelect:
      return Wait::kSelect;
    case WaitReason::kSyncCondWait:
      return Wait::kCond;
    case WaitReason::kSemacquire:
    case WaitReason::kSyncMutexLock:
    case WaitReason::kSyncRWMutexRLock:
    case WaitReason::kSyncRWMutexLock:
    case WaitReason::kSyncWaitGroupWait:
    case WaitReason::kSynctestWaitGroupWait:
    case WaitReason::kSyncEventWait:  // on its own stack
    case WaitReason::kSynctestScopeJoin:
    case WaitReason::kScopeJoin:
    case WaitReason::kScopeWait:
      return Wait::kSema;
    default:
      return Wait::kOther;
  }
}

// copyWords copies words of a stack or a cell that does not change. It is not
// instrumented, because ASan has poisoned parts of stacks.
GUMP_NO_SANITIZE void copyWords(uintptr_t from, uintptr_t* to, size_t n) {
  const auto* p = reinterpret_cast<const volatile uintptr_t*>(from);
  for (size_t i = 0; i < n; i++) to[i] = p[i];
}

// copyOf returns a copy of an object on a stack that does not change.
template <class T>
T copyOf(uintptr_t from) {
  static_assert(sizeof(T) % sizeof(uintptr_t) == 0);
  uintptr_t words[sizeof(T) / sizeof(uintptr_t)];
  copyWords(from, words, std::size(words));
  T t;
  memcpy(static_cast<void*>(&t), words, sizeof(t));
  return t;
}

}  // namespace

namespace {
// The first 64th of the store is the graph's own.
constexpr size_t kWordBuffer = 8192;
}  // namespace

void LeakGraph::carve() {
  LeakStore* s = &search_->store_;
  s->carve(&goroutines_, 6);
  s->carve(&nodes_, 8);
  s->carve(&edges_, 12);
  s->carve(&targets_, 4);
  s->carve(&waiters_, 4);
  s->carve(&owned_, 4);
  s->carve(&stacks_, 3);
  s->carve(&skipped_, 2);
  s->carve(&mappings_, 1);
  s->carve(&pieces_, 2);
  s->carve(&chunks_, 8);
  s->carve(&slots_, 3);
  s->carve(&queue_, 1);
  s->carve(&filter_, 1);
  s->carve(&buffers_, 1);
  s->carve(&search_->found_, 2);
  auto* const b = buffers_.begin();
  memory_->useBuffer(b);
  words_ = reinterpret_cast<uintptr_t*>(b + ProcessMemory::kBuffer);
}

uint32_t LeakGraph::addNode(uintptr_t lo, uintptr_t hi, const G* gp) {
  Node n{};
  n.lo = lo;
  n.hi = hi;
  n.gp = gp;
  nodes_.push(n);
  return static_cast<uint32_t>(nodes_.size() - 1);
}

void LeakGraph::addTarget(uint32_t node) {
  Node& n = nodes_[node];
  n.searched = true;
  targets_.push({n.lo, n.hi, node});
}

const Mapping* LeakGraph::mappingOf(uintptr_t addr) const {
  const Mapping* m = std::upper_bound(
      mappings_.begin(), mappings_.end(), addr,
      [](uintptr_t a, const Mapping& other) { return a < other.hi; });
  return m == mappings_.end() || addr < m->lo ? nullptr : m;
}

LeakGraph::Goroutine* LeakGraph::goroutineOf(const G* gp) const {
  Goroutine* g =
      std::lower_bound(goroutines_.begin(), goroutines_.end(), gp,
                       [](const Goroutine& a, const G* b) { return a.gp < b; });
  return g == goroutines_.end() || g->gp != gp ? nullptr : g;
}

// ---- The first nodes --------------------------------------------------------

void LeakGraph::addNodes() {
  for (Goroutine& g : goroutines_) {
    const G* gp = g.gp;
    const uint32_t status = readgstatus(const_cast<G*>(gp));
    if (status != kGwaiting || g.running || g.stack.lo == 0 ||
        isSystemGoroutine(gp)) {
      continue;
    }
    addWaits(&g);
    if (g.node != kRoot) stacks_.push({{gp->stack.lo, gp->stack.hi}, g.node});
  }
  std::sort(stacks_.begin(), stacks_.end(), [](const Owned& a, const Owned& b) {
    return a.memory.lo < b.memory.lo;
  });
}

// addWaits makes g a node if it waits for an object that only leaked goroutines
// may reach. A waker that is not stopped may be about to ready g. Then g
// belongs to the root.
void LeakGraph::addWaits(Goroutine* g) {
  const G* gp = g->gp;
  const Wait wait = waitOf(gp);
  // ASan may keep variables on a fake stack. That is memory of the root.
  if (wait != Wait::kForever && topOf(gp->stack)->asanFakeStack != nullptr) {
    return;
  }
  // The waker sets param to a sudog of the goroutine's.
  const auto param = addressOf(peek(gp->param));
  const Span stack{gp->stack.lo, gp->stack.hi};
  const bool inStack = within(g->stack, param);
  const auto select = wait == Wait::kSelect;
  switch (wait) {
    case Wait::kOther:
      return;
    case Wait::kChan:
      if (param == 0 || within(stack, param)) return;
      break;
    case Wait::kSelect:
      // Relaxed: a waker that runs now makes (S1) false.
      if (!inStack || gp->selectDone.load(relaxed) != 0) return;
      break;
    case Wait::kSema:
      // A WaitGroup and a Scope keep their waiters themselves, and are not in
      // the table.
      if (const WaitList* l = inStack ? waitListOf(gp) : nullptr;
          l != nullptr) {
        g->sema = addressOf(l);
      }
      if (g->sema == 0) return;
      break;
    case Wait::kForever:
    case Wait::kCond:
      break;
  }
  g->node = addNode(stack.lo, stack.hi, gp);
  nodes_[g->node].forever = wait == Wait::kForever;
  if (wait == Wait::kChan) {
    waiters_.push({reinterpret_cast<const Hchan*>(param), g->node});
  }
  if (!select) return;
  const auto s = copyOf<Select>(param);
  const uintptr_t sudogs = addressOf(s.sudogs);
  if (!within(g->stack, sudogs)) {  // runOnHeap
    const uint32_t block =
        addNode(sudogs, sudogs + s.n * (sizeof(Sudog) + 4), nullptr);
    owned_.push({{nodes_[block].lo, nodes_[block].hi}, block});
    edges_.push({g->node, block});
    nodes_[block].searched = true;  // the program does not refer to it
  }
  for (uint32_t i = 0; i < s.norder; i++) {
    waiters_.push({copyOf<Sudog>(sudogs + i * sizeof(Sudog)).c, g->node});
  }
}

void LeakGraph::addChans() {
  std::sort(waiters_.begin(), waiters_.end(),
            [](const Waiter& a, const Waiter& b) { return a.c < b.c; });
  const Hchan* last = nullptr;
  uint32_t node = 0;
  for (const Waiter& w : waiters_) {
    if (w.c != last) {
      last = w.c;
      const Hchan* c = w.c;
      uintptr_t lo = addressOf(c->base);
      uintptr_t hi = addressOf(c->buf) + c->dataqsiz * c->elemsize;
      if (c->isTimer) {
        lo = addressOf(c);
        hi = lo + sizeof(TimerChan);
      }
      // A list of free chunks may have the address of the chunk behind the
      // channel's, which lies in the last word of the channel's block.
      node = addNode(lo, hi - hi % kHeapWords, nullptr);
      if (!c->isTimer) nodes_[node].c = c;
      owned_.push({{lo, hi}, node});
    }
    nodes_[node].waiters++;
    edges_.push({node, w.node});
  }
  std::sort(owned_.begin(), owned_.end(), [](const Owned& a, const Owned& b) {
    return a.memory.lo < b.memory.lo;
  });
}

namespace {
// ownerOf returns the element of a sorted table around addr, or nullptr.
template <class T>
const T* ownerOf(const Table<T>& sorted, uintptr_t addr) {
  const T* next = std::upper_bound(
      sorted.begin(), sorted.end(), addr,
      [](uintptr_t a, const T& other) { return a < other.memory.lo; });
  if (next == sorted.begin() || !within(next[-1].memory, addr)) return nullptr;
  return next - 1;
}
}  // namespace

// A thread wakes the waiters of a semaphore or of a WaitList through its
// address. So the goroutine is live if any live memory refers to the stack or
// the block of the heap around that address.
void LeakGraph::addSemas() {
  for (const Goroutine& g : goroutines_) {
    if (g.node == kRoot || g.sema == 0) continue;
    uint32_t from = kRoot;
    if (const auto* stack = ownerOf(stacks_, g.sema); stack != nullptr) {
      from = stack->node;
    } else if (arenaOf(g.sema) == nullptr && !resolve(g.sema, &from)) {
      from = kRoot;
    }
    if (from == kRoot) {
      nodes_[g.node].rooted = true;
    } else if (from != g.node) {
      edges_.push({from, g.node});
    }
  }
}

// ---- What refers to what ----------------------------------------------------

uint32_t LeakGraph::heapNode(const Span& block) {
  const size_t mask = (size_t{1} << 31) - 1;
  size_t room = slots_.room();
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
  size_t i = ((block.lo * kGolden) >> 20 & mask) % room;
  for (;; i = (i + 1) % room) {
    const uint32_t slot = slots_.begin()[i];
    if (slot == 0) break;
    if (nodes_[slot - 1].lo == block.lo) return slot - 1;
  }
  if (full()) return kRoot;
  const bool exact = heap_.exact();
  // A list of free chunks has their addresses, which lie in the last word of
  // the block before.
  constexpr uintptr_t kLastWord = 8;
  const uint32_t node =
      addNode(block.lo, exact ? block.hi : block.hi - kLastWord, nullptr);
  nodes_[node].guessed = !exact;
  nodes_[node].isHeap = true;
  slots_.begin()[i] = node + 1;
  slotsUsed_++;
  return node;
}

bool LeakGraph::resolve(uintptr_t addr, uint32_t* node) {
  *node = kRoot;
  if (const auto* owner = ownerOf(owned_, addr); owner != nullptr) {
    *node = owner->node;
    return true;
  }
  Span block;
  switch (heap_.find(addr, &block)) {
    case LeakHeap::Found::kNothing:
      return true;
    case LeakHeap::Found::kFree:
      return false;
    case LeakHeap::Found::kBlock:
      *node = heapNode(block);
      return true;
  }
  return true;
}

void LeakGraph::prepareTargets() {
  std::sort(targets_.begin(), targets_.end(),
            [](const Target& a, const Target& b) { return a.lo < b.lo; });
  std::fill_n(filter_.begin(), size_t{1} << (kFilterBits - 6), 0);
  uintptr_t highest = 0;
  lowest_ = UINTPTR_MAX;
  for (const Target& t : targets_) {
    lowest_ = std::min(lowest_, t.lo);
    highest = std::max(highest, t.hi);
    const uintptr_t end = t.hi >> kGranuleShift;
    for (uintptr_t g = t.lo >> kGranuleShift; g <= end; g++) {
      const uintptr_t h = granule(g);
      filter_[h / 64] |= uint64_t{1} << (h % 64);
    }
  }
  reach_ = highest - lowest_;
}

void LeakGraph::referSlow(uintptr_t at, uintptr_t word, uint32_t from) {
  const Target* next = std::upper_bound(
      targets_.begin(), targets_.end(), word,
      [](uintptr_t w, const Target& other) { return w < other.lo; });
  if (next == targets_.begin() || word >= next[-1].hi) return;
  const uint32_t to = next[-1].node;
  Node& target = nodes_[to];
  const bool counts = target.c != nullptr && word == addressOf(target.c);
  if (from == to || (target.rooted && !counts)) return;
  if (from == kResolve && !resolve(at, &from)) return;
  if (from == to) return;
  if (counts) target.words++;
  if (from == kRoot) {
    target.rooted = true;
  } else if (edges_.size() == 0 || edges_.end()[-1].from != from ||
             edges_.end()[-1].to != to) {
    edges_.push({from, to});
  }
}

void LeakGraph::scanRoot() {
  for (const Mapping& m : pieces_) {
    memory_->scan({m.lo, m.hi}, [this](uintptr_t addr, uintptr_t word) {
      refer(addr, word, kResolve);
    });
  }
}

void LeakGraph::scanGoroutine(const Goroutine& g) {
  constexpr size_t kCellWords = sizeof(G) / sizeof(uintptr_t);
  constexpr size_t kParam = offsetof(G, param) / sizeof(uintptr_t);
  copyWords(addressOf(g.gp), words_, kCellWords);
  for (size_t i = 0; i < kCellWords; i++) {
    if (i != kParam) refer(0, words_[i], g.node);
  }
  if (g.running) {
    memory_->scan(g.stack, [&](uintptr_t addr, uintptr_t word) {
      refer(addr, word, g.node);
    });
    return;
  }
  for (uintptr_t at = g.stack.lo; at < g.stack.hi;) {
    const size_t n =
        std::min(kWordBuffer, (g.stack.hi - at) / sizeof(uintptr_t));
    if (n == 0) return;
    copyWords(at, words_, n);
    for (size_t i = 0; i < n; i++) refer(0, words_[i], g.node);
    at += n * sizeof(uintptr_t);
  }
}

void LeakGraph::pass() {
  prepareTargets();
  for (const Goroutine& g : goroutines_) scanGoroutine(g);
  scanRoot();
}

bool LeakGraph::hidesHandle(const Node& n) {
  return n.c != nullptr &&
         n.words < n.c->refs.load(relaxed) + uint64_t{n.waiters};
}

void LeakGraph::findLive(bool guessesAreRoots) {
  std::sort(edges_.begin(), edges_.end(),
            [](const Edge& a, const Edge& b) { return a.from < b.from; });
  queue_.truncate(0);
  for (size_t i = 0; i < nodes_.size(); i++) {
    Node& n = nodes_[i];
    n.live = n.rooted || (guessesAreRoots && (n.guessed || hidesHandle(n)));
    if (n.live) queue_.push(static_cast<uint32_t>(i));
  }
  for (size_t next = 0; next < queue_.size(); next++) {
    const uint32_t from = queue_[next];
    const Edge* e =
        std::lower_bound(edges_.begin(), edges_.end(), from,
                         [](const Edge& a, uint32_t b) { return a.from < b; });
    for (; e != edges_.end() && e->from == from; e++) {
      if (nodes_[e->to].live) continue;
      nodes_[e->to].live = true;
      queue_.push(e->to);
    }
  }
}

bool LeakGraph::wantMore() {
  targets_.truncate(0);
  for (const Edge& e : edges_) {
    if (!nodes_[e.from].searched && !nodes_[e.to].live) addTarget(e.from);
  }
  return targets_.size() != 0;
}

void LeakGraph::search() {
  targets_.truncate(0);
  for (size_t i = 0; i < nodes_.size(); i++) {
    if (!nodes_[i].isHeap && !nodes_[i].searched)
      addTarget(static_cast<uint32_t>(i));
  }
  for (int n = 0; n < kMaxPasses && !full(); n++) {
    pass();
    findLive(/*guessesAreRoots=*/false);
    if (!wantMore()) return;
  }
  for (const Target& t : targets_) nodes_[t.node].rooted = true;
}

// ---- The answer -------------------------------------------------------------

void LeakGraph::answer() {
  auto& found = search_->found_;
  for (const Node& n : nodes_) {
    if (n.gp != nullptr && n.forever) found.push({n.gp, Leak::kCertain});
  }
  findLive(/*guessesAreRoots=*/false);
  for (const Node& n : nodes_) {
    if (n.gp != nullptr && !n.live) found.push({n.gp, Leak::kSuspected});
  }
  // A goroutine of both lists is certain, and that entry comes first.
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.gp != b.gp ? a.gp < b.gp : a.leak > b.leak;
  });
}

LeakStatus LeakGraph::run(uintptr_t sp) {
  carve();
  if (!memory_->readMaps(&mappings_)) return LeakStatus::kNoMaps;
  addGoroutines(sp);
  findSemas();
  addThreads(sp);
  skipStacks();
  cutMappings();
  addNodes();
  addChans();
  heap_.prepare();
  addSemas();
  if (full()) return LeakStatus::kNoMemory;
  search();
  if (full()) return LeakStatus::kNoMemory;
  answer();
  return search_->found_.full() ? LeakStatus::kNoMemory : LeakStatus::kDone;
}

LeakStatus LeakSearch::prepare() {
  if (sanitizerKeepsAddresses()) return LeakStatus::kSanitizer;
  constexpr size_t kBase = size_t{1} << 30;
  constexpr size_t kEach = 4096;
  if (!store_.reserve(kBase + kEach * gcountAll())) {
    return LeakStatus::kNoMemory;
  }
  return memory_.open() ? LeakStatus::kDone : LeakStatus::kNoMaps;
}

namespace {

// runBelow runs the search. Its caller has saved all callee-saved registers in
// its frame, so they are in the part of the stack that the search reads.
GUMP_NOINLINE LeakStatus runBelow(LeakGraph* graph) {
  const LeakStatus status = graph->run(addressOf(__builtin_frame_address(0)));
  asm volatile("" ::: "memory");  // no tail call
  return status;
}

}  // namespace

GUMP_NOINLINE LeakStatus LeakSearch::run() {
  __builtin_unwind_init();
  Table<char> room;
  store_.carve(&room, 1);
  // Relaxed: the world is stopped.
  auto* graph =
      new (room.begin()) LeakGraph(this, sched.ninplace.load(relaxed) == 0);
  const LeakStatus status = runBelow(graph);
  asm volatile("" ::: "memory");
  return status;
}

Leak LeakSearch::of(const G* gp) const {
  const Found* f =
      std::lower_bound(found_.begin(), found_.end(), gp,
                       [](const Found& a, const G* b) { return a.gp < b; });
  return f == found_.end() || f->gp != gp ? Leak::kNone : f->leak;
}

void LeakSearch::finish() {
  memory_.close();
  store_.free();
}

}  // namespace gump::rt
