// Semaphores that wait for a limited time.
//
// The time passes on the clock of the caller's bubble if the wait is durable
// (isIdleInSynctest), and on the monotonic clock otherwise.
//
// A waiter whose time has passed leaves the treap. It may be woken by a
// releaser at the same time. The root's lock decides: the thread that takes the
// Sudog out of the treap under that lock is the only one that wakes it.
//
//  * The releaser was first. The waiter has been woken for a count, or has been
//    handed it. It tries to take the count before it looks at the clock again.
//    So it does not let a count lie that a releaser has woken it for.
//  * The time was first. The releaser does not find the waiter, and wakes
//    another. If there is no other, the count stays for the next semacquire.
//
// In the second case a count may be meant for the waiter, although the waiter
// does not know: a Mutex, say, has counted it as woken. The callers keep books
// of their own, and wait for that count (api/sync/mutex.cc, rwmutex.cc, cond.cc
// and event.cc).
//
// A goroutine has its timer in a cell, because a timer that is stopped stays in
// its heap for a while. The timer's function (timeOut) may run when the
// goroutine has been woken by other means:
//
//   goroutine                              timeOut
//   G1 stop the timer; if it was pending   T1 lock the root
//      drop it, and be done                T2 expired = true
//   G2 lock the root                       T3 s == nullptr? free the cell
//   G3 expired? free the cell              T4 s in the treap? take it out
//   G4 otherwise s = nullptr               T5 unlock, and wake it after T4
//
// If G1 finds that the timer is not pending, timeOut has been called or is
// about to be. Both then use the cell under the root's lock, and the second of
// the two frees it. timeOut does not touch the cell after T5, nor does the code
// that called it, (T5) of time.h.
//
// Before the goroutine is kGwaiting, timeOut waits for the root's lock. If it
// runs while the goroutine is awake, between two waits, it leaves `expired`,
// which the goroutine reads under the lock before it waits again. So no
// time-out is lost.
//
// A foreign thread needs no timer. It sleeps on its note for that time, and
// then takes itself out of the treap (withdrawThread).
#include <cstdint>
#include <new>

#include "gump/internal/linkname.h"
#include "runtime/diag/mprof.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/rand.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/time.h"
#include "runtime/sched/tracking.h"
#include "runtime/sched/waitreason.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/sema.h"
#include "runtime/wait/synctest.h"
#include "runtime/wait/timechan.h"

namespace gump::rt {

namespace {

// WaitTimer is the timer of a goroutine that waits for a limited time.
struct WaitTimer : CellTimer {
  SemaRoot* root = nullptr;
  Sudog* s = nullptr;    // nullptr: the goroutine has left. Under root->lock.
  bool expired = false;  // timeOut has run. Under root->lock.
  bool started = false;  // used by the goroutine's own side only
};
static_assert(sizeof(WaitTimer) <= sizeof(TimerCell));

// timeOut is the function that the timer calls.
void timeOut(void* arg, uint64_t, int64_t) {
  auto* w = static_cast<WaitTimer*>(arg);
  SemaRoot* root = w->root;
  lock(&root->lock);
  w->expired = true;
  Sudog* s = w->s;
  G* gp = nullptr;
  if (s != nullptr && root->remove(s)) {
    s->ticket = kSemaTimedOut;
    gp = s->g;
  }
  unlock(&root->lock);
  if (gp != nullptr) {
    goreadyQuiet(gp);
  } else if (s == nullptr) {
    freeTimer(&w->t);
  }
}

// parkTimed starts the timer, once, and releases the root's lock. It runs when
// the goroutine is kGwaiting. timeOut cannot pass the root's lock before that.
bool parkTimed(G* gp, void* arg)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // releases a lock taken before the switch
  auto* w = static_cast<WaitTimer*>(arg);
  SemaRoot* root = w->root;
  M* mp = getg()->m;
  int64_t when = 0;  // wake an M for this time
  if (!w->started) {
    w->started = true;
    if ((w->t.state.load(relaxed) & kTimerFake) != 0) {  // constant
      (void)timerAdd(&gp->bubble->timers, &w->t);
    } else {
      when = timerAdd(&mp->p->timers, &w->t);
    }
  }
  unlock(&root->lock);  // gp, and with it w, may be gone after this
  if (when == 0) return true;
  // As in armSleep (timechan.cc).
  if (getg() == &mp->g0) {
    mp->timerAdded = true;
  } else {
    wakeNetPoller(when);
  }
  return true;
}

// newWaitTimer makes the timer of s, which does not run yet.
// On: user; m.locks > 0.  P: either.  Locks: takes a leaf, kMem.  Parks: no.
WaitTimer* newWaitTimer(M* mp, SemaRoot* root, Sudog* s, int64_t when,
                        bool fake) {
  void* cell = allocTimerCell(mp->p);
  if (cell == nullptr) fatalAll("out of memory (timers)");
  auto* w = new (cell) WaitTimer;
  w->t.f = timeOut;
  w->t.arg = w;
  w->t.when = when;
  if (fake) w->t.state.store(kTimerFake, relaxed);  // not yet published
  w->root = root;
  w->s = s;
  return w;
}

// endWaitTimer is G1 to G4.
// On: user; m.locks > 0.  P: either.
// Locks: takes root->lock, Timer::mu, a leaf.  Parks: no.
void endWaitTimer(WaitTimer* w) {
  if (!w->started) {
    freeTimer(&w->t);
    return;
  }
  if (timerStop(&w->t)) {
    timerDrop(&w->t);
    return;
  }
  SemaRoot* root = w->root;
  lock(&root->lock);
  const bool expired = w->expired;
  if (!expired) w->s = nullptr;
  unlock(&root->lock);
  if (expired) freeTimer(&w->t);
}

// Waiting is the state of a semacquireUntil that has to wait.
struct Waiting {
  Atomic<uint32_t>* addr;
  SemaRoot* root;
  bool lifo;
  SemaReason reason;
  Sudog s;
};

// enqueueTimed is A1 to A3 of sema.cc. Returns true if it has taken a count, or
// if `late` and it has taken none; *got says which. Otherwise it has queued
// w->s, and the root stays locked.
// On: user, or a foreign thread; m.locks > 0.  P: either.
// Locks: takes root->lock.  Parks: no.
bool enqueueTimed(Waiting* w, M* mp, const WaitTimer* timer, bool late,
                  bool* got)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // the caller parks with the lock
  lock(&w->root->lock);
  w->root->nwait.add(1, seq_cst);  // A1
  *got = cansemacquire(w->addr);   // A2
  if (*got || late || (timer != nullptr && timer->expired)) {
    w->root->nwait.add(UINT32_MAX, relaxed);  // as in semacquirePinned
    unlock(&w->root->lock);
    return true;
  }
  const uint32_t random = cheaprand(mp);
  w->root->queue(w->addr, &w->s, w->lifo, random | 1);  // A3
  sampleLockWait(w->s.g, semaWaitReason(w->reason), random >> 1);
  return false;
}

