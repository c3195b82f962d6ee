// Stop-the-world, start-the-world, and running a function on every P.
//
// Protocol: under sched.lock, the stopper sets stopwait to the number of Ps and
// then sets gcwaiting. It asks every running G to yield. Then the Ps stop in
// one of three ways:
//  * The stopper takes a P that is idle, and (by CAS) a P whose M is in a
//    declared system call.
//  * An M gives up its P in gcstopm, when its goroutine next enters the
//    runtime.
//  * The stopper takes a P by force (forcePreempt): after 3 µs if the thread
//    sleeps in the kernel, after another 20 µs if it computes.
// Each P is counted down under sched.lock, and the last one wakes stopnote.
// findRunnable reads gcwaiting before it picks anything, and again in the
// section of sched.lock in which a P would go idle. So no P can slip past the
// count.
//
// Affinity: a goroutine that yields to a stop stays first on its P (keepsNext),
// and the P goes back to the M that had it (procresize). So after the stop each
// goroutine goes on where its data is. A goroutine that is bound to a thread,
// or is preempted in place on one, gets its P from startTheWorld directly. No
// thief sees a goroutine that is kept during a stop: the stop cannot end before
// its M has given up the P, and while the world is stopped nothing steals.
//
// One stop at a time: worldsema is a semaphore that is handed over, so a thread
// that stops the world in a loop keeps no other thread from it. Once main has
// ended, a goroutine that waits for a P may wait for good, while foreign
// threads still stop the world. So the holder of worldsema has m.locks raised:
// it does not wait for a P before giveUpWorld.
#include <algorithm>
#include <utility>

#include "runtime/diag/debugvars.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/stats.h"
#include "runtime/diag/trace.h"
#include "runtime/sched/affinity.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sched/preempt.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/rt0.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stw.h"
#include "runtime/sys/cgroup_linux.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/sema.h"

