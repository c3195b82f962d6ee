// Parking, readying and yielding: how a goroutine leaves its M and comes back.
//
// A switch away from a goroutine first saves its context. Only then, on another
// stack, does it publish the goroutine to the threads that may resume it (by
// unlockf, or by a run queue). So no thread can resume a context that is not
// complete.
//
// The other stack is that of g0 (gumpMcall), where schedule finds the next
// goroutine. If the next goroutine is obvious (directNext), the other stack is
// its own, and the switch does not pass through g0 (gumpSwitch). m.locks is 1
// until the publication is over, so the next goroutine is not preempted in the
// middle of it.
//
// Invariants:
//  (K1) A G that is kGwaiting has its context in G::sched. The exception is a
//       foreign one, whose thread waits on its M's note.
//  (K2) After unlockf, or after a runqput of itself, nothing on this M touches
//       the G.
//  (K3) On g0 m.locks is 1, from the acquirem before gumpMcall until the next
//       goroutine is on its own stack. So g0 is never preempted, and no other
//       thread takes its P (preempt_blocked.cc).
#include <algorithm>

#include "runtime/diag/debugvars.h"
#include "runtime/diag/fuzzsched.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/parklocks.h"
#include "runtime/diag/trace.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/extram.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/group.h"
#include "runtime/sched/home.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stack.h"
#include "runtime/sched/stw.h"
#include "runtime/sched/switch.h"
#include "runtime/sched/threadhooks.h"
#include "runtime/sched/tracking.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/synctest.h"

