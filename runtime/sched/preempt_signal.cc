// Preempted in place: taking the P of a goroutine that computes, by a signal.
//
// A thread that runs is sent SIGURG. The handler acts if it has interrupted the
// goroutine's own code (locks == 0, and not another handler). That code may be
// on the goroutine's stack or on one that the program has made. The handler
//  * puts the goroutine on the global queue, bound to its thread as by
//    LockOSThread,
//  * lets go of the P,
//  * sleeps inside the handler until a scheduler hands the thread a P for this
//    goroutine.
// The interrupted code may hold any lock and be in the middle of malloc: it
// continues on the same thread as if nothing had happened. This is
// KLT-switching of Shiina, Iwasaki, Taura and Balaji, "Lightweight Preemptive
// User-Level Threads", PPoPP 2021.
//
// Invariants:
//  (P2) In the handler m.locks is 1 and the current G is g0, although the stack
//       is the signal stack.
//  (P3) The handler does not allocate. It takes only the runtime's own locks,
//       which the interrupted code cannot hold (locks == 0).
//  (P4) Only its thread resumes a G with inPlace set. From before the G is
//       queued until it runs again, gp->sched has the handler's context, which
//       is on the signal stack. From there dumps walk into the code that was
//       interrupted.
// (P1), (P5), (P6), and the steps B1 to B3 that the handler takes as well, are
// those of preempt_blocked.cc.
//
// Rejected:
//  * Rewriting the interrupted context to call a function, as Go does. C++ code
//    has no map of the places where that is safe.
//  * Preempting only outside of libc. Code that is always inside libc would
//    never yield, and a test whether code is inside would need a table.
#include <signal.h>

#include <utility>

#include "runtime/diag/debugvars.h"
#include "runtime/diag/fuzzsched.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/stats.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/gqueue.h"
#include "runtime/sched/group.h"
#include "runtime/sched/locked.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/preempt.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stw.h"
#include "runtime/sched/switch.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

// The steps of the handler, in their order; their comments are below. Unless
// they say otherwise, they have this context:
// On: the signal stack.  P: maybe lost.  Locks: none.  Parks: no.
bool wanted(const G* gp, const M* mp);
bool noMResumes(const P* pp);
const P* pOf(const M* mp);
void preemptInPlace(G* gp);

}  // namespace

void preemptM(M* mp) {
  if (debug.asyncpreemptoff != 0) return;
  // At most one signal is on its way. The CAS comes before the look at procid,
  // because minit writes procid before it clears signalSent. So a thread that
  // takes the struct over misses no signal. Where handlers are deferred, the
  // signal may be kept for a fibre that the thread has left meanwhile, and
  // handled only there. Then another is sent, to the fibre that the thread is
  // on now.
  //
  // A signal that is a slice old was lost, for example to a handler in our
  // place, so send another. If the thread has merely had no processor, the
  // kernel merges the two, and no later sleep of the thread is cut short.
  const int64_t now = nanotime();
  const int64_t sent = mp->signalSent.load(relaxed);  // the CAS decides
  const bool due = sent == 0 || now - sent >= kForcePreemptNS;
  if (!(due && mp->signalSent.cas(sent, now, acq_rel)) &&
      !kSanitizerDefersHandlers) {
    return;
  }
  const int32_t tid = mp->procid.load(acquire);  // pairs with minit
  if (tid == 0) {
    mp->signalSent.store(0, relaxed);
  } else {
    tgkill(tid, SIGURG);
  }
}

void preemptedBySignal(uintptr_t sp) {
  G* gp = getg();
  if (gp == nullptr || gp->m == nullptr) return;
  M* mp = gp->m;
  mp->signalSent.store(0, relaxed);  // see preemptM
  if (gp->foreign || gp == &mp->g0 || mp->curg.load(relaxed) != gp ||
      mp->locks.load(relaxed) != 0) {
    return;
  }
  const bool onOther = !onOwnStack(gp, sp);
  if (onOther && !mayLeaveStackAt(mp, sp)) return;
  gp->onOtherStack = onOther;
  mp->locks.store(1, relaxed);  // B1
  asymmetricLight();            // B2
  // inOwnProcess returns false in a child of fork, even before the child's fork
  // handler has run. In the child no thread would wake us.
  if (wanted(gp, mp) && !noMResumes(pOf(mp)) && inOwnProcess()) {
    sanitizerEnterSignal(gp, mp);
    gumpCallSaved(preemptInPlace, gp);  // (P4)
    sanitizerLeaveSignal(gp);
  }
  gp->onOtherStack = false;
  mp->locks.store(0, release);  // as releasem
}

void releasePreempted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  groupsFlushInPlace();
  const int32_t n = sched.nnodes.load(relaxed);  // changes under sched.lock
  for (int32_t k = 0; k < n; k++) {
    SchedNode* np = &sched.nodes[k];
    const int32_t before = np->runq.size();
    GQueue rest;
    while (G* gp = np->runq.pop()) {
      if (!gp->inPlace) {
        rest.pushBack(gp);
        continue;
      }
      M* mp = gp->lockedm;
      if (gp->special) groupUncount(gp);
      casgstatus(gp, kGrunnable, kGrunning);
      gp->putBack = false;
      sched.nmidlelocked--;  // as startlockedm
      notewakeup(&mp->park);
    }
    np->runq.pushAll(&rest);
    globrunqchanged(np, np->runq.size() - before);
  }
}

bool mayLeaveStackAt(const M* mp, uintptr_t sp) {
  return !kSanitizerBuild && sp - mp->signalStackLo >= mp->signalStackSize &&
         !isPanickingHere();
}

