// Notification lists: the ticket lists under sync::Cond.
//
// A waiter draws a ticket while it holds the user's lock, releases that lock,
// and only then enters the list. A notification in between must not be lost.
// All tickets below `notify` have been notified. So a waiter that was notified
// in between finds its ticket below notify, and does not sleep. Both sides look
// at notify under the list's lock.
//
// A waiter with a time limit draws no ticket, because one that left would leave
// a gap that uses up a notification. It enters the list while it still holds
// the user's lock, and waits on a semaphore of its own (NotifyWaiter). A
// notification in between raises that semaphore. Its place among the tickets is
// Sudog::ticket, the next ticket when it entered: it comes before that one. If
// its time passes, it leaves the list under the list's lock. So either it is
// not in the list any more, or a notifier has taken it out and is about to
// raise its semaphore, and it waits for that. No notification is lost on it.
//
// Bit 0 of `wait` tells notifiers, which first look without the lock, of such a
// waiter. It is set before the waiter releases the user's lock, and cleared
// when the list is empty.
//
// Invariants:
//  (N1) A Sudog is on at most one list. It lies on the stack of the waiter,
//       which has not left notifyListWait.
//  (N2) Only the thread that takes a Sudog off a list wakes its waiter. After
//       that the Sudog is gone.
//  (N3) A notifier does not touch a NotifyList after releasing its lock. So a
//       woken goroutine may destroy the list at once.
#include <cstdint>
#include <new>

#include "gump/internal/linkname.h"
#include "runtime/diag/mprof.h"
#include "runtime/sched/hibernate.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/waitreason.h"

