// Goroutine stacks.
//
// A size class is a power of two, from kMinStackSize up. Its slots are carved
// from arenas of 64 MiB, which lie at multiples of 64 MiB. In a class of large
// stacks, each stack has a mapping of its own, which is unmapped when the stack
// is freed. A slot:
//
//     slot                     lo                         hi             end
//      | guard, never accessible | 16 KiB << order, or more | StackTop, ... |
//
// Invariants:
//  (K1) hi - lo >= 16 KiB << order, for every colour. The StackTop and the
//       colour lie in an additional page at the top. The first frames use the
//       rest of that page.
//  (K2) stride is an odd number of pages. If it were a power of two, the hot
//       pages of all stacks would compete for one set of the TLB. Walking the
//       tops of 1000 stacks took 18 ns a step at a stride of 256 KiB, and
//       4.7 ns at 268 KiB.
//  (K3) The colour moves hi by up to 23 cache lines from slot to slot. Without
//       it, the first frames of all stacks would compete for a few sets of the
//       first-level cache. StackTop, colour and about 2.5 KiB of frames fit
//       into one page, so a parked goroutine costs one page.
//  (K4) A slot is in exactly one place:
//        * not yet carved (beyond arena->bump),
//        * bound to a G,
//        * in a P's cache,
//        * in its class's pool,
//        * on its class's bare list, if it has no guard and stackguard=strict
//          demands one,
//        * marked in arena->dropped.
//       Code that takes a slot from its place owns the slot's StackTop. A slot
//       that was not carved, or that was dropped, has no page and no StackTop.
//  (K5) A slot's guard is installed before the slot is first bound, and stays,
//       except while the stack of its goroutine is away (hibernate.cc).
//       top->unguarded says that there is none.
//  (K6) LeakSanitizer looks for pointers in all of an arena. Arenas lie in a
//       range that LeakSanitizer knows, because the runtime must not wait for
//       it (root_range.h).
//
// If a guard cannot be installed (stackguard.h), the user chooses what happens.
// stackguard=best goes on with a canary in the lowest bytes of the stack.
// stackguard=strict makes the binding fail.
//
// Address space is plentiful, so arenas stay mapped; their pages are given back
// without unmapping them. Where it is not plentiful (ulimit -v), and nothing
// can be mapped, there are three ways out: arenas without a slot in use are
// unmapped, new arenas are smaller, and a request takes a larger slot.
//
// With several NUMA nodes, each arena lies on one, and each node has classes of
// its own. A P fills its cache from the classes of its node. Each slot that it
// gives back goes to the pool of the node on which the slot lies. A P's own
// cache takes whatever ends on it, because only the slow paths look at nodes.
// A node that has no free slot maps another arena, or takes slots of another
// node: see classFor.
//
// Rejected: a lock for each node's classes. A P takes the lock once in 32
// stacks, and the ways out above look at the classes of all nodes.
//
// Rejected: sorting the free list by address, which would leave more arenas
// without a slot in use. Growing stacks by copying, as Go does: C++ has
// pointers into stacks.
#include "runtime/sched/stack.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "runtime/diag/debugvars.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stack_arena.h"
#include "runtime/sched/stackguard.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/sanitizer.h"

namespace gump::rt {
namespace {

constexpr uint32_t kRefillBatch = 32;  // slots that a P takes at once
static_assert(kRefillBatch <= kMaxGuardBatch);
constexpr uint32_t kFirstBatch = 4;  // the first slots of a class

// SlotList is a LIFO of free slots through StackTop::next.
struct SlotList {
  StackTop* head = nullptr;
  uint32_t n = 0;

  void push(StackTop* t) {
    t->next = head;
    head = t;
    n++;
  }
  StackTop* pop() {
    StackTop* t = head;
    if (t != nullptr) {
      head = t->next;
      n--;
    }
    return t;
  }
};

struct SizeClass {
  SlotList pool;             // free, ready to be bound
  SlotList bare;             // carved, but without the guard that is demanded
  Arena* arena = nullptr;    // being carved
  Arena* dropped = nullptr;  // arenas with dropped slots, linked by next
  uint32_t ndropped = 0;     // the slots in those
  uint32_t carved = 0;       // all slots, wherever they are, of mapped arenas

