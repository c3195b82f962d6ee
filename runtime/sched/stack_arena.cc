// Arenas of stacks: mapping and unmapping them, and finding them by address.
//
// The table of arenas is indexed by address >> 26, in two levels. Signal
// handlers read it, so readers take no lock: a leaf or an arena is complete
// when it is published, and neither is ever freed. The table covers the 48 bits
// of user addresses.
#include "runtime/sched/stack_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "runtime/diag/panic.h"
#include "runtime/sched/hibernate.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/numa.h"
#include "runtime/sched/stack.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/root_range.h"
#include "runtime/sys/sanitizer.h"

namespace gump::rt {

constinit Mutex stackLock{LockRank::kStack};
uint64_t stackBytesMapped;

namespace {

// Cells of arenas that have been unmapped.
constinit Arena* spareArenas ABSL_GUARDED_BY(stackLock) = nullptr;

// `contains` and `hide` need no lock.
constinit RootRange roots{kArenaSize};

constexpr size_t kTableBits = 11;
constexpr size_t kTableSize = size_t{1} << kTableBits;
struct ArenaLeaf {
  Atomic<Arena*> arenas[kTableSize];  // written under stackLock, release;
                                      // read by any thread, acquire
};
constinit Atomic<ArenaLeaf*> arenaTable[kTableSize];  // same orders

size_t leafIndex(uintptr_t addr) {
  return (addr >> kArenaShift) & (kTableSize - 1);
}
size_t rootIndex(uintptr_t addr) { return addr >> (kArenaShift + kTableBits); }

// publishArena enters value (an arena, or nullptr) for the kArenaSize bytes
// from base on. Returns false if there is no memory.
[[nodiscard]] bool publishArena(uintptr_t base, Arena* value)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stackLock) {
  const size_t root = rootIndex(base);
  if (root >= kTableSize) return false;
  // Written under the lock only.
  ArenaLeaf* leaf = arenaTable[root].load(relaxed);
  if (leaf == nullptr) {
    leaf = persistentallocOf<ArenaLeaf>();
    if (leaf == nullptr) return false;
    // Pairs with load-acquire in arenaOf.
    arenaTable[root].store(leaf, release);
  }
  leaf->arenas[leafIndex(base)].store(value, release);  // as above
  return true;
}

// reserveBelow maps n bytes at the first free multiple of kArenaSize below p.
// Returns 0 if there is no memory or too many of the addresses are taken.
uintptr_t reserveBelow(uintptr_t p, size_t n) {
  constexpr int kTries = 1024;
  p -= p % kArenaSize;
  for (int i = 0; i < kTries && p >= kArenaSize; i++, p -= kArenaSize) {
    const int err = sysReserveAt(p, n);
    if (err == 0) return p;
    if (err != EEXIST) break;
  }
  return 0;
}

// reserveAligned maps n bytes at a multiple of kArenaSize. The kernel usually
// places each new mapping directly below the last one, so the first try is
// aligned whenever the arena before it was. If the process may not map the
// extra bytes that aligning needs, reserveBelow tries addresses one by one.
uintptr_t reserveAligned(size_t n) {
  n = alignUp(n, kPageSize);
  const auto first = reinterpret_cast<uintptr_t>(sysReserve(n));
  if (first == 0 || first % kArenaSize == 0) return first;
  sysFree(reinterpret_cast<void*>(first), n);
  const auto p = reinterpret_cast<uintptr_t>(sysReserve(n + kArenaSize));
  if (p == 0) return reserveBelow(first, n);
  const uintptr_t base = alignUp(p, kArenaSize);
  if (base != p) sysFree(reinterpret_cast<void*>(p), base - p);
  sysFree(reinterpret_cast<void*>(base + n), p + kArenaSize - base);
  return base;
}

// mapArena maps n bytes at a multiple of kArenaSize, where LeakSanitizer looks
// (K6). Returns 0 if there is no memory.
uintptr_t mapArena(size_t n) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stackLock) {
  if (!sanitizerReadsStacks()) return reserveAligned(n);
  if (const uintptr_t p = roots.map(alignUp(n, kPageSize))) return p;
  const uintptr_t p = reserveAligned(n);
  if (p != 0) sanitizerRootRegion(reinterpret_cast<const void*>(p), n);
  return p;
}

