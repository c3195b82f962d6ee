// The switch as the sanitizers see it: sanitizer.h in terms of Gs and Ms.
//
// Where the fake stack and the fiber of a stack are kept: those of a goroutine
// in the StackTop of its slot, those of a g0 in its M.
#include "runtime/sys/sanitizer.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/diag/panic.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stack.h"
#include "runtime/sys/print.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

#if defined(GUMP_ASAN) || defined(GUMP_TSAN)
namespace {

// StackState is the sanitizers' data about one stack.
struct StackState {
  uintptr_t lo;
  uintptr_t hi;
  void* fiber;
  void** fakeStack;
};

// stateOf may be called for any G that has a stack. If the G runs, or is about
// to, gp->m is its M.
GUMP_NO_SANITIZE StackState stateOf(G* gp) {
  if (gp->stack.hi == 0) {  // only a g0 has no Stack of its own
    M* mp = gp->m;
    return {mp->g0lo, mp->g0hi, mp->tsanFiber, &mp->asanFakeStack};
  }
  auto* top = reinterpret_cast<StackTop*>(gp->stack.hi);
  return {gp->stack.lo, gp->stack.hi, top->tsanFiber, &top->asanFakeStack};
}

#if defined(GUMP_TSAN)
// SignalsBlocked blocks all signals for its scope. The fiber at its end is the
// fiber at its beginning.
class SignalsBlocked {
 public:
  GUMP_NO_SANITIZE SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask_);
  }
  GUMP_NO_SANITIZE ~SignalsBlocked() {
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t mask_;
};

// allocateSignalBlock makes TSan allocate the current fiber's block: see
// sanitizer.h. TSan needs it for every call that it knows to block.
GUMP_NO_SANITIZE void allocateSignalBlock() {
  const int saved = errno;
  ::usleep(0);
  errno = saved;
}
#endif

}  // namespace

extern "C" GUMP_NO_SANITIZE void gumpSanLeave(G* from, G* to) {
  const StackState b = stateOf(to);
  sanitizerBeforeSwitch(stateOf(from).fakeStack, b.lo, b.hi - b.lo, b.fiber);
}

extern "C" GUMP_NO_SANITIZE void gumpSanArrive(G* gp) {
  sanitizerAfterSwitch(*stateOf(gp).fakeStack);
}

void sanitizerInitThread(M* mp) {
  pthread_attr_t attr;
  if (pthread_getattr_np(pthread_self(), &attr) != 0) {
    fatalthrow("minit: no bounds of the thread's stack");
  }
  void* lo = nullptr;
  size_t size = 0;
  pthread_attr_getstack(&attr, &lo, &size);
  pthread_attr_destroy(&attr);
  mp->g0lo = reinterpret_cast<uintptr_t>(lo);
  mp->g0hi = mp->g0lo + size;
  mp->tsanFiber = sanitizerCurrentFiber();
  mp->asanFakeStack = nullptr;
#if defined(GUMP_TSAN)
  const SignalsBlocked blocked;
  allocateSignalBlock();
#endif
}
#endif

#if defined(GUMP_ASAN)
GUMP_NO_SANITIZE void sanitizerEnterSignal(G* gp, M* mp) {
  sanitizerBeforeSwitch(stateOf(gp).fakeStack, mp->signalStackLo,
                        mp->signalStackSize, nullptr);
  sanitizerAfterSwitch(nullptr);  // ASan makes the fake stack at its first use
}

// While ASan makes the fake stack of a stack, it keeps the value 1 in place of
// its address. The signal may have interrupted that. If sanitizerAfterSwitch
// got the 1, the next handler would take it for an address. With nullptr, the
// next handler makes a fake stack of its own. In both cases ASan stores the
// address when the interrupted code has made the fake stack.
GUMP_NO_SANITIZE void sanitizerLeaveSignal(G* gp) {
  const StackState s = stateOf(gp);
  void* fakeStack = *s.fakeStack;
  if (reinterpret_cast<uintptr_t>(fakeStack) == 1) fakeStack = nullptr;
  sanitizerBeforeSwitch(nullptr, s.lo, s.hi - s.lo, nullptr);
  sanitizerAfterSwitch(fakeStack);
}
#endif