namespace gump::rt {

namespace {

// checkSP checks that gp, which is about to wait at sp, does so on its own
// stack. Pages below sp may be given back while it is parked. A goroutine in
// awaitP may wait on another stack (onOtherStack).
// On: user, or g0.  P: either.  Locks: none.  Parks: no.
GUMP_ALWAYS_INLINE void checkSP(const G* gp, uintptr_t sp) {
  if (GUMP_UNLIKELY(!onOwnStack(gp, sp)) && !gp->onOtherStack) {
    fatalthrow("park: sp outside of the goroutine's stack");
  }
}

}  // namespace

// gumpOnG0 is the g0 half of every switch. fn disposes of gp and returns its
// successor. gumpOnG0 exchanges the state that travels with a goroutine besides
// its registers: errno, and the exception globals, which the C++ ABI keeps per
// thread. The thread itself took their addresses once (minit), so no cached
// thread-local address is involved.
G* gumpOnG0(G* gp, G* (*fn)(G*)) {
  M* mp = getg()->m;
  if (GUMP_LIKELY(gp != &mp->g0)) {
    gp->eh = *mp->eh;
    gp->savedErrno = *mp->errnoAddr;
    if (GUMP_UNLIKELY(gp->unguarded)) stackCheckCanary(gp);
    checkSP(gp, gp->sched.sp);
  }
  G* next = fn(gp);
  if (GUMP_LIKELY(next != nullptr)) {
    *mp->eh = next->eh;
    *mp->errnoAddr = next->savedErrno;
  }
  return next;
}

void dropg() {
  M* mp = getg()->m;
  mp->curg.load(relaxed)->m = nullptr;  // written by us
  mp->curg.store(nullptr, relaxed);
}

void mcallAnnounced(G* (*fn)(G*)) {
  if (!sanitizerOfProgram()) {
    gumpMcall(fn);
    return;
  }
  G* gp = getg();
  const AnnouncedStack left = sanitizerAnnounceThread(gp->m);
  gumpMcall(fn);
  // gp may have changed its M. It does not change it again before it enters the
  // runtime (S4).
  sanitizerAnnounceG(left, gp->m);
}

namespace {

// publish makes gp kGwaiting and calls its unlockf. Returns false if unlockf
// refused.
// On: g0.  P: needed.  Locks: unlockf's.  Parks: no.
GUMP_ALWAYS_INLINE bool publish(G* gp) {
  M* mp = getg()->m;
  casgstatus(gp, kGrunning, kGwaiting);
  dropg();
  auto unlockf = mp->waitunlockf;
  if (unlockf != nullptr) {
    void* lock = mp->waitlock;
    mp->waitunlockf = nullptr;
    mp->waitlock = nullptr;
    if (!unlockf(gp, lock)) {
      casgstatus(gp, kGwaiting, kGrunnable);
      return false;
    }
  }
  return true;
}

// park_m is gopark's half on g0.
// On: g0.  P: needed.  Locks: unlockf's; takes sched.lock.
// Parks: blocks the thread.
G* park_m(G* gp) {
  // gp has a stack, so fuzzExecute returns it.
  if (!publish(gp)) return fuzzExecute(gp, /*inheritTime=*/true);
  return schedule();
}

// executeOrSchedule executes next, to which the slot of a goroutine that left
// was passed on. It calls schedule if there is none, or no stack for it.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: blocks the thread.
G* executeOrSchedule(G* next) {
  if (next != nullptr) next = fuzzExecute(next, /*inheritTime=*/false);
  return next != nullptr ? next : schedule();
}

// parkMember is park_m for a goroutine in a bubble, in a group, or in both: S1
// to S3 of synctest.h, and then L1 of group.cc.
// On, P, Locks, Parks: as park_m.
G* parkMember(G* gp) {
  // Read now: once published, gp is another thread's.
  Bubble* b = gp->bubble;
  Group* g = groupOf(gp);
  const bool idle = b != nullptr && isIdleInSynctest(gp->waitreason);
  if (!publish(gp)) {
    groupKeep(gp);
    return fuzzExecute(gp, /*inheritTime=*/true);
  }
  if (idle) bubbleBlocked(b);
  homeKeep(getg()->m, gp);
  return executeOrSchedule(g == nullptr ? nullptr : groupParked(g));
}

// parkForeign blocks the thread itself, because the pseudo-G of a foreign
// thread is never on a run queue.
// On: a foreign thread.  P: none.  Locks: unlockf's; takes sched.lock.
// Parks: blocks the thread.
GUMP_NOINLINE void parkForeign(G* gp, bool (*unlockf)(G*, void*), void* lock) {
  M* mp = gp->m;
  Bubble* b = isIdleInSynctest(gp->waitreason) ? gp->bubble : nullptr;
  casgstatus(gp, kGrunning, kGwaiting);
  if (unlockf != nullptr && !unlockf(gp, lock)) {
    casgstatus(gp, kGwaiting, kGrunnable);
    casgstatus(gp, kGrunnable, kGrunning);
    releasem(mp);
    return;
  }
  if (b != nullptr) bubbleBlocked(b);
  // F3 of findDeadAfterMain: without sched.lock if main has not ended, else
  // with it. When there is no Run, this may be the last thread to fall asleep.
  if (GUMP_LIKELY(!sched.mainEnded.load(seq_cst))) {
    mp->asleep.store(true, seq_cst);
  }
  if (GUMP_UNLIKELY(sched.mainEnded.load(seq_cst))) {
    LockScope l(&sched.lock);
    mp->asleep.store(true, seq_cst);
    checkdead();
  }
  releasem(mp);
  mp->blocked.store(true, relaxed);  // a hint
  const MutexWait wait(gp->waitreason);
  notesleep(&mp->park);  // readyForeign's notewakeup may come first
  wait.end();
  noteclear(&mp->park);
  mp->blocked.store(false, relaxed);
  mp->asleep.store(false, seq_cst);  // F4
  casgstatus(gp, kGrunnable, kGrunning);
}

// switchTo switches from gp to next, which is current already. It exchanges the
// same state as gumpOnG0 does.
// On: user.  P: needed; m.locks is 1.  Locks: commit's.  Parks: yes.
GUMP_ALWAYS_INLINE void switchTo(G* gp, M* mp, G* next,
                                 void (*commit)(G*, M*)) {
  EhGlobals* eh = mp->eh;
  int* errnoAddr = mp->errnoAddr;
  gp->eh = *eh;
  *eh = next->eh;
  gp->savedErrno = *errnoAddr;
  *errnoAddr = next->savedErrno;
  if (GUMP_UNLIKELY(gp->unguarded)) stackCheckCanary(gp);
  checkSP(gp, reinterpret_cast<uintptr_t>(__builtin_frame_address(0)));
  gumpSwitch(gp, next, commit);
}

// gumpSwitch calls parkCommit, unlockCommit, yieldCommit or ringCommit to
// publish gp.
// On: user, the stack of the next goroutine.  P: needed; m.locks is 1.
// Locks: unlockf's; take sched.lock.  Parks: no.
// Their usual cases keep no value across a call, and save no registers.
GUMP_NOINLINE void parkCommitInGeneral(G* gp, M* mp) {
  casgstatus(gp, kGrunning, kGwaiting);
  gp->m = nullptr;
  if (!mp->waitunlockf(gp, mp->waitlock)) {
    fatalthrow("goparkcommit: unlockf refused");
  }
}
void parkCommit(G* gp, M* mp) {
  if (GUMP_UNLIKELY(!isPlain(gp, kGrunning))) {
    parkCommitInGeneral(gp, mp);
    return;
  }
  gp->atomicstatus.store(kGwaiting, release);  // as in casgstatus
  gp->m = nullptr;
  if (!mp->waitunlockf(gp, mp->waitlock)) {
    fatalthrow("goparkcommit: unlockf refused");
  }
}
// unlockCommit is parkCommit for goparkunlock.
void unlockCommit(G* gp, M* mp) ABSL_NO_THREAD_SAFETY_ANALYSIS {  // parkunlock
  if (GUMP_UNLIKELY(!isPlain(gp, kGrunning))) {
    parkCommitInGeneral(gp, mp);
    return;
  }
  gp->atomicstatus.store(kGwaiting, release);  // as in casgstatus
  gp->m = nullptr;
  unlock(static_cast<Mutex*>(mp->waitlock));
}

GUMP_NOINLINE void yieldCommitInGeneral(G* gp, M* mp) {
  casgstatus(gp, kGrunning, kGrunnable);
  gp->m = nullptr;
  pushYielded(mp->p, gp);
}
void yieldCommit(G* gp, M* mp) {
  if (GUMP_UNLIKELY(!isPlain(gp, kGrunning) ||
                    globalWaits())) {  // as adoptGlobal
    yieldCommitInGeneral(gp, mp);
    return;
  }
  gp->atomicstatus.store(kGrunnable, release);  // as in casgstatus
  gp->m = nullptr;
  pushYieldedHere(mp->p, gp);
}

// yieldSole is gosched with one P, if directNext finds the next goroutine.
// Returns false if it has done nothing. It first picks the next goroutine and
// then queues gp behind all others, so gp is never next while there is another.
// The caller has called acquirem once and then seen soleP(), so the M and the
// number of Ps are certain. `member`: gp is in a group.
// On: user.  P: needed; m.locks is 1.  Locks: takes sched.lock.  Parks: yes.
GUMP_ALWAYS_INLINE bool yieldSole(G* gp, M* mp, bool member) {
  if (kSanitizerBuild) return false;
  if (mp->locks.load(relaxed) != 1) return false;  // schedule will complain
  G* next = member ? groupNext(gp, mp, /*yields=*/true) : directNext(mp);
  if (next == nullptr) return false;
  switchTo(gp, mp, next, yieldCommit);
  return true;
}

using YieldOnG0 = G*(G* gp);
G* goschedImpl(G* gp);
G* turnOverImpl(G* gp);

void ringCommitInGeneral(G* gp, M* mp) {
  casgstatus(gp, kGrunning, kGrunnable);
  gp->m = nullptr;
  runqputNow(mp->p, gp, /*next=*/false);
}
void ringCommit(G* gp, M* mp) {
  if (GUMP_UNLIKELY(!isPlain(gp, kGrunning))) {
    ringCommitInGeneral(gp, mp);
  } else {
    gp->atomicstatus.store(kGrunnable, release);  // as in casgstatus
    gp->m = nullptr;
    runqputNow(mp->p, gp, /*next=*/false);
  }
  // W1 of the essay in proc.cc: wakep must not read before gp is published.
  fence(seq_cst);
  wakep();
}

// yieldInRing is gosched with several Ps. It returns nullptr once gp runs
// again. If gp must yield on g0, it returns the function for gumpMcall instead;
// gp still runs then, and is in no queue. Usually gp goes to the tail of its
// P's ring, where thieves find it, and the next goroutine comes from the same
// P.
//
// In Go, gp goes to the tail of the global queue. So all Ps whose goroutines
// yield share sched.lock, and the cache lines that it guards. Here:
//  * The ring and the global queue take turns. Once each goroutine of the ring
//    has run, turnOverImpl takes a share of the global queue.
//  * If nothing else can run on this P, gp goes on in a new slice. At each 61st
//    slice, and if timers are due, turnOverImpl also looks into the rings of
//    other Ps. gp may wait for a goroutine that is there.
//  * gp goes to the global queue if it was asked to yield, if it is bound to
//    its thread, with several nodes, under fuzzsched, and while a goroutine
//    profile is taken.
// On: user.  P: needed; m.locks is 1.  Locks: takes sched.lock.  Parks: yes.
GUMP_ALWAYS_INLINE YieldOnG0* yieldInRing(G* gp, M* mp) {
  P* pp = mp->p;
  // The loads read our own words, or hints.
  if (kSanitizerBuild || mp->locks.load(relaxed) != 1 ||
      pp->records.load(relaxed) != 0 || gp->preempt.load(relaxed) ||
      mp->lockedg != nullptr) {
    return goschedImpl;
  }
  const uint32_t n = runqlen(pp);
  if (n == 0 && pp->runnext.load(relaxed) == nullptr) {
    checkSP(gp, reinterpret_cast<uintptr_t>(__builtin_frame_address(0)));
    if (!goOnAlone(mp, gp)) return turnOverImpl;
    releasem(mp);
    return nullptr;
  }
  if (GUMP_LIKELY(!globalWaits())) {
    pp->ringYields = 0;
  } else if (++pp->ringYields > n && pp->runnext.load(relaxed) == nullptr) {
    return turnOverImpl;
  }
  if (GUMP_UNLIKELY(n == kRunqSize) && pp->runnext.load(relaxed) != nullptr) {
    return goschedImpl;  // there is no room for gp behind runnext
  }
  G* next = directNext(mp);
  if (next == nullptr) return goschedImpl;
  switchTo(gp, mp, next, ringCommit);
  return nullptr;
}

// parkunlock is the unlockf of goparkunlock.
bool parkunlock(G*, void* l)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // releases a lock taken before the switch
  unlock(static_cast<Mutex*>(l));
  return true;
}

// queueYielded queues gp, which is runnable, for goschedImpl.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: blocks the thread.
GUMP_ALWAYS_INLINE G* queueYielded(G* gp) {
  if (soleP()) {
    pushYielded(getg()->m->p, gp);
    return schedule();
  }
  {
    LockScope l(&sched.lock);
    globrunqput(gp);
  }
  wakep();
  return schedule();
}

// goschedImpl makes gp runnable at the tail of the global queue, so that all
// other goroutines go first.
// On, P, Locks, Parks: as queueYielded.
G* goschedImpl(G* gp) {
  casgstatus(gp, kGrunning, kGrunnable);
  dropg();
  return queueYielded(gp);
}

// takeShare takes this P's share of the global queue, as far as the ring has
// room for it and for one more. It returns the first goroutine of the share,
// and puts the others into the ring. If the first was preempted in place, it
// takes nothing and stores true in *inPlace: schedule must take such a
// goroutine from the global queue itself. There is one node (yieldInRing).
// On: g0.  P: pp.  Locks: takes sched.lock.  Parks: no.
G* takeShare(P* pp, bool* inPlace) {
  if (!globalWaits()) return nullptr;
  LockScope l(&sched.lock);
  globrunqcollect();
  SchedNode* np = nodeOf(pp);
  if (np->runq.empty()) return nullptr;
  *inPlace = np->runq.head()->inPlace;
  if (*inPlace) return nullptr;
  // The first needs no room. Thieves may make more room meanwhile.
  const uint32_t room = kRunqSize - runqlen(pp);
  return globrunqgetbatch(
      np, pp, static_cast<int32_t>(std::clamp(room, 1u, kRunqSize / 2)));
}

// stealForYield steals half of the first ring that is not empty into pp, whose
// ring must be empty. It leaves runnext, which the victim is about to run.
// On: g0.  P: pp.  Locks: none.  Parks: no.
G* stealForYield(P* pp) {
  // gomaxprocs is written with the world stopped.
  const int32_t n = gomaxprocs.load(relaxed);
  for (int32_t i = 1; i < n; i++) {
    P* victim = allp[(pp->id + i) % n];
    if (runqlen(victim) == 0) continue;
    G* gp = runqsteal(pp, victim, /*stealRunNextG=*/false);
    if (gp != nullptr) return gp;
  }
  return nullptr;
}

// turnOverImpl makes gp runnable, and ends the turn of its P's ring
// (yieldInRing). It takes a share of the global queue, and puts gp at the tail
// of the ring. If the ring is full, half of it and then gp go to the tail of
// the global queue before that. If the first goroutine of the global queue was
// preempted in place, gp and all of the ring go there, and schedule takes the
// first.
// On, P, Locks, Parks: as queueYielded.
G* turnOverImpl(G* gp) {
  P* pp = getg()->m->p;
  casgstatus(gp, kGrunning, kGrunnable);
  dropg();
  pp->ringYields = 0;
  // A ring that is not full keeps a place for gp: takeShare leaves one, and
  // thieves only make room.
  const bool full = runqlen(pp) == kRunqSize;
  if (full) runqputNow(pp, gp, /*next=*/false);  // another M may run gp now
  bool inPlace = false;
  G* next = takeShare(pp, &inPlace);
  if (inPlace) {
    GQueue q = runqdrain(pp);
    if (!full) q.pushBack(gp);
    LockScope l(&sched.lock);
    globrunqputbatch(&q);
  } else {
    if (next == nullptr && runqempty(pp)) next = stealForYield(pp);
    if (!full) runqputNow(pp, gp, /*next=*/false);
    if (next != nullptr) {
      beginSlice(pp);  // from runnext, next would inherit the slice of gp
      runqputNow(pp, next, /*next=*/true);
    }
    // W1 of the essay in proc.cc: the ring is written by release stores. (If
    // there is a next, its way into runnext is a fence, too.)
    fence(seq_cst);
  }
  // Needed even if gp is alone: there may be no M that polls the network.
  wakep();
  return schedule();
}

// goschedSpecialImpl is goschedImpl for a goroutine that may be in a group. If
// others of the group wait for a slot, gp waits behind them.
// On, P, Locks, Parks: as queueYielded.
G* goschedSpecialImpl(G* gp) {
  casgstatus(gp, kGrunning, kGrunnable);
  dropg();
  G* next = nullptr;
  return groupYield(gp, &next) ? executeOrSchedule(next) : queueYielded(gp);
}

// gopreemptImpl is goschedImpl for a goroutine that was asked to yield. If a
// stop of the world asked, gp stays the next goroutine of its P, and goes on
// there when the world starts again.
// On, P, Locks, Parks: as goschedImpl.
G* gopreemptImpl(G* gp) {
  if (GUMP_UNLIKELY(gp->special) && getg()->m->home != nullptr) {
    return homePreempt(gp);
  }
  P* pp = getg()->m->p;
  // A hint: if the stop is over already, gp merely keeps its P.
  if (!sched.gcwaiting.load(relaxed) || !keepsNext(pp)) {
    return goschedSpecialImpl(gp);
  }
  casgstatus(gp, kGrunning, kGrunnable);
  dropg();
  if (GUMP_UNLIKELY(gp->special)) groupHold(gp);
  runqput(pp, gp, /*next=*/true);
  return schedule();
}

// goyield_m makes gp runnable at the tail of the local ring.
// On, P, Locks, Parks: as goschedImpl.
G* goyield_m(G* gp) {
  if (GUMP_UNLIKELY(gp->special) && getg()->m->home != nullptr) {
    return homeYield(gp);
  }
  casgstatus(gp, kGrunning, kGrunnable);
  dropg();
  if (GUMP_UNLIKELY(gp->special)) groupYieldNow(gp);
  runqput(getg()->m->p, gp, /*next=*/false);
  return schedule();
}

// parkWithoutP ends a program whose goroutine parks inside a declared call.
// There is no P to find the next goroutine with, and this one may be on its
// thread for a reason.
[[noreturn]] GUMP_NOINLINE void parkWithoutP() {
  fatal("goroutine parks inside gump::blocking");
}

// mayGoDirectly tells whether gp, which is special, may switch straight to the
// next goroutine: it is special only because it is in a group.
// On: user.  P: either.  Locks: none.  Parks: no.
bool mayGoDirectly(const G* gp) {
  return !kSanitizerBuild && gp->group != 0 && gp->bubble == nullptr &&
         !sanitizerOfProgram();
}

// parkSpecialOnG0 is the end of parkSpecial if there is no next goroutine. It
// has a frame of its own, so that parkSpecial needs few registers.
// On, P, Locks, Parks: as gopark.
GUMP_NOINLINE void parkSpecialOnG0() { mcallAnnounced(parkMember); }

// parkSpecial parks a goroutine that is special, or a foreign thread.
// `commits`: unlockf never returns false, and may run on another goroutine's
// stack.
// On, Locks, Parks: as gopark.
GUMP_NOINLINE void parkSpecial(G* gp, M* mp, bool (*unlockf)(G*, void*),
                               void* lock, bool commits) {
  if (GUMP_UNLIKELY(gp->foreign)) {
    parkForeign(gp, unlockf, lock);
    return;
  }
  if (GUMP_UNLIKELY(debug.parklocks == 1)) {  // waitReasonString is a call
    reportHeldLocks(gp, "parks", waitReasonString(gp->waitreason));
  }
  if (GUMP_UNLIKELY(mp->p == nullptr)) parkWithoutP();
  mp->waitunlockf = unlockf;
  mp->waitlock = lock;
  G* next = nullptr;
  if (commits && mayGoDirectly(gp)) next = groupNext(gp, mp, /*yields=*/false);
  if (GUMP_UNLIKELY(next == nullptr)) {
    parkSpecialOnG0();
    return;
  }
  switchTo(gp, mp, next, parkCommit);
}

// parkEntry is the common beginning of all ways of parking. Returns false if gp
// is special. Then gp has parked, has been woken, and goes on.
// On, Locks, Parks: as gopark.
GUMP_ALWAYS_INLINE bool parkEntry(G* gp, M* mp, bool (*unlockf)(G*, void*),
                                  void* lock, WaitReason reason, bool commits) {
  if (GUMP_UNLIKELY(mp->locks.load(relaxed) != 1)) {  // written by us only
    printf("runtime: gopark with m.locks=%d\n", mp->locks.load(relaxed));
    fatalthrow("gopark: bad m.locks");
  }
  gp->waitreason = reason;
  if (GUMP_UNLIKELY(gp->special)) {
    parkSpecial(gp, mp, unlockf, lock, commits);
    return false;
  }
  if (GUMP_UNLIKELY(mp->p == nullptr)) parkWithoutP();
  mp->waitunlockf = unlockf;
  mp->waitlock = lock;
  return true;
}

// parkDirectly parks the current goroutine, and switches straight to the next
// one if there is an obvious one. Then `commit` publishes the goroutine.
// On, Locks, Parks: as gopark.
GUMP_ALWAYS_INLINE void parkDirectly(bool (*unlockf)(G*, void*), void* lock,
                                     WaitReason reason,
                                     void (*commit)(G*, M*)) {
  G* gp = getg();
  M* mp = gp->m;
  if (!parkEntry(gp, mp, unlockf, lock, reason, /*commits=*/true)) return;
  G* next = kSanitizerBuild ? nullptr : directNext(mp);
  if (next == nullptr) {
    gumpMcall(park_m);
  } else {
    switchTo(gp, mp, next, commit);
  }
}

}  // namespace