// acquireTimed is semacquireUntil for a goroutine.
// On: user.  P: needed.  Locks: takes root->lock, Timers::mu, Timer::mu, a
// leaf.  Parks: yes.
bool acquireTimed(Waiting* w, int64_t when, bool fake) {
  if (!fake) netpollGenericInit();
  M* mp = acquirem();
  WaitTimer* timer = newWaitTimer(mp, w->root, &w->s, when, fake);
  bool got = false;
  const bool late = (fake ? bubbleNow() : nanotime()) >= when;
  while (!enqueueTimed(w, mp, timer, late, &got)) {
    goparkcommit(parkTimed, timer, semaWaitReason(w->reason));
    mp = acquirem();
    // The thread that wakes us writes ticket before goready, which orders it.
    if (w->s.ticket == kSemaTimedOut) break;
    if (w->s.ticket == kSemaHanded) {
      got = w->s.g->foreign || semaTakeHanded(w->root, &w->s);
      if (got) break;
      w->s.ticket = kSemaWoken;
    }
    got = cansemacquire(w->addr);
    if (got) break;
    // As in semacquirePinned.
    if (GUMP_UNLIKELY(w->s.acquiretime != 0)) w->s.acquiretime = nanotime();
  }
  endWaitTimer(timer);
  releasem(mp);
  return got;
}

// withdrawThread takes a foreign thread out of the treap. Returns false if a
// releaser has done so. On: a foreign thread.  P: none.  Locks: takes
// root->lock.  Parks: no.
bool withdrawThread(void* arg) {
  auto* w = static_cast<Waiting*>(arg);
  LockScope l(&w->root->lock);
  return w->root->remove(&w->s);
}

// acquireThread is semacquireUntil for a foreign thread.
// On: a foreign thread.  P: none.  Locks: takes root->lock.
// Parks: blocks the thread.
bool acquireThread(Waiting* w, int64_t when) {
  for (;;) {
    M* mp = acquirem();
    bool got;
    if (enqueueTimed(w, mp, nullptr, /*late=*/nanotime() >= when, &got)) {
      releasem(mp);
      return got;
    }
    const bool woken = goparkthread(&w->root->lock, semaWaitReason(w->reason),
                                    when, withdrawThread, w);
    if (!woken) return false;
    if (w->s.ticket == kSemaHanded || cansemacquire(w->addr)) return true;
  }
}

}  // namespace

int64_t semaDeadline(SemaReason reason, int64_t ns) noexcept {
  const bool fake =
      currentBubble() != 0 && isIdleInSynctest(semaWaitReason(reason));
  return timeAfter(fake ? bubbleNow() : nanotime(), ns);
}

namespace {

// startProfiled notes for the mutex profile that w begins to wait. Returns the
// time if the block profile is on, and 0 otherwise.
// On: any.  P: either.  Locks: none.  Parks: no.
GUMP_COLD int64_t startProfiled(Waiting* w) {
  w->s.acquiretime = semaStart(w->reason);
  return blockStart();
}

}  // namespace

bool semacquireUntil(Atomic<uint32_t>* addr, bool lifo, SemaReason reason,
                     int64_t when) noexcept {
  if (cansemacquire(addr)) return true;
  if (when == kMaxWhen) {
    semacquire(addr, lifo, reason);
    return true;
  }
  Waiting w{addr, semroot(addr), lifo, reason, {}};
  w.s.g = runtimeEntry();
  const int64_t since = waitsProfiled() ? startProfiled(&w) : 0;
  semaMarkUsed(w.root);  // A0
  const bool fake =
      w.s.g->bubble != nullptr && isIdleInSynctest(semaWaitReason(reason));
  const bool got = w.s.g->foreign && !fake ? acquireThread(&w, when)
                                           : acquireTimed(&w, when, fake);
  if (GUMP_UNLIKELY(since != 0)) blockEvent(since);
  return got;
}

}  // namespace gump::rt
