// Which M runs a P: the idle Ms, starting one, stopping one, and handing a P
// over.
//
// An idle M is linked in the list of its node (SchedNode::midle) and sleeps on
// its park note. Its waker unlinks it under sched.lock, puts a P into nextp,
// and then wakes the note. The release and acquire of the note publish nextp.
// Three kinds of M are woken without a P:
//  * m0 when Run is about to return (wakeM0ToLeave);
//  * an M whose thread must end (retireIdleMs);
//  * an M whose goroutine, preempted in place, goes on after the end of main
//    (releasePreempted).
// A spare M (spareStart) starts without a P, and goes to sleep.
//
// An M whose goroutine is locked to it sleeps apart from these
// (proc_locked.cc). How a new M gets its thread is in thread.cc.
#include <utility>

#include "runtime/diag/panic.h"
#include "runtime/sched/affinity.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/gqueue.h"
#include "runtime/sched/group.h"
#include "runtime/sched/locked.h"
#include "runtime/sched/mfinal.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/reclaim.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stw.h"
#include "runtime/sched/thread.h"
#include "runtime/sched/time.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

// uncountStart takes back the count of an M that was to start by spinning with
// pp.
// On: any.  P: either.  Locks: none.  Parks: no.
void uncountStart(const P* pp) {
  if (severalNodes()) nodeOf(pp)->nmspinning.add(-1, relaxed);  // a hint
  uncountSpinner("startm: negative nmspinning");
}

// Chosen is the choice of a thread for a P: an idle M, or the goroutine `held`,
// or, if both are nullptr, an M on order or a new one. newID is reserved for an
// M that must be made; it is -1 if none must.
struct Chosen {
  M* idle = nullptr;
  G* held = nullptr;
  bool ordered = false;  // an M on order has the P
  bool spins = false;  // that M starts by spinning; false if threads are short
  int64_t newID = -1;
};

// The steps of startm and handoffp; their comments are below.
Chosen choose(P* pp, bool spinning) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);
void startIdle(M* mp, P* pp, bool spinning);
void startHeld(G* held, P* pp, bool spinning, int64_t spareID);
bool mayNotIdle(const P* pp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);

// spinningStart is the first call of an M that is made to spin.
// On: the new thread.  P: none.  Locks: none.  Parks: no.
void spinningStart() { getg()->m->spinning = true; }

}  // namespace

// ---- A P gets an M ----------------------------------------------------------

void startm(P* pp, bool spinning) {
  M* self = acquirem();  // between taking a P and handing it over we must not
                         // be preempted
  if (pp == nullptr && spinning)
    fatalthrow("startm: P required for spinning=true");
  Chosen c;
  {
    LockScope l(&sched.lock);
    if (pp == nullptr) pp = pidleget(nodeOf(self));
    if (pp != nullptr) c = choose(pp, spinning);
  }
  if (c.idle != nullptr) {
    startIdle(c.idle, pp, spinning);
  } else if (c.held != nullptr) {
    startHeld(c.held, pp, spinning, c.newID);
  } else if (c.ordered) {
    // If that thread does not come, sysmon gives the P to another
    // (replaceStartingMs).
    if (spinning && !c.spins) uncountStart(pp);
  } else if (pp != nullptr) {
    newm(spinning ? spinningStart : nullptr, pp, c.newID);
  }
  releasem(self);
}

void handoffp(P* pp) {
  flushYielded(pp);
  // The M that gets pp may go on without a look at runSafePointFn. Pairs with
  // forEachP's store.
  if (pp->runSafePointFn.load(acquire) != 0) runSafePointFn(pp);
  // A hint: a stop of the world wants the P now, not when its work is done.
  const bool stopping = sched.gcwaiting.load(relaxed);
  // This condition must cover every reason for which findRunnable would return
  // a goroutine without stealing, polling, or running timers.
  if (!stopping && (!runqempty(pp) || globalSize(seq_cst) > 0 ||
                    fingwake.load(relaxed) ||  // as in retake: a hint
                    reclaimWorkAvailable())) {
    startm(pp, /*spinning=*/false);
    return;
  }
  // No M spins and no P is idle, so other threads rely on the search of this P.
  if (!stopping &&
      sched.nmspinning.load(seq_cst) + sched.npidle.load(seq_cst) == 0 &&
      sched.nmspinning.cas(0, 1, seq_cst)) {
    countStart(pp);
    clearNeedspinning(pp);  // as becomeSpinning
    startm(pp, /*spinning=*/true);
    return;
  }
  lock(&sched.lock);
  if (sched.gcwaiting.load(relaxed)) {  // written under sched.lock
    countStopped(pp);
    unlock(&sched.lock);
    return;
  }
  // Before a P goes idle, run for it the function that forEachP asks for.
  if (pp->runSafePointFn.cas(1, 0, acq_rel)) {
    sched.safePointFn(pp);
    if (--sched.safePointWait == 0) notewakeup(&sched.safePointNote);
  }
  if (mayNotIdle(pp)) {
    unlock(&sched.lock);
    startm(pp, /*spinning=*/false);
    return;
  }
  pidleput(pp);
  unlock(&sched.lock);
  // Not under the lock, because it may start an M.
  if (const int64_t when = wakeTime(&pp->timers)) wakeNetPoller(when);
}