void gopark(bool (*unlockf)(G*, void*), void* lock, WaitReason reason) {
  G* gp = getg();
  if (parkEntry(gp, gp->m, unlockf, lock, reason, /*commits=*/false)) {
    gumpMcall(park_m);
  }
}

void goparkcommit(bool (*unlockf)(G*, void*), void* lock, WaitReason reason) {
  parkDirectly(unlockf, lock, reason, parkCommit);
}

void goparkunlock(Mutex* l, WaitReason reason) {
  parkDirectly(parkunlock, l, reason, unlockCommit);
}

// The thread is not M::asleep, because it wakes up by itself:
// findDeadAfterMain.
bool goparkthread(Mutex* l, WaitReason reason, int64_t when,
                  bool (*withdraw)(void*), void* arg)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // releases the caller's lock
  G* gp = getg();
  M* mp = gp->m;
  gp->waitreason = reason;
  casgstatus(gp, kGrunning, kGwaiting);
  unlock(l);
  releasem(mp);
  const MutexWait wait(reason);
  const int64_t left = when - nanotime();
  bool woken = notetsleep(&mp->park, left > 0 ? left : 0);
  if (!woken && !withdraw(arg)) {
    notesleep(&mp->park);  // the waker is about to ready gp
    woken = true;
  }
  wait.end();
  if (woken) {
    noteclear(&mp->park);
  } else {
    casgstatus(gp, kGwaiting, kGrunnable);  // no waker will do it
  }
  casgstatus(gp, kGrunnable, kGrunning);
  return woken;
}

