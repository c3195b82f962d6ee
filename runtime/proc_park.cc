// Parking, readying and yielding: how a goroutine leaves its M and comes back.
//
// A switch away from a goroutine is one gumpMcall: the context is saved first,
// and only then, on g0, the goroutine is published to whoever may resume it (by
// unlockf, by a run queue). So nobody can resume a context that is not
// complete.
//
// With one P there is a shorter way, directly from one goroutine to the next
// (gumpSwitch). It publishes first, on the goroutine's own stack, and saves
// afterwards. That is sound because to resume a goroutine takes a P, and the
// only one is ours until the context is saved: m.locks is 1 all the time, so
// nobody takes it away, and the number of Ps changes only when we have stopped.
// Others may ready the goroutine meanwhile, which only queues it. Nor does
// anybody walk the stack of a parked goroutine while the sole P runs
// (soleHolder, which also says what a dying process does).
//
// Invariants:
//  (K1) A G that is kGwaiting has its context in sched, except a foreign one,
//       whose thread waits on its M's note.
//  (K2) After unlockf, or after a runqput of itself, nothing on this M touches
//       the G.
//  (K3) On g0 m.locks is 0 when fn returns the next G; gopark's one acquirem
//       ends in park_m.
#include "runtime/os_linux.h"
#include "runtime/panic.h"
#include "runtime/proc.h"
#include "runtime/sanitizer.h"

namespace gump::rt {

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

G* park_m(G* gp) {
  M* mp = getg()->m;
  casgstatus(gp, kGrunning, kGwaiting);
  dropg();
  auto unlockf = mp->waitunlockf;
  if (unlockf != nullptr) {
    void* lock = mp->waitlock;
    mp->waitunlockf = nullptr;
    mp->waitlock = nullptr;
    if (!unlockf(gp, lock)) {
      mp->locks.store(0, relaxed);  // (K3)
      casgstatus(gp, kGwaiting, kGrunnable);
      // It has a stack, so execute returns it.
      return execute(gp, /*inheritTime=*/true);
    }
  }
  mp->locks.store(0, relaxed);  // (K3)
  return schedule();
}

// parkForeign blocks the thread itself: the pseudo-G of a plain thread is never
// on a run queue.
void parkForeign(G* gp, bool (*unlockf)(G*, void*), void* lock) {
  M* mp = gp->m;
  casgstatus(gp, kGrunning, kGwaiting);
  if (unlockf != nullptr && !unlockf(gp, lock)) {
    casgstatus(gp, kGwaiting, kGrunnable);
    casgstatus(gp, kGrunnable, kGrunning);
    releasem(mp);
    return;
  }
  releasem(mp);
  mp->blocked.store(true, relaxed);  // for traces
  notesleep(&mp->park);              // readyForeign's notewakeup may come first
  noteclear(&mp->park);
  mp->blocked.store(false, relaxed);
  casgstatus(gp, kGrunnable, kGrunning);
}

// switchSole goes from gp, which has been published, to next, which is current.
void switchSole(G* gp, M* mp, G* next) {
  if (next != gp) gp->m = nullptr;  // unless it has been readied at once
  gp->eh = *mp->eh;
  *mp->eh = next->eh;
  gp->savedErrno = *mp->errnoAddr;
  *mp->errnoAddr = next->savedErrno;
  if (GUMP_UNLIKELY(gp->unguarded)) stackCheckCanary(gp);
  gumpSwitch(gp, next);
}

// parkSole is gopark with one P. True if the goroutine has parked and come
// back; otherwise it is published, and the rest is parked_m's.
bool parkSole(G* gp, M* mp, bool (*unlockf)(G*, void*), void* lock) {
  casgstatus(gp, kGrunning, kGwaiting);
  if (unlockf != nullptr && !unlockf(gp, lock)) {
    casgstatus(gp, kGwaiting, kGrunnable);
    casgstatus(gp, kGrunnable, kGrunning);
    mp->locks.store(0, relaxed);  // gopark's acquirem ends
    return true;
  }
  G* next = directNext(mp);
  if (next == nullptr) return false;
  switchSole(gp, mp, next);
  return true;
}

G* parked_m(G*) {
  M* mp = getg()->m;
  dropg();
  mp->locks.store(0, relaxed);  // (K3)
  return schedule();
}

// yieldSole is gosched with one P; false: nothing was done.
bool yieldSole(G* gp) {
  M* mp = acquirem();  // ends in gumpSwitch
  // First who is next, then gp behind the others: the same order, for gp comes
  // next only if there is nobody else.
  G* next = directNext(mp);
  if (next == nullptr) {
    releasem(mp);
    return false;
  }
  casgstatus(gp, kGrunning, kGrunnable);
  pushYielded(mp->p, gp);
  switchSole(gp, mp, next);
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

}  // namespace

void gopark(bool (*unlockf)(G*, void*), void* lock, WaitReason reason) {
  G* gp = getg();
  M* mp = gp->m;
  if (GUMP_UNLIKELY(mp->locks.load(relaxed) != 1)) {  // written by us only
    printf("runtime: gopark with m.locks=%d\n", mp->locks.load(relaxed));
    fatalthrow("gopark: bad m.locks");
  }
  gp->waitreason = reason;
  if (GUMP_UNLIKELY(gp->foreign)) {
    parkForeign(gp, unlockf, lock);
    return;
  }
  if (!kSanitizerBuild && soleHolder()) {
    if (!parkSole(gp, mp, unlockf, lock)) gumpMcall(parked_m);
    return;
  }
  mp->waitunlockf = unlockf;
  mp->waitlock = lock;
  gumpMcall(park_m);
}

void goparkunlock(Mutex* l, WaitReason reason) {
  gopark(parkunlock, l, reason);
}

void goready(G* gp) {
  if (GUMP_UNLIKELY(gp->foreign)) {
    M* mp = gp->m;
    casgstatus(gp, kGwaiting, kGrunnable);  // the one winner
    notewakeup(&mp->park);
    return;
  }
  M* mp = acquirem();  // keep the P between here and runqput
  casgstatus(gp, kGwaiting, kGrunnable);
  if (GUMP_LIKELY(mp->p != nullptr)) {
    runqput(mp->p, gp, /*next=*/true);
  } else {
    LockScope l(&sched.lock);
    globrunqput(gp);
  }
  wakep();
  releasem(mp);
}

void gosched() noexcept {
  G* gp = getg();
  if (gp == nullptr || gp->foreign) {
    osyield();
    return;
  }
  if (!kSanitizerBuild && soleHolder() && yieldSole(gp)) return;
  gumpMcall(goschedImpl);
}

void gopreempt() { gumpMcall(goschedImpl); }

void goyield() { gumpMcall(goyield_m); }

namespace {
GUMP_NOINLINE G* runtimeEntrySlow(G* gp) {
  if (gp == nullptr) return needm();
  // Ours: written by us only.
  if (!gp->foreign && gp->m->locks.load(relaxed) == 0) gopreempt();
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