namespace gump::rt {

namespace {

struct alignas(kFalseSharing) NotifyLock {
  // Guards head, tail and the writing of notify in every NotifyList whose
  // address hashes to this lock. Forbidden while holding it: malloc, readying a
  // goroutine.
  Mutex lock{LockRank::kNotifyList};
};
constexpr uintptr_t kNotifyTabSize = 61;  // prime
constinit NotifyLock notifytable[kNotifyTabSize];

Mutex* notifyLock(const NotifyList* l) {
  return &notifytable[(reinterpret_cast<uintptr_t>(l) >> 3) % kNotifyTabSize]
              .lock;
}

constexpr uint32_t kTimed = 1;  // of NotifyList::wait
constexpr uint32_t kTicket = 2;

// ticketLess orders tickets. They wrap around, so it is right for at most 2^30
// waiters at a time.
bool ticketLess(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(a - b) < 0;
}

// append adds s to the list. take removes it.
// Both:
// On: any.  P: either.  Locks: caller holds the list's.  Parks: no.
void append(NotifyList* l, Sudog* s) {
  s->prev = l->tail;
  if (l->tail != nullptr) nearStack(l->tail);
  (l->tail == nullptr ? l->head : l->tail->next) = s;
  l->tail = s;
}
void take(NotifyList* l, Sudog* s) {
  for (const Sudog* x : {s->prev, s->next}) {
    if (x != nullptr) nearStack(x);
  }
  (s->prev == nullptr ? l->head : s->prev->next) = s->next;
  (s->next == nullptr ? l->tail : s->next->prev) = s->prev;
  // Relaxed: the notifier's look without the lock is ordered by the user's
  // lock, as in notifyListAdd.
  if (l->head == nullptr && (l->wait.load(relaxed) & kTimed) != 0) {
    l->wait.and_(~kTimed, relaxed);
  }
}

// wake wakes the waiter of s, which the caller has taken off a list (N2).
// On: any, m.locks > 0.  P: either.  Locks: as goready and semrelease.
// Parks: no.
void wake(Sudog* s) {
  if (s->elem == nullptr) {
    goready(s->g);
  } else {
    semrelease(static_cast<Atomic<uint32_t>*>(s->elem), /*handoff=*/false);
  }
}

// parkProfiled is the wait of notifyListWait while the block profile is on.
// On, P, Locks, Parks: as goparkunlock.
GUMP_COLD void parkProfiled(Mutex* lk) {
  const int64_t since = nanotime();
  goparkunlock(lk, WaitReason::kSyncCondWait);
  blockEvent(since);
}

Sudog* sudogOf(NotifyWaiter* w) {
  static_assert(sizeof(Sudog) <= sizeof(w->sudog));
  static_assert(alignof(Sudog) <= alignof(NotifyWaiter));
  return reinterpret_cast<Sudog*>(w->sudog);
}

}  // namespace

uint32_t notifyListAdd(NotifyList* l) noexcept {
  // The user's lock orders this addition before a notifier's loads. Without
  // that lock no order is promised.
  return (l->wait.add(kTicket, acq_rel) - kTicket) & ~kTimed;
}

// Not analysed: goparkunlock releases the lock, as in semacquirePinned.
void notifyListWait(NotifyList* l,
                    uint32_t ticket) noexcept ABSL_NO_THREAD_SAFETY_ANALYSIS {
  Sudog s;
  s.g = runtimeEntry();
  Mutex* lk = notifyLock(l);
  M* mp = acquirem();  // gopark ends it
  lock(lk);
  if (ticketLess(ticket, l->notify.load(relaxed))) {  // written under lk
    unlock(lk);
    releasem(mp);
    return;
  }
  s.ticket = ticket;
  append(l, &s);
  if (blockProfiled()) return parkProfiled(lk);
  goparkunlock(lk, WaitReason::kSyncCondWait);
}

void notifyListNotifyAll(NotifyList* l) noexcept {
  // Acquire: pairs with notifyListAdd. If the two are equal, every ticket has
  // been notified. A ticket counts here if it was drawn before this call in
  // happens-before order. No other ticket need be notified.
  if (l->wait.load(acquire) == l->notify.load(acquire)) return;

  runtimeEntry();
  Mutex* lk = notifyLock(l);
  M* mp = acquirem();
  lock(lk);
  Sudog* s = l->head;
  l->head = nullptr;
  l->tail = nullptr;
  uint32_t end = l->wait.load(acquire);
  if ((end & kTimed) != 0) {
    end = l->wait.and_(~kTimed, acquire) & ~kTimed;
    for (Sudog* t = s; t != nullptr; t = t->next) t->success = true;
  }
  l->notify.store(end, release);  // pairs with the load above
  unlock(lk);                     // (N3)
  while (s != nullptr) {
    nearStack(s);
    Sudog* next = s->next;
    wake(s);
    s = next;
  }
  releasem(mp);
}

void notifyListNotifyOne(NotifyList* l) noexcept {
  if (l->wait.load(acquire) == l->notify.load(acquire)) return;  // as above

  runtimeEntry();
  Mutex* lk = notifyLock(l);
  M* mp = acquirem();
  lock(lk);
  const uint32_t t = l->notify.load(relaxed);  // written under lk
  const uint32_t end = l->wait.load(acquire) & ~kTimed;
  // The waiter with ticket t is in the list, or will find t < notify and not
  // enter it. A waiter with a time limit that came before ticket t was drawn
  // stands before the waiter with ticket t, because it entered the list before
  // that. The order of tickets and of the list differs only among waiters that
  // are between drawing and entering, so the search is short.
  Sudog* s = l->head;
  for (; s != nullptr; s = s->next) {
    nearStack(s);
    if (s->elem == nullptr ? s->ticket == t : !ticketLess(t, s->ticket)) break;
  }
  if (t != end && (s == nullptr || s->elem == nullptr)) {
    l->notify.store(t + kTicket,
                    release);  // pairs with the load before the lock
  }
  if (s != nullptr) {
    take(l, s);
    s->success = true;
  }
  unlock(lk);  // (N3)
  if (s != nullptr) wake(s);
  releasem(mp);
}

void notifyListEnter(NotifyList* l, NotifyWaiter* w) noexcept {
  runtimeEntry();
  auto* s = new (w->sudog) Sudog;
  s->elem = &w->woken;
  LockScope hold(notifyLock(l));
  s->ticket = l->wait.or_(kTimed, acquire) & ~kTimed;
  append(l, s);
}

bool notifyListLeave(NotifyList* l, NotifyWaiter* w) noexcept {
  runtimeEntry();
  Sudog* s = sudogOf(w);
  LockScope hold(notifyLock(l));
  if (s->success) return false;
  take(l, s);
  return true;
}

}  // namespace gump::rt