namespace {
// ready is goready without wakep, and not for foreign threads. gp has status
// `from`. The caller keeps mp's P.
// On: any, m.locks > 0.  P: either.  Locks: takes sched.lock.  Parks: no.
GUMP_ALWAYS_INLINE void ready(M* mp, G* gp, uint32_t from = kGwaiting) {
  casgstatus(gp, from, kGrunnable);
  if (GUMP_LIKELY(mp->p != nullptr)) {
    runqput(mp->p, gp, /*next=*/true);
  } else {
    globrunqpost(gp);
  }
}

// readyForeign wakes the thread of gp, which is a foreign thread's.
// On: any.  P: either.  Locks: none.  Parks: no.
void readyForeign(G* gp) {
  M* mp = gp->m;
  casgstatus(gp, kGwaiting, kGrunnable);  // gp has only this waker
  notewakeup(&mp->park);
}

// readySpecial does the extra work for a special gp before it is readied.
// Returns true if that was all.
// On: any.  P: either.  Locks: takes a leaf; as goready.  Parks: no.
GUMP_NOINLINE bool readySpecial(G* gp) {
  if (gp->bubble != nullptr) bubbleReady(gp);
  groupReady(gp);
  if (gp->foreign) {
    readyForeign(gp);
    return true;
  }
  if (homeOf(gp) == nullptr) return false;
  M* mp = acquirem();
  casgstatus(gp, kGwaiting, kGrunnable);
  homeReady(gp);
  releasem(mp);
  return true;
}
}  // namespace

