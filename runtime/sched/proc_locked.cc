// Goroutines that only one thread may run, and m0, which runs main and nothing
// else.
//
// A locked goroutine and its M point at each other (g.lockedm, m.lockedg). The
// comment of g.lockedm lists the reasons. While the goroutine is parked, its M
// has no P and sleeps (stoplockedm). Then the M counts in sched.nmidlelocked
// and is not in midle. An M that finds the goroutine in a queue gives its own P
// to the sleeping M and wakes it (startlockedm). The thread that wakes a locked
// M first subtracts it from nmidlelocked, under sched.lock (wakeLocked), so
// checkdead counts the M as running while the P is on its way.
#include <utility>

#include "runtime/diag/panic.h"
#include "runtime/sched/affinity.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/extram.h"
#include "runtime/sched/group.h"
#include "runtime/sched/locked.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

// M0Sleep is how m0 can sleep without a P and still be woken when Run has to
// return. m0 sleeps until its locked goroutine is to run (stoplockedm), or
// until Run returns (m0Stop). startlockedm and endMain may both want to wake
// it, but its note takes one wake-up per sleep. The thread that sets `woken`
// under sched.lock is the one that wakes m0.
struct M0Sleep {
  bool sleeping = false;
  bool woken = false;
};
M0Sleep m0sleep ABSL_GUARDED_BY(sched.lock);

// The steps of stoplockedm and startlockedm; their comments are below.
bool requeueDuringStop(G* gp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);
bool mustReturnP(G* gp);
bool m0SleepBegin();
void m0SleepEnd();

}  // namespace

// ---- A locked goroutine parks and runs again --------------------------------

void stoplockedm() {
  M* mp = getg()->m;
  if (mp->lockedg == nullptr || mp->lockedg->lockedm != mp) {
    fatalthrow("stoplockedm: inconsistent locking");
  }
  awaitLocked();
}

void awaitLocked() {
  M* mp = getg()->m;
  do {
    if (mp->p != nullptr) handoffp(releasep());
    if (mp == &m0 && !m0SleepBegin()) return;
    incidlelocked(1);
    mPark(mp);
    if (mp == &m0) m0SleepEnd();
    if (mp->p == nullptr) return;
    if (readgstatus(mp->lockedg) != kGrunnable) {
      fatalthrow("stoplockedm: not runnable");
    }
  } while (mustReturnP(mp->lockedg));
  mp->lockedg->putBack = false;
}

void startlockedm(G* gp) {
  M* mp = gp->lockedm;
  if (mp == getg()->m) fatalthrow("startlockedm: locked to me");
  // If gp is put back, it goes before the goroutines in yielded.
  flushYielded(getg()->m->p);
  {
    LockScope l(&sched.lock);
    // Written under sched.lock. m0 is about to leave Run, or has left it.
    if (mp == &m0 && sched.mainEnded.load(relaxed)) {
      if (gp->special) groupUngrant(gp);
      globrunqput(gp);
      return;
    }
    if (requeueDuringStop(gp)) return;  // we go on to gcstopm; mp sleeps on
    wakeLocked(mp);
  }
  if (mp->nextp != nullptr) fatalthrow("startlockedm: m has p");
  mp->nextp = releasep();
  notewakeup(&mp->park);  // publishes nextp
  stopm();
}

void wakeLocked(const M* mp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (mp == &m0) m0sleep.woken = true;
  sched.nmidlelocked--;
}