namespace {

// takeInPlace takes from the global queue the goroutine that has been preempted
// in place for longest, or one from the queue of a group; of several nodes the
// nearest that has one. It passes over a goroutine if its group is full.
// Returns nullptr if there is none. A P without an idle thread goes to that
// goroutine while a thread is ordered, because the goroutine may hold a lock
// that pthread_create needs.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
G* takeInPlace(SchedNode* near) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  G* taken = nullptr;
  const int32_t n = sched.nnodes.load(relaxed);  // changes under this lock
  for (int32_t k = 0; k < n && taken == nullptr; k++) {
    SchedNode* np = &sched.nodes[near->nearest[k].load(relaxed)];
    GQueue before;
    while (taken == nullptr && !np->runq.empty()) {
      G* gp = np->runq.pop();
      if (gp->inPlace && (!gp->special || groupGrantInPlace(gp))) {
        taken = gp;
      } else {
        before.pushBack(gp);
      }
    }
    np->runq.pushAll(&before);
    if (taken != nullptr) globrunqchanged(np, -1);
  }
  return taken != nullptr ? taken : groupsTakeInPlace();
}

// spareStart is the first call of a spare M, which has no P and then stops.
// On: the new thread.  P: none.  Locks: takes sched.lock.  Parks: no.
void spareStart() {
  LockScope l(&sched.lock);
  sched.spareOrdered = false;
}

// mayStartLate returns true if sysmon may give up waiting for another M that
// starts late. Without a limit, a hook that never returns would take one thread
// after the other.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
bool mayStartLate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  return sched.nmlate < 2 * gomaxprocs.load(relaxed);  // a number to aim at
}

// reuseStartingM gives pp to an M whose thread is being made and from which a P
// was taken back. Without it, each stop of the world meanwhile would order one
// more thread for the same P. Returns false if there is no such M, except those
// for which sysmon has given up waiting.
// On: any.  P: pp.  Locks: caller holds sched.lock.  Parks: no.
bool reuseStartingM(P* pp, bool spinning)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (sched.nmstarting.load(relaxed) == 0) return false;  // under sched.lock
  for (M* mp = allm.load(acquire); mp != nullptr;
       mp = mp->alllink) {  // pairs with mcommoninit
    if (!mp->starting || mp->nextp != nullptr || mp->mstartfn != nullptr) {
      continue;
    }
    if (mp->startsLate && mayStartLate()) continue;
    mp->nextp = pp;
    mp->mstartfn = spinning ? spinningStart : nullptr;
    return true;
  }
  return false;
}

// mgetOfP takes the idle M that had pp last, if it is bound as pp demands.
// Returns nullptr otherwise, or if pp binds to nothing.
// On: any.  P: pp.  Locks: caller holds sched.lock.  Parks: no.
M* mgetOfP(const P* pp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  M* mp = pp->oldm;
  if (GUMP_LIKELY(pp->binding.load(relaxed) == 0) || mp == nullptr) {
    return nullptr;
  }
  return boundFor(mp, pp) ? mgetSpecific(mp) : nullptr;
}