  uint32_t nfree() const { return pool.n + ndropped; }
};

// StackPools holds the free slots of every class.
struct StackPools {
  // By index in topology.nodes. With one node only the first is used.
  SizeClass classes[kMaxNodes][kMaxArenaOrder + 1] ABSL_GUARDED_BY(stackLock);
  // The nodes from nnodes on have no arena. It only grows.
  uint32_t nnodes ABSL_GUARDED_BY(stackLock) = 1;
  // Stacks that are mapped alone.
  uint64_t alone ABSL_GUARDED_BY(stackLock) = 0;
};
constinit StackPools stacks;

constexpr const char kErrNoMemory[] = "out of memory (goroutine stack)";
constexpr const char kErrNoGuard[] =
    "cannot protect a goroutine stack: the process is near its limit of memory "
    "mappings; raise vm.max_map_count with sysctl, or set "
    "GUMP_DEBUG=stackguard=best";

Atomic<const char*> lastError{kErrNoMemory};  // points at constants: relaxed

// classOf returns the class of a slot, on the slot's own node.
SizeClass* classOf(const StackTop* t) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stackLock) {
  return &stacks.classes[t->node][t->order];
}

// fullestClass returns the class of that order, of any node, that can spare
// slots most easily. It may have none.
SizeClass* fullestClass(uint32_t order)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stackLock) {
  SizeClass* most = &stacks.classes[0][order];
  for (uint32_t k = 1; k < stacks.nnodes; k++) {
    SizeClass* c = &stacks.classes[k][order];
    if (c->nfree() > most->nfree()) most = c;
  }
  return most;
}

// classFor returns the class from which a P of a node takes slots of an order.
// The node's own goes first: its free slots, and the rest of its arena. If it
// has neither, it maps another arena, so that its stacks stay on the node. But
// if more than half of all slots of the order are free, which are those of
// other nodes, it takes of these. Without that bound, work that moves from node
// to node would leave behind on each node as many stacks as it needs at most,
// with a page or more each until the next reclamation cycle. With it the slots
// are at most twice as many as were in use at once, besides an arena for each
// node.
SizeClass* classFor(uint32_t node, uint32_t order)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stackLock) {
  SizeClass* own = &stacks.classes[node][order];
  if (stacks.nnodes == 1 || own->nfree() > 0 || own->bare.n > 0 ||
      own->arena == nullptr || own->arena->bump < own->arena->nslots) {
    return own;
  }
  uint32_t carved = 0;
  uint32_t nfree = 0;
  for (uint32_t k = 0; k < stacks.nnodes; k++) {
    carved += stacks.classes[k][order].carved;
    nfree += stacks.classes[k][order].nfree();
  }
  return nfree > carved / 2 ? fullestClass(order) : own;
}

// ---- Carving ----------------------------------------------------------------

// dropSanitizerState frees the sanitizers' state for a slot.
void dropSanitizerState(StackTop* t) {
  sanitizerDestroyFiber(t->tsanFiber);
  t->tsanFiber = nullptr;
  sanitizerDestroyFakeStack(t->asanFakeStack);
  t->asanFakeStack = nullptr;
}

// unmapStack gives a large stack back to the kernel.
void unmapStack(StackTop* t) {
  dropSanitizerState(t);
  Arena* a = arenaOf(t->lo);
  {
    LockScope scope(&stackLock);
    unpublish(a);
    stacks.alone--;
  }
  unmap(a, t->unguarded == 0 ? 1 : 0);
}

// addGuarded puts slots [first, first+n) of a onto out. The first `guarded` of
// them have a guard. With stackguard=strict the others go to the bare list.
void addGuarded(const Arena* a, uint32_t first, uint32_t n, uint32_t guarded,
                SlotList* out) {
  SlotList bare;
  for (uint32_t k = n; k-- > 0;) {
    const bool ok = k < guarded;
    (ok || debug.stackguardStrict == 0 ? out : &bare)
        ->push(initSlot(a, first + k, ok));
  }
  if (guarded == n) return;
  if (debug.stackguardStrict == 0) {
    tellUnguarded();
    return;
  }
  lastError.store(kErrNoGuard, relaxed);
  LockScope scope(&stackLock);
  while (StackTop* t = bare.pop()) classOf(t)->bare.push(t);
}

// retryBare tries once more to guard a slot that has no guard.
void retryBare(StackTop* t, SlotList* out) {
  const bool ok = installGuards(t->lo - kGuardSize, 0, 1) == 1;
  if (ok || debug.stackguardStrict == 0) {
    t->unguarded = ok ? 0 : 1;
    out->push(t);
    return;
  }
  lastError.store(kErrNoGuard, relaxed);
  LockScope scope(&stackLock);
  classOf(t)->bare.push(t);
}

