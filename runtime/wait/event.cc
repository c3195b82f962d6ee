// Events: the flags under sync::Event, for which goroutines and threads wait.
//
// A waiter may wait for several Events at a time. It has one EventWaiter, and
// an EventNode for each Event, all on its stack. The thread that changes
// `fired` from kNone decides for which Event the waiter goes on: a setter that
// has found its node, the waiter itself, which has found an Event set, or its
// time-out.
//
// Invariants:
//  (E1) kWaiters is set while the list of the Event is not empty. Then the
//       Event is not set. Exception: enlist sets both for as long as it holds
//       the lock.
//  (E2) While kWaiters is set, `state` changes only under the lock. Otherwise a
//       CAS may change it, too.
//  (E3) A setter that has changed `fired` raises `woken` once. The waiter does
//       not return before that. So its nodes are alive until then.
//  (E4) A setter does not touch an Event after it has released the lock. So a
//       woken goroutine may destroy the Event at once.
//
// No wake-up is lost. A waiter changes `state` from unset to kWaiters by a CAS
// under the lock, and a setter without the lock changes it from unset to kSet
// by a CAS. Only one of the two succeeds. If it is the waiter, the setter takes
// the lock and finds its node.
//
// No setting of a kAuto Event is lost. A setter gives it to the first waiter
// whose `fired` it changes. If there is none, it leaves the Event set. A waiter
// that finds an Event set takes it only if it can change its own `fired`.
// Otherwise another setter has fired it, and the Event stays set. Until that is
// clear, kWaiters keeps the others out (enlist).
//
// A setter changes the state even of an Event that is set: by that the next
// waiter sees what the setter did before. With a mere look, the waiter that
// takes the Event at the same time could miss it.
#include <cstdint>

#include "gump/internal/linkname.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/lock_futex.h"