// choose finds a thread for pp.
// On: any.  P: pp.  Locks: caller holds sched.lock.  Parks: no.
Chosen choose(P* pp, bool spinning) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  // If it is the turn of a goroutine that is preempted in place, the P goes
  // straight to its thread instead of by way of another. That thread looks
  // neither at timers nor for finalizers, so there must be none to run.
  globrunqcollect();
  SchedNode* np = nodeOf(pp);
  const bool turn = !spinning && np->runq.head() != nullptr &&
                    np->runq.head()->inPlace && runqempty(pp) &&
                    !timersDueNow(&pp->timers) && !fingwake.load(relaxed);
  Chosen c;
  if (!turn) {
    c.idle = mgetOfP(pp);
    if (c.idle == nullptr) c.idle = mget(np);
    if (c.idle != nullptr) return c;
  }
  c.held = takeInPlace(np);
  // It is the turn of a goroutine, but its group may be full.
  if (c.held == nullptr && turn && (c.idle = mget(np)) != nullptr) return c;
  if (c.held != nullptr) wakeLocked(c.held->lockedm);
  // Order one spare thread, not one for every goroutine that computes, because
  // there may be very many.
  const bool threadsShort = sched.threadsShort.load(relaxed);  // a hint
  const bool spare = c.held != nullptr && !turn && !sched.spareOrdered &&
                     !threadsShort && mcount() < int64_t{sched.maxmcount} / 2;
  if (spare) sched.spareOrdered = true;
  c.spins = spinning && !threadsShort;
  c.ordered = c.held == nullptr && reuseStartingM(pp, c.spins);
  if (c.ordered) return c;
  // Reserve the id before the lock is dropped, so that checkdead counts the
  // thread that is to come.
  if (spare || c.held == nullptr) c.newID = mReserveID();
  return c;
}

// startIdle hands pp to the idle M mp; startHeld hands it to the thread of a
// goroutine that is preempted in place, and orders a spare M if spareID >= 0.
// Both:
// On: any.  P: pp, handed over.  Locks: startHeld takes sched.lock.  Parks: no.
void startIdle(M* mp, P* pp, bool spinning) {
  if (mp->spinning) fatalthrow("startm: m is spinning");
  if (mp->nextp != nullptr) fatalthrow("startm: m has p");
  if (spinning && !runqempty(pp)) fatalthrow("startm: p has runnable gs");
  mp->spinning = spinning;
  mp->wokenByThread = spinning && getg()->m->p == nullptr;
  if (spinning) takeCount(mp, pp);
  mp->nextp = pp;
  notewakeup(&mp->park);  // publishes the lines above
}

void startHeld(G* held, P* pp, bool spinning, int64_t spareID) {
  if (spinning) uncountStart(pp);
  held->lockedm->nextp = pp;
  notewakeup(&held->lockedm->park);  // publishes nextp
  if (spareID >= 0) newm(spareStart, /*pp=*/nullptr, spareID);
  if (spinning) wakeNextSpinner();  // the M of held does not search
}

// mayNotIdle returns true if pp, which is about to go idle because there was no
// reason to run it, has got such a reason since.
// On: any.  P: pp.  Locks: caller holds sched.lock.  Parks: no.
bool mayNotIdle(const P* pp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  // A thread whose post this misses does W2 later. runqsize changes under
  // sched.lock.
  return globalSize(relaxed) > 0 || !runqempty(pp) ||
         // A thread readied a G and found neither a spinner nor an idle P.
         mustSearch(pp) ||
         // The last busy P must not go idle while no M watches the network and
         // the timers, including those of the idle Ps.
         (sched.npidle.load(relaxed) == gomaxprocs.load(relaxed) - 1 &&
          sched.lastpoll.load(relaxed) != 0 &&
          (netpollAnyWaiters() || timeSleepUntil() != kMaxWhen));
}

// isLate returns true if mp, which is to start with a P, has had a slice's time
// to do so.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
bool isLate(const M* mp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  return nanotime() - mp->startingSince >= kForcePreemptNS;
}

// markLate records that sysmon has given up waiting for mp. giveUpSpare does so
// for a spare M, so that another one can be ordered. Both:
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void markLate(M* mp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (!std::exchange(mp->startsLate, true)) sched.nmlate++;
}
void giveUpSpare(M* mp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  markLate(mp);
  mp->mstartfn = nullptr;
  sched.spareOrdered = false;
}

// claimLocked is takeStartingP under the lock. It sets *spun if the M was to
// start by spinning; that M is counted in nmspinning.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
P* claimLocked(StartingP which, bool* spun)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  const bool late = which == StartingP::kLate;
  if (late && !mayStartLate()) return nullptr;
  for (M* mp = allm.load(acquire); mp != nullptr;
       mp = mp->alllink) {  // pairs with mcommoninit
    if (!mp->starting) continue;
    P* pp = mp->nextp;
    if (late && mp->mstartfn == spareStart && isLate(mp)) giveUpSpare(mp);
    if (pp == nullptr) continue;
    // Set under sched.lock.
    if (which == StartingP::kOfSafePoint &&
        pp->runSafePointFn.load(relaxed) == 0) {
      continue;
    }
    if (late && !isLate(mp)) continue;
    if (late) markLate(mp);
    mp->nextp = nullptr;
    if (mp->mstartfn == spinningStart) {
      mp->mstartfn = nullptr;
      *spun = true;
    }
    return pp;
  }
  return nullptr;
}

}  // namespace