// Range is slots [first, first+n) of an arena.
struct Range {
  Arena* arena = nullptr;
  uint32_t first = 0;
  uint32_t n = 0;
};

// reserveSlots takes up to n slots of a node that were never carved. Returns an
// empty range if there is no memory.
Range reserveSlots(uint32_t node, uint32_t order, uint32_t n)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stackLock) {
  SizeClass* c = &stacks.classes[node][order];
  if (c->arena == nullptr || c->arena->bump == c->arena->nslots) {
    c->arena = newArena(node, order);
    if (c->arena == nullptr) return {};
    stacks.nnodes = std::max(stacks.nnodes, node + 1);
  }
  Arena* a = c->arena;
  // Each slot takes a page, a guard and a part of a page table at once. A small
  // program needs only a few, so a class never grows to more than twice its
  // size at once.
  n = std::min(n, std::max(kFirstBatch, c->carved));
  const Range r{a, a->bump, std::min(n, a->nslots - a->bump)};
  a->bump += r.n;
  c->carved += r.n;
  return r;
}

// takeDropped takes up to n dropped slots of the first arena that has any, and
// stores their numbers in slots.
Range takeDropped(SizeClass* c, uint32_t n, uint32_t* slots)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stackLock) {
  Arena* a = c->dropped;
  if (a == nullptr) return {};
  Range r{a, 0, 0};
  for (uint32_t w = 0; r.n < n && r.n < a->ndropped; w++) {
    for (; a->dropped[w] != 0 && r.n < n; a->dropped[w] &= a->dropped[w] - 1) {
      slots[r.n++] =
          w * 64 + static_cast<uint32_t>(std::countr_zero(a->dropped[w]));
    }
  }
  a->ndropped -= r.n;
  c->ndropped -= r.n;
  if (a->ndropped == 0) c->dropped = a->next;
  return r;
}

// takePooled takes up to n slots from the pool of a class. If there are none,
// it takes up to n dropped ones.
Range takePooled(SizeClass* c, uint32_t n, SlotList* out, uint32_t* slots)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stackLock) {
  while (out->n < n && c->pool.head != nullptr) out->push(c->pool.pop());
  return out->n > 0 ? Range() : takeDropped(c, n, slots);
}

// takeSlots gets up to n slots of an order for a node: from the pool, else
// dropped ones, else one bare slot that it tries to guard again, else freshly
// carved ones, else, since there is no memory, those of any node. It installs
// guards and touches pages after it has released the lock, because those are
// system calls and page faults. If the result is empty, lastError says why.
SlotList takeSlots(uint32_t node, uint32_t order, uint32_t n) {
  SlotList out;
  StackTop* bare = nullptr;
  Range fresh;
  Range dropped;
  uint32_t slots[kRefillBatch];
  {
    LockScope scope(&stackLock);
    SizeClass* c = classFor(node, order);
    dropped = takePooled(c, n, &out, slots);
    if (out.n > 0) return out;
    if (dropped.n == 0) bare = c->bare.pop();
    if (dropped.n == 0 && bare == nullptr) fresh = reserveSlots(node, order, n);
    if (dropped.n == 0 && bare == nullptr && fresh.n == 0) {
      dropped = takePooled(fullestClass(order), n, &out, slots);
      if (out.n > 0) return out;
    }
  }
  if (bare != nullptr) {
    retryBare(bare, &out);
  } else if (dropped.n > 0) {
    for (uint32_t k = dropped.n; k-- > 0;) {
      out.push(initSlot(dropped.arena, slots[k], /*guarded=*/true));
    }
  } else if (fresh.arena != nullptr) {
    addGuarded(fresh.arena, fresh.first, fresh.n,
               installGuards(slotBase(fresh.arena, fresh.first),
                             fresh.arena->stride, fresh.n),
               &out);
  } else {
    lastError.store(kErrNoMemory, relaxed);
  }
  return out;
}

// mapStack makes one large stack. If it returns nullptr, lastError says why.
StackTop* mapStack(uint32_t node, uint32_t order) {
  Arena* a;
  {
    LockScope scope(&stackLock);
    a = newArena(node, order);
    if (a != nullptr) {
      a->bump = 1;
      stacks.alone++;
    }
  }
  if (a == nullptr) {
    lastError.store(kErrNoMemory, relaxed);
    return nullptr;
  }
  const bool ok = installGuards(a->base, 0, 1) == 1;
  StackTop* t = initSlot(a, 0, ok);
  if (ok) return t;
  if (debug.stackguardStrict == 0) {
    tellUnguarded();
    return t;
  }
  unmapStack(t);
  lastError.store(kErrNoGuard, relaxed);
  return nullptr;
}

