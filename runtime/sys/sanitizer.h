// The data that AddressSanitizer and ThreadSanitizer get about goroutine
// stacks. This file has the only #if on a sanitizer. In a plain build every
// function here is empty.
//
// Valgrind gets none. It has requests to register stacks, but keeps one current
// stack for all threads. When it has let another thread run, it takes the next
// change of a stack pointer for a switch. It then reports accesses to the frame
// that this change made, as if the frame did not exist. Without registered
// stacks, it takes a change of the stack pointer for a switch if the change is
// larger than --max-stackframe. 128 KiB is right if every frame is smaller than
// that, and the two stacks of every switch are farther apart. A thread's stack
// is far from all goroutines' stacks. Two goroutines' stacks are far enough
// apart if both use less than half of the default size. If stacks are smaller
// than the default, Valgrind may take a direct switch for a call with a large
// frame.
//
// A switch from stack A to stack B is announced on A by sanitizerBeforeSwitch
// and confirmed on B by sanitizerAfterSwitch:
//
//     A's last act:   sanitizerBeforeSwitch(&fake stack of A, bounds of B,
//                                           fiber of B)
//     the switch
//     B's first act:  sanitizerAfterSwitch(fake stack of B)
//
// B's fake stack is the one that B's own sanitizerBeforeSwitch stored when B
// was left, or nullptr if B never ran. A caller that passes nullptr instead of
// the address leaves its stack for good, and ASan frees the fake stack. The
// signal stack does so, because it has a new fake stack for each handler.
//
// Rules for callers:
//  (S1) The function that calls sanitizerBeforeSwitch is GUMP_NO_SANITIZE, or
//       is assembly. TSan keeps a shadow call stack for each fiber and changes
//       fibers inside the call. So an instrumented caller would push on one and
//       pop from the other.
//  (S2) Between the two calls no instrumented code runs.
//
// A TSan fiber belongs to the slot of a stack and is recycled with it.
// Otherwise TSan would take the accesses of a slot's previous user for those of
// another thread. TSan takes a switch from A to B for a synchronisation: all
// that A did happens before all that B does from then on. TSan must do so,
// because A and B share the state of the M, which no lock guards. As a result,
// a race between two goroutines of one M is seen only when they meet on two Ms.
//
// A fake stack belongs to its slot as well, because creating one and poisoning
// it at the end costs more than most goroutines do.
//
// A program may be built with a sanitizer and its library without, which is the
// usual case of a packaged library. The library then has weak references to the
// functions of the sanitizer, and finds out which of them exist:
//  - ASan: see "The program's AddressSanitizer" below.
//  - LSan alone: the library tells it where goroutine stacks and slabs lie, as
//    a build with ASan does.
//  - TSan: it does not see the library's locks and atomics, so it would report
//    races that do not exist. sanitizerCheckProgram ends the program.
//  - MSan: it does not see what the library writes, so it would report uses of
//    values that are initialised, for example of a value that Recv stored.
//    sanitizerCheckProgram ends the program. The library cannot be built with
//    MSan either, because all that it links with would have to be.
//  - UBSan: it keeps nothing about stacks or threads, so it needs nothing.
#ifndef RUNTIME_SYS_SANITIZER_H_
#define RUNTIME_SYS_SANITIZER_H_

#include <cstddef>
#include <cstdint>

#include "runtime/sys/base.h"

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
#include <sanitizer/allocator_interface.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif
#if defined(GUMP_TSAN)
#include <sanitizer/tsan_interface.h>
#include <signal.h>
#endif
#if !defined(GUMP_ASAN) && !defined(GUMP_TSAN) && !defined(GUMP_MODEL)
// GUMP_PLAIN means that only the program may have a sanitizer. The functions
// are declared here, because not every compiler has the headers.
#define GUMP_PLAIN 1
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void**, const void*, size_t);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void*, const void**,
                                                   size_t*);
[[gnu::weak]] void __asan_handle_no_return();
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void*, size_t);
[[gnu::weak]] void __lsan_register_root_region(const void*, size_t);
[[gnu::weak]] void __lsan_unregister_root_region(const void*, size_t);
[[gnu::weak]] const char* __asan_locate_address(void*, char*, size_t, void**,
                                                size_t*);
[[gnu::weak]] void __asan_get_shadow_mapping(size_t*, size_t*);
[[gnu::weak]] int __sanitizer_get_ownership(const volatile void*);
}
#endif

