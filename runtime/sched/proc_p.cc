// Ps: attaching them to Ms, the idle list, and changing their number.
//
// A P that is kPidle is on the idle list of its node with an empty ring, or in
// the hands of the M that moves it. idlepMask has a bit for each P on the list,
// so that thieves and parking Ms skip such a P without touching its cache
// lines. While a P is being moved, its bit may be stale. So the bits are hints,
// and the queues are the truth.
#include <new>

#include "runtime/diag/fuzzsched.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/trace.h"
#include "runtime/sched/affinity.h"
#include "runtime/sched/gqueue.h"
#include "runtime/sched/locked.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/numa.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/rt0.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stack.h"
#include "runtime/sched/time.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

constinit Schedt sched;
P* allp[kMaxGomaxprocs];
Atomic<int32_t> gomaxprocs;
Atomic<int32_t> gomaxprocsEver;
PMask idlepMask;

namespace {
// wire is wirep, and returns this M.
// On, P, Locks, Parks: as wirep.
GUMP_ALWAYS_INLINE M* wire(P* pp) {
  M* mp = getg()->m;
  if (mp->p != nullptr) fatalthrow("wirep: already in go");
  if (M* other = pp->m.load(relaxed); other != nullptr) {  // pp is ours
    printf("runtime: wirep: P%d belongs to M%D\n", pp->id, other->id);
    fatalthrow("wirep: invalid p state");
  }
  setPStatus(pp, kPidle, kPrunning);
  mp->p = pp;
  pp->m.store(mp, release);  // pairs with the acquire in preemptone
  if (mayTrace()) traceProcStart(pp);
  return mp;
}
}  // namespace

void acquirep(P* pp) {
  M* mp = wire(pp);
  // Written with the world stopped.
  if (GUMP_UNLIKELY(sched.places.load(relaxed))) placeThread(mp, pp);
  if (GUMP_UNLIKELY(!boundFor(mp, pp))) bindThread(mp);
}

void wirep(P* pp) { (void)wire(pp); }

P* releasep() {
  M* mp = getg()->m;
  P* pp = mp->p;
  if (pp == nullptr) fatalthrow("releasep: invalid arg");
  if (pp->m.load(relaxed) != mp) fatalthrow("releasep: invalid p state");
  if (mayTrace()) traceProcStop(pp);
  mp->p = nullptr;
  pp->oldm = mp;
  pp->m.store(nullptr, relaxed);
  setPStatus(pp, kPrunning, kPidle);
  return pp;
}

namespace {
// updateTimerPMask clears the bit of a P that goes idle without timers. (The
// thread that adds the first timer sets it.)
// On: any.  P: pp, owned by the caller.  Locks: takes a timers' lock.
// Parks: no.
void updateTimerPMask(P* pp) {
  const auto id = static_cast<uint32_t>(pp->id);
  if (!timerpMask.read(id) || pp->timers.len.load(relaxed) != 0) return;
  LockScope l(&pp->timers.mu);  // the bit is set under it
  if (pp->timers.len.load(relaxed) == 0) timerpMask.clear(id);
}
}  // namespace

void pidleput(P* pp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (!runqempty(pp) || !pp->yielded.empty()) {
    fatalthrow("pidleput: P has non-empty run queue");
  }
  updateTimerPMask(pp);
  idlepMask.set(static_cast<uint32_t>(pp->id));
  pp->idleSince = nanotime();
  SchedNode* np = nodeOf(pp);
  pp->link = np->pidle;
  np->pidle = pp;
  if (severalNodes()) np->npidle.add(1, seq_cst);  // as below
  sched.npidle.add(1, seq_cst);  // read by wakep after a publication
}

namespace {
// countTaken is called when an idle P of np has been taken, and there are
// several nodes.
GUMP_NOINLINE void countTaken(SchedNode* np)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (np->pidle == nullptr) np->busySince.store(nanotime(), relaxed);
  np->npidle.add(-1, seq_cst);  // as above
}
}  // namespace

