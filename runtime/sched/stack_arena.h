// The address space of stacks: arenas, the slots that they are carved into, and
// the table that finds the arena of an address. stack.cc decides which slot a
// goroutine gets; (K1) to (K6) stand there.
#ifndef RUNTIME_SCHED_STACK_ARENA_H_
#define RUNTIME_SCHED_STACK_ARENA_H_

#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "runtime/sched/stack.h"
#include "runtime/sched/stackguard.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"
#include "runtime/sys/lock_futex.h"

namespace gump::rt {

struct SleepWords;

constexpr size_t kArenaShift = 26;
constexpr size_t kArenaSize = size_t{1} << kArenaShift;
constexpr size_t kTopSize = kPageSize;
constexpr size_t kSlotOverhead = kGuardSize + kTopSize;
constexpr uint32_t kNumOrders = 17;
static_assert(kMinStackSize << (kNumOrders - 1) == kMaxStackSizeLimit);
static_assert((kMinStackSize + kSlotOverhead) / kPageSize % 2 == 1);  // (K2)

// Beyond this order each slot gets a mapping of its own, because fewer than
// four slots would fit into an arena.
constexpr uint32_t kMaxArenaOrder = 9;
static_assert(kMinStackSize << kMaxArenaOrder < kArenaSize / 4);

// The number of slots in an arena of the smallest class, rounded up to whole
// words.
constexpr size_t kMaxSlots =
    (kArenaSize / (kMinStackSize + kSlotOverhead) + 64) / 64 * 64;

constexpr uint32_t kColours = 24;
constexpr size_t kColourStep = kCacheLine;
constexpr size_t kTopReserve = 64;  // sizeof(StackTop), rounded up to a line
static_assert(sizeof(StackTop) <= kTopReserve);
// (K3), with a margin.
static_assert(kTopReserve + (kColours - 1) * kColourStep + 1536 + 512 <=
              kTopSize);

// stackLock guards the pools of stack.cc, and the members of Arena from `bump`
// on. Two things are forbidden under it: system calls, and touching a slot that
// is not on a list. Mapping an arena is the exception.
extern Mutex stackLock;
// The size of all arenas together.
extern uint64_t stackBytesMapped ABSL_GUARDED_BY(stackLock);

// Arena is a mapping and the slots that it is carved into. Arena cells are
// never freed; newArena reuses the cell of an unmapped arena, unless goroutines
// of that have hibernated.
struct Arena {
  uintptr_t base = 0;
  size_t stride = 0;
  size_t size = 0;  // of the mapping
  uint32_t order = 0;
  uint32_t nslots = 0;
  uint32_t node = 0;  // on whose memory it lies: an index in topology.nodes
  // Made when a goroutine of the arena first hibernates; else nullptr.
  Atomic<SleepWords*> sleepWords;
  // The members below are guarded by stackLock.
  uint32_t bump = 0;      // slots carved so far
  Arena* next = nullptr;  // in the spare list, or in SizeClass::dropped
  // Bit i is set if slot i is dropped: it has a guard and no pages (K4).
  uint32_t ndropped = 0;
  uint64_t dropped[kMaxSlots / 64] = {};
};

// arenaOf returns the arena of an address, or nullptr. Async-signal-safe.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] Arena* arenaOf(uintptr_t addr);

// slotBase is the lowest address of slot i, where its guard begins. slotStack
// is the slot's usable range.
// On: any.  P: either.  Locks: none.  Parks: no.
inline uintptr_t slotBase(const Arena* a, uint32_t i) {
  return a->base + size_t{i} * a->stride;
}
inline Stack slotStack(const Arena* a, uint32_t i) {
  const uintptr_t end = slotBase(a, i) + a->stride;
  return {slotBase(a, i) + kGuardSize,
          end - kTopReserve - (i % kColours) * kColourStep};
}
inline StackTop* topOf(const Stack& s) {
  return reinterpret_cast<StackTop*>(s.hi);
}
// initSlot makes slot i ready to be bound. It is the first to touch the slot's
// top page.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] StackTop* initSlot(const Arena* a, uint32_t i, bool guarded);

// arenasinit prepares what LeakSanitizer needs (root_range.h). Called by
// stackinit.
// On: any.  P: either.  Locks: takes stackLock.  Parks: no.
void arenasinit();
// newArena maps an arena of one class of a node, and enters it into the table.
// It takes the largest size that can be mapped, halving from kArenaSize down to
// a single slot. Returns nullptr if there is no memory.
// On: any.  P: either.  Locks: caller holds stackLock.  Parks: no.
[[nodiscard]] Arena* newArena(uint32_t node, uint32_t order)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stackLock);
// unpublish removes an arena from the table. None of its slots may be in use.
// It is called before unmap, so that a new mapping at the same addresses does
// not meet the old entry.
// On: any.  P: either.  Locks: caller holds stackLock.  Parks: no.
void unpublish(Arena* a) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stackLock);
// unmap gives an unpublished arena, with `guards` guards in it, back to the
// kernel.
// On: any.  P: either.  Locks: takes stackLock.  Parks: no.
void unmap(Arena* a, uint32_t guards);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_STACK_ARENA_H_
