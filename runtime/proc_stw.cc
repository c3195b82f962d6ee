// Stop-the-world, start-the-world, and running a function on every P.
//
// Protocol: the stopper sets stopwait to the number of Ps and then gcwaiting,
// both under sched.lock, asks every running G to yield, and takes at once the
// Ps that nobody runs (idle) or whose M is in a declared system call (by CAS).
// Each other P is given up by its own M in gcstopm, when its goroutine next
// enters the runtime, or pressed out of its hands (pressP): after 3 µs if it
// sleeps in the kernel, after another 20 if it computes. It is then counted
// down under sched.lock; the last one wakes stopnote. gcwaiting is read by
// findRunnable before anything is picked, and again in the section of
// sched.lock in which a P would go idle, so no P can slip past the count.
//
// One stop at a time: worldsema, a semaphore that is handed over, so that who
// stops the world in a loop keeps nobody from it. Once main has ended, a
// goroutine stays wherever it enters the runtime, while plain threads still
// stop the world; so whoever has worldsema has m.locks raised, and gets to
// giveUpWorld.
#include <algorithm>
#include <utility>

#include "runtime/netpoll.h"
#include "runtime/os_linux.h"
#include "runtime/panic.h"
#include "runtime/proc.h"
#include "runtime/sema.h"
#include "runtime/stats.h"

namespace gump::rt {

namespace {

constinit Atomic<uint32_t> worldsema(1);
// By GOMAXPROCS for startTheWorld. Written with worldsema, under sched.lock.
int32_t newprocs;
// Those who compute may have all processors. So that the stopper runs when it
// wakes, and until it has woken the others, its thread asks for short slices
// meanwhile. Guarded by worldsema.
uint64_t stopperSlices;

// takeWorld takes worldsema, with m.locks raised.
// On: user, or a plain thread.  P: either.  Locks: none.  Parks: yes.
M* takeWorld() {
  return semacquirePinned(&worldsema, /*lifo=*/false, SemaReason::kSemacquire);
}

// giveUpWorld hands worldsema to who waits first, and lowers m.locks.
// On: user, or a plain thread.  P: either.  Locks: none.  Parks: no.
void giveUpWorld(M* mp) {
  semrelease(&worldsema, /*handoff=*/true);
  releasem(mp);
}

// Patience is how long to wait between two looks at those who run. First as
// long as it takes to come by, then until the second look that pressP needs:
// both awake, since whoever sleeps on a timer among threads that compute gets
// the processor back only at the kernel's next tick, ms later. The second look
// sends signals, and who gets one may need our processor to obey; so from then
// on asleep, each time for longer, until the last one wakes us.
class Patience {
 public:
  // wait waits for a note; true: it has been woken.
  bool wait(Note* n) {
    switch (rounds_++) {
      case 0:
        return spin(n, kComeBy);
      case 1:
        return spin(n, kStopGap);
      default:
        return notetsleep(
            n, std::exchange(sleep_, std::min(2 * sleep_, kLongest)));
    }
  }

 private:
  static constexpr int64_t kComeBy = 3'000;  // ns
  static constexpr int64_t kLongest = 1'000'000;

  static bool spin(Note* n, int64_t ns) {
    // The model's clock goes on only while everybody sleeps.
    if (kModelBuild) return notetsleep(n, ns);
    const int64_t end = nanotime() + ns;
    while (!notetsleep(n, 0)) {
      if (nanotime() >= end) return false;
      procyield(10);
    }
    return true;
  }

