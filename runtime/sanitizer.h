// What AddressSanitizer and ThreadSanitizer are told about goroutine stacks.
// The only #if on a sanitizer; in a plain build every function here is empty.
//
// Valgrind is told nothing. It has requests by which to register stacks, but
// keeps one current stack for all threads: when it has let another thread run,
// the next change of a stack pointer is taken for a switch, and the frame that
// it made is then said not to be there. Without them it takes a change by more
// than --max-stackframe for a switch. 128 KiB is right as long as no frame is
// larger and the two stacks are farther apart: a thread's and a goroutine's
// are, and those of two goroutines that use less than half of the default size.
// A direct switch between two smaller ones may be taken for a frame.
//
// A switch from stack A to stack B is announced on A by sanitizerBeforeSwitch
// and confirmed on B by sanitizerAfterSwitch:
//
//     A's last act:   sanitizerBeforeSwitch(&fake stack of A, bounds of B,
//                                           fiber of B)
//     the switch
//     B's first act:  sanitizerAfterSwitch(fake stack of B)
//
// B's fake stack is what B's own sanitizerBeforeSwitch stored when it was left,
// nullptr if it never ran. Who passes nullptr instead of the address leaves for
// good, and ASan frees the fake stack: the signal stack does, which has a new
// one for each handler.
//
// Rules for callers:
//  (S1) The function that calls sanitizerBeforeSwitch is GUMP_NO_SANITIZE, or
//       is assembly: TSan keeps a shadow call stack for each fiber and changes
//       fibers inside the call, so an instrumented caller would push on one and
//       pop from the other.
//  (S2) Between the two calls nothing instrumented runs.
//
// A TSan fiber belongs to the slot of a stack and is recycled with it, so that
// the accesses of a slot's former user to its stack are not taken for another
// thread's. A switch orders what A did before what B does next: they share the
// state of the M, which no lock guards. The price is that a race between two
// goroutines of one M is seen only when they meet on two.
//
// A fake stack belongs to its slot as well: to make one and to poison it at the
// end costs more than most goroutines do.
#ifndef RUNTIME_SANITIZER_H_
#define RUNTIME_SANITIZER_H_

#include <cstddef>
#include <cstdint>

#include "runtime/base.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GUMP_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define GUMP_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define GUMP_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__) && !defined(GUMP_MODEL)
#define GUMP_TSAN 1
#endif

#if defined(GUMP_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif
#if defined(GUMP_TSAN)
#include <sanitizer/tsan_interface.h>
#include <signal.h>
#endif