// putSlots empties the list into the pools of the nodes on which the slots lie.
GUMP_NOINLINE void putSlots(SlotList* list) {
  LockScope scope(&stackLock);
  while (StackTop* t = list->pop()) classOf(t)->pool.push(t);
}

// orderOf is the class of a request of size bytes.
uint32_t orderOf(size_t size) {
  if (size <= kMinStackSize) return 0;
  const auto order =
      static_cast<uint32_t>(std::bit_width((size - 1) / kMinStackSize));
  return std::min(order, kNumOrders - 1);
}

uint32_t defaultOrder = 0;  // that of defaultStackSize; written by stackinit

// refillStacks fills pp's empty cache. Returns false if there is no memory.
GUMP_NOINLINE bool refillStacks(P* pp) {
  const SlotList list = takeSlots(memoryNode(pp), defaultOrder, kRefillBatch);
  if (list.head == nullptr) return false;
  pp->stackCache = list.head;
  pp->stackCacheN = list.n;
  return true;
}

GUMP_ALWAYS_INLINE StackTop* allocDefault(P* pp) {
  if (pp == nullptr) return takeSlots(memoryNode(pp), defaultOrder, 1).pop();
  if (GUMP_UNLIKELY(pp->stackCache == nullptr) && !refillStacks(pp)) {
    return nullptr;
  }
  StackTop* t = pp->stackCache;
  pp->stackCache = t->next;
  pp->stackCacheN--;
  return t;
}

// releaseSlot puts one slot into the pool of its class.
void releaseSlot(StackTop* t) {
  SlotList one;
  one.push(t);
  putSlots(&one);
}

// spill moves n of pp's cached stacks, the most recently freed, to the pools.
// (The oldest would be the better choice but lie at the end of the list.)
GUMP_NOINLINE void spill(P* pp, uint32_t n) {
  SlotList cache{pp->stackCache, pp->stackCacheN};
  SlotList out;
  while (out.n < n && cache.head != nullptr) out.push(cache.pop());
  pp->stackCache = cache.head;
  pp->stackCacheN = cache.n;
  putSlots(&out);
}

// ---- Giving back ------------------------------------------------------------

// dontNeed gives the pages of [lo, hi) back, and keeps errno. It is not
// inlined, because its callers take locks, and so may change threads (see
// KeepErrno).
GUMP_NOINLINE void dontNeed(uintptr_t lo, uintptr_t hi) {
  const int saved = errno;
  madvise(reinterpret_cast<void*>(lo), hi - lo, MADV_DONTNEED);
  errno = saved;
}

// dropSlot gives all pages of a slot back. A slot without a guard keeps its
// StackTop, which records that, and is pushed to kept.
void dropSlot(StackTop* t, SlotList* kept) {
  if (t->unguarded != 0) {
    dontNeed(t->lo, t->hi & ~(kPageSize - 1));
    kept->push(t);
    return;
  }
  const uintptr_t lo = t->lo;
  Arena* a = arenaOf(lo);
  const size_t i = (lo - a->base) / a->stride;
  dropSanitizerState(t);
  dontNeed(lo, slotBase(a, static_cast<uint32_t>(i)) + a->stride);
  LockScope scope(&stackLock);
  SizeClass* c = &stacks.classes[a->node][a->order];
  c->ndropped++;
  if (a->ndropped++ == 0) {
    a->next = c->dropped;
    c->dropped = a;
  }
  a->dropped[i / 64] |= uint64_t{1} << (i % 64);
}

// dropPool gives back the pages of the slots of one pool, one slot after the
// other.
void dropPool(SlotList* pool) {
  SlotList kept;
  for (;;) {
    // One at a time, so that a thread that needs a stack finds the others.
    StackTop* t;
    {
      LockScope scope(&stackLock);
      t = pool->pop();
    }
    if (t == nullptr) break;
    dropSlot(t, &kept);
  }
  putSlots(&kept);
}

// stackNodes returns the number of nodes that may have slots.
uint32_t stackNodes() {
  LockScope scope(&stackLock);
  return stacks.nnodes;
}