namespace {

// wanted tells whether there is a request for gp to stop.
bool wanted(const G* gp, const M* mp) {
  // These are requests. The threads that made them repeat them.
  if ((mp->presumed.load(relaxed) & kPresumedTaken) != 0) return true;
  return mp->p != nullptr &&
         (gp->preempt.load(relaxed) || mp->p->preempt.load(relaxed) ||
          sched.gcwaiting.load(relaxed) ||
          mp->p->runSafePointFn.load(relaxed) != 0);
}

// noMResumes tells whether a goroutine that is preempted in place now would
// never go on. After main has ended, two things let such a goroutine go on: the
// end of a stop of the world, and the end of a forEachP that has yet to visit
// its P. pp is that P, or nullptr if it was taken. For the handler the answer
// is a hint. queueInPlace asks again, under sched.lock.
bool noMResumes(const P* pp) {
  return sched.mainEnded.load(acquire) &&   // pairs with endMain
         !sched.gcwaiting.load(acquire) &&  // pairs with startTheWorld
         // Pairs with askEveryP.
         (pp == nullptr || pp->runSafePointFn.load(acquire) == 0);
}

// pOf returns the P of mp, which is this thread's M, or nullptr if mp has none
// or it has been taken. The P may be taken at any time until endPresumption.
const P* pOf(const M* mp) {
  const bool taken = (mp->presumed.load(relaxed) & kPresumedTaken) != 0;
  return taken ? nullptr : mp->p;  // (P1)
}

// queueInPlace queues gp. If the world is being stopped, gp stays the next
// goroutine of its P, which startTheWorld will hand back to this thread
// (lockedMOf). Otherwise gp goes onto the global queue, and a scheduler may
// hand us a P from then on. `lost`: the P was taken before. *wake: the caller
// must call wakep. Returns false if nothing would take gp from there, and then
// gp goes on as it is.
// Locks: takes sched.lock.
bool queueInPlace(G* gp, bool lost, bool* wake) {
  // Main ends under this lock, and a stop of the world begins and ends under
  // it. So what noMResumes finds stays true until gp is queued. If we have our
  // P, a stop cannot end before that P is counted as stopped, and a forEachP
  // cannot end before it has visited that P. We keep the P in this section, so
  // both happen later.
  LockScope l(&sched.lock);
  P* pp = gp->m->p;
  if (noMResumes(pp)) return false;
  casgstatus(gp, kGrunning, kGrunnable);
  dropg();
  *wake = lost;
  // Relaxed: gcwaiting is written under sched.lock, and runnext by us alone.
  if (pp != nullptr && sched.gcwaiting.load(relaxed) &&
      pp->runnext.load(relaxed) == nullptr && keepsNext(pp)) {
    if (GUMP_UNLIKELY(gp->special)) groupHold(gp);
    pp->runnext.store(gp, release);
  } else {
    if (GUMP_UNLIKELY(gp->special) && groupPreempted(gp, lost)) *wake = true;
    globrunqput(gp);
  }
  return true;
}

// setInterrupted records that gp is preempted in place.
void setInterrupted(G* gp) {
  const uint32_t n = gp->interrupted.load(relaxed);  // written by its thread
  gp->interrupted.store(n | 1, release);             // pairs with EntryWatch
}

// preemptInPlace is the handler's sleep. It has a frame of its own: see
// sanitizerEnterSignal.
// On: the signal stack, (P2).  P: maybe lost.  Locks: takes sched.lock.
// Parks: blocks the thread.
void preemptInPlace(G* gp) {
  M* mp = gp->m;
  // Before the P changes hands. Also before the presumption ends, because a
  // grace period looks at the presumption first (awaitInterrupted).
  setInterrupted(gp);
  const bool lost =
      mp->presumed.load(relaxed) != kPresumedNot && endPresumption(mp);  // B3
  setg(&mp->g0);
  // Unless gp is bound already, or of a home, this is nullptr.
  G* const lockedg = mp->lockedg;
  const bool locked = gp->lockedm != nullptr;
  gp->inPlace = true;
  sched.ninplace.add(1, relaxed);  // a hint
  stats.preemptions.add(1, relaxed);
  gp->lockedm = mp;
  mp->lockedg = gp;
  if (!lost) mp->p->preempt.store(false, relaxed);  // as in gopreempt
  bool wake = false;
  if (queueInPlace(gp, lost, &wake)) {
    if (wake) wakepAnywhere();  // see groupPreempted
    for (;;) {
      stoplockedm();
      if (mp->p == nullptr) {  // releasePreempted has released gp
        gp->m = mp;
        mp->curg.store(gp, release);  // pairs with the acquire in preemptone
        break;
      }
      // If the group of gp is full, gp is queued again.
      const bool slice = std::exchange(mp->keepsSlice, false);
      if (fuzzExecute(gp, slice) != nullptr) break;
    }
  }
  // The next acquirem must take the slow path, if only to record that the
  // goroutine has entered the runtime.
  if (mp->p == nullptr) {
    markPLost(mp);
  } else {
    // A concurrent asker loses at its A4 because of this store.
    mp->presumed.store(kPresumedMarked, relaxed);
  }
  if (!locked) gp->lockedm = nullptr;
  mp->lockedg = lockedg;
  gp->inPlace = false;
  sched.ninplace.add(-1, relaxed);  // as above
  mp->resumedSleeps.store(ownSleeps(), relaxed);
  setg(gp);
}

}  // namespace

}  // namespace gump::rt
