// directNext: the next goroutine without a switch to g0.
//
// A goroutine that parks or yields switches straight to the next one
// (gumpSwitch) if that one is obvious: it is at the head of a queue of this P
// and can be resumed at once, and there is nothing else to do. Otherwise
// schedule finds the next one. So this file must know every reason for which
// findRunnable would do anything else than take a G from the queues.
#include "runtime/diag/fuzzsched.h"
#include "runtime/sched/mfinal.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/time.h"

namespace gump::rt {

namespace {

// makeCurrent is the end of execute.
// On: g0, or user.
GUMP_ALWAYS_INLINE G* makeCurrent(G* gp, M* mp, P* pp, bool inheritTime) {
  mp->curg.store(gp, release);  // pairs with the acquire in preemptone
  gp->m = mp;
  casgstatus(gp, kGrunnable, kGrunning);
  if (inheritTime) {
    // A request to yield belongs to the time slice, so it is inherited with it.
    // If it were not, goroutines that ready each other would lose the request
    // between them, and all others would keep waiting.
    gp->preempt.store(pp->preempt.load(relaxed), relaxed);  // best effort
  } else {
    pp->preempt.store(false, relaxed);  // best effort: requests are repeated
    gp->preempt.store(false, relaxed);
    // Written by us; sysmon only compares values.
    pp->schedtick.store(pp->schedtick.load(relaxed) + 1, relaxed);
  }
  return gp;
}

// makeTracked is makeCurrent if a measurement is to begin.
// On: g0, or user.
GUMP_NOINLINE G* makeTracked(G* gp, M* mp, P* pp, bool inheritTime) {
  const uint8_t weight = trackBegin(mp, pp);
  trackNext(makeCurrent(gp, mp, pp, inheritTime), weight);
  return gp;
}

// executeHere is execute on M mp, whose P is pp.
// On, P, Locks, Parks: as execute.
GUMP_ALWAYS_INLINE G* executeHere(G* gp, M* mp, P* pp, bool inheritTime) {
  if (GUMP_UNLIKELY(gp->special) && !groupAdmit(gp)) return nullptr;
  if (gp->stack.lo == 0 && GUMP_UNLIKELY(!bindStack(pp, gp))) return nullptr;
  // Before the stores in makeCurrent. The P may be taken from outside while gp
  // runs, and then only these stores order us and the next owner of the P.
  if (GUMP_UNLIKELY(--pp->untilTracked == 0)) {
    return makeTracked(gp, mp, pp, inheritTime);
  }
  return makeCurrent(gp, mp, pp, inheritTime);
}

// Unless they say otherwise, these functions have this context:
// On: user.  P: needed; m.locks is 1.  Locks: none.  Parks: no.

// headOfQueue returns the G that findWithP would take from the queues of pp.
// With more than one P, a thief may steal it meanwhile. Returns nullptr if the
// queues are empty, or if the global queue goes first.
GUMP_ALWAYS_INLINE G* headOfQueue(const P* pp) {
  if (pp->schedtick.load(relaxed) % 61 == 0) {
    if (pp->yielded.head != nullptr) return pp->yielded.head;
    if (sched.runqsize.load(relaxed) != 0) return nullptr;
  }
  if (G* next = pp->runnext.load(relaxed)) return next;
  uint32_t h = pp->runqhead.load(acquire);  // as in runqget
  if (h != pp->runqtail.load(relaxed)) {
    return pp->runq[h % kRunqSize].load(relaxed);
  }
  return pp->yielded.head;
}

// canResumeNow returns true if gp can be resumed here without locks and system
// calls. That is required because the caller may hold a lock.
GUMP_ALWAYS_INLINE bool canResumeNow(const P* pp, const G* gp) {
  if (peek(gp->lockedm) != nullptr) return false;
  return peek(gp->stack.lo) != 0 ||
         (peek(gp->stackClass) == 0 && pp->stackCache != nullptr);
}

// timersWant returns true if schedule must be called because of timers.
GUMP_ALWAYS_INLINE bool timersWant(const M* mp, P* pp) {
  // Only P 0 gets timers from other threads: see checkTimers.
  if (GUMP_LIKELY(pp->timers.len.load(relaxed) == 0)) return false;
  return mp->timerAdded || timersDue(&pp->timers);
}

// mustSchedule tells whether findRunnable would do anything else than take a G
// from the queues. It must know every reason for that.
GUMP_ALWAYS_INLINE bool mustSchedule(const M* mp, P* pp) {
  // Each of the atomic loads reads a request. If we miss one, the next look
  // honours it just as well. findRunnable and findWithP say with which stores
  // the loads pair.
  return sched.gcwaiting.load(acquire) || sched.mainEnded.load(acquire) ||
         pp->runSafePointFn.load(acquire) != 0 || fingwake.load(relaxed) ||
         mp->lockedg != nullptr || mp == &m0 || timersWant(mp, pp);
}

// takeNextLocal is directNext without fuzzing.
// Locks: takes sched.lock.
GUMP_ALWAYS_INLINE G* takeNextLocal(M* mp) {
  P* pp = mp->p;
  if (mustSchedule(mp, pp)) return nullptr;
  // This is a hint, because a thief may take it now. We look again below.
  const G* head = headOfQueue(pp);
  if (head == nullptr || !canResumeNow(pp, head)) return nullptr;
  RunqGet next = head == pp->yielded.head
                     ? RunqGet{popYielded(pp, /*adopt=*/false), false}
                     : runqget(pp);
  if (GUMP_UNLIKELY(next.gp == nullptr)) return nullptr;  // stolen
  if (GUMP_UNLIKELY(next.gp != head && !canResumeNow(pp, next.gp))) {
    // This is not the G that we looked at. It goes to the global queue, so it
    // loses its place but is found again.
    LockScope l(&sched.lock);
    globrunqput(next.gp);
    return nullptr;
  }
  return executeHere(next.gp, mp, pp, next.inheritTime);
}

// takeHeadRecorded is directNext if P::records is not 0.
// Locks: takes sched.lock.
GUMP_NOINLINE G* takeHeadRecorded(M* mp) {
  P* pp = mp->p;
  if ((pp->records.load(relaxed) & kRecordProfile) != 0) return nullptr;
  if (pp->fuzz != 0) {
    if (fuzzOneIn(pp, 2)) return nullptr;
    const G* head = headOfQueue(pp);  // a hint, as above
    if (head != nullptr && fuzzMoves(mp, head)) return nullptr;
  }
  G* gp = takeNextLocal(mp);
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
         !mustSchedule(mp, pp) && pp->yielded.empty() && runqempty(pp) &&
         sched.runqsize.load(relaxed) == 0;
}

G* directNext(M* mp) {
  if (GUMP_UNLIKELY(mp->p->records.load(relaxed) != 0))
    return takeHeadRecorded(mp);
  return takeNextLocal(mp);
}

}  // namespace gump::rt
