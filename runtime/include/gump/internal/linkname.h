// The window between the public headers and the runtime: all that a template in
// api/include/gump may call. Go's linker keeps such a list for sync, time and
// internal/poll. Internal: may change in any release.
//
// Every function here except goexit is noexcept, and reports misuse by its
// result. api/ turns results into panics, so that no exception starts while a
// runtime lock is held. All functions may be called from goroutines and from
// foreign threads, after an implicit start of the runtime. A foreign thread is
// lent a pseudo-goroutine and blocks on a futex.
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

// A closure of up to this size lives inside the G.
inline constexpr size_t kClosureSize = 64;
inline constexpr size_t kClosureAlign = 16;

// FuncType says how to handle a closure of one type. If the relocation of a
// closure could throw, or the closure does not fit, go() passes a pointer to
// it.
struct FuncType {
  // May throw. The process then ends with a panic report.
  void (*run)(void* closure);
  void (*destroy)(void* closure);
  // Move-constructs dst and destroys src.
  void (*relocate)(void* dst, void* src) noexcept;
};

enum class SpawnResult : uint8_t {
  kOk,
  // There is no cell for a G, or no stack while goroutines already wait for
  // stacks. The text is stackErrorText().
  kNoMemory,
};

struct SpawnOptions {
  size_t stack_size = 0;  // bytes; 0: default
  // Allocated by malloc. The goroutine owns it once newproc returns kOk.
  const char* name = nullptr;
  // For goroutines of the runtime. If stacks are short, newproc does not fail,
  // and the goroutine waits for one.
  bool stack_later = false;
};

// newproc starts a goroutine that relocates *closure into itself. pc is the
// address to report as "created by".
[[nodiscard]] SpawnResult newproc(const FuncType* ft, void* closure,
                                  const SpawnOptions* options,
                                  uintptr_t pc) noexcept;
const char* stackErrorText() noexcept;

// callerPC returns an address inside the function into which it is inlined.
// Goroutine dumps print it as "created by".
__attribute__((always_inline)) inline uintptr_t callerPC() noexcept {
  uintptr_t pc;
#if defined(__x86_64__)
  asm volatile("leaq 0(%%rip), %0" : "=r"(pc));
#else
  asm volatile("adr %0, ." : "=r"(pc));
#endif
  return pc;
}

// runMain is Run. The calling thread becomes m0 and runs ft on goroutine 1.
// runMain returns when that goroutine's function has returned. Returns false if
// another Run is active, or if the caller is a goroutine.
[[nodiscard]] bool runMain(const FuncType* ft, void* closure,
                           uintptr_t pc) noexcept;

void gosched() noexcept;
// goexit unwinds the goroutine. Not noexcept: a forced unwind passes through.
[[noreturn]] void goexit();
// setGOMAXPROCS returns the previous value. If n <= 0, it only reads.
int32_t setGOMAXPROCS(int32_t n) noexcept;
void setDefaultGOMAXPROCS() noexcept;
int32_t numCPU() noexcept;
int32_t numGoroutine() noexcept;
// currentGoid returns 0 on a foreign thread that has no pseudo-goroutine yet.
uint64_t currentGoid() noexcept;
// lockOSThreadExternal counts its calls. Returns false if the count would
// overflow.
[[nodiscard]] bool lockOSThreadExternal() noexcept;
void unlockOSThreadExternal() noexcept;
// setMaxThreads and setMaxStack return the previous limit.
int32_t setMaxThreads(int32_t n) noexcept;
size_t setMaxStack(size_t n) noexcept;
void entersyscall() noexcept;
void exitsyscall() noexcept;
// runtimeGC runs one reclamation cycle.
void runtimeGC() noexcept;
// gracePeriodsBegun returns how many grace periods have begun.
uint64_t gracePeriodsBegun() noexcept;
// awaitGracePeriod returns when a grace period with a number above `since` has
// ended. By then, each goroutine that was running when the period began has
// entered the runtime or ended, even if it was preempted or presumed blocked
// meanwhile. Only the finalizer goroutine calls it.
void awaitGracePeriod(uint64_t since) noexcept;

// SchedStats is the result of debug::ReadSchedStats, and documented there.
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

// reclaimRegister makes every reclamation cycle call hook, once even if it is
// registered several times. Returns false if there are too many hooks.
[[nodiscard]] bool reclaimRegister(void (*hook)()) noexcept;
// queueFinalizer relocates *closure to the queue of the finalizer goroutine.
// Returns false if there is no memory.
[[nodiscard]] bool queueFinalizer(const FuncType* ft, void* closure) noexcept;
// stackDump writes a Go-style traceback of the current goroutine, or of all,
// into buf. Returns the length that the whole text needs.
size_t stackDump(bool all, char* buf, size_t n) noexcept;
// fatalError is fatal of panic.h. fatalPanicTwice is its fatalpanic for a panic
// (second) during another.
[[noreturn]] void fatalError(const char* go_text) noexcept;
[[noreturn]] void fatalPanicTwice(const char* text, size_t n,
                                  const char* second) noexcept;