namespace {
// The ends of readyAndRelease. The first is for all cases. The second passes
// the place of the old runnext on, and the third wakes an M if one is needed.
// On: any, m.locks > 0.  P: either.  Locks: take sched.lock.  Parks: no.
GUMP_NOINLINE void readyInGeneral(M* mp, G* gp, uint32_t from) {
  ready(mp, gp, from);
  wakep();
  releasem(mp);
}
GUMP_NOINLINE void kickAndRelease(M* mp, G* old) {
  runqput(mp->p, old, /*next=*/false);
  wakep();
  releasem(mp);
}
GUMP_NOINLINE void wakeAndReleaseM(M* mp) {
  wakep();
  releasem(mp);
}
}  // namespace

void readyAndRelease(M* mp, G* gp, uint32_t from) {
  P* pp = mp->p;
  // With a P, we need not compete for the status with a scanner, if there is
  // none (casgstatus).
  if (GUMP_UNLIKELY(pp == nullptr || pp->fuzz != 0 ||
                    scanners.load(acquire) != 0 || !isPlain(gp, from))) {
    readyInGeneral(mp, gp, from);
    return;
  }
  gp->atomicstatus.store(kGrunnable, release);  // as in casgstatus
  G* old = swapRunnext(pp, gp);
  if (old != nullptr) {
    kickAndRelease(mp, old);
  } else if (soleP()) {
    releasem(mp);  // see wakep
  } else {
    wakeAndReleaseM(mp);
  }
}

