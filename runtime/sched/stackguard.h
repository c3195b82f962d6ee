// Guard pages below stacks: the kind that the kernel offers, how many it
// allows, and what happens when there are no more.
#ifndef RUNTIME_SCHED_STACKGUARD_H_
#define RUNTIME_SCHED_STACKGUARD_H_

#include <cstddef>
#include <cstdint>

#include "runtime/sys/base.h"

namespace gump::rt {

// Two pages cost as much as one, and a frame must be larger to jump over them.
inline constexpr size_t kGuardSize = 2 * kPageSize;
inline constexpr uint32_t kMaxGuardBatch = 32;

// stackguardinit finds out which kinds of guard the kernel offers.
// On: any.  P: either.  Parks: no.
void stackguardinit();

// installGuards makes the kGuardSize bytes at first, first + stride, ...
// inaccessible, n times at most. It stops at the first failure, and returns the
// number of guards that it installed.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] uint32_t installGuards(uintptr_t first, size_t stride,
                                     uint32_t n);
// guardsAreMarks returns true if guards are marks in page tables. removeGuards
// removes all marks in a range. Returns false if that failed. restoreGuard
// installs the guard at `at` again. Returns 0, or the errno. If the kernel
// refuses a mark, as in memory that the program has locked meanwhile, the guard
// becomes a mapping.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool guardsAreMarks();
[[nodiscard]] bool removeGuards(uintptr_t at, size_t n);
[[nodiscard]] int restoreGuard(uintptr_t at);
// guardUnmapped notes that a mapping with one guard is gone.
// On: any.  P: either.  Locks: none.  Parks: no.
void guardUnmapped();
// tellUnguarded reports once, on standard error, that stacks have no guards.
// On: any.  P: either.  Locks: none.  Parks: no.
void tellUnguarded();

// A canary stands at the low end of a stack that has no guard. It is plain
// memory that only frames of the stack's goroutine can overwrite. For both:
// On: any, the stack's holder.  P: either.  Locks: none.  Parks: no.
void setCanary(uintptr_t lo);
[[nodiscard]] bool canaryIntact(uintptr_t lo);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_STACKGUARD_H_