// procPin keeps the caller on its P, and so from being preempted, until
// procUnpin. Returns the P's id, or -1 on a foreign thread, which has no per-P
// slot. Between the two calls the caller must not park or run user code.
int32_t procPin() noexcept;
void procUnpin() noexcept;

// ---- Goroutine-local values (gls.cc) ----------------------------------------

// glsGet returns the value that the current goroutine or foreign thread has for
// key, or nullptr.
void* glsGet(const void* key) noexcept;
// glsSet stores value under key. destroy(value) runs when the goroutine ends,
// in reverse order of first use. An earlier value is not destroyed. Returns
// false if there is no memory.
[[nodiscard]] bool glsSet(const void* key, void* value,
                          void (*destroy)(void*)) noexcept;

// ---- Channels (chan.cc, select.cc) ------------------------------------------

// ElemType says how to move and destroy a channel's elements. A null move means
// memcpy of size bytes. A null destroy means that there is nothing to do.
struct ElemType {
  size_t size = 0;  // 0: chan<void>
  size_t align = 1;
  // Move-constructs dst. src stays, to be destroyed by its owner.
  void (*move)(void* dst, void* src) noexcept = nullptr;
  void (*destroy)(void* elem) noexcept = nullptr;
};

enum class ChanResult : uint8_t {
  kOk,          // sent, or received a value
  kWouldBlock,  // only when block is false
  // Send: the channel is closed, which is a panic. Receive: the channel is
  // closed and drained, and *elem is untouched.
  kClosed,
};
enum class CloseResult : uint8_t { kOk, kNilChannel, kAlreadyClosed };

// makechan returns a channel with one reference. Returns nullptr if the size is
// out of range or there is no memory.
[[nodiscard]] Hchan* makechan(const ElemType* t, size_t cap) noexcept;
// chanLeaveBubble makes c, which no other thread knows yet, a channel of no
// bubble.
void chanLeaveBubble(Hchan* c) noexcept;
void chanRetain(Hchan* c) noexcept;
// chanRelease gives up a reference. The last call destroys the queued values.
void chanRelease(Hchan* c) noexcept;
// chanShared returns true if the caller's handle is not the only one. The
// answer may be late: a handle that was just given up can still count.
[[nodiscard]] bool chanShared(const Hchan* c) noexcept;
// chansend moves *elem into the channel or straight into a receiver. If the
// result is not kOk, *elem is untouched.
[[nodiscard]] ChanResult chansend(Hchan* c, void* elem, bool block) noexcept;
// chanrecv move-constructs a value at elem, which is raw storage. If elem is
// nullptr, it throws the value away.
[[nodiscard]] ChanResult chanrecv(Hchan* c, void* elem, bool block) noexcept;
[[nodiscard]] CloseResult closechan(Hchan* c) noexcept;
size_t chanlen(const Hchan* c) noexcept;
size_t chancap(const Hchan* c) noexcept;

enum class SelectDir : uint8_t { kSend, kRecv };
// Scase is one case of a select. A case with c == nullptr is never ready.
struct Scase {
  Hchan* c = nullptr;
  // Send: the value. Receive: raw storage, or nullptr to throw the value away.
  void* elem = nullptr;
  SelectDir dir = SelectDir::kRecv;
};
struct SelectResult {
  int32_t index;      // the case that proceeded; -1 if none and !block
  ChanResult result;  // of that case: kOk or kClosed
};
[[nodiscard]] SelectResult selectgo(const Scase* cases, size_t n,
                                    bool block) noexcept;
inline constexpr size_t kMaxSelectCases = 65536;

// ---- Timers (timechan.cc) ---------------------------------------------------
// Durations are in ns. 0 or less means now, and INT64_MAX means for ever.

void timeSleep(int64_t ns) noexcept;

// newTimerChan makes a channel of time with one reference. Its timer does not
// run yet. Returns nullptr if there is no memory. Elements are trivially
// copyable, and of at most 16 bytes. encode makes one.
[[nodiscard]] Hchan* newTimerChan(const ElemType* t,
                                  void (*encode)(void* elem,
                                                 int64_t unixNanos)) noexcept;
// timerChanReset sets the timer to send the time after ns, and then every
// period, if period is above 0. timerChanStop stops it. Both return true if the
// timer was running; the value that it would have sent cannot be received any
// more.
bool timerChanReset(Hchan* c, int64_t ns, int64_t period) noexcept;
bool timerChanStop(Hchan* c) noexcept;