void goready(G* gp) {
  if (GUMP_UNLIKELY(gp->special) && readySpecial(gp)) return;
  readyAndRelease(acquirem(), gp, kGwaiting);  // keeps the P until it is queued
}

void goreadyQuiet(G* gp) {
  if (GUMP_UNLIKELY(gp->special) && readySpecial(gp)) return;
  M* mp = getg()->m;
  if (severalNodes() && readyOnItsNode(mp, gp)) return;
  ready(mp, gp);
  if (mp->p == nullptr) wakep();  // gp is not ours to run
}

namespace {
// goschedSpecial is called by gosched on a foreign thread, where gp may be
// nullptr, and for a goroutine gp that is special. On a foreign thread it lets
// the kernel run other threads. A goroutine goes to the tail of the global
// queue. It switches directly to the next one only if no sanitizer of the
// program must know.
// On: user, or a foreign thread.  P: either.  Locks: takes sched.lock.
// Parks: yes. A foreign thread, and a goroutine without a P, do not.
GUMP_NOINLINE void goschedSpecial(G* gp) {
  if (gp == nullptr || gp->foreign) {
    dieIfForked();
    osyield();
    return;
  }
  M* mp = acquirem();
  if (GUMP_UNLIKELY(mp->p == nullptr)) {  // in a declared call
    releasem(mp);
    osyield();
    return;
  }
  checkHeldLocks(gp, "yields", "Gosched");
  if (mp->home != nullptr) {
    mcallAnnounced(homeYield);
    return;
  }
  // yieldSole switches directly to the next goroutine, against (S5).
  if (sanitizerOfProgram() || !soleP() || !yieldSole(gp, mp, gp->group != 0)) {
    mcallAnnounced(goschedSpecialImpl);
  }
}

// goschedSeveral is gosched with several Ps. It is a function of its own, so
// that gosched ends with calls and saves no registers.
// On: user.  P: needed; m.locks is 1.  Locks: takes sched.lock.  Parks: yes.
GUMP_NOINLINE void goschedSeveral(G* gp, M* mp) {
  YieldOnG0* onG0 = yieldInRing(gp, mp);
  if (onG0 != nullptr) gumpMcall(onG0);
}
}  // namespace