void dropPools() ABSL_NO_THREAD_SAFETY_ANALYSIS {  // takes only addresses
  const uint32_t n = stackNodes();
  for (uint32_t k = 0; k < n; k++) {
    for (SizeClass& c : stacks.classes[k]) dropPool(&c.pool);
  }
}

// takeUnused takes from a class each arena of which all carved slots are
// dropped, and pushes it to *gone.
void takeUnused(SizeClass* c, Arena** gone)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stackLock) {
  for (Arena** link = &c->dropped; *link != nullptr;) {
    Arena* a = *link;
    if (a->ndropped < a->bump) {  // a slot is in use, or in a cache
      link = &a->next;
      continue;
    }
    *link = a->next;
    if (c->arena == a) c->arena = nullptr;
    c->ndropped -= a->ndropped;
    c->carved -= a->bump;
    unpublish(a);
    a->next = *gone;
    *gone = a;
  }
}

// unmapDropped unmaps those arenas of all classes. Returns true if there was
// one.
bool unmapDropped() {
  Arena* gone = nullptr;
  {
    LockScope scope(&stackLock);
    for (uint32_t k = 0; k < stacks.nnodes; k++) {
      for (SizeClass& c : stacks.classes[k]) takeUnused(&c, &gone);
    }
  }
  const bool any = gone != nullptr;
  while (gone != nullptr) {
    Arena* a = gone;
    gone = a->next;
    unmap(a, a->ndropped);
  }
  return any;
}

// takeLarger takes a free slot of a class larger than order, of any node.
// Returns nullptr if there is none.
StackTop* takeLarger(uint32_t order) {
  Range dropped;
  uint32_t slot = 0;
  {
    LockScope scope(&stackLock);
    while (dropped.n == 0 && ++order <= kMaxArenaOrder) {
      SizeClass* c = fullestClass(order);
      if (StackTop* t = c->pool.pop()) return t;
      dropped = takeDropped(c, 1, &slot);
    }
  }
  if (dropped.n == 0) return nullptr;
  return initSlot(dropped.arena, slot, /*guarded=*/true);
}

// tryAlloc takes a stack of a class from the class's usual source. If it
// returns nullptr, lastError says why. It is inlined into stackalloc, which
// every new goroutine goes through. The compiler would not do so by itself,
// because allocShort calls it too.
GUMP_ALWAYS_INLINE StackTop* tryAlloc(P* pp, uint32_t order) {
  if (order == defaultOrder) return allocDefault(pp);
  const uint32_t node = memoryNode(pp);
  return order <= kMaxArenaOrder ? takeSlots(node, order, 1).pop()
                                 : mapStack(node, order);
}

// allocShort is called when tryAlloc has failed. A free stack of a larger class
// serves as well. Stacks in the caches of other Ps stay there. It is not
// inlined, so that stackalloc saves fewer registers.
GUMP_NOINLINE StackTop* allocShort(P* pp, uint32_t order) {
  if (pp != nullptr) stackcacheFlush(pp);
  StackTop* t = stackReclaim() ? tryAlloc(pp, order) : nullptr;
  return t != nullptr ? t : takeLarger(order);
}

}  // namespace

size_t defaultStackSize = (size_t{256} << 10) * kStackMultiplier;

void stackinit() {
  defaultStackSize *= sanitizerStackFactor();
  // Tests call stackinit again while goroutines run, which read the order.
  if (defaultOrder == 0) defaultOrder = orderOf(defaultStackSize);
  arenasinit();
  stackguardinit();
}

bool stackalloc(P* pp, G* gp, size_t size) {
  const uint32_t order = size == 0 ? defaultOrder : orderOf(size);
  StackTop* t = tryAlloc(pp, order);
  if (GUMP_UNLIKELY(t == nullptr)) {
    t = allocShort(pp, order);
    if (t == nullptr) return false;
  }
  gp->unguarded = t->unguarded != 0;
  if (GUMP_UNLIKELY(gp->unguarded)) setCanary(t->lo);
  if (kSanitizerBuild) {
    if (t->sanitizerUses == 0) {
      dropSanitizerState(t);
      t->tsanFiber = sanitizerCreateFiber();
      t->sanitizerUses = kSanitizerUses;
    }
    t->sanitizerUses--;
  }
  gp->stack = {t->lo, t->hi};
  gp->sched.sp = t->hi;
  gp->sched.fresh = 1;
  return true;
}