// unmapArena undoes mapArena. Returns true if the addresses can be used again
// by way of `roots`.
[[nodiscard]] bool unmapArena(uintptr_t base, size_t n) {
  auto* const p = reinterpret_cast<void*>(base);
  if (sanitizerReadsStacks()) {
    if (roots.contains(base))
      return RootRange::hide(base, alignUp(n, kPageSize));
    sanitizerForgetRootRegion(p, n);
  }
  sysFree(p, n);
  return false;
}

GUMP_NOINLINE void adviseNoHugePage(uintptr_t base, size_t n) {
  const int saved = errno;
  // Kernels without huge pages refuse this, which does no harm.
  (void)madvise(reinterpret_cast<void*>(base), n, MADV_NOHUGEPAGE);
  errno = saved;
}

}  // namespace

Arena* arenaOf(uintptr_t addr) {
  const size_t root = rootIndex(addr);
  if (root >= kTableSize) return nullptr;
  ArenaLeaf* leaf = arenaTable[root].load(acquire);  // pairs with publishArena
  if (leaf == nullptr) return nullptr;
  // Pairs with publishArena.
  return leaf->arenas[leafIndex(addr)].load(acquire);
}

StackTop* initSlot(const Arena* a, uint32_t i, bool guarded) {
  const Stack s = slotStack(a, i);
  StackTop* t = new (topOf(s)) StackTop();
  t->lo = s.lo;
  t->hi = s.hi;
  t->order = a->order;
  t->node = a->node;
  t->unguarded = guarded ? 0 : 1;
  return t;
}

Arena* newArena(uint32_t node, uint32_t order) {
  const size_t stride = (kMinStackSize << order) + kSlotOverhead;
  size_t size = order <= kMaxArenaOrder ? kArenaSize : stride;
  Arena* a = spareArenas;
  if (a != nullptr) {
    spareArenas = a->next;
  } else {
    a = persistentallocOf<Arena>();
    if (a == nullptr) return nullptr;
  }
  a = new (a) Arena();
  a->base = mapArena(size);
  while (a->base == 0 && size > stride) {
    size = std::max(alignUp(size / 2, kPageSize), stride);
    a->base = mapArena(size);
  }
  if (a->base != 0) {
    adviseNoHugePage(a->base, size);
    preferNode(reinterpret_cast<void*>(a->base), alignUp(size, kPageSize),
               node);
    sysName(reinterpret_cast<void*>(a->base), alignUp(size, kPageSize),
            "gump: stacks");
    a->stride = stride;
    a->size = size;
    a->order = order;
    a->node = node;
    a->nslots = static_cast<uint32_t>(size / stride);
    if (publishArena(a->base, a)) {
      stackBytesMapped += size;
      return a;
    }
    if (unmapArena(a->base, size)) roots.free(a->base, size);
  }
  a->next = spareArenas;
  spareArenas = a;
  return nullptr;
}

void arenasinit() {
  if (!sanitizerReadsStacks()) return;
  LockScope scope(&stackLock);
  roots.init();
}

void unpublish(Arena* a) {
  if (!publishArena(a->base, nullptr)) {
    fatalthrow("stack: arena not in the table");
  }
}

void unmap(Arena* a, uint32_t guards) {
  while (guards-- > 0) guardUnmapped();
  hibernateForget(a);
  const bool reusable = unmapArena(a->base, a->size);
  LockScope scope(&stackLock);
  stackBytesMapped -= a->size;
  if (reusable) roots.free(a->base, a->size);
  // Relaxed: no slot of the arena is in use.
  if (a->sleepWords.load(relaxed) != nullptr) return;  // see hibernateForget
  a->next = spareArenas;
  spareArenas = a;
}

}  // namespace gump::rt
