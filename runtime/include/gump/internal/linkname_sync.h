// The window for gump/sync.h: semaphores, notification lists, spinning and
// pinning. linkname.h gives the rules.
#ifndef GUMP_INTERNAL_LINKNAME_SYNC_H_
#define GUMP_INTERNAL_LINKNAME_SYNC_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/atomic.h"

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
};

// semacquire waits until *addr > 0 and decrements it. If `lifo` is true, the
// caller queues in front of the other waiters of that address. When main has
// ended, foreign threads overtake goroutines.
void semacquire(Atomic<uint32_t>* addr, bool lifo, SemaReason reason) noexcept;
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

// NotifyList is the list on which sync::Cond waits. It uses tickets, so that
// the first waiter is signalled first. Its lock is one of a table of locks,
// which the address of the list selects. So a waiter may destroy the list as
// soon as it is awake.
struct NotifyList {
  Atomic<uint32_t> wait;    // next ticket; incremented without the lock
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

#endif  // GUMP_INTERNAL_LINKNAME_SYNC_H_
