// directNext: the next goroutine without a switch to g0.
//
// A goroutine that parks or yields switches straight to the next one
// (gumpSwitch) if that one is obvious: it is at the head of a queue of this P
// and can be resumed at once, and there is nothing else to do. Otherwise
// schedule finds the next one. So this file must know every reason for which
// findRunnable would do anything else than take a G from the queues.
#include "runtime/diag/fuzzsched.h"
#include "runtime/diag/trace.h"
#include "runtime/sched/group.h"
#include "runtime/sched/mfinal.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/time.h"
#include "runtime/sched/tracking.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

// newSlice gives gp, which is to run on pp, a time slice of its own.
// On: g0, or user.
GUMP_ALWAYS_INLINE void newSlice(P* pp, G* gp) {
  beginSlice(pp);
  gp->preempt.store(false, relaxed);
}

// makeCurrent is the end of execute. `plain`: isPlain.
// On: g0, or user.
GUMP_ALWAYS_INLINE G* makeCurrent(G* gp, M* mp, P* pp, bool inheritTime,
                                  bool plain) {
  mp->curg.store(gp, release);  // pairs with the acquire in preemptone
  gp->m = mp;
  if (plain) {
    gp->atomicstatus.store(kGrunning, release);  // as in casgstatus
  } else {
    casgstatus(gp, kGrunnable, kGrunning);
  }
  if (inheritTime) {
    // A request to yield belongs to the time slice, so it is inherited with it.
    // If it were not, goroutines that ready each other would lose the request
    // between them, and all others would keep waiting.
    gp->preempt.store(pp->preempt.load(relaxed), relaxed);  // best effort
  } else {
    newSlice(pp, gp);
  }
  return gp;
}

// executeInGeneral is execute on M mp, whose P is pp.
// On, P, Locks, Parks: as execute.
GUMP_NOINLINE G* executeInGeneral(G* gp, M* mp, P* pp, bool inheritTime) {
  if (GUMP_UNLIKELY(gp->special) && !groupAdmit(gp)) return nullptr;
  if (gp->stack.lo == 0 && GUMP_UNLIKELY(!bindStack(pp, gp))) return nullptr;
  // Before the stores in makeCurrent. The P may be taken from outside while gp
  // runs, and then only these stores order us and the next owner of the P.
  if (GUMP_UNLIKELY(--pp->untilTracked == 0)) {  // a measurement is to begin
    const uint8_t weight = trackBegin(mp, pp);
    makeCurrent(gp, mp, pp, inheritTime, /*plain=*/false);
    trackNext(gp, weight);
    return gp;
  }
  return makeCurrent(gp, mp, pp, inheritTime, isPlain(gp, kGrunnable));
}

// executeHere is executeInGeneral, whose usual case it inlines.
// On, P, Locks, Parks: as execute.
GUMP_ALWAYS_INLINE G* executeHere(G* gp, M* mp, P* pp, bool inheritTime) {
  if (GUMP_UNLIKELY(gp->special || gp->stack.lo == 0 || pp->untilTracked == 1 ||
                    !isPlain(gp, kGrunnable))) {
    return executeInGeneral(gp, mp, pp, inheritTime);
  }
  pp->untilTracked--;
  return makeCurrent(gp, mp, pp, inheritTime, /*plain=*/true);
}

// Unless they say otherwise, these functions have this context:
// On: user.  P: needed; m.locks is 1.  Locks: none.  Parks: no.

// globalFirst returns true if the global queue goes before the queues of pp.
GUMP_ALWAYS_INLINE bool globalFirst(const P* pp) {
  return GUMP_UNLIKELY(pp->schedtick.load(relaxed) % 61 == 0) &&
         (!pp->yielded.empty() || globalWaits());
}

// canResumeNow returns true if gp can be resumed here without locks and system
// calls. That is required because the caller may hold a lock.
GUMP_ALWAYS_INLINE bool canResumeNow(const P* pp, const G* gp) {
  if (peek(gp->lockedm) != nullptr) return false;
  return peek(gp->stack.lo) != 0 ||
         (peek(gp->stackClass) == 0 && pp->stackCache != nullptr);
}

// mustSchedule tells whether findRunnable would do anything else than take a G
// from the queues, or look at timers. It must know every reason for that.
GUMP_ALWAYS_INLINE bool mustSchedule(const M* mp, const P* pp) {
  // Each of the atomic loads reads a request. If we miss one, the next look
  // honours it just as well. findRunnable and findWithP say with which stores
  // the loads pair.
  return sched.gcwaiting.load(acquire) || sched.mainEnded.load(acquire) ||
         pp->runSafePointFn.load(acquire) != 0 || fingwake.load(relaxed) ||
         mp->lockedg != nullptr || mp == &m0;
}