// gosched queues the current goroutine (yieldSole and yieldInRing say where),
// and runs another. The goroutine makes the shortest way itself: it is not
// special, has a P, and may find the next goroutine without g0. All else is
// goschedSpecial's. In a declared call there is no P to give up, so gosched
// lets the kernel run other threads.
// On: user, or a foreign thread.  P: either.  Locks: takes sched.lock.
// Parks: yes, unless there is no P.
void gosched() noexcept {
  G* gp = getg();
  if (GUMP_UNLIKELY(gp == nullptr || gp->special)) {
    goschedSpecial(gp);
    return;
  }
  M* mp = acquirem(gp->m);
  if (GUMP_UNLIKELY(mp->p == nullptr)) {  // in a declared call
    releasem(mp);
    osyield();
    return;
  }
  if (GUMP_UNLIKELY(!soleP())) {
    goschedSeveral(gp, mp);
  } else if (!yieldSole(gp, mp, /*member=*/false)) {
    gumpMcall(goschedImpl);
  }
}

void gopreempt() {
  M* mp = acquirem();
  // The request is honoured here, so the next goroutine does not inherit it
  // (execute).
  mp->p->preempt.store(false, relaxed);  // best effort
  checkHeldLocks(getg(), "yields", "asked to");
  mp->trace.preempted = true;
  mcallAnnounced(gopreemptImpl);
}

