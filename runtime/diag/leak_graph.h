// The graph of one search for leaked goroutines. leaks.cc has the method, and
// leak_roots.cc decides which memory belongs to the root and which is left out.
#ifndef RUNTIME_DIAG_LEAK_GRAPH_H_
#define RUNTIME_DIAG_LEAK_GRAPH_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/linkname.h"
#include "runtime/diag/leak_heap.h"
#include "runtime/diag/leak_memory.h"
#include "runtime/diag/leaks.h"
#include "runtime/sys/base.h"

namespace gump::rt {

struct G;
struct Hchan;

inline uintptr_t addressOf(const void* p) {
  return reinterpret_cast<uintptr_t>(p);
}

// within returns true if addr lies in s.
inline bool within(const Span& s, uintptr_t addr) {
  return addr - s.lo < s.hi - s.lo;
}

inline constexpr uint32_t kRoot =
    UINT32_MAX;  // in place of the index of a node

// LeakGraph is the search in one stop of the world. It lies in the LeakStore.
class LeakGraph {
 public:
  LeakGraph(LeakSearch* search, bool useExact)
      : search_(search),
        memory_(&search->memory_),
        heap_(memory_, &pieces_, &chunks_, useExact) {}

  // run is LeakSearch::run. The caller's stack is in use from sp on.
  LeakStatus run(uintptr_t sp);

 private:
  struct Node {
    // A word with a value in [lo, hi) refers to the node.
    uintptr_t lo;
    uintptr_t hi;
    const G* gp;       // of a goroutine, else nullptr
    const Hchan* c;    // of a channel whose handles are counted, else nullptr
    uint32_t words;    // of c: how many words are its address
    uint32_t waiters;  // of c: how many of these are in sudogs
    bool rooted;       // the root refers to it
    bool guessed;      // a block whose bounds are a guess
    bool forever;      // Wait::kForever
    bool isHeap;       // a block that `resolve` has found
    bool searched;     // a pass has looked for what refers to it
    bool live;         // the answer of findLive
  };
  struct Edge {
    uint32_t from, to;
  };
  struct Target {
    uintptr_t lo, hi;
    uint32_t node;
  };
  struct Goroutine {
    const G* gp;
    Span stack;      // the part that is in use
    uintptr_t sema;  // the address for which it waits, or 0
    uint32_t node;   // or kRoot
    bool running;    // its stack is not saved: read as if it could change
  };
  struct Waiter {
    const Hchan* c;
    uint32_t node;
  };
  struct Owned {
    Span memory;
    uint32_t node;
  };

  bool full() const {
    return goroutines_.full() || nodes_.full() || edges_.full() ||
           targets_.full() || waiters_.full() || owned_.full() ||
           stacks_.full() || skipped_.full() || mappings_.full() ||
           pieces_.full() || slotsUsed_ * 2 > slots_.room();
  }

  void carve();
  // The parts of run, in this order.
  void addGoroutines(uintptr_t sp);
  void findSemas();
  void addThreads(uintptr_t sp);
  void skipStacks();
  void cutMappings();
  void addNodes();
  void addWaits(Goroutine* g);
  void addChans();
  void addSemas();
  void search();
  void answer();

  uint32_t addNode(uintptr_t lo, uintptr_t hi, const G* gp);
  void addTarget(uint32_t node);
  // resolve stores in *node the node that the memory at addr belongs to, or
  // kRoot. Returns false if the memory is free.
  bool resolve(uintptr_t addr, uint32_t* node);
  // heapNode returns the node of a block. It makes one at the first call.
  uint32_t heapNode(const Span& block);
  // skipBelow skips the part of a thread's stack just below sp, where stale
  // words may hide leaks. Returns true if it is the stack of the first thread.
  bool skipBelow(uintptr_t sp);
  void skip(uintptr_t lo, uintptr_t hi) {
    if (lo < hi) skipped_.push({lo, hi});
  }
  const Mapping* mappingOf(uintptr_t addr) const;
  Goroutine* goroutineOf(const G* gp) const;

  void prepareTargets();
  void pass();
  void scanRoot();
  void scanGoroutine(const Goroutine& g);
  // refer notes the reference if the word at `at`, in node `from`, refers to a
  // target. It is called for each word that is read.
  GUMP_ALWAYS_INLINE void refer(uintptr_t at, uintptr_t word, uint32_t from) {
    if (word - lowest_ > reach_) return;
    const uintptr_t h = granule(word >> kGranuleShift);
    if ((filter_[h / 64] >> (h % 64) & 1) == 0) return;
    referSlow(at, word, from);
  }
  GUMP_NOINLINE void referSlow(uintptr_t at, uintptr_t word, uint32_t from);
  // findLive computes Node::live. With guessesAreRoots, guessed blocks belong
  // to the root, and so do channels with a handle that no word shows.
  void findLive(bool guessesAreRoots);
  // wantMore makes targets of the blocks that refer to nodes that are not live,
  // unless a pass has looked for them before. Returns false if there are none.
  bool wantMore();
  // hidesHandle returns true if a channel has a handle that no word shows (S4).
  static bool hidesHandle(const Node& n);

  static constexpr uintptr_t kHeapWords = 16;  // blocks begin at multiples
  static constexpr uintptr_t kGranuleShift = 16;
  static constexpr int kFilterBits = 20;
  static uintptr_t granule(uintptr_t n) {
    constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
    return (n * kGolden) >> (64 - kFilterBits);
  }
  // For `from`: referSlow finds the node of the word by `resolve`.
  static constexpr uint32_t kResolve = kRoot - 1;
  static constexpr int kMaxPasses = 16;

  LeakSearch* const search_;
  ProcessMemory* const memory_;
  Table<Goroutine> goroutines_;  // sorted by gp
  Table<Node> nodes_;
  Table<Edge> edges_;
  Table<Target> targets_;  // of the pass, sorted
  Table<Waiter> waiters_;
  Table<Owned> owned_;   // channels, and the memory of selects; sorted
  Table<Owned> stacks_;  // of nodes; sorted
  Table<Span> skipped_;  // sorted
  Table<Mapping> mappings_;
  // The parts of mappings that are not skipped, each with at most one heap.
  Table<Mapping> pieces_;
  Table<uintptr_t> chunks_;
  Table<uint32_t> slots_;  // hash table of blocks: 1 + the index of a node
  Table<uint32_t> queue_;  // of findLive
  Table<uint64_t> filter_;
  Table<char> buffers_;
  size_t slotsUsed_ = 0;
  uintptr_t lowest_ = 0;
  uintptr_t reach_ = 0;
  uintptr_t* words_ = nullptr;  // for copies of stacks
  LeakHeap heap_;
  bool allAtRest_ = false;  // (S1)
};

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_LEAK_GRAPH_H_