// hasTimers returns true if pp may have timers. timersWant then tells whether
// schedule must be called because of them.
GUMP_ALWAYS_INLINE bool hasTimers(const P* pp) {
  // Only P 0 gets timers from other threads: see checkTimers.
  return pp->timers.len.load(relaxed) != 0;
}
GUMP_ALWAYS_INLINE bool timersWant(const M* mp, P* pp) {
  return mp->timerAdded || timersDue(&pp->timers);
}

// takeNextHere makes current, and returns, the G that findWithP would take from
// the queues of pp. Returns nullptr if there is none, if the global queue goes
// first, if `mayTake` refuses the G, or if a thief has taken it meanwhile. Then
// schedule chooses.
//
// It looks at the G before it takes it, because it cannot put it back in its
// place. What it has seen is still true then. While it is runnable, a goroutine
// is bound to no other thread and loses no stack. And if a thief had taken the
// G, it could not be in the same place again: only we put Gs into runnext and
// the ring.
template <class MayTake>
GUMP_ALWAYS_INLINE G* takeNextHere(M* mp, P* pp, const MayTake& mayTake) {
  const bool global = globalFirst(pp);
  G* gp = pp->runnext.load(relaxed);
  if (GUMP_UNLIKELY(global)) {
    gp = nullptr;
  } else if (gp != nullptr) {
    if (!mayTake(pp, gp) || !takeRunnext(pp, gp)) return nullptr;
    return executeHere(gp, mp, pp, /*inheritTime=*/true);
  }
  const uint32_t h = pp->runqhead.load(acquire);  // as in runqget
  if (!global && h != pp->runqtail.load(relaxed)) {
    gp = pp->runq[h % kRunqSize].load(relaxed);
    if (!mayTake(pp, gp) || !takeRingHead(pp, h)) return nullptr;
  } else {
    // If the global queue goes first and is elsewhere, yielded is empty.
    gp = pp->yielded.head;
    if (gp == nullptr || !mayTake(pp, gp)) return nullptr;
    (void)popYielded(pp);
  }
  return executeHere(gp, mp, pp, /*inheritTime=*/false);
}

// timersOrMustSchedule is mustSchedule, and looks at timers, too.
GUMP_ALWAYS_INLINE bool timersOrMustSchedule(const M* mp, P* pp) {
  return mustSchedule(mp, pp) || (hasTimers(pp) && timersWant(mp, pp));
}

// takeNextBesideTimers is directNext if pp may have timers.
GUMP_NOINLINE G* takeNextBesideTimers(M* mp, P* pp) {
  if (timersOrMustSchedule(mp, pp)) return nullptr;
  return takeNextHere(mp, pp, canResumeNow);
}

// takeNextRecorded is directNext if P::records is not 0.
// Locks: takes sched.lock.
GUMP_NOINLINE G* takeNextRecorded(M* mp, P* pp) {
  if ((pp->records.load(relaxed) & kRecordProfile) != 0) return nullptr;
  if (pp->fuzz != 0 && fuzzOneIn(pp, 2)) return nullptr;
  if (timersOrMustSchedule(mp, pp)) return nullptr;
  const auto mayTake = [mp](const P* p, const G* gp) {
    return canResumeNow(p, gp) && (p->fuzz == 0 || !fuzzMoves(mp, gp));
  };
  G* gp = takeNextHere(mp, pp, mayTake);
  if (gp != nullptr) recordExecuted(gp);
  return gp;
}

}  // namespace

G* execute(G* gp, bool inheritTime) {
  M* mp = getg()->m;
  return executeHere(gp, mp, mp->p, inheritTime);
}

bool nothingElseToRun(const M* mp) {
  P* pp = mp->p;
  // Now and then schedule looks at the network, too.
  return pp->fuzz == 0 && pp->schedtick.load(relaxed) % 61 != 0 &&
         !timersOrMustSchedule(mp, pp) && pp->yielded.empty() &&
         runqempty(pp) && globalSize(relaxed) == 0;
}

bool goOnAlone(const M* mp, G* gp) {
  // A trace shows each yield.
  if (!isPlain(gp, kGrunning) || !nothingElseToRun(mp)) return false;
  newSlice(mp->p, gp);
  return true;
}

// directNext contains only the usual case, and ends with a call in all others.
// So it keeps no value across a call, and saves no registers.
G* directNext(M* mp) {
  P* pp = mp->p;
  if (GUMP_UNLIKELY(pp->records.load(relaxed) != 0)) {
    return takeNextRecorded(mp, pp);
  }
  if (GUMP_UNLIKELY(hasTimers(pp))) return takeNextBesideTimers(mp, pp);
  return mustSchedule(mp, pp) ? nullptr : takeNextHere(mp, pp, canResumeNow);
}

}  // namespace gump::rt