#if defined(GUMP_PLAIN)
AnnouncedStack sanitizerAnnounceThread(M* mp) {
  AnnouncedStack left;
  sanitizerBeforeSwitch(&left.fakeStack, mp->g0lo, mp->g0hi - mp->g0lo,
                        nullptr);
  __sanitizer_finish_switch_fiber(mp->asanFakeStack, &left.lo, &left.size);
  return left;
}

// When the thread leaves its own stack, ASan tells the bounds of that stack.
// sanitizerAnnounceThread announces these bounds later.
void sanitizerAnnounceG(const AnnouncedStack& s, M* mp) {
  const void* lo = nullptr;
  size_t size = 0;
  sanitizerBeforeSwitch(&mp->asanFakeStack, reinterpret_cast<uintptr_t>(s.lo),
                        s.size, nullptr);
  __sanitizer_finish_switch_fiber(s.fakeStack, &lo, &size);
  mp->g0lo = reinterpret_cast<uintptr_t>(lo);
  mp->g0hi = mp->g0lo + size;
}

// The old fake stack is freed after it has been announced, because ASan frees a
// fake stack only when the thread leaves it. It has no entries but those that
// ended goroutines have left. sanitizerDestroyFakeStack cannot free it before
// the announcement, because it calls acquirem, which may park.
void sanitizerAnnounceNewG(const G* gp, M* mp) {
  auto* top = reinterpret_cast<StackTop*>(gp->stack.hi);
  const size_t size = gp->stack.hi - gp->stack.lo;
  sanitizerAnnounceG(
      {top->asanFakeStack, reinterpret_cast<const void*>(gp->stack.lo), size},
      mp);
  if (top->sanitizerUses == 0) {
    sanitizerBeforeSwitch(nullptr, gp->stack.lo, size, nullptr);
    sanitizerAfterSwitch(nullptr);  // ASan makes one at its first use
    top->sanitizerUses = kSanitizerUses;
  }
  top->sanitizerUses--;
}

void sanitizerAnnounceEndedG(const G* gp, M* mp) {
  auto* top = reinterpret_cast<StackTop*>(gp->stack.hi);
  top->asanFakeStack = sanitizerAnnounceThread(mp).fakeStack;
}

void sanitizerCleanStack(const G* gp) {
  __asan_unpoison_memory_region(reinterpret_cast<const void*>(gp->stack.lo),
                                gp->stack.hi - gp->stack.lo);
}

// Every version of the two runtimes exports its function. We only look at the
// addresses. (tools/scaling defines __tsan_init, but not __tsan_func_entry.)
extern "C" {
[[gnu::weak]] void __tsan_func_entry(void* pc);
[[gnu::weak]] void __msan_init();
}

namespace {
[[noreturn]] void refuse(const char* sanitizer, const char* advice) {
  printf(
      "gump: this program is built with %s and its gump library is not: %s\n",
      sanitizer, advice);
  _exit(2);
}
}  // namespace

void sanitizerCheckProgram() {
  if (&__tsan_func_entry != nullptr) {
    refuse("ThreadSanitizer",
           "link a library that was built with -DGUMP_SANITIZE=thread");
  }
  if (&__msan_init != nullptr) {
    refuse(
        "MemorySanitizer",
        "use AddressSanitizer or Valgrind, because there is no such library");
  }
}
#endif

#if defined(GUMP_ASAN) || defined(GUMP_PLAIN)
void sanitizerRootRegion(const void* p, size_t n) {
  if (sanitizerReadsStacks()) __lsan_register_root_region(p, n);
}

void sanitizerForgetRootRegion(const void* p, size_t n) {
  if (sanitizerReadsStacks()) __lsan_unregister_root_region(p, n);
}