P* pidleget(SchedNode* near) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  SchedNode* np = near->pidle != nullptr ? near : nearestWithIdleP(near);
  P* pp = np->pidle;
  if (pp != nullptr) {
    idlepMask.clear(static_cast<uint32_t>(pp->id));
    np->pidle = pp->link;
    pp->link = nullptr;
    const int64_t now = nanotime();
    sched.idleNS += now - pp->idleSince;
    if (severalNodes()) countTaken(np);
    sched.npidle.add(-1, seq_cst);  // as above
    // sysmon sleeps deeply only while every P is idle. The goroutine that runs
    // here next may never call the kernel, and then it must be preempted. If
    // sysmon wakes by itself within a slice, because of a timer, that is soon
    // enough.
    if (GUMP_UNLIKELY(sched.sysmonwait.load(relaxed)) &&  // under sched.lock
        sched.sysmonUntil - now > kForcePreemptNS) {
      wakeSysmonLocked();
    }
  }
  return pp;
}

void wakeSysmonLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (!sched.sysmonwait.load(relaxed)) return;  // written under sched.lock
  sched.sysmonwait.store(false, relaxed);
  notewakeup(&sched.sysmonnote);
}

P* pidlegetSpinning(SchedNode* near) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  P* pp = pidleget(near);
  // No M can look for work now. An M that is about to give up a P reads this
  // flag in its section of sched.lock, and looks first.
  if (pp == nullptr) sched.needspinning.store(1, seq_cst);
  return pp;
}

namespace {

// newP makes a P, which is kPgcstop.
// On: any.  P: either.  Locks: none.  Parks: no.
P* newP(int32_t id) {
  P* pp = persistentallocOf<P>();
  if (pp == nullptr) fatalthrow("procresize: out of memory");
  pp->id = id;
  pp->timers.id = id;
  if (fuzzing()) pp->fuzz = fuzzSeed(id);
  pp->status.store(kPgcstop, relaxed);  // published with gomaxprocs
  return pp;
}

// destroyP takes all that a P has when procresize removes it.
// On: any.  P: pp, stopped.  Locks: caller holds sched.lock.  Parks: no.
void destroyP(P* pp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  // Its work goes to the front of the global queue, in order, with runnext
  // before all others.
  G* next = pp->runnext.load(relaxed);  // the world is stopped
  pp->runnext.store(nullptr, relaxed);
  uint32_t h = pp->runqhead.load(relaxed);
  uint32_t t = pp->runqtail.load(relaxed);
  for (; t != h; t--)
    globrunqputhead(pp->runq[(t - 1) % kRunqSize].load(relaxed));
  pp->runqtail.store(h, relaxed);
  if (next != nullptr) globrunqputhead(next);
  timersTake(&allp[0]->timers, &pp->timers);
  timerCellsFlush(pp);
  gfpurge(pp);
  stackcacheFlush(pp);
  setPStatus(pp, kPgcstop, kPdead);
}

// lockedMOf returns the M for which pp waits: only the thread of that M may run
// pp's runnext. That goroutine leaves runnext, as it leaves a queue in
// schedule, and its thread is counted as woken. Returns nullptr if any M will
// do.
// On: any.  P: pp, stopped.  Locks: caller holds sched.lock.  Parks: no.
M* lockedMOf(P* pp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  G* gp = pp->runnext.load(relaxed);  // the world is stopped
  if (gp == nullptr || gp->lockedm == nullptr) return nullptr;
  pp->runnext.store(nullptr, relaxed);
  // Once main has ended, startTheWorld releases those in the global queue
  // (releasePreempted), and m0 may have left Run.
  if (sched.mainEnded.load(relaxed)) {  // written under sched.lock
    globrunqputhead(gp);
    return nullptr;
  }
  M* mp = gp->lockedm;
  mp->keepsSlice = pp->keptTick == pp->schedtick.load(relaxed);
  wakeLocked(mp);
  return mp;
}

// chooseMs writes into m of each P of the list which idle M is to run it. First
// each P gets the M that it had, if that M is idle. Only then do the others
// choose, so that they take no M that a later P had.
// On: any.  P: the list, stopped.  Locks: caller holds sched.lock.  Parks: no.
void chooseMs(P* list) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  for (P* pp = list; pp != nullptr; pp = pp->link) {
    if (pp->m.load(relaxed) == nullptr) {
      pp->m.store(mgetSpecific(pp->oldm), relaxed);
    }
  }
  for (P* pp = list; pp != nullptr; pp = pp->link) {
    if (pp->m.load(relaxed) == nullptr) {
      pp->m.store(mget(nodeOf(pp)), relaxed);
    }
  }
}

}  // namespace