namespace gump::rt {

struct G;
struct M;

// kSanitizerBuild is true if frames are instrumented, and so larger. Every
// switch is then announced.
#if defined(GUMP_ASAN) || defined(GUMP_TSAN)
inline constexpr bool kSanitizerBuild = true;
#else
inline constexpr bool kSanitizerBuild = false;
#endif

// kSanitizerThreads is the number of threads that the sanitizer itself keeps.
#if defined(GUMP_TSAN)
inline constexpr int kSanitizerThreads = 1;
#else
inline constexpr int kSanitizerThreads = 0;
#endif

// kSanitizerDefersHandlers is true if handlers run only around the calls that
// the sanitizer knows, and only on the fiber that the signal interrupted.
inline constexpr bool kSanitizerDefersHandlers = kSanitizerThreads > 0;

// kStackMultiplier widens the default stack in builds with larger frames.
#if defined(GUMP_ASAN) || defined(GUMP_TSAN)
inline constexpr size_t kStackMultiplier = 4;
#elif !defined(__OPTIMIZE__)
inline constexpr size_t kStackMultiplier = 2;
#else
inline constexpr size_t kStackMultiplier = 1;
#endif

// ---- The program's AddressSanitizer -----------------------------------------

// In a build without sanitizers, these functions announce switches to the ASan
// of a program. They do so in C++, around the call of gumpMcall, so asm_*.S is
// the same as without ASan.
//
// ASan keeps two things for a thread: the bounds of its stack, and its fake
// stack. Only instrumented code needs them, and the library has none. So an
// announcement may come a little before or after the switch, as long as only
// code of the library runs in between:
//  - A goroutine that parks, yields or waits for a P announces the thread's own
//    stack, and then calls gumpMcall. When that returns, the goroutine
//    announces the stack that it had left (mcallAnnounced).
//  - A new goroutine announces only its stack (beginCarefully).
//  - When a goroutine has ended, g0 announces the thread's own stack
//    (endCarefully).
//
// The user's code can run between an announcement and the switch only as a
// signal handler. These rules make that safe:
//  (S3) A fake stack is in use by one thread at a time, because ASan changes it
//       without atomics. A goroutine announces that the thread leaves its
//       stack before it is published, so before another thread can resume it.
//       The thread that resumes it announces that it enters that stack. In
//       between, each of the threads has its own fake stack.
//  (S4) The two calls of an announcement are made by one thread. Between them
//       nothing parks. If the goroutine is preempted in place there, its thread
//       runs no other goroutine meanwhile.
//  (S5) Every switch is announced. So no goroutine may switch directly to
//       another, because gumpSwitch announces nothing. Each goroutine is
//       `special`, and special goroutines do not take that path.
//
// A handler that preempts a goroutine in place is not instrumented, and so it
// needs no fake stack of its own.
//
// In a program without ASan this costs the fast paths nothing: they test the
// flags G::careful and G::special anyway, for other reasons. The
// other paths test the address of a weak function.

// sanitizerOfProgram returns true if the program has ASan and the library has
// not. Then each switch must be announced as above.
// On: any.  P: either.  Locks: none.  Parks: no.
#if defined(GUMP_PLAIN)
inline bool sanitizerOfProgram() {
  return &__sanitizer_start_switch_fiber != nullptr;
}
#else
GUMP_ALWAYS_INLINE constexpr bool sanitizerOfProgram() { return false; }
#endif

// AnnouncedStack is what ASan keeps for a thread: the fake stack and the bounds
// of the stack that the thread is on. A goroutine that parks keeps these
// values. So it can later announce the stack that it left, even if the program
// itself has made that stack and announced it (awaitP).
struct AnnouncedStack {
  void* fakeStack = nullptr;
  const void* lo = nullptr;
  size_t size = 0;
};

// The next four functions require sanitizerOfProgram(). mp is this thread's M.
//
// sanitizerAnnounceThread announces that the thread leaves the stack of a
// goroutine, and enters its own. Returns the stack that it leaves.
// sanitizerAnnounceG announces that the thread leaves its own stack, and enters
// s.
// On: user, or g0.  P: either.  Locks: none.  Parks: no.
//
// sanitizerAnnounceNewG announces that the thread enters the stack of a
// goroutine that begins. After kSanitizerUses goroutines it also gives that
// stack a new fake stack. sanitizerAnnounceEndedG announces that the thread has
// left the stack of a goroutine that has ended.
// On: user (NewG), g0 (EndedG).  P: needed.  Locks: none.  Parks: no.
#if defined(GUMP_PLAIN)
AnnouncedStack sanitizerAnnounceThread(M* mp);
void sanitizerAnnounceG(const AnnouncedStack& s, M* mp);
void sanitizerAnnounceNewG(const G* gp, M* mp);
void sanitizerAnnounceEndedG(const G* gp, M* mp);
#else
GUMP_ALWAYS_INLINE AnnouncedStack sanitizerAnnounceThread(M*) { return {}; }
GUMP_ALWAYS_INLINE void sanitizerAnnounceG(const AnnouncedStack&, M*) {}
GUMP_ALWAYS_INLINE void sanitizerAnnounceNewG(const G*, M*) {}
GUMP_ALWAYS_INLINE void sanitizerAnnounceEndedG(const G*, M*) {}
#endif

// sanitizerCleanStack removes the poison from the stack of gp, which a forced
// unwind (Goexit) has left there: a landing pad may poison variables of a frame
// that does not return. All that is left on the stack is the runtime's.
// On: user, gp.  P: either.  Locks: none.  Parks: no.
#if defined(GUMP_PLAIN)
void sanitizerCleanStack(const G* gp);
#else
GUMP_ALWAYS_INLINE void sanitizerCleanStack(const G*) {}
#endif

// sanitizerCheckProgram ends the process if the program has a sanitizer that
// cannot work with this library.
// On: any.  P: either.  Locks: none.  Parks: no.
#if defined(GUMP_PLAIN)
void sanitizerCheckProgram();
#else
GUMP_ALWAYS_INLINE void sanitizerCheckProgram() {}
#endif

// sanitizerReadsStacks returns true if the sanitizer searches stacks for
// pointers when the process ends, wherever the list of mappings says that
// memory is readable.
// On: any.  P: either.  Locks: none.  Parks: no.
#if defined(GUMP_PLAIN)
inline bool sanitizerReadsStacks() {
  return &__lsan_register_root_region != nullptr;
}
#elif defined(GUMP_ASAN)
GUMP_ALWAYS_INLINE constexpr bool sanitizerReadsStacks() { return true; }
#else
GUMP_ALWAYS_INLINE constexpr bool sanitizerReadsStacks() { return false; }
#endif

// sanitizerStackFactor returns the factor by which the default stack must be
// larger because the frames of the program are. It comes on top of
// kStackMultiplier.
// On: any.  P: either.  Locks: none.  Parks: no.
inline size_t sanitizerStackFactor() { return sanitizerOfProgram() ? 4 : 1; }

// ---- Switches ---------------------------------------------------------------

// sanitizerBeforeSwitch announces that this thread is about to leave its stack
// for [toLo, toLo + toSize). *fakeStack receives the fake stack of the stack
// that is left. If fakeStack is nullptr, ASan frees it instead.
// On: the stack that is left.  P: either.  Parks: no.
#if defined(GUMP_ASAN) || defined(GUMP_PLAIN)
inline GUMP_NO_SANITIZE void sanitizerBeforeSwitch(void** fakeStack,
                                                   uintptr_t toLo,
                                                   size_t toSize, void*) {
  __sanitizer_start_switch_fiber(fakeStack, reinterpret_cast<const void*>(toLo),
                                 toSize);
}
#elif defined(GUMP_TSAN)
// TSan may put off a handler. It then runs the handler on the fiber that the
// signal interrupted, but that fiber may never run again. So we block all
// signals. This call runs a pending handler now, and no other comes until the
// switch is over.
inline GUMP_NO_SANITIZE void sanitizerBeforeSwitch(void**, uintptr_t, size_t,
                                                   void* toFiber) {
  sigset_t all;
  sigset_t mask;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  __tsan_switch_to_fiber(toFiber, 0);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}
#endif

// sanitizerAfterSwitch confirms the arrival on the stack to which fakeStack
// belongs.
// On: the stack that was entered.  P: either.  Parks: no.
#if defined(GUMP_ASAN) || defined(GUMP_PLAIN)
inline GUMP_NO_SANITIZE void sanitizerAfterSwitch(void* fakeStack) {
  __sanitizer_finish_switch_fiber(fakeStack, nullptr, nullptr);
}
#else
GUMP_ALWAYS_INLINE void sanitizerAfterSwitch(void*) {}
#endif

// asm_*.S calls these around a switch, in terms of Gs. sanitizer.cc defines
// them in builds that need them. gumpSanLeave is called on the stack of `from`
// (a user G or a g0) with `from` current. gumpSanArrive is called on the stack
// of gp. Rules (S1) and (S2) hold.
extern "C" {
void gumpSanLeave(G* from, G* to);
void gumpSanArrive(G* gp);
}

// sanitizerEnterSignal and sanitizerLeaveSignal bracket the work of a handler
// on mp's signal stack while gp, which runs on mp, is interrupted. ASan then
// keeps a separate fake stack for the handler. Otherwise the handler would use
// gp's fake stack. After a throw or a longjmp, ASan assumes that all frames at
// lower addresses have been left, and frees them on the fake stack. gp's stack
// may lie below the signal stack, so ASan would free frames of gp that are in
// use. TSan needs no call, because it treats a handler as part of the code that
// it interrupts.
// On: the signal stack.  P: either.  Locks: none.  Parks: no.
#if defined(GUMP_ASAN)
void sanitizerEnterSignal(G* gp, M* mp);
void sanitizerLeaveSignal(G* gp);
#else
GUMP_ALWAYS_INLINE void sanitizerEnterSignal(G*, M*) {}
GUMP_ALWAYS_INLINE void sanitizerLeaveSignal(G*) {}
#endif

// TSan runs a handler when its thread next calls libc, and a thread that sleeps
// in a system call of the runtime makes no such call. So the thread sleeps for
// this long at most, and then runs the handlers that TSan has put off. (The
// signal itself does not always end the sleep. With SA_RESTART the sleep
// continues. The signal may also have come just before the sleep.)
// On: any.  P: either.  Locks: none.  Parks: no.
#if defined(GUMP_TSAN)
inline constexpr int64_t kSanitizerLongestSleep = 20'000'000;
void sanitizerRunHandlers();
#else
inline constexpr int64_t kSanitizerLongestSleep = INT64_MAX;
GUMP_ALWAYS_INLINE void sanitizerRunHandlers() {}
#endif

// sanitizerEndThread runs the handlers that TSan has put off on this thread,
// which is about to end, and lets no more come.
// On: g0, at the end of the thread.  P: none.  Locks: none.  Parks: no.
#if defined(GUMP_TSAN)
void sanitizerEndThread();
#else
GUMP_ALWAYS_INLINE void sanitizerEndThread() {}
#endif

// sanitizerInitThread stores the data that the M keeps about its own stack. It
// makes TSan allocate the block of the thread's own fiber, as
// sanitizerCreateFiber does with a new fiber.
// On: g0, at the start of the thread.  P: none.
#if defined(GUMP_ASAN) || defined(GUMP_TSAN)
void sanitizerInitThread(M* mp);
#else
GUMP_ALWAYS_INLINE void sanitizerInitThread(M*) {}
#endif

// sanitizerDestroyFakeStack frees the fake stack that sanitizerBeforeSwitch has
// stored for a stack that no thread is on. Does nothing for nullptr.
// On: any.  P: either.  Locks: none.  Parks: no.
#if defined(GUMP_ASAN) || defined(GUMP_PLAIN)
void sanitizerDestroyFakeStack(void* fakeStack);
#else
GUMP_ALWAYS_INLINE void sanitizerDestroyFakeStack(void*) {}
#endif

// ---- Code that is not instrumented ------------------------------------------

// sanitizerIgnoreBegin and sanitizerIgnoreEnd bracket a call into a library
// that orders its threads by atomics. TSan does not see these atomics, because
// it intercepts only the library's calls of libc.
// On: any.  P: either.  Locks: none.  Parks: no.
#if defined(GUMP_TSAN)
void sanitizerIgnoreBegin();
void sanitizerIgnoreEnd();
#else
GUMP_ALWAYS_INLINE void sanitizerIgnoreBegin() {}
GUMP_ALWAYS_INLINE void sanitizerIgnoreEnd() {}
#endif

// ---- Fibers -----------------------------------------------------------------

// A fiber is TSan's notion of a thread. There is one for each slot that was
// ever bound, and one for each thread, the thread's own.
//
// Signals must be blocked in two moments, or TSan loses them:
//  - while a fiber is created or destroyed, because the thread is on that fiber
//    meanwhile;
//  - while TSan allocates the block in which a fiber records the signals that
//    TSan puts off. TSan does so when the fiber first needs the block. A
//    handler that comes then allocates a block of its own, and the interrupted
//    allocation replaces it.
// So sanitizerCreateFiber and sanitizerDestroyFiber block signals, and
// sanitizerCreateFiber makes TSan allocate the block at once.
// On: any.  P: either.  Locks: none.  Parks: no.
#if defined(GUMP_TSAN)
void* sanitizerCreateFiber();
void sanitizerDestroyFiber(void* fiber);
inline void* sanitizerCurrentFiber() { return __tsan_get_current_fiber(); }
#else
GUMP_ALWAYS_INLINE void* sanitizerCreateFiber() { return nullptr; }
GUMP_ALWAYS_INLINE void sanitizerDestroyFiber(void*) {}
GUMP_ALWAYS_INLINE void* sanitizerCurrentFiber() { return nullptr; }
#endif

// ---- Stacks -----------------------------------------------------------------

// sanitizerStackAbandoned notes that no frame in [sp, hi) will ever be returned
// from, because a goroutine does not return from its first frames. ASan has
// poisoned memory between their variables, and the next user of the stack must
// not meet the poison. Deeper frames were left by return or by unwinding, and
// are clean. In a build without ASan the first frames are not poisoned.
#if defined(GUMP_ASAN)
inline void sanitizerStackAbandoned(uintptr_t sp, uintptr_t hi) {
  __asan_unpoison_memory_region(reinterpret_cast<const void*>(sp), hi - sp);
}
#else
GUMP_ALWAYS_INLINE void sanitizerStackAbandoned(uintptr_t, uintptr_t) {}
#endif

// sanitizerUnwinding notes that the frames from here up to some caller are left
// without a return. ASan notices a throw by itself, but not a forced unwind.
// Without this call, the functions that landing pads call would meet the memory
// that ASan poisoned.
#if defined(GUMP_ASAN)
inline void sanitizerUnwinding() { __asan_handle_no_return(); }
#elif defined(GUMP_PLAIN)
inline void sanitizerUnwinding() {
  if (sanitizerOfProgram()) __asan_handle_no_return();
}
#else
GUMP_ALWAYS_INLINE void sanitizerUnwinding() {}
#endif

// sanitizerRootRegion makes LeakSanitizer look for pointers in [p, p + n), as
// it does by itself on the stacks of threads and in static memory. A region has
// slabs, or the stacks of goroutines, which may be parked when the process
// ends. Both functions wait for the end of a leak check. So they are called
// when the runtime starts, and later only where root_range.h has no range.
#if defined(GUMP_ASAN) || defined(GUMP_PLAIN)
void sanitizerRootRegion(const void* p, size_t n);
void sanitizerForgetRootRegion(const void* p, size_t n);
#else
GUMP_ALWAYS_INLINE void sanitizerRootRegion(const void*, size_t) {}
GUMP_ALWAYS_INLINE void sanitizerForgetRootRegion(const void*, size_t) {}
#endif

// ---- The heap ---------------------------------------------------------------

// SanitizerBlock says what ASan knows about an address of the heap.
enum class SanitizerBlock : uint8_t {
  kNone,       // it is in no block
  kFree,       // the block is freed
  kAllocated,  // the program has the block
};

// sanitizerKnowsBlocks returns true if the process has ASan.
// sanitizerBlockOf finds the block around an address. sanitizerShadow stores
// where ASan keeps its shadow, and changes nothing if there is none.
// On: any.  P: either.  Locks: ASan's.  Parks: no.
#if defined(GUMP_ASAN) || defined(GUMP_PLAIN)
[[nodiscard]] bool sanitizerKnowsBlocks();
[[nodiscard]] SanitizerBlock sanitizerBlockOf(uintptr_t addr, uintptr_t* begin,
                                              size_t* size);
void sanitizerShadow(uintptr_t* lo, uintptr_t* hi);
#else
GUMP_ALWAYS_INLINE constexpr bool sanitizerKnowsBlocks() { return false; }
GUMP_ALWAYS_INLINE SanitizerBlock sanitizerBlockOf(uintptr_t, uintptr_t*,
                                                   size_t*) {
  return SanitizerBlock::kNone;
}
GUMP_ALWAYS_INLINE void sanitizerShadow(uintptr_t*, uintptr_t*) {}
#endif

// sanitizerKeepsAddresses returns true if the sanitizer's own memory has the
// addresses of objects of the program. A search for pointers then finds every
// lock and atomic that was ever used. TSan does that.
#if defined(GUMP_TSAN)
GUMP_ALWAYS_INLINE constexpr bool sanitizerKeepsAddresses() { return true; }
#else
GUMP_ALWAYS_INLINE constexpr bool sanitizerKeepsAddresses() { return false; }
#endif

}  // namespace gump::rt

#endif  // RUNTIME_SYS_SANITIZER_H_