namespace gump::rt {

namespace {

struct alignas(kFalseSharing) EventLock {
  // Guards the list of every Event whose address hashes to this lock. Forbidden
  // while holding it: malloc, readying a goroutine.
  Mutex lock{LockRank::kLeaf};
};
constexpr uintptr_t kEventTabSize = 61;  // prime
constinit EventLock eventtable[kEventTabSize];

// eventLock returns the lock for e. In a child of fork it ends the process,
// because the holder of the lock may be a thread that does not exist there.
Mutex* eventLock(const Event* e) {
  dieIfForked();
  return &eventtable[(reinterpret_cast<uintptr_t>(e) >> 3) % kEventTabSize]
              .lock;
}

bool stateHas(uint32_t state, uint32_t bit) { return (state & bit) != 0; }

// linkNode appends n to the list of e. unlinkNode takes it out.
// Both:
// On: any.  P: either.  Locks: caller holds e's.  Parks: no.
void linkNode(Event* e, EventNode* n) {
  n->queued = true;
  n->next = nullptr;
  n->prev = e->tail;
  (e->tail == nullptr ? e->head : e->tail->next) = n;
  e->tail = n;
}
void unlinkNode(Event* e, EventNode* n) {
  n->queued = false;
  (n->prev == nullptr ? e->head : n->prev->next) = n->next;
  (n->next == nullptr ? e->tail : n->next->prev) = n->prev;
}

// fireWaiter makes w go on for the Event `index`. Returns false if w goes on
// already. Release: pairs with the acquire of the waiter, if that finds its
// time over.
bool fireWaiter(EventWaiter* w, uint32_t index) {
  return w->fired.cas(EventWaiter::kNone, index, acq_rel);
}

// takeWaiters takes waiters off the list of e that are to go on: one if e is
// kAuto, all otherwise. Returns them, linked by next.
// On: any.  P: either.  Locks: caller holds e's.  Parks: no.
EventNode* takeWaiters(Event* e, bool one) {
  EventNode* first = nullptr;
  EventNode** last = &first;
  while (EventNode* n = e->head) {
    unlinkNode(e, n);
    // If it goes on for another Event, n may be gone after the lock.
    if (!fireWaiter(n->waiter, n->index)) continue;
    n->next = nullptr;
    *last = n;
    last = &n->next;
    if (one) break;
  }
  return first;
}

// setSlow is eventSet of an Event that has waiters.
// On: any.  P: either.  Locks: takes e's; as semrelease.  Parks: may yield
// before it does anything.
void setSlow(Event* e) {
  runtimeEntry();
  M* mp = acquirem();  // keep going until all are woken, even if main ends
  Mutex* lk = eventLock(e);
  lock(lk);
  EventNode* n = nullptr;
  uint32_t s = e->state.load(relaxed);  // as in eventSet
  bool done = false;
  while (!stateHas(s, Event::kWaiters) && !done) {
    done = e->state.casWeak(s, s | Event::kSet, release);
  }
  if (!done) {
    n = takeWaiters(e, /*one=*/stateHas(s, Event::kAuto));
    if (e->head == nullptr) {  // otherwise the state stays what it is
      const bool spent = n != nullptr && stateHas(s, Event::kAuto);
      // Release: as in eventSet.
      e->state.store((s & Event::kAuto) | (spent ? 0 : Event::kSet), release);
    }
  }
  unlock(lk);  // (E4)
  while (n != nullptr) {
    EventNode* next = n->next;
    semrelease(&n->waiter->woken, /*handoff=*/false);  // (E3)
    n = next;
  }
  releasem(mp);
}

enum class Enlisted : uint8_t {
  kQueued,
  kTook,   // the Event was set, and the waiter goes on for it
  kFired,  // a setter of another Event has fired the waiter
};

// enlist puts n into the list of its Event, unless that is set.
// On: any.  P: either.  Locks: takes the Event's.  Parks: no.
Enlisted enlist(EventNode* n) {
  Event* e = n->event;
  LockScope hold(eventLock(e));
  uint32_t s = e->state.load(relaxed);  // a guess, unless kWaiters is set (E2)
  // Acquire: pairs with the release in eventSet.
  while (!stateHas(s, Event::kWaiters) &&
         !e->state.casWeak(s, s | Event::kWaiters, acquire)) {
  }
  if (!stateHas(s, Event::kSet)) {
    linkNode(e, n);
    return Enlisted::kQueued;
  }
  const bool took = fireWaiter(n->waiter, n->index);
  if (took && stateHas(s, Event::kAuto)) s &= ~Event::kSet;
  e->state.store(s, release);  // s is without kWaiters; keeps the setter's edge
  return took ? Enlisted::kTook : Enlisted::kFired;
}

// withdrawNode takes n out of the list of its Event, if it is there.
// On: any.  P: either.  Locks: takes the Event's.  Parks: no.
void withdrawNode(EventNode* n) {
  Event* e = n->event;
  LockScope hold(eventLock(e));
  if (!n->queued) return;
  unlinkNode(e, n);
  if (e->head == nullptr) {
    e->state.and_(~Event::kWaiters, relaxed);  // publishes nothing
  }
}

// enlistAll enlists the waiter for one Event after the other. Returns the
// number of nodes that have been queued, and the last answer of enlist.
uint32_t enlistAll(EventNode* nodes, uint32_t n, EventWaiter* w,
                   Enlisted* last) {
  for (uint32_t i = 0; i < n; i++) {
    nodes[i].waiter = w;
    nodes[i].index = i;
    *last = enlist(&nodes[i]);
    if (*last != Enlisted::kQueued) return i;
  }
  return n;
}

}  // namespace

void eventSet(Event* e) noexcept {
  uint32_t s = e->state.load(relaxed);  // a guess; the CAS decides
  while (!stateHas(s, Event::kWaiters)) {
    // Release: pairs with the acquire in eventTryWait and enlist.
    if (e->state.casWeak(s, s | Event::kSet, release)) return;
  }
  setSlow(e);
}

void eventReset(Event* e) noexcept {
  uint32_t s = e->state.load(relaxed);  // a guess; the CAS decides
  for (;;) {
    if (!stateHas(s, Event::kSet)) return;
    if (stateHas(s, Event::kWaiters)) {  // enlist is about to decide
      LockScope hold(eventLock(e));
      s = e->state.load(relaxed);
      continue;
    }
    // Relaxed: a reset publishes nothing.
    if (e->state.casWeak(s, s & ~Event::kSet, relaxed)) return;
  }
}

bool eventTryWait(Event* e) noexcept {
  uint32_t s = e->state.load(acquire);  // pairs with the release in eventSet
  for (;;) {
    if (!stateHas(s, Event::kSet)) return false;
    if (!stateHas(s, Event::kAuto)) return true;
    if (stateHas(s, Event::kWaiters)) {  // enlist is about to decide
      LockScope hold(eventLock(e));
      s = e->state.load(relaxed);
      continue;
    }
    // Acquire: as above.
    if (e->state.casWeak(s, s & ~Event::kSet, acquire)) return true;
  }
}

uint32_t eventWait(EventNode* nodes, uint32_t n, int64_t ns) noexcept {
  for (uint32_t i = 0; i < n; i++) {
    if (eventTryWait(nodes[i].event)) return i;
  }
  if (ns <= 0) return EventWaiter::kTimedOut;
  constexpr auto kReason = SemaReason::kEventWait;
  const int64_t when = semaDeadline(kReason, ns);
  EventWaiter w;
  Enlisted last{};
  const uint32_t queued = enlistAll(nodes, n, &w, &last);
  // A wake-up comes if a setter fires the waiter, or has done so (E3).
  if (last == Enlisted::kFired ||
      (last == Enlisted::kQueued &&
       !semacquireUntil(&w.woken, /*lifo=*/false, kReason, when) &&
       !fireWaiter(&w, EventWaiter::kTimedOut))) {
    semacquire(&w.woken, /*lifo=*/false, kReason);
  }
  const uint32_t fired = w.fired.load(relaxed);  // it does not change any more
  for (uint32_t i = 0; i < queued; i++) {
    if (i != fired) withdrawNode(&nodes[i]);
  }
  return fired;
}

}  // namespace gump::rt
