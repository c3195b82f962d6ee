// Notification lists: the ticket lists under sync::Cond.
//
// A waiter draws a ticket while it holds the user's lock, releases that lock,
// and only then enters the list. A notification in between must not be lost.
// All tickets below `notify` have been notified. So a waiter that was notified
// in between finds its ticket below notify, and does not sleep. Both sides look
// at notify under the list's lock.
//
// Invariants:
//  (N1) A Sudog is on at most one list. It lies on the stack of the waiter,
//       which has not left notifyListWait.
//  (N2) Only the thread that takes a Sudog off a list calls goready for its G.
//       After that the Sudog is gone.
//  (N3) A notifier does not touch a NotifyList after releasing its lock. So a
//       woken goroutine may destroy the list at once.
#include <cstdint>

#include "gump/internal/linkname.h"
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

// ticketLess orders tickets. They wrap around, so it is right for at most 2^31
// waiters at a time.
bool ticketLess(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(a - b) < 0;
}

}  // namespace

uint32_t notifyListAdd(NotifyList* l) noexcept {
  // The user's lock orders this addition before a notifier's loads. Without
  // that lock no order is promised.
  return l->wait.add(1, acq_rel) - 1;
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
  if (l->tail == nullptr) {
    l->head = &s;
  } else {
    l->tail->next = &s;
  }
  l->tail = &s;
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
  l->notify.store(l->wait.load(acquire), release);  // pairs with the load above
  unlock(lk);                                       // (N3)
  while (s != nullptr) {
    Sudog* next = s->next;
    goready(s->g);  // (N2)
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
  if (t == l->wait.load(acquire)) {
    unlock(lk);
    releasem(mp);
    return;
  }
  l->notify.store(t + 1, release);  // pairs with the load before the lock
  // The waiter with ticket t is in the list, or will find t < notify and not
  // enter it. The order of tickets and of the list differs only among waiters
  // that are between drawing and entering, so the search is short.
  Sudog* prev = nullptr;
  Sudog* s = l->head;
  while (s != nullptr && s->ticket != t) {
    prev = s;
    s = s->next;
  }
  if (s != nullptr) {
    (prev == nullptr ? l->head : prev->next) = s->next;
    if (l->tail == s) l->tail = prev;
  }
  unlock(lk);                       // (N3)
  if (s != nullptr) goready(s->g);  // (N2)
  releasem(mp);
}

}  // namespace gump::rt