P* procresize(int32_t nprocs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  int32_t old = gomaxprocs.load(relaxed);  // the world is stopped
  if (nprocs <= 0 || nprocs > kMaxGomaxprocs || old < 0) {
    fatalthrow("procresize: invalid arg");
  }
  if (old == 1) {
    // This P was the only one, and may have kept the front of the global queue
    // to itself.
    P* sole = allp[0];
    globrunqputfront(&sole->yielded);
    sole->nyielded.store(0, relaxed);  // a hint outside the lock
  }
  for (int32_t i = old; i < nprocs; i++) {
    if (allp[i] == nullptr) {
      allp[i] = newP(i);
    } else {
      setPStatus(allp[i], kPdead, kPgcstop);
    }
  }
  M* self = getg()->m;
  P* own = self->p;
  if (own != nullptr && own->id < nprocs) {
    setPStatus(own, kPgcstop, kPrunning);
  } else if (own != nullptr) {
    // Our P goes away, so carry on with P 0.
    if (mayTrace()) traceMoveP(own, /*begins=*/false);
    own->m.store(nullptr, relaxed);
    self->p = nullptr;
    own = allp[0];
    setPStatus(own, kPgcstop, kPidle);
    wirep(own);
    if (mayTrace()) traceMoveP(own, /*begins=*/true);
  }
  dealPs(nprocs);
  for (int32_t i = nprocs; i < old; i++) destroyP(allp[i]);
  bindPs(nprocs);
  const int64_t now = nanotime();
  if (sched.resizeTime != 0) sched.totalNS += (now - sched.resizeTime) * old;
  sched.resizeTime = now;
  // Pairs with the acquire in loseSpinning: the Ps below nprocs are made.
  gomaxprocs.store(nprocs, release);
  if (nprocs > gomaxprocsEver.load(relaxed)) {  // written here only
    gomaxprocsEver.store(nprocs, release);      // as above
  }
  P* runnable = nullptr;
  for (int32_t i = nprocs - 1; i >= 0; i--) {
    P* pp = allp[i];
    if (pp == own) continue;
    setPStatus(pp, kPgcstop, kPidle);
    // The stop asked for it. If the slice has ended as well, sysmon asks again.
    pp->preempt.store(false, relaxed);
    M* mp = lockedMOf(pp);
    if (mp == nullptr && runqempty(pp)) {
      pidleput(pp);
      continue;
    }
    pp->m.store(mp, relaxed);  // only a message to startTheWorld
    pp->link = runnable;
    runnable = pp;
  }
  chooseMs(runnable);
  return runnable;
}

int32_t numNode() noexcept {
  schedinit();
  return sched.nnodes.load(relaxed);  // it may change as soon as we return
}

int32_t nodeOfCaller() noexcept {
  const G* gp = getg();
  if (gp == nullptr || gp->foreign) return 0;
  M* mp = acquirem();
  const P* pp = mp->p;
  const int32_t node = pp == nullptr ? 0 : pp->node.load(relaxed);
  releasem(mp);
  return node;
}

int32_t procPin() noexcept {
  runtimeEntry();
  P* pp = acquirem()->p;
  return pp == nullptr ? -1 : pp->id;
}

void procUnpin() noexcept { releasem(getg()->m); }

}  // namespace gump::rt