namespace {

// requeueDuringStop puts gp, which is locked to its thread and would run now,
// into the global queue if the world is being stopped. Then it returns true. If
// gp ran instead, it might compute, and it would take a signal to get the P
// back.
//
// gp goes to the head of the queue, because its turn had come. But if a stop
// has kept gp on its P (keepsNext), gp has had its turn, and goes to the tail.
// From the head it would run next, with a new slice. Suppose that its thread
// always wakes after the next stop has begun. Then no slice of gp would ever
// end, and the goroutines behind it would never run.
//
// Returns false
//  * if gp was put back the last time, too. Its way to a P leads through two
//    threads. If stops follow each other faster than those threads wake, gp
//    would never run, although others may wait for it (see the head of
//    preempt.cc).
//  * if main has ended. Then no thread is certain to take gp from the queue or
//    to release it (endMain).
// On: g0.  P: needed.  Locks: caller holds sched.lock.  Parks: no.
bool requeueDuringStop(G* gp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  // Both are written under sched.lock, but a dying thread writes gcwaiting
  // without it.
  if (!sched.gcwaiting.load(relaxed) || sched.mainEnded.load(relaxed) ||
      gp->putBack) {
    return false;
  }
  gp->putBack = true;
  // keepsSlice is written under sched.lock, and by the M of gp. That M waits.
  const bool kept = std::exchange(gp->lockedm->keepsSlice, false);
  if (gp->special) groupUngrant(gp);
  if (kept) {
    globrunqput(gp);
  } else {
    globrunqputhead(gp);
  }
  return true;
}

// mustReturnP returns true if this M, which was just given a P for gp, must
// give it up again, because gp has been put back.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: no.
bool mustReturnP(G* gp) {
  // A hint: if we miss a stop that begins now, a signal takes the P.
  if (GUMP_LIKELY(!sched.gcwaiting.load(relaxed))) return false;
  LockScope l(&sched.lock);
  return requeueDuringStop(gp);
}

}  // namespace

// ---- m0 ---------------------------------------------------------------------

void m0Stop() {
  if (!m0SleepBegin()) return;
  incidlelocked(1);
  notesleep(&m0.park);
  noteclear(&m0.park);
  m0SleepEnd();
}

bool m0Sleeps() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  return m0sleep.sleeping;
}

void wakeM0ToLeave() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (m0sleep.sleeping && !m0sleep.woken) {
    m0sleep.woken = true;
    sched.nmidlelocked--;
    notewakeup(&m0.park);
  }
  // Otherwise m0 is awake, and finds mainEnded set before it sleeps, because
  // m0SleepBegin looks under this lock.
}

namespace {

// m0SleepBegin announces a sleep of m0. Returns false if main has ended,
// because no wake-up would come. But if m0 is `woken` already, its waker hands
// it a P, so m0 sleeps to take it.
// On: g0 of m0.  P: none.  Locks: takes sched.lock.  Parks: no.
bool m0SleepBegin() {
  LockScope l(&sched.lock);
  // Written under sched.lock.
  if (sched.mainEnded.load(relaxed) && !m0sleep.woken) return false;
  m0sleep.sleeping = true;
  return true;
}

// m0SleepEnd is called when m0 has woken up.
// On: g0 of m0.  P: either.  Locks: takes sched.lock.  Parks: no.
void m0SleepEnd() {
  LockScope l(&sched.lock);
  m0sleep = M0Sleep();
}

}  // namespace

// ---- LockOSThread -----------------------------------------------------------

bool lockOSThreadExternal() noexcept {
  if (getg() == nullptr) needm();
  G* gp = getg();
  M* mp = gp->m;
  // The caller means the thread that it is on. Until it is bound to that
  // thread, it must not yield, and must not wait for a P if its own was taken.
  // preemptInPlace, too, writes lockedg and lockedm.
  const bool lost = acquiremNoPark(mp);
  const bool ok = mp->lockedExt != UINT32_MAX;
  // (B3) of affinity.cc
  if (ok && mp->lockedExt == 0 && mp->binding.load(relaxed) != 0)
    unbindThread(mp);
  if (ok) mp->lockedExt++;
  if (ok && !gp->foreign && mp->home == nullptr) {
    mp->lockedg = gp;
    gp->lockedm = mp;
  }
  if (lost) markPLost(mp);
  releasem(mp);
  return ok;
}

void unlockOSThreadExternal() noexcept {
  G* gp = runtimeEntry();
  M* mp = acquirem();  // preemptInPlace, too, writes lockedg and lockedm
  if (mp->home != nullptr) {
    if (mp->lockedExt > 1) mp->lockedExt--;  // 1 is the home's own
  } else if (mp->lockedExt != 0 && --mp->lockedExt == 0) {
    mp->lockedg = nullptr;
    gp->lockedm = nullptr;
  }
  releasem(mp);
}

}  // namespace gump::rt
