// The window for gump/sync.h: semaphores, notification lists, spinning and
// pinning. linkname.h gives the rules.
#ifndef GUMP_INTERNAL_LINKNAME_SYNC_H_
#define GUMP_INTERNAL_LINKNAME_SYNC_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/atomic.h"

#pragma GCC visibility push(default)

namespace gump::rt {

struct Sudog;

// SemaReason is the reason that dumps show for a wait.
enum class SemaReason : uint8_t {
  kSemacquire,
  kMutexLock,
  kRWMutexRLock,
  kRWMutexLock,
  kWaitGroupWait,
  kWaitGroupWaitDurable,  // both Wait and the calls of Done are in one bubble
  kCondWait,              // durable, as Go's Cond
  kEventWait,             // durable
  kScopeWait,             // durable in a bubble: the goroutines are in it too
  kScopeJoin,
  kScopeJoinDurable,  // the goroutine that is waited for is in the same bubble
};

// semacquire waits until *addr > 0 and decrements it. If `lifo` is true, the
// caller queues in front of the other waiters of that address. When main has
// ended, foreign threads overtake goroutines.
void semacquire(Atomic<uint32_t>* addr, bool lifo, SemaReason reason) noexcept;
// semacquireUntil is semacquire until the time `when`. Returns false if that
// time has come and *addr is 0. Then a semrelease that the caller has been
// promised may still be about to come. semaDeadline returns the time that is ns
// from now, on the clock that semacquireUntil uses: that of the caller's bubble
// if the reason is durable there, otherwise the monotonic clock.
[[nodiscard]] bool semacquireUntil(Atomic<uint32_t>* addr, bool lifo,
                                   SemaReason reason, int64_t when) noexcept;
[[nodiscard]] int64_t semaDeadline(SemaReason reason, int64_t ns) noexcept;
// semrelease increments *addr and wakes a waiter. If `handoff` is true, that
// waiter gets the count. If `yield` is true as well, the waiter also runs at
// once, in place of the caller, which parks. In all other cases semrelease
// never parks.
void semrelease(Atomic<uint32_t>* addr, bool handoff,
                bool yield = true) noexcept;
// semreleaseN adds n to *addr in one step, and wakes up to n waiters. With n
// calls of semrelease, the caller could be stopped for good after some of them,
// because main has ended. With semreleaseN it cannot.
void semreleaseN(Atomic<uint32_t>* addr, uint32_t n) noexcept;

// WaitList is the list of the goroutines and threads that wait until an object
// lets all of them go. runtime/wait/waitlist.cc has the protocol.
struct WaitList {
  Atomic<uintptr_t> word;
};
// waitListWait parks until a waitListRelease lets the caller go. The caller has
// counted itself in the object before. waitListRelease lets n waiters go: all
// that are counted, of which some may still be on their way into the list. It
// never parks. The object may be gone when it returns.
void waitListWait(WaitList* l, SemaReason reason) noexcept;
void waitListRelease(WaitList* l, uint32_t n) noexcept;

// NotifyList is the list on which sync::Cond waits. It uses tickets, so that
// the first waiter is signalled first. Its lock is one of a table of locks,
// which the address of the list selects. So a waiter may destroy the list as
// soon as it is awake.
struct NotifyList {
  // The next ticket, which is even. A waiter adds 2 without the lock. Bit 0 is
  // changed under the lock: waiters with a time limit may be in the list.
  Atomic<uint32_t> wait;
  Atomic<uint32_t> notify;  // next to be notified; written under the lock
  // Waiters in order of arrival at the lock, which is nearly the order of
  // tickets. Accessed under the lock.
  Sudog* head = nullptr;
  Sudog* tail = nullptr;
};
// notifyListAdd returns a new ticket. notifyListWait waits until that ticket is
// notified. notifyListNotifyOne notifies the lowest ticket that waits, and
// notifyListNotifyAll notifies all.
uint32_t notifyListAdd(NotifyList* l) noexcept;
void notifyListWait(NotifyList* l, uint32_t ticket) noexcept;
void notifyListNotifyOne(NotifyList* l) noexcept;
void notifyListNotifyAll(NotifyList* l) noexcept;

// NotifyWaiter is a waiter with a time limit. It lies on the stack of the
// goroutine or thread that waits.
struct NotifyWaiter {
  alignas(void*) unsigned char sudog[88];
  Atomic<uint32_t> woken;  // a semaphore: 1 when the waiter has been notified
};
// notifyListEnter puts w into the list. It takes the place of notifyListAdd.
// The waiter then waits for w->woken, as long as it likes. notifyListLeave
// takes w out of the list. It returns false if w was notified before, and
// w->woken then is or becomes 1. w may go when notifyListLeave has returned
// true, or when the waiter has taken w->woken.
void notifyListEnter(NotifyList* l, NotifyWaiter* w) noexcept;
[[nodiscard]] bool notifyListLeave(NotifyList* l, NotifyWaiter* w) noexcept;

// Event is the state of a sync::Event. Its lock is one of a table of locks,
// which its address selects. So a waiter may destroy the Event as soon as it is
// awake. runtime/wait/event.cc has the protocol.
struct EventNode;
struct Event {
  Event(bool autoReset, bool set) noexcept
      : state((autoReset ? kAuto : 0u) | (set ? kSet : 0u)) {}
  // Bits of state. kWaiters: the list is not empty, so all but a look needs the
  // lock. kAuto is constant.
  static constexpr uint32_t kSet = 1;
  static constexpr uint32_t kWaiters = 2;
  static constexpr uint32_t kAuto = 4;
  Atomic<uint32_t> state;
  EventNode* head = nullptr;  // in order of arrival; accessed under the lock
  EventNode* tail = nullptr;
};
// EventWaiter is a goroutine or thread that waits for the first of some Events.
struct EventWaiter {
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kTimedOut = UINT32_MAX - 1;
  Atomic<uint32_t> fired{
      kNone};              // the index of that Event, or one of the above
  Atomic<uint32_t> woken;  // a semaphore: 1 when a setter has set `fired`
};
// EventNode is a place in the list of an Event. The waiter sets `event`.
struct EventNode {
  Event* event = nullptr;
  EventWaiter* waiter = nullptr;
  EventNode* prev = nullptr;
  EventNode* next = nullptr;
  uint32_t index = 0;
  bool queued = false;  // all under the Event's lock
};
// eventSet sets e, which wakes a waiter or all. eventReset makes e unset.
// eventTryWait returns whether e is set, and resets it if it is kAuto. None of
// them parks.
void eventSet(Event* e) noexcept;
void eventReset(Event* e) noexcept;
[[nodiscard]] bool eventTryWait(Event* e) noexcept;
// eventWait waits until one of the n Events is set, and takes it. Returns its
// index, or EventWaiter::kTimedOut after ns.
uint32_t eventWait(EventNode* nodes, uint32_t n, int64_t ns) noexcept;

// canSpin returns true if a goroutine that waits for a sync::Mutex, and has
// spun for i rounds, should spin for one more before it parks. doSpin is one
// round.
[[nodiscard]] bool canSpin(int i) noexcept;
void doSpin() noexcept;

// procPin keeps the caller on its P, and so from being preempted, until
// procUnpin. Returns the P's id, or -1 on a foreign thread, which has no per-P
// slot. Between the two calls the caller must not park or run user code.
int32_t procPin() noexcept;
void procUnpin() noexcept;

}  // namespace gump::rt

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_LINKNAME_SYNC_H_