// ASan frees a fake stack only when a thread leaves that stack for good. So
// this thread announces a switch to the stack of fakeStack, and then leaves it
// for good. The thread does not really switch. So any bounds will do for the
// first switch, and the second restores the thread's own bounds.
GUMP_NO_SANITIZE void sanitizerDestroyFakeStack(void* fakeStack) {
  if (fakeStack == nullptr) return;
  // Preemption would come between these calls with announcements of its own
  // (preemptedBySignal). acquirem prevents it.
  M* mp = getg() == nullptr ? nullptr : acquirem();
  void* own = nullptr;
  const void* lo = nullptr;
  size_t size = 0;
  __sanitizer_start_switch_fiber(&own, &own, sizeof(own));
  __sanitizer_finish_switch_fiber(fakeStack, &lo, &size);
  __sanitizer_start_switch_fiber(nullptr, lo, size);
  __sanitizer_finish_switch_fiber(own, nullptr, nullptr);
  if (mp != nullptr) releasem(mp);
}
#endif

#if defined(GUMP_PLAIN)
extern "C" {
[[gnu::weak]] int __asan_address_is_poisoned(const volatile void* addr);
}
#endif

#if defined(GUMP_ASAN) || defined(GUMP_PLAIN)
bool sanitizerKnowsBlocks() {
#if defined(GUMP_ASAN)
  return true;
#else
  return &__asan_locate_address != nullptr &&
         &__sanitizer_get_ownership != nullptr &&
         &__asan_address_is_poisoned != nullptr;
#endif
}

// ASan names a block also for an address that lies up to a page behind the
// block's mapping: it takes it for an access beyond the end. But that may be
// memory of the program's, in a mapping of its own, for example the heap of
// timers. ASan has poisoned what it keeps around a block, and only that.
SanitizerBlock sanitizerBlockOf(uintptr_t addr, uintptr_t* begin,
                                size_t* size) {
  void* at = nullptr;
  size_t n = 0;
  const char* kind =
      __asan_locate_address(reinterpret_cast<void*>(addr), nullptr, 0, &at, &n);
  *begin = reinterpret_cast<uintptr_t>(at);
  *size = n;
  if (kind == nullptr || strcmp(kind, "heap") != 0) {
    return SanitizerBlock::kNone;
  }
  if (addr - *begin >= n) {
    return __asan_address_is_poisoned(reinterpret_cast<void*>(addr)) != 0
               ? SanitizerBlock::kFree
               : SanitizerBlock::kNone;
  }
  return __sanitizer_get_ownership(at) == 0 ? SanitizerBlock::kFree
                                            : SanitizerBlock::kAllocated;
}

void sanitizerShadow(uintptr_t* lo, uintptr_t* hi) {
  if (!sanitizerKnowsBlocks()) return;
  size_t scale = 0;
  size_t offset = 0;
  __asan_get_shadow_mapping(&scale, &offset);
  *lo = offset;
  *hi = offset + ((uintptr_t{1} << 47) >> scale);
}
#endif

#if defined(GUMP_TSAN)
// These are part of the TSan runtime, but no header of it declares them.
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}

void sanitizerIgnoreBegin() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

void sanitizerIgnoreEnd() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

GUMP_NO_SANITIZE void* sanitizerCreateFiber() {
  constexpr unsigned kNoSync = 1;  // __tsan_switch_to_fiber_no_sync
  const SignalsBlocked blocked;
  void* own = __tsan_get_current_fiber();
  void* fiber = __tsan_create_fiber(0);
  __tsan_switch_to_fiber(fiber, kNoSync);
  allocateSignalBlock();
  __tsan_switch_to_fiber(own, kNoSync);
  return fiber;
}

GUMP_NO_SANITIZE void sanitizerDestroyFiber(void* fiber) {
  if (fiber == nullptr) return;
  const SignalsBlocked blocked;
  __tsan_destroy_fiber(fiber);
}

// usleep is a call that TSan knows to block. Handlers may set errno.
GUMP_NOINLINE void sanitizerRunHandlers() {
  const int saved = errno;
  ::usleep(0);
  errno = saved;
}

// pthread_sigmask is a call that TSan knows. At its end TSan runs the handlers
// that it has put off until then. No more come, since all signals are blocked.
void sanitizerEndThread() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}
#endif

}  // namespace gump::rt
