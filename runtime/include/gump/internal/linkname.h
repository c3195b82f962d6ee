// The window between the public headers and the runtime: what a template in
// api/include/gump may call, and nothing else. Go's linker keeps such a list
// for sync, time and internal/poll. Internal: may change in any release.
//
// Everything here but goexit is noexcept and reports misuse by its result; api/
// turns results into panics, so that no exception starts while a runtime lock
// is held. All functions may be called from goroutines and from plain threads
// (which are lent a pseudo-goroutine and block on a futex), after an implicit
// start of the runtime.
#ifndef GUMP_INTERNAL_LINKNAME_H_
#define GUMP_INTERNAL_LINKNAME_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/atomic.h"

namespace gump::rt {

struct FuncTimer;
struct G;
struct Hchan;
struct Sudog;

// ---- Goroutines (proc_new.cc, proc_park.cc, rt0.cc) -------------------------

// Closures of up to this size live inside the G.
inline constexpr size_t kClosureSize = 64;
inline constexpr size_t kClosureAlign = 16;

// FuncType says how to handle a closure of one type. Closures whose relocation
// could throw, or that do not fit, are passed as a pointer by go().
struct FuncType {
  // May throw: the process then ends with a panic report.
  void (*run)(void* closure);
  void (*destroy)(void* closure);
  // Move-constructs dst and destroys src.
  void (*relocate)(void* dst, void* src) noexcept;
};

enum class SpawnResult : uint8_t {
  kOk,
  // No cell for a G, or no stack when stacks are known to be short; the text is
  // stackErrorText().
  kNoMemory,
};

struct SpawnOptions {
  size_t stack_size = 0;  // bytes; 0: default
  // malloc'ed; the goroutine owns it once newproc returns kOk.
  const char* name = nullptr;
  // The runtime's own: does not fail for want of a stack, but waits for one.
  bool stack_later = false;
};

// newproc starts a goroutine that relocates *closure into itself. pc: the
// address to report as "created by".
[[nodiscard]] SpawnResult newproc(const FuncType* ft, void* closure,
                                  const SpawnOptions* options,
                                  uintptr_t pc) noexcept;
const char* stackErrorText() noexcept;

// callerPC is an address inside the function it is inlined into: what goroutine
// dumps print as "created by".
__attribute__((always_inline)) inline uintptr_t callerPC() noexcept {
  uintptr_t pc;
#if defined(__x86_64__)
  asm volatile("leaq 0(%%rip), %0" : "=r"(pc));
#else
  asm volatile("adr %0, ." : "=r"(pc));
#endif
  return pc;
}

// runMain is Run: the calling thread becomes m0 and runs ft on goroutine 1;
// returns when that goroutine's function has returned. False: another Run is
// active.
[[nodiscard]] bool runMain(const FuncType* ft, void* closure,
                           uintptr_t pc) noexcept;

void gosched() noexcept;
// goexit unwinds the goroutine. Not noexcept: a forced unwind passes through.
[[noreturn]] void goexit();
// setGOMAXPROCS returns the previous value; n <= 0 only reads.
int32_t setGOMAXPROCS(int32_t n) noexcept;
void setDefaultGOMAXPROCS() noexcept;
int32_t numCPU() noexcept;
int32_t numGoroutine() noexcept;
// currentGoid is 0 on a plain thread that has no pseudo-goroutine yet.
uint64_t currentGoid() noexcept;
// lockOSThreadExternal counts; false: the count would overflow.
[[nodiscard]] bool lockOSThreadExternal() noexcept;
void unlockOSThreadExternal() noexcept;
// setMaxThreads and setMaxStack return the previous limit.
int32_t setMaxThreads(int32_t n) noexcept;
size_t setMaxStack(size_t n) noexcept;
void entersyscall() noexcept;
void exitsyscall() noexcept;
// runtimeGC runs one reclamation cycle.
void runtimeGC() noexcept;
// gracePeriodsBegun tells how many grace periods have begun.
uint64_t gracePeriodsBegun() noexcept;
// awaitGracePeriod returns when a grace period with a number above `since` has
// ended: every goroutine that ran when it began has entered the runtime or
// ended, preempted or presumed blocked as it may have been. Only the finalizer
// goroutine calls it.
void awaitGracePeriod(uint64_t since) noexcept;

// SchedStats is what debug::ReadSchedStats returns, and documented there.
struct SchedStats {
  int32_t procs = 0;
  int32_t idle_procs = 0;
  int32_t threads = 0;
  int32_t idle_threads = 0;
  int32_t spinning_threads = 0;
  int32_t goroutines = 0;
  int32_t runnable = 0;
  int32_t preempted_in_place = 0;
  int32_t presumed_blocked = 0;
  uint64_t preemptions = 0;
  uint64_t presumptions = 0;
  uint64_t world_stops = 0;
  uint64_t world_stop_ns = 0;
  uint64_t reclaim_cycles = 0;
  uint64_t forced_reclaim_cycles = 0;
  uint64_t reclaim_worker_slabs = 0;
  uint64_t stack_bytes_reclaimed = 0;
  uint64_t threads_retired = 0;
  uint64_t stalls = 0;
  uint64_t stale_events = 0;
};
void readSchedStats(SchedStats* out) noexcept;

// reclaimRegister makes every cycle call hook, once however often it is
// registered; false: too many hooks.
[[nodiscard]] bool reclaimRegister(void (*hook)()) noexcept;
// queueFinalizer relocates *closure to the finalizer goroutine's queue; false:
// no memory.
[[nodiscard]] bool queueFinalizer(const FuncType* ft, void* closure) noexcept;
// stackDump writes a Go-style traceback of the current goroutine, or of all,
// into buf; returns the length it needs.
size_t stackDump(bool all, char* buf, size_t n) noexcept;
// fatalError is panic.h's fatal; fatalPanicTwice is its fatalpanic for a panic
// (second) during another.
[[noreturn]] void fatalError(const char* go_text) noexcept;
[[noreturn]] void fatalPanicTwice(const char* text, size_t n,
                                  const char* second) noexcept;

// procPin keeps the caller on its P (and so from being preempted) until
// procUnpin; returns the P's id. On a plain thread the id is -1: such a caller
// has no per-P slot. Between the two: no parking, no user code.
int32_t procPin() noexcept;
void procUnpin() noexcept;

// ---- Goroutine-local values (gls.cc) ----------------------------------------

// glsGet returns the current goroutine's (or plain thread's) value for key, or
// nullptr.
void* glsGet(const void* key) noexcept;
// glsSet stores value under key; destroy(value) runs when the goroutine ends,
// in reverse order of first use. A value that was there is not destroyed.
// False: no memory.
[[nodiscard]] bool glsSet(const void* key, void* value,
                          void (*destroy)(void*)) noexcept;

// ---- Channels (chan.cc, select.cc) ------------------------------------------

// ElemType says how to move and destroy a channel's elements. Null move: memcpy
// of size bytes. Null destroy: trivial.
struct ElemType {
  size_t size = 0;  // 0: chan<void>
  size_t align = 1;
  // Move-constructs dst; src stays, to be destroyed by its owner.
  void (*move)(void* dst, void* src) noexcept = nullptr;
  void (*destroy)(void* elem) noexcept = nullptr;
};

enum class ChanResult : uint8_t {
  kOk,          // sent, or received a value
  kWouldBlock,  // only when block is false
  // Send: the channel is closed, a panic. Receive: closed and drained, elem
  // untouched.
  kClosed,
};
enum class CloseResult : uint8_t { kOk, kNilChannel, kAlreadyClosed };

// makechan returns a channel with one reference; nullptr: size out of range or
// no memory.
[[nodiscard]] Hchan* makechan(const ElemType* t, size_t cap) noexcept;
// chanLeaveBubble makes c, which nobody else knows yet, a channel of no bubble.
void chanLeaveBubble(Hchan* c) noexcept;
void chanRetain(Hchan* c) noexcept;
// chanRelease: the last one destroys the queued values.
void chanRelease(Hchan* c) noexcept;
// chanShared tells whether the caller's handle is not the only one. The answer
// may be late: a handle just given up can still count.
[[nodiscard]] bool chanShared(const Hchan* c) noexcept;
// chansend moves *elem into the channel or straight into a receiver. On
// anything but kOk *elem is untouched.
[[nodiscard]] ChanResult chansend(Hchan* c, void* elem, bool block) noexcept;
// chanrecv move-constructs a value at elem, which is raw storage (nullptr: the
// value is thrown away).
[[nodiscard]] ChanResult chanrecv(Hchan* c, void* elem, bool block) noexcept;
[[nodiscard]] CloseResult closechan(Hchan* c) noexcept;
size_t chanlen(const Hchan* c) noexcept;
size_t chancap(const Hchan* c) noexcept;

enum class SelectDir : uint8_t { kSend, kRecv };
// Scase is one case of a select. c == nullptr is never ready.
struct Scase {
  Hchan* c = nullptr;
  // Send: the value. Receive: raw storage, or nullptr to throw the value away.
  void* elem = nullptr;
  SelectDir dir = SelectDir::kRecv;
};
struct SelectResult {
  int32_t index;      // the case that proceeded; -1: none, and block was false
  ChanResult result;  // of that case: kOk or kClosed
};
[[nodiscard]] SelectResult selectgo(const Scase* cases, size_t n,
                                    bool block) noexcept;
inline constexpr size_t kMaxSelectCases = 65536;

// ---- Timers (timechan.cc) ---------------------------------------------------
// Durations are in ns; at most 0 is now, INT64_MAX for ever.

void timeSleep(int64_t ns) noexcept;

// newTimerChan makes a channel of time with one reference, whose timer does not
// run; nullptr: no memory. Elements are trivially copyable, of at most 16
// bytes; encode makes one.
[[nodiscard]] Hchan* newTimerChan(const ElemType* t,
                                  void (*encode)(void* elem,
                                                 int64_t unixNanos)) noexcept;
// timerChanReset sets the timer to send the time in ns, and then every period,
// if that is above 0. timerChanStop stops it. True: it was running, and what it
// would have sent cannot be received any more.
bool timerChanReset(Hchan* c, int64_t ns, int64_t period) noexcept;
bool timerChanStop(Hchan* c) noexcept;

// newFuncTimer makes a timer that starts goroutines, whose closure is that
// pointer; it does not run. nullptr: no memory. funcTimerStart, once and before
// any other call, sets it to start one in ns. funcTimerReset does so at any
// time, funcTimerStop stops it; true: it was running, and will not start what
// it would have started. funcTimerFree frees one that has been stopped, or has
// fired, which the caller knows.
[[nodiscard]] FuncTimer* newFuncTimer(const FuncType* ft, void* closure,
                                      uintptr_t pc) noexcept;
void funcTimerStart(FuncTimer* t, int64_t ns) noexcept;
bool funcTimerReset(FuncTimer* t, int64_t ns) noexcept;
bool funcTimerStop(FuncTimer* t) noexcept;
void funcTimerFree(FuncTimer* t) noexcept;

// ---- Bubbles (synctest.cc) --------------------------------------------------

// nbubbles is how many there are: 0 tells that the caller is in none. Who is in
// one sees at least 1.
extern Atomic<uint32_t> nbubbles;
// currentBubble is the id of the caller's bubble; 0: none.
uint32_t currentBubble() noexcept;
// bubbleNanos is the clock of the caller's bubble, ns since the Unix epoch; he
// is in one.
int64_t bubbleNanos() noexcept;

enum class BubbleResult : uint8_t {
  kOk,
  kNested,      // Enter: the caller is in one already
  kNoMemory,    // Enter
  kOutside,     // Wait: the caller is in none
  kInProgress,  // Wait: somebody else waits
};
enum class BubbleEnd : uint8_t { kOk, kDeadlock, kLeftovers };

// bubbleEnter makes a bubble with the caller as its root; the first goroutine
// that he starts is its main. Then bubbleRun waits until all have ended, or
// cannot go on; or, if none was started, bubbleAbandon gives up. After either,
// the caller is in no bubble.
[[nodiscard]] BubbleResult bubbleEnter() noexcept;
[[nodiscard]] BubbleEnd bubbleRun() noexcept;
void bubbleAbandon() noexcept;
// bubbleWait waits until all others of the caller's bubble are durably blocked.
[[nodiscard]] BubbleResult bubbleWait() noexcept;

// ---- Semaphores and notification lists (sema.cc) ----------------------------

enum class SemaReason : uint8_t {
  kSemacquire,
  kMutexLock,
  kRWMutexRLock,
  kRWMutexLock,
  kWaitGroupWait,
  kWaitGroupWaitDurable,  // in a bubble, as those who call Done
};

// semacquire waits until *addr > 0 and decrements it. lifo: at the front of the
// address's queue. When main has ended, plain threads overtake goroutines.
void semacquire(Atomic<uint32_t>* addr, bool lifo, SemaReason reason) noexcept;
// semrelease increments *addr and wakes a waiter. handoff: that waiter gets the
// count. With yield as well, it also runs at once, in place of the caller, who
// parks; otherwise semrelease never parks.
void semrelease(Atomic<uint32_t>* addr, bool handoff,
                bool yield = true) noexcept;
// semreleaseN adds n to *addr at once, and wakes up to n waiters. Better than n
// times semrelease: nothing stops a goroutine in the middle for good.
void semreleaseN(Atomic<uint32_t>* addr, uint32_t n) noexcept;

// NotifyList is what sync::Cond waits on: tickets, so that who waits first is
// signalled first. Its lock lies in a table beside it, chosen by address, so
// that a waiter may destroy the list as soon as it is awake.
struct NotifyList {
  Atomic<uint32_t> wait;    // next ticket; incremented without the lock
  Atomic<uint32_t> notify;  // next to be notified; written under the lock
  // Waiters in order of arrival at the lock, hence nearly in order of ticket;
  // under the lock.
  Sudog* head = nullptr;
  Sudog* tail = nullptr;
};
uint32_t notifyListAdd(NotifyList* l) noexcept;
void notifyListWait(NotifyList* l, uint32_t ticket) noexcept;
void notifyListNotifyOne(NotifyList* l) noexcept;
void notifyListNotifyAll(NotifyList* l) noexcept;

// canSpin tells whether spinning on a sync::Mutex makes sense in round i;
// doSpin is one round.
[[nodiscard]] bool canSpin(int i) noexcept;
void doSpin() noexcept;
int64_t monotonicNanos() noexcept;

}  // namespace gump::rt

#endif  // GUMP_INTERNAL_LINKNAME_H_