P* takeStartingP(StartingP which) {
  bool spun = false;
  P* pp;
  {
    LockScope l(&sched.lock);
    pp = claimLocked(which, &spun);
  }
  if (spun) {
    uncountStart(pp);
    wakeNextSpinner();  // S1 without S2: another M must look, as in startm
  }
  return pp;
}

bool idleThread() {
  if (sched.ninplace.load(relaxed) > 0) return true;  // a hint; see choose
  LockScope l(&sched.lock);
  return sched.nmidle > 0;
}

bool threadForP() {
  if (idleThread()) return true;
  if (sched.threadsShort.load(relaxed)) return false;  // a hint
  LockScope l(&sched.lock);
  const int64_t spare = 1 + sched.maxmcount / 64;
  return mcount() + spare < sched.maxmcount;
}

// ---- An M goes idle ---------------------------------------------------------

void stopm() {
  M* mp = getg()->m;
  if (mp->locks.load(relaxed) != 1) fatalthrow("stopm holding locks");  // ours
  if (mp->p != nullptr) fatalthrow("stopm holding p");
  if (mp->spinning) fatalthrow("stopm spinning");
  if (mp == &m0) {
    m0Stop();
    return;
  }
  {
    LockScope l(&sched.lock);
    mput(mp);
  }
  mPark(mp);
}

void gcstopm() {
  M* mp = getg()->m;
  // Pairs with stopTheWorld.
  if (!sched.gcwaiting.load(acquire)) fatalthrow("gcstopm: not waiting for gc");
  if (mp->spinning) {
    mp->spinning = false;
    uncountOnNode(mp);
    // The wakep of startTheWorld starts a spinner again.
    uncountSpinner("gcstopm: negative nmspinning");
  }
  flushYielded(mp->p);
  P* pp = releasep();
  {
    LockScope l(&sched.lock);
    if (sched.gcwaiting.load(relaxed)) {  // written under sched.lock
      countStopped(pp);
    } else {
      pidleput(pp);  // the world has started again meanwhile
    }
  }
  // The threads that set this P's timers rely on us to look at them.
  if (const int64_t when = wakeTime(&pp->timers)) wakeNetPoller(when);
  stopm();
}

void mPark(M* mp) {
  mp->blocked.store(true, relaxed);  // a hint
  notesleep(&mp->park);
  noteclear(&mp->park);
  mp->blocked.store(false, relaxed);
  P* pp = mp->nextp;
  mp->nextp = nullptr;
  if (pp != nullptr) acquirep(pp);
}

void mput(M* mp) {
  SchedNode* np = nodeOf(mp);
  mp->idleNode = static_cast<int8_t>(np - sched.nodes);
  mp->schedlink = np->midle;
  mp->schedprev = nullptr;
  if (np->midle != nullptr) np->midle->schedprev = mp;
  np->midle = mp;
  mp->idle = true;
  sched.nmidle++;
  checkdead();
}

M* mget(SchedNode* near) {
  M* mp = near->midle;
  return mgetSpecific(mp != nullptr ? mp : nearestIdleM(near));
}

M* mgetSpecific(M* mp) {
  if (mp == nullptr || !mp->idle) return nullptr;
  if (mp->schedprev != nullptr) {
    mp->schedprev->schedlink = mp->schedlink;
  } else {
    sched.nodes[mp->idleNode].midle = mp->schedlink;
  }
  if (mp->schedlink != nullptr) mp->schedlink->schedprev = mp->schedprev;
  mp->schedlink = nullptr;
  mp->schedprev = nullptr;
  mp->idle = false;
  sched.nmidle--;
  if (sched.nmidle < sched.nmidleLow) sched.nmidleLow = sched.nmidle;
  return mp;
}

M* mgetChildless() {
  // (C2) of child.cc. The M added its children before it took this lock to go
  // idle. Acquire: pairs with childEnded.
  const int32_t n = sched.nnodes.load(relaxed);  // changes under sched.lock
  for (int32_t k = 0; k < n; k++) {
    M* mp = sched.nodes[k].midle;
    while (mp != nullptr && mp->children.load(acquire) != 0) mp = mp->schedlink;
    if (mp != nullptr) return mgetSpecific(mp);
  }
  return nullptr;
}

}  // namespace gump::rt