// newFuncTimer makes a timer that does not run yet and starts goroutines. Their
// closure is the pointer `closure`. Returns nullptr if there is no memory.
// funcTimerStart sets the timer to start a goroutine after ns. It is called
// once, and before any other of these. funcTimerReset does the same at any
// time. funcTimerStop stops the timer. Both return true if the timer was
// running; it will not start the goroutine that it would have started.
// funcTimerFree frees a timer that has been stopped or has fired, as its caller
// knows.
[[nodiscard]] FuncTimer* newFuncTimer(const FuncType* ft, void* closure,
                                      uintptr_t pc) noexcept;
void funcTimerStart(FuncTimer* t, int64_t ns) noexcept;
bool funcTimerReset(FuncTimer* t, int64_t ns) noexcept;
bool funcTimerStop(FuncTimer* t) noexcept;
void funcTimerFree(FuncTimer* t) noexcept;

// ---- Bubbles (synctest.cc) --------------------------------------------------

// nbubbles is the number of bubbles. 0 shows that the caller is in none. A
// caller in a bubble reads at least 1.
extern Atomic<uint32_t> nbubbles;
// currentBubble returns the id of the caller's bubble, or 0 if it is in none.
uint32_t currentBubble() noexcept;
// bubbleNanos returns the clock of the caller's bubble, in ns since the Unix
// epoch. The caller is in a bubble.
int64_t bubbleNanos() noexcept;

enum class BubbleResult : uint8_t {
  kOk,
  kNested,      // Enter: the caller is in one already
  kNoMemory,    // Enter
  kOutside,     // Wait: the caller is in none
  kInProgress,  // Wait: another goroutine waits
};
enum class BubbleEnd : uint8_t { kOk, kDeadlock, kLeftovers };

// bubbleEnter makes a bubble with the caller as its root. The first goroutine
// that the caller starts is the bubble's main. bubbleRun then waits until all
// goroutines of the bubble have ended, or cannot go on. If none was started,
// bubbleAbandon gives up instead. After either, the caller is in no bubble.
[[nodiscard]] BubbleResult bubbleEnter() noexcept;
[[nodiscard]] BubbleEnd bubbleRun() noexcept;
void bubbleAbandon() noexcept;
// bubbleWait waits until all other goroutines of the caller's bubble are
// durably blocked.
[[nodiscard]] BubbleResult bubbleWait() noexcept;

// ---- Semaphores and notification lists (sema.cc) ----------------------------

enum class SemaReason : uint8_t {
  kSemacquire,
  kMutexLock,
  kRWMutexRLock,
  kRWMutexLock,
  kWaitGroupWait,
  kWaitGroupWaitDurable,  // in a bubble, as are the callers of Done
};

// semacquire waits until *addr > 0 and decrements it. With lifo, the caller
// queues at the front of the address's queue. When main has ended, foreign
// threads overtake goroutines.
void semacquire(Atomic<uint32_t>* addr, bool lifo, SemaReason reason) noexcept;
// semrelease increments *addr and wakes a waiter. With handoff, that waiter
// gets the count. With yield as well, the waiter also runs at once, in place of
// the caller, which parks. In all other cases semrelease never parks.
void semrelease(Atomic<uint32_t>* addr, bool handoff,
                bool yield = true) noexcept;
// semreleaseN adds n to *addr at once, and wakes up to n waiters. It is better
// than n calls of semrelease, because the caller cannot be stopped for good
// after some of them.
void semreleaseN(Atomic<uint32_t>* addr, uint32_t n) noexcept;

// NotifyList is the list on which sync::Cond waits. It uses tickets, so that
// the first waiter is signalled first. Its lock lies in a table outside it,
// chosen by address, so that a waiter may destroy the list as soon as it is
// awake.
struct NotifyList {
  Atomic<uint32_t> wait;    // next ticket; incremented without the lock
  Atomic<uint32_t> notify;  // next to be notified; written under the lock
  // Waiters in order of arrival at the lock, which is nearly the order of
  // tickets. Accessed under the lock.
  Sudog* head = nullptr;
  Sudog* tail = nullptr;
};
uint32_t notifyListAdd(NotifyList* l) noexcept;
void notifyListWait(NotifyList* l, uint32_t ticket) noexcept;
void notifyListNotifyOne(NotifyList* l) noexcept;
void notifyListNotifyAll(NotifyList* l) noexcept;

// canSpin returns true if spinning on a sync::Mutex makes sense in round i.
// doSpin is one round.
[[nodiscard]] bool canSpin(int i) noexcept;
void doSpin() noexcept;
int64_t monotonicNanos() noexcept;

}  // namespace gump::rt

#endif  // GUMP_INTERNAL_LINKNAME_H_
