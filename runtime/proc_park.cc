// Parking, readying and yielding: how a goroutine leaves its M and comes back.
//
// A switch away from a goroutine saves its context first, and only then, on
// another stack, publishes the goroutine to whoever may resume it (by unlockf,
// by a run queue). So nobody can resume a context that is not complete.
//
// The other stack is g0's (gumpMcall), which finds the next goroutine at its
// leisure. Where the next one can be told at a glance (directNext), it is that
// one's own, and g0 is spared (gumpSwitch). m.locks is 1 until the publication
// is over, so the next goroutine is not preempted in the middle of it.
//
// Invariants:
//  (K1) A G that is kGwaiting has its context in sched, except a foreign one,
//       whose thread waits on its M's note.
//  (K2) After unlockf, or after a runqput of itself, nothing on this M touches
//       the G.
//  (K3) On g0 m.locks is 1, from the acquirem before gumpMcall until the next
//       goroutine is on its own stack: g0 is never preempted, nor does anybody
//       take its P (preempt.cc).
#include "runtime/fuzzsched.h"
#include "runtime/os_linux.h"
#include "runtime/panic.h"
#include "runtime/proc.h"
#include "runtime/sanitizer.h"
#include "runtime/synctest.h"

namespace gump::rt {

namespace {

// checkSP makes sure that gp, which is about to wait at sp, does so on its own
// stack: what lies below sp is given back then. But for who waits for a P
// (awaitP).
GUMP_ALWAYS_INLINE void checkSP(const G* gp, uintptr_t sp) {
  if (GUMP_UNLIKELY(!onOwnStack(gp, sp)) && !gp->onOtherStack) {
    fatalthrow("park: sp outside of the goroutine's stack");
  }
}

}  // namespace

// gumpOnG0 is the g0 half of every switch: fn disposes of gp and names its
// successor. What travels with a goroutine beside its registers is exchanged
// here: the exception globals, which the C++ ABI keeps per thread, and errno.
// Their addresses were taken once, by the thread itself (minit), so no cached
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

namespace {

// publish makes gp kGwaiting and calls its unlockf. False: that refused.
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

G* park_m(G* gp) {
  // It has a stack, so it is returned.
  if (!publish(gp)) return fuzzExecute(gp, /*inheritTime=*/true);
  return schedule();
}

// parkBubble is park_m for a goroutine in a bubble: S1 to S3 of synctest.h.
G* parkBubble(G* gp) {
  Bubble* b = gp->bubble;  // gp is another's once it is published
  const bool idle = isIdleInSynctest(gp->waitreason);
  if (!publish(gp)) return fuzzExecute(gp, /*inheritTime=*/true);
  if (idle) bubbleBlocked(b);
  return schedule();
}

// parkForeign blocks the thread itself: the pseudo-G of a plain thread is never
// on a run queue.
void parkForeign(G* gp, bool (*unlockf)(G*, void*), void* lock) {
  M* mp = gp->m;
  Bubble* b = isIdleInSynctest(gp->waitreason) ? gp->bubble : nullptr;
  gp->waitsince = 0;  // of an earlier wait
  casgstatus(gp, kGrunning, kGwaiting);
  if (unlockf != nullptr && !unlockf(gp, lock)) {
    casgstatus(gp, kGwaiting, kGrunnable);
    casgstatus(gp, kGrunnable, kGrunning);
    releasem(mp);
    return;
  }
  if (b != nullptr) bubbleBlocked(b);
  // F3 of findDeadAfterMain, without its lock if main has not ended, else with
  // it. Without a Run, this may be the last thread to fall asleep.
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
  notesleep(&mp->park);              // readyForeign's notewakeup may come first
  noteclear(&mp->park);
  mp->blocked.store(false, relaxed);
  mp->asleep.store(false, seq_cst);  // F4
  casgstatus(gp, kGrunnable, kGrunning);
}

// switchTo goes from gp to next, which is current. What gumpOnG0 exchanges on
// the long way is exchanged here.
void switchTo(G* gp, M* mp, G* next, void (*commit)(G*, M*)) {
  gp->eh = *mp->eh;
  *mp->eh = next->eh;
  gp->savedErrno = *mp->errnoAddr;
  *mp->errnoAddr = next->savedErrno;
  if (GUMP_UNLIKELY(gp->unguarded)) stackCheckCanary(gp);
  checkSP(gp, reinterpret_cast<uintptr_t>(__builtin_frame_address(0)));
  gumpSwitch(gp, next, commit);
}

// parkCommit and yieldCommit are what gumpSwitch calls to publish gp.
void parkCommit(G* gp, M* mp) {
  casgstatus(gp, kGrunning, kGwaiting);
  gp->m = nullptr;
  if (!mp->waitunlockf(gp, mp->waitlock)) {
    fatalthrow("goparkcommit: unlockf refused");
  }
}

void yieldCommit(G* gp, M* mp) {
  casgstatus(gp, kGrunning, kGrunnable);
  gp->m = nullptr;
  pushYielded(mp->p, gp);
}

// yieldSole is gosched with one P, if directNext knows; false: nothing was
// done. First who is next, then gp behind all others: gp itself is never next
// while there is anybody else. The caller has called acquirem once: which M and
// how many Ps there are is certain only then.
bool yieldSole(G* gp, M* mp) {
  if (kSanitizerBuild || !soleP()) return false;
  if (mp->locks.load(relaxed) != 1) return false;  // goschedImpl will complain
  G* next = directNext(mp);
  if (next == nullptr) return false;
  switchTo(gp, mp, next, yieldCommit);
  return true;
}

bool parkunlock(G*, void* l)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // releases a lock taken before the switch
  unlock(static_cast<Mutex*>(l));
  return true;
}

// goschedImpl makes gp runnable at the tail of the global queue, so that
// everyone else goes first.
G* goschedImpl(G* gp) {
  casgstatus(gp, kGrunning, kGrunnable);
  dropg();
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

G* goyield_m(G* gp) {
  casgstatus(gp, kGrunning, kGrunnable);
  dropg();
  runqput(getg()->m->p, gp, /*next=*/false);
  return schedule();
}

// parkWithoutP ends a program whose goroutine parks in a declared system call:
// there is no P to find the next one with, and it may be on its thread for a
// reason.
[[noreturn]] GUMP_NOINLINE void parkWithoutP() {
  fatal("goroutine parks inside gump::blocking");
}

// parkSpecial parks a goroutine of a bubble, or a plain thread.
GUMP_NOINLINE void parkSpecial(G* gp, M* mp, bool (*unlockf)(G*, void*),
                               void* lock) {
  if (gp->foreign) {
    parkForeign(gp, unlockf, lock);
    return;
  }
  if (mp->p == nullptr) parkWithoutP();
  mp->waitunlockf = unlockf;
  mp->waitlock = lock;
  gumpMcall(parkBubble);
}

// parkEntry is what every way of parking begins with. False: gp is special, has
// slept, and goes on.
GUMP_ALWAYS_INLINE bool parkEntry(G* gp, M* mp, bool (*unlockf)(G*, void*),
                                  void* lock, WaitReason reason) {
  if (GUMP_UNLIKELY(mp->locks.load(relaxed) != 1)) {  // written by us only
    printf("runtime: gopark with m.locks=%d\n", mp->locks.load(relaxed));
    fatalthrow("gopark: bad m.locks");
  }
  gp->waitreason = reason;
  if (GUMP_UNLIKELY(gp->special)) {
    parkSpecial(gp, mp, unlockf, lock);
    return false;
  }
  if (GUMP_UNLIKELY(mp->p == nullptr)) parkWithoutP();
  mp->waitunlockf = unlockf;
  mp->waitlock = lock;
  return true;
}

}  // namespace

void gopark(bool (*unlockf)(G*, void*), void* lock, WaitReason reason) {
  G* gp = getg();
  if (parkEntry(gp, gp->m, unlockf, lock, reason)) gumpMcall(park_m);
}

void goparkcommit(bool (*unlockf)(G*, void*), void* lock, WaitReason reason) {
  G* gp = getg();
  M* mp = gp->m;
  if (!parkEntry(gp, mp, unlockf, lock, reason)) return;
  G* next = kSanitizerBuild ? nullptr : directNext(mp);
  if (next == nullptr) {
    gumpMcall(park_m);
  } else {
    switchTo(gp, mp, next, parkCommit);
  }
}

void goparkunlock(Mutex* l, WaitReason reason) {
  goparkcommit(parkunlock, l, reason);
}

namespace {
// ready is goready for a goroutine, without wakep; the caller keeps mp's P.
GUMP_ALWAYS_INLINE void ready(M* mp, G* gp) {
  casgstatus(gp, kGwaiting, kGrunnable);
  if (GUMP_LIKELY(mp->p != nullptr)) {
    runqput(mp->p, gp, /*next=*/true);
  } else {
    LockScope l(&sched.lock);
    globrunqput(gp);
  }
}

void readyForeign(G* gp) {
  M* mp = gp->m;
  casgstatus(gp, kGwaiting, kGrunnable);  // the one winner
  notewakeup(&mp->park);
}

// readySpecial does what a special gp wants before it is readied. True: that
// was all.
GUMP_NOINLINE bool readySpecial(G* gp) {
  if (gp->bubble != nullptr) bubbleReady(gp);
  if (!gp->foreign) return false;
  readyForeign(gp);
  return true;
}
}  // namespace

void goready(G* gp) {
  if (GUMP_UNLIKELY(gp->special) && readySpecial(gp)) return;
  M* mp = acquirem();  // keep the P between here and runqput
  ready(mp, gp);
  wakep();
  releasem(mp);
}

void goreadyQuiet(G* gp) {
  if (GUMP_UNLIKELY(gp->special) && readySpecial(gp)) return;
  M* mp = getg()->m;
  ready(mp, gp);
  if (mp->p == nullptr) wakep();  // it is not ours to run
}

void gosched() noexcept {
  G* gp = getg();
  if (gp == nullptr || gp->foreign) {
    if (forked.load(relaxed)) dieForked();  // written by this very thread
    osyield();
    return;
  }
  M* mp = acquirem();
  if (GUMP_UNLIKELY(mp->p == nullptr)) {  // given up already, in entersyscall
    releasem(mp);
    osyield();
    return;
  }
  if (!yieldSole(gp, mp)) gumpMcall(goschedImpl);
}

void gopreempt() {
  M* mp = acquirem();
  // Honoured: who is next does not inherit the request (execute).
  mp->p->preempt.store(false, relaxed);  // best effort
  gumpMcall(goschedImpl);
}

void goyield() {
  (void)acquirem();
  gumpMcall(goyield_m);
}

namespace {
GUMP_NOINLINE G* runtimeEntrySlow(G* gp) {
  if (gp == nullptr) return needm();
  // Ours: written by us only.
  if (gp->foreign || gp->m->locks.load(relaxed) != 0) return gp;
  // It has given its P up already. (M.p tells only behind an acquirem.)
  if ((readgstatus(gp) & ~uint32_t{kGscan}) == kGsyscall) return gp;
  // On a stack of the program's it may not wait here (checkSP); sysmon will
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
  // A request, repeated by sysmon if missed.
  if (GUMP_UNLIKELY(gp == nullptr || gp->preempt.load(relaxed))) {
    return runtimeEntrySlow(gp);
  }
  return gp;
}

}  // namespace gump::rt
