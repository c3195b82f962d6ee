// Goroutine stacks: slots of large arenas, reserved and lazily backed, each
// with a guard page at its low end.
//
// A stack is bound late: a goroutine has none until it first runs, and gives it
// back when it ends, to the P it ended on, last in first out, so that short
// goroutines all run on the same warm pages.
#ifndef RUNTIME_STACK_H_
#define RUNTIME_STACK_H_

#include <cstddef>
#include <cstdint>

#include "runtime/base.h"

namespace gump::rt {

struct G;
struct P;

// Stack is the usable range [lo, hi); the guard page lies just below lo. hi is
// where the first frame starts: it is coloured, i.e. differs in its low bits
// from slot to slot, so that the hot lines of many stacks do not share cache
// sets.
struct Stack {
  uintptr_t lo = 0;
  uintptr_t hi = 0;
};

// What the owner of a slot keeps at its very top, above hi.
struct StackTop {
  void* tsanFiber = nullptr;
  void* asanFakeStack = nullptr;
  StackTop* next = nullptr;  // link in a free list
  uintptr_t lo = 0;          // of this slot
  uintptr_t hi = 0;
  uint32_t order = 0;  // size class: kMinStackSize << order bytes
  // No guard page could be had (stackguard=best): a canary at lo instead.
  uint32_t unguarded = 0;
  // How many more goroutines tsanFiber and asanFakeStack may serve.
  uint32_t sanitizerUses = 0;
};

// Smaller requests are rounded up.
inline constexpr size_t kMinStackSize = 16 << 10;
// Larger requests are rounded down.
inline constexpr size_t kMaxStackSizeLimit = 1 << 30;

// 256 KiB; ×4 under ASan and TSan, ×2 unoptimised. Written at start-up, and by
// tests.
extern size_t defaultStackSize;

// stackinit finds out which guard the kernel offers. Called by schedinit.
// On: any.  P: either.  Locks: none.  Parks: no.
void stackinit();
// stackalloc binds a stack of at least size bytes (0: the default) to gp: sets
// gp->stack, and marks gp as starting fresh. Default-sized stacks come from
// pp's cache. False when there is no memory or, with stackguard=strict, no
// guard.
// On: g0, or user from directNext or newproc1; m.locks > 0.
// P: pp, owned by the caller (nullptr: straight from the pool).
// Locks: takes kStack, unless pp's cache has one.  Parks: no.
[[nodiscard]] bool stackalloc(P* pp, G* gp, size_t size);
// stackfree gives gp's stack back.
// On: g0.  P: pp, owned by the caller (or nullptr).  Locks: takes kStack.
// Parks: no.
void stackfree(P* pp, G* gp);
// stackcacheFlush moves pp's cached stacks to the pool, for a P that is being
// destroyed and for FreeOSMemory.
// On: any.  P: pp, owned by the caller.  Locks: takes kStack.  Parks: no.
void stackcacheFlush(P* pp);
// stackGiveBack gives the pages wholly below gp's saved stack pointer back to
// the kernel, and returns how many bytes were in use. gp is kept from running.
// On: any.  P: either.  Locks: none.  Parks: no.
size_t stackGiveBack(const G* gp);
// stackpoolRelease gives the pages of pooled stacks back to the kernel.
// On: any.  P: either.  Locks: takes kStack.  Parks: no.
void stackpoolRelease();
// stackReclaim gives their address space back as well, as far as whole arenas
// are free, and tells whether any was. For whoever could not map anything.
// On: any.  P: either.  Locks: takes kStack.  Parks: no.
bool stackReclaim();
// stackCheckCanary throws if gp's unguarded stack ran over. Called at each
// switch away from an unguarded stack only.
// On: g0, or gp's own stack.  P: either.  Locks: none.  Parks: no.
void stackCheckCanary(G* gp);
// stackLimit is how many bytes gp's stack has, give or take its colour.
// On: any, while gp has a stack.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] size_t stackLimit(const G* gp);
// stackOfGuard tells whether addr lies in a guard page of ours, and then the
// usable range of that slot. Async-signal-safe.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool stackOfGuard(uintptr_t addr, Stack* out);
// stackSetGuardMode overrides what stackinit found; for tests. Under ASan,
// kMadvise only for stacks with a mapping of their own, which are gone before
// the leak check.
enum class GuardMode : uint8_t { kMadvise, kMprotect, kNone };
void stackSetGuardMode(GuardMode mode);
// stackLastError tells why the last stackalloc failed, for the panic's text.
// On: any.  P: either.  Locks: none.  Parks: no.
const char* stackLastError();

}  // namespace gump::rt

#endif  // RUNTIME_STACK_H_