void goyield() {
  (void)acquirem();
  checkHeldLocks(getg(), "yields", "to a waiter");
  mcallAnnounced(goyield_m);
}

namespace {
// runtimeEntrySlow is runtimeEntry for a foreign thread, or if there is a
// request to yield.
// On, P, Locks, Parks: as runtimeEntry.
GUMP_NOINLINE G* runtimeEntrySlow(G* gp) {
  if (gp == nullptr) return needm();
  if (inThreadHook(gp->m)) dieInThreadHook();  // (T2) of threadhooks.cc
  // Ours: written by us only.
  if (gp->foreign || gp->m->locks.load(relaxed) != 0) return gp;
  // In a declared call it has given up its P already. (M.p can be relied on
  // only behind an acquirem.)
  if ((readgstatus(gp) & ~uint32_t{kGscan}) == kGsyscall) return gp;
  // On a stack of the program's it must not wait here (checkSP). sysmon will
  // have it preempted in place.
  if (!onOwnStack(gp,
                  reinterpret_cast<uintptr_t>(__builtin_frame_address(0)))) {
    return gp;
  }
  if (!fuzzing() || fuzzYields()) gopreempt();
  return gp;
}
}  // namespace

G* runtimeEntry() {
  G* gp = getg();
  // A request, which sysmon repeats if we miss it.
  if (GUMP_UNLIKELY(gp == nullptr || gp->preempt.load(relaxed))) {
    return runtimeEntrySlow(gp);
  }
  return gp;
}

}  // namespace gump::rt