namespace gump::rt {

struct G;
struct M;

// kSanitizerBuild: instrumented frames are larger, and every switch is
// announced.
#if defined(GUMP_ASAN) || defined(GUMP_TSAN)
inline constexpr bool kSanitizerBuild = true;
#else
inline constexpr bool kSanitizerBuild = false;
#endif

// kSanitizerThreads is how many threads the sanitizer itself keeps.
#if defined(GUMP_TSAN)
inline constexpr int kSanitizerThreads = 1;
#else
inline constexpr int kSanitizerThreads = 0;
#endif

// kSanitizerDefersHandlers: handlers run only around the calls that the
// sanitizer knows, and on the fibre that the signal has met.
inline constexpr bool kSanitizerDefersHandlers = kSanitizerThreads > 0;

// kSanitizerReadsStacks: when the process ends, stacks are looked through for
// pointers, wherever the list of mappings says that memory can be read.
#if defined(GUMP_ASAN)
inline constexpr bool kSanitizerReadsStacks = true;
#else
inline constexpr bool kSanitizerReadsStacks = false;
#endif

// kStackMultiplier widens the default stack for builds whose frames are larger.
#if defined(GUMP_ASAN) || defined(GUMP_TSAN)
inline constexpr size_t kStackMultiplier = 4;
#elif !defined(__OPTIMIZE__)
inline constexpr size_t kStackMultiplier = 2;
#else
inline constexpr size_t kStackMultiplier = 1;
#endif

// ---- Switches ---------------------------------------------------------------

// sanitizerBeforeSwitch announces that this thread is about to leave its stack
// for [toLo, toLo + toSize). fakeStack: where to keep the fake stack of the one
// that is left; nullptr: it is freed.
// On: the stack that is left.  P: either.  Parks: no.
#if defined(GUMP_ASAN)
inline GUMP_NO_SANITIZE void sanitizerBeforeSwitch(void** fakeStack,
                                                   uintptr_t toLo,
                                                   size_t toSize, void*) {
  __sanitizer_start_switch_fiber(fakeStack, reinterpret_cast<const void*>(toLo),
                                 toSize);
}
#elif defined(GUMP_TSAN)
// A handler that TSan has put off runs on the fiber that it met, which may not
// come back: to block all signals runs it now, and none comes until the switch
// is over.
inline GUMP_NO_SANITIZE void sanitizerBeforeSwitch(void**, uintptr_t, size_t,
                                                   void* toFiber) {
  sigset_t all;
  sigset_t mask;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  __tsan_switch_to_fiber(toFiber, 0);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}
#else
GUMP_ALWAYS_INLINE void sanitizerBeforeSwitch(void**, uintptr_t, size_t,
                                              void*) {}
#endif

// sanitizerAfterSwitch confirms the arrival on the stack whose fake stack is
// given.
// On: the stack that was entered.  P: either.  Parks: no.
#if defined(GUMP_ASAN)
inline GUMP_NO_SANITIZE void sanitizerAfterSwitch(void* fakeStack) {
  __sanitizer_finish_switch_fiber(fakeStack, nullptr, nullptr);
}
#else
GUMP_ALWAYS_INLINE void sanitizerAfterSwitch(void*) {}
#endif

// What asm_*.S calls around a switch, in terms of Gs; defined in sanitizer.cc
// for builds that need it. gumpSanLeave is called on the stack of `from` (a
// user G or a g0) with `from` current; gumpSanArrive on the stack of gp. Rules
// (S1) and (S2) hold.
extern "C" {
void gumpSanLeave(G* from, G* to);
void gumpSanArrive(G* gp);
}

// sanitizerEnterSignal and sanitizerLeaveSignal bracket what a handler does on
// mp's signal stack for as long as gp, which runs there, is interrupted. ASan
// then keeps a fake stack of its own for the handler. In gp's, the handler's
// first frame after a throw or a longjmp would free those of gp: they lie
// below, so they look as if they had been left. TSan needs nothing: a handler
// is part of what it interrupts.
// On: the signal stack.  P: either.  Locks: none.  Parks: no.
#if defined(GUMP_ASAN)
void sanitizerEnterSignal(G* gp, M* mp);
void sanitizerLeaveSignal(G* gp);
#else
GUMP_ALWAYS_INLINE void sanitizerEnterSignal(G*, M*) {}
GUMP_ALWAYS_INLINE void sanitizerLeaveSignal(G*) {}
#endif

// TSan runs a handler when its thread next calls libc, and a thread that sleeps
// in a system call of ours calls nothing. So it sleeps for this long at most,
// and then lets handlers run that TSan has put off. (The signal itself does not
// always end the sleep: with SA_RESTART it goes on. And it may have come just
// before.)
// On: any.  P: either.  Locks: none.  Parks: no.
#if defined(GUMP_TSAN)
inline constexpr int64_t kSanitizerLongestSleep = 20'000'000;
void sanitizerRunHandlers();
#else
inline constexpr int64_t kSanitizerLongestSleep = INT64_MAX;
GUMP_ALWAYS_INLINE void sanitizerRunHandlers() {}
#endif

// sanitizerBeginThread makes TSan allocate its block for handlers that are put
// off, while signals are still blocked: one that came meanwhile would be lost.
// On: g0, at the start of the thread.  P: none.  Locks: none.  Parks: no.
GUMP_ALWAYS_INLINE void sanitizerBeginThread() { sanitizerRunHandlers(); }

// sanitizerEndThread runs what TSan has put off on this thread, which is about
// to end, and lets nothing more come.
// On: g0, at the end of the thread.  P: none.  Locks: none.  Parks: no.
#if defined(GUMP_TSAN)
void sanitizerEndThread();
#else
GUMP_ALWAYS_INLINE void sanitizerEndThread() {}
#endif

// sanitizerInitThread fills in what M keeps about its own stack.
// On: g0, at the start of the thread.  P: none.
#if defined(GUMP_ASAN) || defined(GUMP_TSAN)
void sanitizerInitThread(M* mp);
#else
GUMP_ALWAYS_INLINE void sanitizerInitThread(M*) {}
#endif

// sanitizerDestroyFakeStack frees what sanitizerBeforeSwitch has stored for a
// stack that nobody is on; nullptr: nothing.
// On: any.  P: either.  Locks: none.  Parks: no.
#if defined(GUMP_ASAN)
void sanitizerDestroyFakeStack(void* fakeStack);
#else
GUMP_ALWAYS_INLINE void sanitizerDestroyFakeStack(void*) {}
#endif

// ---- Code that is not instrumented ------------------------------------------

// sanitizerIgnoreBegin and sanitizerIgnoreEnd bracket a call into a library
// that orders its threads by atomics which TSan does not see, being
// instrumented only where it calls libc.
// On: any.  P: either.  Locks: none.  Parks: no.
#if defined(GUMP_TSAN)
void sanitizerIgnoreBegin();
void sanitizerIgnoreEnd();
#else
GUMP_ALWAYS_INLINE void sanitizerIgnoreBegin() {}
GUMP_ALWAYS_INLINE void sanitizerIgnoreEnd() {}
#endif

// ---- Fibers -----------------------------------------------------------------

// A fiber is TSan's notion of a thread. Created for each slot that is ever
// bound, and one per thread, the thread's own.
#if defined(GUMP_TSAN)
inline void* sanitizerCreateFiber() { return __tsan_create_fiber(0); }
inline void sanitizerDestroyFiber(void* fiber) {
  if (fiber != nullptr) __tsan_destroy_fiber(fiber);
}
inline void* sanitizerCurrentFiber() { return __tsan_get_current_fiber(); }
#else
GUMP_ALWAYS_INLINE void* sanitizerCreateFiber() { return nullptr; }
GUMP_ALWAYS_INLINE void sanitizerDestroyFiber(void*) {}
GUMP_ALWAYS_INLINE void* sanitizerCurrentFiber() { return nullptr; }
#endif

// ---- Stacks -----------------------------------------------------------------

// sanitizerStackAbandoned tells that the frames in [sp, hi) will never be
// returned from (a goroutine does not return from its first): what ASan
// poisoned between their variables must not meet the next user of the stack.
// Deeper frames were left by returning or by unwinding, and are clean.
#if defined(GUMP_ASAN)
inline void sanitizerStackAbandoned(uintptr_t sp, uintptr_t hi) {
  __asan_unpoison_memory_region(reinterpret_cast<const void*>(sp), hi - sp);
}
#else
GUMP_ALWAYS_INLINE void sanitizerStackAbandoned(uintptr_t, uintptr_t) {}
#endif

// sanitizerUnwinding tells that the frames from here to some caller's are left
// without a return. ASan sees that in a throw, not in a forced unwind, and what
// it poisoned would meet the landing pads' calls.
#if defined(GUMP_ASAN)
inline void sanitizerUnwinding() { __asan_handle_no_return(); }
#else
GUMP_ALWAYS_INLINE void sanitizerUnwinding() {}
#endif

// sanitizerRootRegion makes the leak checker look for pointers in [p, p + n),
// as it does by itself on threads' stacks and in static memory: a slab, or
// stacks of goroutines, which may be parked when the process ends.
#if defined(GUMP_ASAN)
inline void sanitizerRootRegion(const void* p, size_t n) {
  __lsan_register_root_region(p, n);
}
inline void sanitizerForgetRootRegion(const void* p, size_t n) {
  __lsan_unregister_root_region(p, n);
}
#else
GUMP_ALWAYS_INLINE void sanitizerRootRegion(const void*, size_t) {}
GUMP_ALWAYS_INLINE void sanitizerForgetRootRegion(const void*, size_t) {}
#endif

}  // namespace gump::rt

#endif  // RUNTIME_SANITIZER_H_