  int64_t sleep_ = 100'000;
  int rounds_ = 0;
};

// takeStoppablePs counts down the caller's own P, those in system calls and the
// idle ones. True: must wait for others.
bool takeStoppablePs(M* mp) {
  LockScope l(&sched.lock);
  // Changes only with the world stopped.
  sched.stopwait = gomaxprocs.load(relaxed);
  sched.gcwaiting.store(true, seq_cst);  // store gcwaiting, then read P status
                                         // / entersyscall: the other way round
  preemptall();
  if (mp->p != nullptr) {
    setPStatus(mp->p, kPrunning, kPgcstop);
    sched.stopwait--;
  }
  int32_t n = gomaxprocs.load(relaxed);
  for (int32_t i = 0; i < n; i++) {
    P* pp = allp[i];
    if (pp->status.load(seq_cst) == kPsyscall &&
        pcasstatus(pp, kPsyscall, kPgcstop)) {
      pp->syscalltick.add(1, relaxed);
      sched.stopwait--;
    }
  }
  while (P* pp = pidleget()) {
    setPStatus(pp, kPidle, kPgcstop);
    sched.stopwait--;
  }
  return sched.stopwait > 0;
}

// pressAll presses whoever still runs, and calls taken for every P that it
// takes, with the M that it is taken from, or nullptr: from one that is being
// made.
void pressAll(bool forSafePoint, void (*taken)(P*, M*)) {
  while (P* pp = claimUnborn(forSafePoint)) taken(pp, nullptr);
  M* self = getg()->m;
  int32_t n = gomaxprocs.load(relaxed);  // worldsema: nobody resizes
  for (int32_t i = 0; i < n; i++) {
    P* pp = allp[i];
    if (pp->status.load(acquire) != kPrunning || pp->m.load(acquire) == self ||
        (forSafePoint && pp->runSafePointFn.load(acquire) == 0)) {
      continue;
    }
    if (M* mp = pressP(pp, Press::kStop)) taken(pp, mp);
  }
}

// stopTaken and visitTaken dispose of a P that pressAll has taken.
void stopTaken(P* pp, M*) {
  flushYielded(pp);
  LockScope l(&sched.lock);
  countStopped(pp);
}

// The sleeper gets it back: who knows whether there is a thread for it.
void visitTaken(P* pp, M* mp) {
  runSafePointFn(pp);
  if (mp == nullptr || !giveBackP(pp, mp)) handoffp(pp);
}

// visitSyscalls runs what forEachP asks of Ps in system calls.
void visitSyscalls() {
  int32_t n = gomaxprocs.load(relaxed);  // worldsema: nobody resizes
  for (int32_t i = 0; i < n; i++) {
    P* pp = allp[i];
    if (pp->status.load(seq_cst) == kPsyscall &&
        pp->runSafePointFn.load(acquire) == 1 &&
        pcasstatus(pp, kPsyscall, kPidle)) {
      pp->syscalltick.add(1, relaxed);
      handoffp(pp);  // runs it
    }
  }
}

void checkStopped() {
  LockScope l(&sched.lock);
  if (sched.stopwait != 0)
    fatalthrow("stopTheWorld: not stopped (stopwait != 0)");
  int32_t n = gomaxprocs.load(relaxed);
  for (int32_t i = 0; i < n; i++) {
    if (allp[i]->status.load(acquire) != kPgcstop) {
      fatalthrow("stopTheWorld: not stopped (status != kPgcstop)");
    }
  }
}

}  // namespace

bool preemptone(P* pp) {
  // Best effort: the request may hit the wrong G, or be ignored, and is then
  // repeated.
  M* mp = pp->m.load(acquire);  // pairs with acquirep
  if (mp == nullptr || mp == getg()->m) return false;
  G* gp = mp->curg.load(acquire);  // pairs with execute
  if (gp == nullptr) return false;
  gp->preempt.store(true, relaxed);  // read at each runtime entry
  pp->preempt.store(true, relaxed);
  return true;
}

void preemptall() {
  int32_t n = gomaxprocs.load(acquire);  // pairs with procresize
  for (int32_t i = 0; i < n; i++) {
    if (allp[i]->status.load(acquire) == kPrunning) preemptone(allp[i]);
  }
}

void countStopped(P* pp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  setPStatus(pp, kPidle, kPgcstop);
  if (--sched.stopwait == 0) notewakeup(&sched.stopnote);
}

void stopTheWorld(WaitReason reason) {
  M* mp = takeWorld();  // until startTheWorld: the caller keeps its M, and its
                        // stopped P
  G* gp = getg();
  gp->waitreason = reason;
  const int64_t begin = nanotime();
  if (takeStoppablePs(mp)) {
    if (!gp->foreign) preciseSleeps(mp);
    stopperSlices = shortSlices();
    for (Patience patience; !patience.wait(&sched.stopnote);) {
      preemptall();
      pressAll(/*forSafePoint=*/false, stopTaken);
    }
    noteclear(&sched.stopnote);
  }
  checkStopped();
  stats.worldStops.add(1, relaxed);
  stats.worldStopNS.add(static_cast<uint64_t>(nanotime() - begin), relaxed);
}

void startTheWorld() {
  M* mp = getg()->m;
  if (netpollinited()) {
    NetpollResult r = netpoll(0);  // whatever became ready while nobody polled
    injectglist(&r.toRun);
    netpollAdjustWaiters(r.delta);
  }
  P* runnable;
  {
    LockScope l(&sched.lock);
    int32_t procs = newprocs != 0 ? newprocs : gomaxprocs.load(relaxed);
    newprocs = 0;
    runnable = procresize(procs);
    // Pairs with the acquire in findRunnable.
    sched.gcwaiting.store(false, release);
    // Nobody would look for whom endMain has not found in the queue.
    if (sched.mainEnded.load(relaxed)) letGo();
    wakeSysmonLocked();
  }
  while (runnable != nullptr) {
    P* pp = runnable;
    runnable = pp->link;
    pp->link = nullptr;
    M* idle = pp->m.load(relaxed);  // procresize's note to us
    pp->m.store(nullptr, relaxed);
    if (idle == nullptr) {
      startm(pp, /*spinning=*/false);
      continue;
    }
    if (idle->nextp != nullptr)
      fatalthrow("startTheWorld: inconsistent mp->nextp");
    idle->nextp = pp;
    notewakeup(&idle->park);  // publishes nextp
  }
  // The global queue may hold work, and idle Ps: one spinner finds out.
  // sched.lock above was the publication.
  wakep();
  restoreSlices(std::exchange(stopperSlices, 0));
  giveUpWorld(mp);
}

int32_t setGOMAXPROCS(int32_t n) noexcept {
  schedinit();
  int32_t old;
  bool resizing;  // to something else, of which a plain thread may come in time
  {
    LockScope l(&sched.lock);
    old = gomaxprocs.load(relaxed);
    resizing = newprocs != 0;
    if (n > kMaxGomaxprocs) n = kMaxGomaxprocs;
    if (n > 0) sched.customGOMAXPROCS = true;
  }
  if (n <= 0 || (n == old && !resizing)) return old;
  stopTheWorld(WaitReason::kStoppingTheWorld);
  old = gomaxprocs.load(relaxed);  // the world is stopped
  {
    LockScope l(&sched.lock);
    // Again: setDefaultGOMAXPROCS may have come meanwhile.
    sched.customGOMAXPROCS = true;
    newprocs = n;
  }
  startTheWorld();
  return old;
}

void setDefaultGOMAXPROCS() noexcept {
  schedinit();
  int32_t n = defaultGOMAXPROCS(getproccount());
  {
    LockScope l(&sched.lock);
    if (!sched.customGOMAXPROCS && n == gomaxprocs.load(relaxed) &&
        newprocs == 0) {  // as in setGOMAXPROCS
      return;
    }
  }
  stopTheWorld(WaitReason::kStoppingTheWorld);
  {
    LockScope l(&sched.lock);
    sched.customGOMAXPROCS = false;
    newprocs = n;
  }
  startTheWorld();
}

namespace {

Atomic<bool> updatingMaxProcs;
// As sysmon found it. Affinity is a thread's, and another's may differ.
Atomic<int32_t> maxProcsFound;

// adaptMaxProcs is the goroutine of updateMaxProcs.
void adaptMaxProcs(void*) {
  stopTheWorld(WaitReason::kStoppingTheWorld);
  {
    LockScope l(&sched.lock);
    // Relaxed: published by the start of the goroutine.
    if (!sched.customGOMAXPROCS) newprocs = maxProcsFound.load(relaxed);
  }
  startTheWorld();
  updatingMaxProcs.store(false, release);  // pairs with the cas below
}

constexpr FuncType kAdaptMaxProcs = systemFunc(adaptMaxProcs);

}  // namespace

void updateMaxProcs() {
  if (debug.updatemaxprocs == 0) return;
  {
    LockScope l(&sched.lock);
    if (sched.customGOMAXPROCS) return;
  }
  const int32_t n = defaultGOMAXPROCS(getproccount());
  if (n == gomaxprocs.load(relaxed)) return;  // a hint
  if (!updatingMaxProcs.cas(false, true, acquire)) return;
  maxProcsFound.store(n, relaxed);  // as above
  if (!startSystemG(&kAdaptMaxProcs)) updatingMaxProcs.store(false, release);
}

namespace {
// askEveryP asks for fn at a safe point of every P but own, and runs it for the
// idle ones. True: must wait for others.
bool askEveryP(const P* own, void (*fn)(P*)) {
  LockScope l(&sched.lock);
  int32_t n = gomaxprocs.load(relaxed);  // worldsema: nobody resizes
  sched.safePointFn = fn;
  sched.safePointWait = n - (own != nullptr ? 1 : 0);
  for (int32_t i = 0; i < n; i++) {
    // Then read status; going idle reads it after.
    if (allp[i] != own) allp[i]->runSafePointFn.store(1, seq_cst);
  }
  preemptall();
  for (P* pp = sched.pidle; pp != nullptr; pp = pp->link) {
    if (pp->runSafePointFn.cas(1, 0, acq_rel)) {  // the winner runs it
      fn(pp);
      sched.safePointWait--;
    }
  }
  return sched.safePointWait > 0;
}
}  // namespace

void forEachP(WaitReason reason, void (*fn)(P*)) {
  M* mp = takeWorld();
  G* gp = getg();
  P* own = mp->p;
  gp->waitreason = reason;
  const bool wait = askEveryP(own, fn);
  if (own != nullptr) fn(own);
  visitSyscalls();
  if (wait) {
    if (!gp->foreign) preciseSleeps(mp);
    const uint64_t slices = shortSlices();
    for (Patience patience; !patience.wait(&sched.safePointNote);) {
      preemptall();
      // Again: one may have begun a call between our two looks at its P.
      visitSyscalls();
      pressAll(/*forSafePoint=*/true, visitTaken);
    }
    noteclear(&sched.safePointNote);
    restoreSlices(slices);
    LockScope l(&sched.lock);
    if (sched.mainEnded.load(relaxed)) letGo();  // as in startTheWorld
  }
  giveUpWorld(mp);
}

}  // namespace gump::rt