namespace gump::rt {

namespace {

constinit Atomic<uint32_t> worldsema(1);
// The number of Ps that startTheWorld makes live; 0 leaves it as it is. Written
// with worldsema held, under sched.lock.
int32_t newprocs;
// The value that undoRunOnWake needs. While the stopper stops the world, its
// thread runs as soon as it wakes, even if threads that compute have all
// processors. Guarded by worldsema.
RunOnWake stopperBefore;
// nanotime when the present stop began. Guarded by worldsema.
int64_t stopBegin;

// takeWorld takes worldsema, with m.locks raised.
// On: user, or a foreign thread.  P: either.  Locks: none.  Parks: yes.
M* takeWorld() {
  return semacquirePinned(&worldsema, /*lifo=*/false, SemaReason::kSemacquire);
}

// giveUpWorld hands worldsema to a waiter, and lowers m.locks.
// On: user, or a foreign thread.  P: either.  Locks: none.  Parks: no.
void giveUpWorld(M* mp) { semreleasePinned(mp, &worldsema); }

// StopBackoff is the delay between attempts to stop the remaining Ps.
//
// The first two waits spin. The first, of 3 µs, is for goroutines that yield at
// their next runtime entry. The second, of kStopGap, separates the two looks
// that forcePreempt needs to see that a thread computes. These waits do not
// sleep, because a thread that sleeps on a timer among threads that compute
// gets the processor back only at the kernel's next tick, ms later.
//
// The second look sends signals, and a thread that gets one may need our
// processor to obey. So later waits sleep, each for longer, up to 1 ms, until
// the last P wakes us.
class StopBackoff {
 public:
  // wait waits for n. Returns true if n has been woken.
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
    // The model's clock advances only while all threads sleep.
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

// takeStoppablePs takes and counts down the caller's own P, those in system
// calls, and the idle ones. Returns true if the caller must wait for others.
// On: user, or a foreign thread.  P: either, stopped afterwards.
// Locks: takes sched.lock.  Parks: no.
bool takeStoppablePs(M* mp) {
  LockScope l(&sched.lock);
  // Changes only with the world stopped.
  sched.stopwait = gomaxprocs.load(relaxed);
  // seq_cst: we store gcwaiting, then read each status. entersyscall stores a
  // status, then reads gcwaiting.
  sched.gcwaiting.store(true, seq_cst);
  preemptall();
  if (mp->p != nullptr) {
    setPStatus(mp->p, kPrunning, kPgcstop);
    sched.stopwait--;
  }
  int32_t n = gomaxprocs.load(relaxed);
  for (int32_t i = 0; i < n; i++) {
    P* pp = allp[i];
    if (pp->status.load(seq_cst) == kPsyscall && takeFromCall(pp, kPgcstop)) {
      pp->syscalltick.add(1, relaxed);
      sched.stopwait--;
    }
  }
  while (P* pp = pidleget(&sched.nodes[0])) {
    setPStatus(pp, kPidle, kPgcstop);
    sched.stopwait--;
  }
  return sched.stopwait > 0;
}

// forcePreemptAll calls forcePreempt for every P that still runs; with
// forSafePoint, only for those that have not run their function yet. It calls
// taken for each P that it takes, with the M that it took the P from. The M is
// nullptr if its thread is still being made.
// On: user, or a foreign thread.  P: either.  Locks: takes sched.lock.
// Parks: no.
void forcePreemptAll(bool forSafePoint, void (*taken)(P*, M*)) {
  const StartingP which =
      forSafePoint ? StartingP::kOfSafePoint : StartingP::kAny;
  while (P* pp = takeStartingP(which)) taken(pp, nullptr);
  M* self = getg()->m;
  int32_t n = gomaxprocs.load(relaxed);  // no resize: we have worldsema
  for (int32_t i = 0; i < n; i++) {
    P* pp = allp[i];
    if (pp->status.load(acquire) != kPrunning || pp->m.load(acquire) == self ||
        (forSafePoint && pp->runSafePointFn.load(acquire) == 0)) {
      continue;
    }
    if (M* mp = forcePreempt(pp, ForcePreempt::kStop)) taken(pp, mp);
  }
}

// stopTaken and visitTaken dispose of a P that forcePreemptAll has taken.
// stopTaken counts it as stopped.
// On, P, Locks, Parks: as forcePreemptAll.
void stopTaken(P* pp, M*) {
  flushYielded(pp);
  LockScope l(&sched.lock);
  countStopped(pp);
}

// visitTaken runs the function for the P. The M that sleeps gets the P back,
// because there may be no other thread for it.
void visitTaken(P* pp, M* mp) {
  runSafePointFn(pp);
  if (mp == nullptr || !giveBackP(pp, mp)) handoffp(pp);
}

// visitSyscalls makes forEachP's function run for the Ps in system calls.
// On, P, Locks, Parks: as forcePreemptAll.
void visitSyscalls() {
  int32_t n = gomaxprocs.load(relaxed);  // as in forcePreemptAll
  for (int32_t i = 0; i < n; i++) {
    P* pp = allp[i];
    if (pp->status.load(seq_cst) == kPsyscall &&
        pp->runSafePointFn.load(acquire) == 1 && takeFromCall(pp, kPidle)) {
      pp->syscalltick.add(1, relaxed);
      handoffp(pp);  // runs the function
    }
  }
}

// whatRuns returns nullptr if every P is stopped, else what shows that one is
// not.
// On: any.  P: stopped.  Locks: takes sched.lock.  Parks: no.
const char* whatRuns() {
  LockScope l(&sched.lock);
  if (sched.stopwait != 0) return "stopTheWorld: not stopped (stopwait != 0)";
  int32_t n = gomaxprocs.load(relaxed);
  for (int32_t i = 0; i < n; i++) {
    if (allp[i]->status.load(acquire) != kPgcstop) {
      return "stopTheWorld: not stopped (status != kPgcstop)";
    }
  }
  return nullptr;
}

// checkStopped throws unless every P is stopped. If the process is dying, it
// does not return: freezetheworld writes to stopwait without the lock, and this
// thread is one of those that are to stop.
// On: any.  P: stopped.  Locks: takes sched.lock.
// Parks: blocks the thread if the process is dying.
void checkStopped() {
  const char* what = whatRuns();
  fence(acquire);  // pairs with freezetheworld
  if (GUMP_UNLIKELY(isPanicking())) {
    for (;;) usleep(1'000'000);
  }
  if (what != nullptr) fatalthrow(what);
}

}  // namespace

void countStopped(P* pp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  setPStatus(pp, kPidle, kPgcstop);
  if (--sched.stopwait == 0) notewakeup(&sched.stopnote);
}

bool keepsNext(P* pp) {
  const uint32_t tick = pp->schedtick.load(relaxed);  // written by the owner
  const int64_t now = nanotime();
  if (pp->keptTick != tick) {
    pp->keptTick = tick;
    pp->keptSince = now;
  }
  return now - pp->keptSince < kForcePreemptNS;
}

void stopTheWorld(WaitReason reason) {
  M* mp = takeWorld();  // until startTheWorld: the caller keeps its M, and its
                        // stopped P
  G* gp = getg();
  gp->waitreason = reason;
  if (mayTrace()) traceStopBegins(waitReasonString(reason));
  stopBegin = nanotime();
  if (takeStoppablePs(mp)) {
    if (!gp->foreign) preciseSleeps(mp);
    stopperBefore = runOnWake();
    for (StopBackoff backoff; !backoff.wait(&sched.stopnote);) {
      preemptall();
      forcePreemptAll(/*forSafePoint=*/false, stopTaken);
    }
    noteclear(&sched.stopnote);
  }
  checkStopped();
  const int64_t took = nanotime() - stopBegin;
  stats.worldStops.add(1, relaxed);
  stats.worldStopNS.add(static_cast<uint64_t>(took), relaxed);
  stats.stopping.record(took);
}

void startTheWorld() {
  M* mp = getg()->m;
  if (netpollinited()) {
    // Descriptors may have become ready while no M polled.
    NetpollResult r = netpoll(0);
    injectglist(&r.toRun);
    netpollAdjustWaiters(r.delta);
  }
  P* runnable;
  bool resized;
  {
    LockScope l(&sched.lock);
    int32_t procs = newprocs != 0 ? newprocs : gomaxprocs.load(relaxed);
    resized = newprocs != 0;
    newprocs = 0;
    runnable = procresize(procs);
    // Pairs with the acquire in findRunnable.
    sched.gcwaiting.store(false, release);
    // Once main has ended, no M takes goroutines from the queue. So let those
    // go that were preempted in place since endMain looked there.
    if (sched.mainEnded.load(relaxed)) releasePreempted();
    wakeSysmonLocked();
  }
  // Our own P has not passed acquirep.
  if (mp->p != nullptr) {
    placeThread(mp, mp->p);
    if (!boundFor(mp, mp->p)) bindThread(mp);
  }
  while (runnable != nullptr) {
    P* pp = runnable;
    runnable = pp->link;
    pp->link = nullptr;
    M* idle = pp->m.load(relaxed);  // procresize's message to us
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
  stats.stopped.record(nanotime() - stopBegin);
  // There may be work in the global queue, and idle Ps. One spinner finds out.
  // wakep requires that the work was published before. It was, in the section
  // of sched.lock above.
  wakepAnywhere();
  undoRunOnWake(std::exchange(stopperBefore, RunOnWake()));
  if (mayTrace()) {
    if (resized) traceProcs(gomaxprocs.load(relaxed));  // we have worldsema
    traceStopEnds();
  }
  giveUpWorld(mp);
}

int32_t setGOMAXPROCS(int32_t n) noexcept {
  schedinit();
  int32_t old;
  bool resizing;  // a foreign thread may see that another resize is under way
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
    // Again, because setDefaultGOMAXPROCS may have run meanwhile.
    sched.customGOMAXPROCS = true;
    newprocs = n;
  }
  startTheWorld();
  return old;
}

void setDefaultGOMAXPROCS() noexcept {
  schedinit();
  int32_t n = defaultGOMAXPROCS(programProcessors());
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
// The number that sysmon found. Affinity belongs to a thread, and that of
// another thread may differ.
Atomic<int32_t> maxProcsFound;

// adaptMaxProcs is the goroutine of updateMaxProcs.
// On: user.  P: needed.  Locks: takes worldsema, sched.lock.  Parks: yes.
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
  maxProcsFound.store(n, relaxed);  // as in adaptMaxProcs
  if (!startSystemG(&kAdaptMaxProcs)) updatingMaxProcs.store(false, release);
}

namespace {
// askEveryP asks every P but own to run fn at a safe point, and runs it for the
// idle ones. Returns true if the caller must wait for others.
// On: user, or a foreign thread.  P: own.  Locks: takes sched.lock.  Parks: no.
bool askEveryP(const P* own, void (*fn)(P*)) {
  LockScope l(&sched.lock);
  int32_t n = gomaxprocs.load(relaxed);  // as in forcePreemptAll
  sched.safePointFn = fn;
  sched.safePointWait = n - (own != nullptr ? 1 : 0);
  for (int32_t i = 0; i < n; i++) {
    // We store this, and then read the status. An M that later idles its P
    // under sched.lock reads this.
    if (allp[i] != own) allp[i]->runSafePointFn.store(1, seq_cst);
  }
  preemptall();
  forEachIdleP([fn](P* pp) ABSL_NO_THREAD_SAFETY_ANALYSIS {  // we hold it
    if (pp->runSafePointFn.cas(1, 0, acq_rel)) {  // the winner runs it
      fn(pp);
      sched.safePointWait--;
    }
  });
  return sched.safePointWait > 0;
}
}  // namespace

void forEachP(WaitReason reason, void (*fn)(P*), void (*last)()) {
  M* mp = takeWorld();
  G* gp = getg();
  P* own = mp->p;
  gp->waitreason = reason;
  const bool wait = askEveryP(own, fn);
  if (own != nullptr) fn(own);
  visitSyscalls();
  if (wait) {
    if (!gp->foreign) preciseSleeps(mp);
    const RunOnWake before = runOnWake();
    for (StopBackoff backoff; !backoff.wait(&sched.safePointNote);) {
      preemptall();
      // Again, because a goroutine may have begun a call between our two looks
      // at its P.
      visitSyscalls();
      forcePreemptAll(/*forSafePoint=*/true, visitTaken);
    }
    noteclear(&sched.safePointNote);
    undoRunOnWake(before);
    LockScope l(&sched.lock);
    if (sched.mainEnded.load(relaxed))
      releasePreempted();  // as in startTheWorld
  }
  if (last != nullptr) last();
  giveUpWorld(mp);
}

}  // namespace gump::rt