namespace {
// cacheStack puts t, which is of the default size, into pp's cache.
GUMP_ALWAYS_INLINE void cacheStack(P* pp, StackTop* t) {
  if (pp->stackCacheN >= kStackCacheMax) spill(pp, kStackCacheMax / 2);
  t->next = pp->stackCache;
  pp->stackCache = t;
  pp->stackCacheN++;
}
}  // namespace

void stackfree(P* pp, G* gp) {
  StackTop* t = topOf(gp->stack);
  sanitizerStackAbandoned(gp->sched.sp, t->hi);
  gp->stack = {};
  if (t->order > kMaxArenaOrder) {
    unmapStack(t);
  } else if (pp == nullptr || t->order != defaultOrder ||
             sched.nnostack.load(relaxed) != 0) {  // a hint: Gs wait for one
    releaseSlot(t);
  } else {
    cacheStack(pp, t);
  }
}

bool stackLend(P* pp, G* gp) {
  StackTop* t = topOf(gp->stack);
  if (GUMP_UNLIKELY(t->unguarded != 0 || t->order != defaultOrder ||
                    sched.nnostack.load(relaxed) != 0)) {  // as in stackfree
    return false;
  }
  // Not stackfree: nnostack may have changed, and then the stack on which we
  // run would go to the pool.
  gp->stack = {};
  cacheStack(pp, t);
  return true;
}

void stackTakeBack(P* pp, G* gp) {
  StackTop* t = pp->stackCache;
  pp->stackCache = t->next;
  pp->stackCacheN--;
  gp->stack = {t->lo, t->hi};
}

void stackcacheFlush(P* pp) { spill(pp, pp->stackCacheN); }

uint32_t stackpoolSize(uint32_t node) {
  LockScope scope(&stackLock);
  uint32_t n = 0;
  for (const SizeClass& c : stacks.classes[node]) n += c.pool.n;
  return n;
}

void stackpoolRelease() { dropPools(); }

bool stackReclaim() {
  dropPools();
  return unmapDropped();
}

size_t stackGiveBack(const G* gp) {
  constexpr uintptr_t kRedZone = 128;
  constexpr size_t kLook = 64;  // pages per call of mincore
  // A stack without a guard keeps its canary.
  const uintptr_t lo = gp->stack.lo + (gp->unguarded ? kPageSize : 0);
  const uintptr_t hi = (gp->sched.sp - kRedZone) & ~(kPageSize - 1);
  size_t bytes = 0;
  for (uintptr_t end = hi; end > lo;) {
    const uintptr_t begin = std::max(lo, end - kLook * kPageSize);
    unsigned char in[kLook];
    if (mincore(reinterpret_cast<void*>(begin), end - begin, in) != 0) break;
    size_t used = 0;
    for (size_t k = 0; k < (end - begin) / kPageSize; k++) used += in[k] & 1u;
    if (used > 0) dontNeed(begin, end);
    bytes += used * kPageSize;
    end = begin;
  }
  return bytes;
}

void stackCheckCanary(G* gp) {
  if (!gp->unguarded || canaryIntact(gp->stack.lo)) return;
  printf(
      "runtime: goroutine %U overran its stack of %U bytes, which has no guard "
      "page\n",
      gp->goid, uint64_t{stackLimit(gp)});
  fatalthrow("stack overflow");
}

StackStats stackReadStats() {
  StackStats s;
  LockScope scope(&stackLock);
  s.mappedBytes = stackBytesMapped;
  s.made = stacks.alone;
  for (uint32_t k = 0; k < stacks.nnodes; k++) {
    for (const SizeClass& c : stacks.classes[k]) {
      s.made += c.carved;
      s.free += c.nfree() + c.bare.n;
    }
  }
  return s;
}

size_t stackLimit(const G* gp) {
  return kMinStackSize << topOf(gp->stack)->order;
}

bool stackOfGuard(uintptr_t addr, Stack* out) {
  const Arena* a = arenaOf(addr);
  if (a == nullptr || addr < a->base) return false;
  // If no slot of the arena is in use, the arena may be unmapped meanwhile and
  // its cell reused. newArena zeroes the cell, so stride can be 0.
  const size_t stride = peek(a->stride);
  if (stride == 0) return false;
  const size_t i = (addr - a->base) / stride;
  if (i >= a->nslots) return false;
  const auto slot = static_cast<uint32_t>(i);
  if (addr - slotBase(a, slot) >= kGuardSize) return false;
  *out = slotStack(a, slot);
  return true;
}

const char* stackLastError() {
  return lastError.load(relaxed);  // points at a constant
}

}  // namespace gump::rt
