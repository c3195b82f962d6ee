// Goroutine stacks: slots of large arenas, which are reserved and lazily
// backed. Each slot has a guard at its low end.
//
// A stack is bound late. A goroutine has none until it first runs. When it
// ends, it gives its stack back to the P that it ended on. A P hands out its
// stacks last in first out, so that short goroutines all run on the same warm
// pages.
#ifndef RUNTIME_SCHED_STACK_H_
#define RUNTIME_SCHED_STACK_H_

#include <cstddef>
#include <cstdint>

#include "runtime/sys/base.h"

namespace gump::rt {

struct G;
struct P;

// Stack is the usable range [lo, hi). The guard lies just below lo. The first
// frame starts at hi, which is coloured: its low bits differ from slot to slot,
// so that the hot lines of many stacks do not share cache sets.
struct Stack {
  uintptr_t lo = 0;
  uintptr_t hi = 0;
};

// StackTop lies at the very top of a slot, above hi, and belongs to the slot's
// owner.
struct StackTop {
  void* tsanFiber = nullptr;
  void* asanFakeStack = nullptr;
  StackTop* next = nullptr;  // link in a free list
  uintptr_t lo = 0;          // of this slot
  uintptr_t hi = 0;
  uint32_t order = 0;  // size class: kMinStackSize << order bytes
  // Nonzero if no guard could be installed (stackguard=best); a canary at lo
  // stands in for it.
  uint32_t unguarded = 0;
  // How many more goroutines may use tsanFiber and asanFakeStack.
  uint32_t sanitizerUses = 0;
  uint32_t node = 0;  // where the slot lies: Arena::node
};

// A goroutine never returns from its first frames, nor after Goexit. So it may
// leave a few entries on the shadow call stack of its fiber (TSan), or on its
// fake stack (ASan). These have a fixed size. So after this many goroutines a
// slot gets a new fiber and a new fake stack.
inline constexpr uint32_t kSanitizerUses = 64;

// Smaller requests are rounded up.
inline constexpr size_t kMinStackSize = 16 << 10;
// Larger requests are rounded down.
inline constexpr size_t kMaxStackSizeLimit = 1 << 30;

// 256 KiB, times 4 if the library has ASan or TSan. If it has neither: times 2
// without optimisation, and times 4 if the program has ASan. Written by
// stackinit.
extern size_t defaultStackSize;

// stackinit finds out which kind of guard the kernel offers. Called by
// schedinit.
// On: any.  P: either.  Locks: none.  Parks: no.
void stackinit();
// stackalloc binds a stack of at least size bytes (0: the default) to gp. It
// sets gp->stack, and marks gp as starting fresh. Default-sized stacks come
// from pp's cache. Returns false if there is no memory or, with
// stackguard=strict, no guard.
// On: g0, or user from directNext or newproc1; m.locks > 0.
// P: pp, owned by the caller (nullptr: straight from the pool).
// Locks: takes kStack, unless pp's cache has one.  Parks: no.
[[nodiscard]] bool stackalloc(P* pp, G* gp, size_t size);
// stackfree gives gp's stack back.
// On: g0.  P: pp, owned by the caller (or nullptr).  Locks: takes kStack.
// Parks: no.
void stackfree(P* pp, G* gp);
// stackLend is stackfree for a goroutine that ends on the stack. It goes on
// running there until it switches, or until the goroutine that takes the stack
// goes on there in its place. Meanwhile it keeps its P, and takes no other
// stack. Returns false if gp's stack does not go into pp's cache. Then it has
// done nothing. stackTakeBack undoes it, while the stack is still in the cache.
// On: user; m.locks > 0.  P: pp, owned by the caller.  Locks: takes kStack.
// Parks: no.
[[nodiscard]] bool stackLend(P* pp, G* gp);
void stackTakeBack(P* pp, G* gp);
// stackcacheFlush moves pp's cached stacks to the pools of their nodes. It is
// for a P that is being destroyed, for the reclamation cycle, and for when
// stacks are short.
// On: any.  P: pp, owned by the caller.  Locks: takes kStack.  Parks: no.
void stackcacheFlush(P* pp);
// stackpoolSize returns how many free stacks are in the pools of a node (an
// index in topology.nodes). It is for humans and tests.
// On: any.  P: either.  Locks: takes kStack.  Parks: no.
[[nodiscard]] uint32_t stackpoolSize(uint32_t node);
// stackGiveBack gives the pages wholly below gp's saved stack pointer back to
// the kernel, and returns how many bytes of them were in use. The caller keeps
// gp from running.
// On: any.  P: either.  Locks: none.  Parks: no.
size_t stackGiveBack(const G* gp);
// stackpoolRelease gives the pages of pooled stacks back to the kernel.
// On: any.  P: either.  Locks: takes kStack.  Parks: no.
void stackpoolRelease();
// stackReclaim does the same, and also unmaps the arenas that consist of such
// stacks alone. Returns true if it has unmapped one. It is for a caller that
// could not map anything.
// On: any.  P: either.  Locks: takes kStack.  Parks: no.
bool stackReclaim();
// stackCheckCanary throws if gp's unguarded stack overflowed. It is called at
// each switch away from an unguarded stack. An overflow is not found before
// that.
// On: g0, or gp's own stack.  P: either.  Locks: none.  Parks: no.
void stackCheckCanary(G* gp);
// StackStats counts stacks, of all sizes.
struct StackStats {
  uint64_t mappedBytes = 0;  // of address space
  uint64_t made = 0;         // stacks that exist
  uint64_t free = 0;         // those of them that no goroutine and no P has
};
// stackReadStats reads the figures.
// On: any.  P: either.  Locks: takes kStack.  Parks: no.
[[nodiscard]] StackStats stackReadStats();
// stackLimit returns the size of gp's stack in bytes, not counting its colour.
// On: any, while gp has a stack.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] size_t stackLimit(const G* gp);
// stackOfGuard returns true if addr lies in a guard of a stack. It then stores
// the usable range of that slot in *out. Async-signal-safe.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool stackOfGuard(uintptr_t addr, Stack* out);
// stackSetGuardMode overrides the mode that stackinit found; for tests. Under
// ASan, kMadvise is only for stacks with a mapping of their own. Such stacks
// are unmapped before the leak check, which would read the guards of others.
enum class GuardMode : uint8_t { kMadvise, kMprotect, kNone };
void stackSetGuardMode(GuardMode mode);
// stackLastError returns why the last stackalloc failed, for the panic's text.
// On: any.  P: either.  Locks: none.  Parks: no.
const char* stackLastError();

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_STACK_H_
