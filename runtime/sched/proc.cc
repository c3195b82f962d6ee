// The scheduler: which goroutine runs next, on which thread, and when another
// thread is woken.
//
// A G is a goroutine, an M a thread, a P the right to run goroutines; an M
// needs a P to run user code. There are GOMAXPROCS Ps and as many Ms as
// blocking calls make necessary. Runnable Gs wait in the ring of a P or in the
// global queue; an M without work steals.
//
// The question that decides the design is when to wake a thread. Three answers
// do not work:
//   1. Keep all state central, so that an M always knows whether another thread
//      is needed. It does not scale: every switch takes the one lock.
//   2. When a G is readied and a P is idle, wake a thread for it and hand it
//      the G. The readier usually blocks at once, and would have run the G
//      itself on a warm cache. On two threads, each exchange between the two
//      goroutines costs microseconds.
//   3. Wake a thread whenever a G is readied and a P is idle, without handing
//      anything over. Threads wake, find nothing, and sleep again, all the
//      time.
//
// The design that works: an M that is out of work *spins* for a while, that is,
// looks through every queue before it sleeps. A readier wakes another M only if
// a P is idle and no M spins. The spinner that finds work wakes the next
// spinner. So the number of awake threads follows the amount of work, smoothly,
// and bursts do not stampede.
//
// One race remains. A readier sees a spinner and therefore wakes no M, while
// the spinner has looked everywhere, found nothing, and goes to sleep. So both
// sides write first and read second:
//
//   readier (W)                       sleeper (S), in loseSpinning
//     W1  publish the G                 S1  nmspinning -= 1
//         (xchg of runnext, CAS of
//         posted, fence, sched.lock)
//         -- StoreLoad --                   -- StoreLoad --
//     W2  read nmspinning in wakep      S2  read every queue again
//
// RMWs, fences and reads are seq_cst. If W2 reads the value from before S1,
// then W1 precedes S2 in their single total order, and S2 finds the G. If W2
// reads the value from after S1, it is zero, and the readier wakes a thread, or
// it counts another spinner, which will look. A G that is published in the
// global queue needs no barrier of its own, because S2 looks there under
// sched.lock. If the readier's section of the lock comes first, S2 finds the G.
// If S2's section comes first, W2 comes after S1.
//
// An M that was not spinning when it gave up its P need not look again. A
// thread that readied a G meanwhile is in one of three cases:
//  * It saw a spinner, which will look.
//  * It saw an idle P, and woke an M.
//  * It saw neither. Then no P was idle, and its wakep has set needspinning
//    under sched.lock. The M checks that flag in the same section of sched.lock
//    in which it idles its P.
//
// The owner of a P looks at its timers whenever it schedules, and thieves look
// at them too. When no M is left to do so, the last M to go idle sleeps in the
// poller until the earliest timer is due (blockInPoller). A thread that adds an
// earlier timer makes sure that an M wakes in time. Again both sides write
// first and read second:
//
//   adder (insert, timerModify)           sleeper
//     A1  publish the time                  S1  nmspinning -= 1
//         (minWhenHeap, minWhenModified)        (then S2, and)
//         -- StoreLoad --                   S3  read the times of all Ps
//     A2  in wakeNetPoller: is an M         S4  lastpoll = 0, then pollUntil
//         in the poller? (lastpoll == 0)
//         yes: is pollUntil later? break it
//         no:  wakep
//
// If S3 misses the timer, A2 comes after S1. There are two cases:
//  * A2 finds lastpoll == 0. It breaks the poll, unless the sleeper has said in
//    pollUntil that the poll ends in time. A break that comes before the sleep
//    is not lost.
//  * A2 finds that no M is in the poller. It calls wakep, which finds no
//    spinner and starts an M that looks at all timers.
// An M that was not spinning looks only at the timers of its own P. It need not
// look at the others, by the argument above.
//
// The number of spinners is bounded by half the busy Ps, so that a mostly idle
// program does not burn its cores.
//
// With several NUMA nodes, nmspinning counts the spinners of all of them, and
// S2 looks at the queues of all of them. So both arguments hold for the sum. A
// waker may then leave a goroutine to the busy Ps of its own node although a P
// of another node is idle, and a spinner may leave one to the idle Ps of that
// goroutine's node. proc_node.cc has the rules (N1 to N3), and shows that in
// both cases an M, or sysmon, is told of the goroutine.
#include "runtime/sched/proc.h"

#include <utility>

#include "runtime/diag/fuzzsched.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/gqueue.h"
#include "runtime/sched/group.h"
#include "runtime/sched/home.h"
#include "runtime/sched/locked.h"
#include "runtime/sched/mfinal.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sched/preempt.h"
#include "runtime/sched/proc_find.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/reclaim.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/time.h"
#include "runtime/sched/tracking.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

// The steps of schedule and findRunnable, in the order in which they are taken.
// Unless they say otherwise, they have this context:
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: no.

// endSchedule replaces the search of every M once main has returned:
//  * It runs the timers that are due, because foreign threads may wait for
//    them.
//  * It moves its work to the global queue, where the next Run finds it.
//  * It idles its P.
// (m0 never comes here: see schedule.)
// P: needed; then maybe none.  Parks: blocks the thread.
void endSchedule(M* mp);
// findWithP looks in every place that needs a P:
//  0  the function of forEachP, our timers, the global queue if it is its turn
//  1  the finalizer goroutine
//  2  our ring and runnext
//  3  the global queue
//  4  the network
//  5  the rings and the timers of the other Ps
//  6  the reclamation cycle
// Locks: as stealTimers.
Find findWithP(M* mp, Runnable* out, Clock* clock);
// checkTimers runs the timers of our own P that are due, and returns true if
// there were any. Timer functions ready goroutines without calling wakep. We
// run the first one ourselves, and call wakep here if there are more.
// Locks: as stealTimers.
bool checkTimers(P* pp, Clock* clock);
// globalTurn returns true if the global queue goes first. That must happen now
// and then, because otherwise two Gs that keep readying each other would starve
// it. If a timer has just readied a goroutine (ran), postpone the turn by one
// round.
// Locks: none.
bool globalTurn(P* pp, bool ran);
// ringTurn returns true if the ring goes before the goroutine that a timer has
// readied. That must happen now and then: each such goroutine starts a new
// slice, so sysmon never finds a slice used up, and one that keeps sleeping for
// a moment would starve the ring.
// Locks: none.
bool ringTurn(P* pp);
// globalOne and globalBatch take from the global queue. If they miss a G
// because runqsize reads a stale zero, the locked look in releaseP finds it.
// With several nodes, globalBatch looks only at the queue of the own one.
G* globalOne(P* pp);
G* globalBatch(P* pp);
// pollNetwork polls without blocking, one M at a time. Goroutines that ran last
// on another node go there.
G* pollNetwork(const P* pp);
// releaseP is step 7: a last look at the global queue, in the same section of
// sched.lock that idles the P.
// P: needed; given away if it returns kNothing.
Find releaseP(M* mp, Runnable* out);
// loseSpinning is steps 8 and 9, the sleeper's half of the essay.
// P: none; needed unless it returns kNothing.
Find loseSpinning(M* mp, Runnable* out, Clock* clock);
// lookAgain is S2 with one node.
// P: none; needed unless it returns kNothing.
Find lookAgain(M* mp, Runnable* out);
// ringsHaveWork is S2 for the rings.
bool ringsHaveWork();
// blockInPoller is step 10. The last M to go idle waits in the poller instead
// of on its note: for the network, and until the next timer.
// P: none; needed unless it returns kNothing.  Parks: blocks the thread.
Find blockInPoller(M* mp, Runnable* out, const Clock& clock);
// executeRecorded is the end of schedule if P::records is not 0. Returns
// nullptr if r.gp is queued elsewhere. The P may be gone then. Parks: blocks
// the thread.
G* executeRecorded(M* mp, Runnable r);

}  // namespace

G* schedule() {
  M* mp = getg()->m;
  if (GUMP_UNLIKELY(mp->locks.load(relaxed) != 1)) {  // written by us only
    fatalthrow("schedule: holding locks");
  }
  if (GUMP_UNLIKELY(mp->lockedg != nullptr)) {
    if (mp->home != nullptr) return homeSchedule(mp);
    announceTimer(mp);
    for (;;) {
      stoplockedm();
      if (mp->p == nullptr) return nullptr;  // m0, woken to leave Run
      // fuzzExecute fails if main, locked from the start, still waits for a
      // stack.
      G* gp = fuzzExecute(mp->lockedg, std::exchange(mp->keepsSlice, false));
      if (gp != nullptr) return gp;
    }
  }
  if (GUMP_UNLIKELY(mp == &m0)) {
    // Main has left this thread, which runs nothing else: see m0Stop.
    if (mp->spinning) resetspinning();
    announceTimer(mp);
    handoffp(releasep());
    stopm();
    return nullptr;
  }
  for (;;) {
    if (GUMP_UNLIKELY(mp->spinning && !runqempty(mp->p))) {
      fatalthrow("schedule: spinning with local work");
    }
    Runnable r = findRunnable();
    if (GUMP_UNLIKELY(r.gp == nullptr)) return nullptr;  // retired
    if (mp->spinning) resetspinning();
    announceTimer(mp);
    if (GUMP_UNLIKELY(r.gp->lockedm != nullptr)) {
      if (!r.gp->special || groupGrant(r.gp)) startlockedm(r.gp);
      continue;
    }
    G* gp = GUMP_UNLIKELY(mp->p->records.load(relaxed) != 0)
                ? executeRecorded(mp, r)
                : execute(r.gp, r.inheritTime);
    if (gp != nullptr) return gp;
  }
}

Runnable findRunnable() {
  M* mp = getg()->m;
  for (;;) {
    if (GUMP_UNLIKELY(mp->p == nullptr)) {
      if (!mp->retired) fatalthrow("findRunnable: no p");
      return {nullptr, false};
    }
    if (GUMP_UNLIKELY(sched.mainEnded.load(acquire))) {  // pairs with endMain
      endSchedule(mp);
      continue;
    }
    // Pairs with stopTheWorld.
    if (GUMP_UNLIKELY(sched.gcwaiting.load(acquire))) {
      gcstopm();
      continue;
    }
    Runnable out{nullptr, false};
    Clock clock;
    Find f = findWithP(mp, &out, &clock);
    if (f == Find::kNothing) f = releaseP(mp, &out);
    if (f == Find::kNothing) f = loseSpinning(mp, &out, &clock);
    if (f == Find::kNothing) f = blockInPoller(mp, &out, clock);
    if (f == Find::kFound) return out;
    if (f == Find::kAgain) continue;
    stopm();
  }
}

// ---- Steps 0 to 6: with a P -------------------------------------------------

namespace {

Find findWithP(M* mp, Runnable* out, Clock* clock) {
  P* pp = mp->p;
  // Pairs with forEachP's store.
  if (pp->runSafePointFn.load(acquire) != 0) runSafePointFn(pp);
  const bool ran = checkTimers(pp, clock);
  if (globalTurn(pp, ran) && (out->gp = globalOne(pp)) != nullptr) {
    if (ran) wakep();  // see checkTimers
    return Find::kFound;
  }
  if (G* gp = wakefing()) goready(gp);  // 1: the finalizer goroutine
  if (GUMP_UNLIKELY(pp->fuzz != 0)) fuzzTurn(pp);
  RunqGet local = runqget(pp);  // 2
  if (GUMP_UNLIKELY(ran && local.inheritTime && ringTurn(pp))) {
    runqput(pp, local.gp, /*next=*/false);
    local = runqget(pp);  // thieves may have taken all of them
  }
  if (local.gp != nullptr) {
    // A goroutine readied by a timer starts a new time slice. If it inherited
    // ours, it would also inherit our pending preemption request.
    *out = {local.gp, local.inheritTime && !ran};
    return Find::kFound;
  }
  if ((out->gp = globalBatch(pp)) != nullptr) return Find::kFound;  // 3
  if ((out->gp = pollNetwork(pp)) != nullptr) return Find::kFound;  // 4
  // 5: steal, unless enough Ms already try. This is a heuristic, for which any
  // value is correct.
  int32_t busy = gomaxprocs.load(relaxed) - sched.npidle.load(relaxed);
  if (mp->spinning || 2 * sched.nmspinning.load(relaxed) < busy) {
    if (!mp->spinning) becomeSpinning(mp);
    const Find f = stealWork(mp, pp, clock, out);
    if (f != Find::kNothing) return f;
  }
  if (reclaimWorkAvailable() &&
      (out->gp = reclaimIdleWorker()) != nullptr) {  // 6
    return Find::kFound;
  }
  return Find::kNothing;
}

bool checkTimers(P* pp, Clock* clock) {
  // Threads without a P add their timers to P 0, and make sure that an M looks
  // at them. Only the owner of any other P adds timers to that P's heap.
  if (GUMP_LIKELY(pp->timers.len.load(relaxed) == 0)) return false;
  const TimerCheck check = timersCheck(&pp->timers, &clock->now, /*tidy=*/true);
  clock->lower(check.next);
  if (check.ran && runqlen(pp) > 0) {
    fence(seq_cst);  // W1 of the essay: the ring is written by release stores
    wakep();
  }
  return check.ran;
}

bool globalTurn(P* pp, bool ran) {
  // schedtick is written by us.
  const bool turn = pp->globalSkipped ||
                    pp->schedtick.load(relaxed) % 61 == 0 ||
                    (GUMP_UNLIKELY(pp->fuzz != 0) && fuzzOneIn(pp, 4));
  pp->globalSkipped = turn && ran && !pp->globalSkipped;
  return turn && !pp->globalSkipped;
}

bool ringTurn(P* pp) {
  // Half way between the turns of the global queue. schedtick is written by us.
  return pp->schedtick.load(relaxed) % 61 == 30 ||
         (GUMP_UNLIKELY(pp->fuzz != 0) && fuzzOneIn(pp, 4));
}

G* globalOne(P* pp) {
  if (soleP()) {
    adoptGlobal(pp);
    return popYielded(pp);
  }
  if (GUMP_LIKELY(globalSize(relaxed) == 0)) return nullptr;
  LockScope l(&sched.lock);
  G* gp = globrunqget(nodeOf(pp));
  return gp == nullptr && severalNodes() ? globalOfOthers(pp, 1) : gp;
}

G* globalBatch(P* pp) {
  if (soleP()) {
    adoptGlobal(pp);
    return popYielded(pp);
  }
  if (GUMP_LIKELY(globalSize(relaxed) == 0)) return nullptr;
  SchedNode* np = &sched.nodes[0];
  if (severalNodes()) {
    np = nodeOf(pp);
    if (queuedOn(np) == 0) return nullptr;
  }
  LockScope l(&sched.lock);
  return globrunqgetbatch(np, pp, kRunqSize / 2);
}

G* pollNetwork(const P* pp) {
  // lastpoll pairs with the stores of the M that blocks in the poller,
  // pollingNet with the release below.
  if (!netpollinited() || !netpollAnyWaiters() ||
      sched.lastpoll.load(acquire) == 0 ||
      !sched.pollingNet.cas(0, 1, acquire)) {
    return nullptr;
  }
  NetpollResult r = netpoll(0);
  sched.pollingNet.store(0, release);  // pairs with the cas above
  if (r.toRun.empty()) return nullptr;
  G* gp = popNear(&r.toRun, pp);
  if (gp != nullptr) {
    casgstatus(gp, kGwaiting, kGrunnable);
    if (GUMP_UNLIKELY(gp->special)) groupReady(gp);
  }
  injectglist(&r.toRun);
  netpollAdjustWaiters(r.delta);
  return gp;
}

}  // namespace

void runSafePointFn(P* pp) {
  // The winner of the CAS runs the function, so it runs once for each P.
  if (!pp->runSafePointFn.cas(1, 0, acq_rel)) return;
  sched.safePointFn(pp);
  LockScope l(&sched.lock);
  if (--sched.safePointWait == 0) notewakeup(&sched.safePointNote);
}

// ---- Steps 7 to 10: the P goes idle, then the M -----------------------------

namespace {

Find releaseP(M* mp, Runnable* out) {
  LockScope l(&sched.lock);
  P* pp = mp->p;
  // All three are set under sched.lock.
  if (sched.gcwaiting.load(relaxed) || sched.mainEnded.load(relaxed) ||
      pp->runSafePointFn.load(relaxed) != 0) {
    return Find::kAgain;
  }
  out->gp = globrunqgetbatch(nodeOf(pp), pp, kRunqSize / 2);
  if (out->gp == nullptr && severalNodes()) {
    out->gp = globalOfOthers(pp, kRunqSize / 2);
  }
  if (out->gp != nullptr) return Find::kFound;
  if (!mp->spinning && (mustSearch(pp) || mustLookElsewhere())) {
    becomeSpinning(mp);
    return Find::kAgain;
  }
  pidleput(releasep());
  mp->timerAdded = false;  // clock includes that timer
  return Find::kNothing;
}

// loseSpinning stops spinning first (S1) and looks again second (S2, S3). The
// order is essential. If we looked first, a thread could publish work after our
// look, see us counted in nmspinning, and wake no M. Then no M would look for
// that work.
//
// These are the sources of work that are checked again, and the wake-up that
// would be lost without the check:
//  * The global queue. A thread has queued a G there, because it yields,
//    because it has no P, or because its ring was full. Its wakep saw us
//    spinning.
//  * The ring and runnext of every P. A goroutine has readied a G onto its own
//    P, or has yielded to one that goes on running. The wakep saw us spinning,
//    so no M would steal the G.
//  * The reclamation cycle (step 9). dealOut has offered slabs to idle Ps, and
//    its wakep saw us spinning.
//  * The finalizer goroutine (fingwake, step 1). queueFinalizer has set the
//    flag, which stands for a runnable G that is on no queue. Its wakep saw us
//    spinning.
//  * The timers of every P (S3). A thread has added an earlier timer, found no
//    M in the poller, and called wakep, which saw us spinning. Here we only
//    read the times: blockInPoller sleeps until the earliest, or wakes the M
//    that would sleep past it.
//
// The network is not on the list. Our caller goes on to blockInPoller, which
// polls unless another M does so already.
//
// If we find work, we spin again, so that resetspinning wakes the next spinner,
// because there may be more than one G. If we find work but no idle P,
// pidlegetSpinning has set needspinning. An M that is about to idle its P sees
// that flag and spins instead of us, so no P goes idle while there is work.
Find loseSpinning(M* mp, Runnable* out, Clock* clock) {
  if (!mp->spinning) return Find::kNothing;
  stopSpinning(mp);
  const Find again =
      severalNodes() ? lookAgainOnNodes(mp, out) : lookAgain(mp, out);
  if (again != Find::kNothing) return again;
  // 9, and 1 again. We have done S1, and now read fingwake. The waker stores
  // fingwake, and then reads nmspinning (wakep).
  if ((reclaimWorkAvailable() || fingwake.load(seq_cst)) && takeIdleP(mp)) {
    return Find::kAgain;
  }
  clock->lower(nextTimer());
  return Find::kNothing;
}

Find lookAgain(M* mp, Runnable* out) {
  // S2, the global queue. Look under the lock instead of at runqsize: unlock is
  // a plain store, so a readier may read nmspinning before its runqsize is
  // visible. If its section of sched.lock comes before ours, we see the G. If
  // it comes after ours, the readier sees S1, because our unlock made S1
  // visible. globrunqcollect looks at what threads without a P have posted.
  P* pp = nullptr;
  {
    LockScope l(&sched.lock);
    SchedNode* np = &sched.nodes[0];
    globrunqcollect();
    if (!np->runq.empty() && (pp = pidlegetSpinning(np)) != nullptr) {
      out->gp = globrunqgetbatch(np, pp, kRunqSize / 2);
    }
  }
  if (pp != nullptr) {
    acquirep(pp);
    becomeSpinning(mp);
    return Find::kFound;
  }
  return ringsHaveWork() && takeIdleP(mp) ? Find::kAgain : Find::kNothing;
}

bool ringsHaveWork() {
  // The fence orders S1 before the loads, because those of runqempty are not
  // all seq_cst. allp is read although procresize may run meanwhile. Its
  // entries are never unset. A P that is added after our load is empty at
  // first, and an M that uses it later reads nmspinning after S1.
  fence(seq_cst);
  const int32_t n = gomaxprocs.load(acquire);  // pairs with procresize's store
  for (int32_t i = 0; i < n; i++) {
    if (!idlepMask.read(static_cast<uint32_t>(i)) && !runqempty(allp[i])) {
      return true;
    }
  }
  return false;
}

// aloneWithoutMore returns true if the caller, which has found work and stopped
// spinning (S1), need not wake the next spinner. It has the only busy P, and
// its look finds no more work. The look comes after S1, as in loseSpinning, so
// it finds the work of each thread that relied on the caller. An idle M must
// see to timers and the network. So the result is false if a timer is set, or
// if a goroutine waits for the network and no M polls. (A plain thread counts
// its wait before it relies on the caller.)
bool aloneWithoutMore() {
  const int32_t others = gomaxprocs.load(relaxed) - 1;
  if (sched.npidle.load(relaxed) != others || severalNodes()) return false;
  {
    LockScope l(&sched.lock);  // as in lookAgain
    globrunqcollect();
    if (!sched.nodes[0].runq.empty()) return false;
  }
  if (ringsHaveWork() || timeSleepUntil() != kMaxWhen) return false;
  if (netpollAnyWaiters() && sched.lastpoll.load(seq_cst) != 0) return false;
  return !reclaimWorkAvailable() && !fingwake.load(seq_cst);
}

Find blockInPoller(M* mp, Runnable* out, const Clock& clock) {
  if (!netpollinited() || (!netpollAnyWaiters() && clock.pollUntil == 0)) {
    return Find::kNothing;
  }
  if (GUMP_UNLIKELY(mp->wokenHome != nullptr) && leavesPollToHome(mp)) {
    return Find::kNothing;
  }
  if (!becomePoller(clock.pollUntil)) return Find::kNothing;
  NetpollResult r = pollUntilTime(mp, clock.pollUntil);
  if (GUMP_UNLIKELY(mp->wokenHome != nullptr) && r.toRun.empty() &&
      leavesPollToHome(mp)) {
    return Find::kNothing;
  }
  P* pp;
  {
    LockScope l(&sched.lock);
    const G* first = r.toRun.head;
    pp = pidleget(first != nullptr ? nodeOf(first) : nodeOf(mp));
  }
  if (pp == nullptr) {
    // The Ms that hold the Ps have to look at the timers, including those for
    // which this poll was broken. sysmon makes sure that they do.
    wakeSysmonBy(timeSleepUntil());
    injectglist(&r.toRun);
    netpollAdjustWaiters(r.delta);
    return Find::kNothing;
  }
  acquirep(pp);
  out->gp = popNear(&r.toRun, pp);
  if (out->gp == nullptr) {
    injectglist(&r.toRun);  // those of other nodes
    netpollAdjustWaiters(r.delta);
    // No M sleeps now for the timers of the other Ps, or for the later ones of
    // this P. A spinning M runs those that are due, or wakes another M that
    // does.
    becomeSpinning(mp);
    return Find::kAgain;
  }
  casgstatus(out->gp, kGwaiting, kGrunnable);
  if (GUMP_UNLIKELY(out->gp->special)) groupReady(out->gp);
  injectglist(&r.toRun);
  netpollAdjustWaiters(r.delta);
  // sysmon has to look at the timers, and to wake an M for a late one.
  // No M sleeps for the timers now (wakeForLateTimer).
  wakeSysmonBy(timeSleepUntil());
  return Find::kFound;
}

GUMP_NOINLINE G* executeRecorded(M* mp, Runnable r) {
  if (!fuzzing() || !fuzzMoves(mp, r.gp)) {
    return fuzzExecute(r.gp, r.inheritTime);
  }
  fuzzMove(r.gp);
  return nullptr;
}

}  // namespace

bool becomePoller(int64_t pollUntil) {
  fuzzPoint();
  // S4. seq_cst: see wakeNetPoller.
  if (sched.lastpoll.xchg(0, seq_cst) != 0) return true;
  // Another M is already blocked in netpoll. Wake it if our timer is due before
  // it would return.
  if (pollUntil != 0) breakPollAfter(pollUntil);
  return false;
}

NetpollResult pollUntilTime(M* mp, int64_t pollUntil) {
  if (mp->p != nullptr) fatalthrow("findRunnable: netpoll with p");
  if (mp->spinning) fatalthrow("findRunnable: netpoll with spinning");
  sched.pollUntil.store(pollUntil, seq_cst);  // as S4
  int64_t delay = -1;
  if (pollUntil != 0) {
    delay = timersDelay(pollUntil);
    // An M that goes idle after this section sees lastpoll == 0, and its
    // checkdead asks isUselessPoll, too.
    LockScope l(&sched.lock);
    if (isUselessPoll())
      delay = 0;  // remove the zombies, and come to checkdead
  } else if (!netpollAnyWaiters()) {
    // The last waiter has just been readied. The M that ran it may be idle
    // again, after a checkdead that did not see lastpoll == 0. So do not sleep.
    // seq_cst: we store lastpoll, and then read the number of waiters.
    delay = 0;
  }
  mp->blocked.store(true, relaxed);  // a hint
  NetpollResult r = netpoll(delay);
  mp->blocked.store(false, relaxed);
  sched.pollUntil.store(0, seq_cst);  // as above
  leavePoller();
  return r;
}

// Pairs with the xchg in becomePoller.
void leavePoller() { sched.lastpoll.store(nanotime(), seq_cst); }

bool runDueTimers() {
  Clock clock;
  bool ran = false;
  const int32_t n = gomaxprocs.load(relaxed);  // we hold a P
  for (int32_t i = 0; i < n; i++) {
    if (stealTimers(static_cast<uint32_t>(i), &clock)) ran = true;
  }
  return ran;
}

int64_t nextTimer() {
  Clock clock;
  const int32_t n = gomaxprocs.load(acquire);  // pairs with procresize
  for (int32_t i = 0; i < n; i++) {
    if (timerpMask.read(static_cast<uint32_t>(i))) {
      clock.lower(wakeTime(&allp[i]->timers));
    }
  }
  return clock.pollUntil;
}

void announceTimer(M* mp) {
  if (GUMP_LIKELY(!mp->timerAdded) || mp->p == nullptr) return;
  mp->timerAdded = false;
  if (const int64_t w = wakeTime(&mp->p->timers)) wakeNetPoller(w);
}

// ---- After main has ended ---------------------------------------------------

namespace {

// idleAfterMain follows endSchedule's pidleput. One M polls, because foreign
// threads may still wait for descriptors and timers. The others sleep until
// they are given a P. No queue is searched again, because the Gs in it are for
// the next Run.
// P: none; then maybe one.  Parks: blocks the thread.
void idleAfterMain(M* mp) {
  // We write nmspinning (S1) and npidle, and then read the timers. A thread
  // that adds a timer writes it, and then reads both (wakep).
  fence(seq_cst);
  Clock clock;
  clock.lower(nextTimer());
  Runnable left{nullptr, false};
  switch (blockInPoller(mp, &left, clock)) {
    case Find::kFound:
      runqput(mp->p, left.gp, /*next=*/false);
      break;
    case Find::kAgain:
      break;
    case Find::kNothing:
      stopm();
      break;
  }
}

void endSchedule(M* mp) {
  if (mp->spinning) stopSpinning(mp);
  P* pp = mp->p;
  Clock clock;
  const int32_t n = gomaxprocs.load(relaxed);  // we hold a P
  for (int32_t i = 0; i < n; i++) {
    if (allp[i] != pp) (void)stealTimers(static_cast<uint32_t>(i), &clock);
  }
  (void)timersCheck(&pp->timers, &clock.now, /*tidy=*/true);
  flushYielded(pp);
  GQueue q = runqdrain(pp);
  bool ended;  // false if the next Run has begun
  bool stopping = false;
  bool safePoint = false;  // a forEachP has yet to visit our P
  {
    LockScope l(&sched.lock);
    globrunqputbatch(&q);
    ended = sched.mainEnded.load(relaxed);
    if (ended) {
      releasePreempted();
      // Both are set under sched.lock. A stop of the world counts our P.
      stopping = sched.gcwaiting.load(relaxed);
      safePoint = pp->runSafePointFn.load(relaxed) != 0;
      if (!stopping && !safePoint) pidleput(releasep());
    }
  }
  if (!ended) {
    // This is W2, and it is also the second look that stopSpinning requires.
    // The wakep of the next Run may have seen us spin and so woken no M. An M
    // that looked for work before we queued q did not find it.
    wakepAnywhere();
  } else if (stopping) {
    gcstopm();
  } else if (safePoint) {
    runSafePointFn(pp);
  } else {
    idleAfterMain(mp);
  }
}

// noPollerAfterMain returns true if foreign threads may wait for something
// while no M polls for it. The load is seq_cst, so that it follows the caller's
// publication, as in wakep.
// On: any.  P: either.  Locks: none.  Parks: no.
bool noPollerAfterMain() {
  return sched.lastpoll.load(seq_cst) != 0 &&
         (netpollAnyWaiters() || timersPending());
}

}  // namespace

// ---- Spinning, and waking the next M ----------------------------------------

namespace {

// wakeSpinnerNow is the end of wakeSpinner if an M seems to be needed.
GUMP_NOINLINE void wakeSpinnerNow() {
  // Once main has ended, work waits for the next Run, which calls wakep after
  // it has cleared this flag. Now only foreign threads may need an M, one that
  // polls.
  if (GUMP_UNLIKELY(sched.mainEnded.load(relaxed)) && !noPollerAfterMain()) {
    return;
  }
  // From here to the hand-over we must not be preempted, because all others
  // would rely on a spinner that does not exist yet.
  M* mp = acquirem();
  if (sched.nmspinning.cas(0, 1, seq_cst)) startSpinner(nullptr);
  releasem(mp);
}

// wakeSpinner is wakepAnywhere.
GUMP_ALWAYS_INLINE void wakeSpinner() {
  // W2 of the essay. All three loads are seq_cst and follow the caller's
  // publication.
  if (sched.nmspinning.load(seq_cst) != 0) return;
  // No P is idle, and the M that next gives up a P is already told to look
  // first: the flag is set under sched.lock, and that M reads it there before
  // it idles its P. If a new spinner clears the flag after our load, it scans
  // after our publication.
  if (sched.npidle.load(seq_cst) == 0 &&
      sched.needspinning.load(seq_cst) == 1) {
    return;
  }
  wakeSpinnerNow();
}

// wakepOnNodes is wakep with several nodes.
GUMP_NOINLINE void wakepOnNodes() {
  if (!wakepNear()) wakeSpinner();
}

}  // namespace

// wakep ends with a call in all but the usual cases, so it saves no registers.
void wakep() {
  const WakeMode mode = sched.wakeMode.load(relaxed);
  // With one P, which we hold, there is no other M to wake.
  if (mode == WakeMode::kOneP && getg()->m->p != nullptr) return;
  if (GUMP_UNLIKELY(mode == WakeMode::kSeveralNodes)) {
    wakepOnNodes();
  } else {
    wakeSpinner();
  }
}

void wakepAnywhere() {
  // As in wakep.
  if (sched.wakeMode.load(relaxed) == WakeMode::kOneP &&
      getg()->m->p != nullptr) {
    return;
  }
  wakeSpinner();
}

void startSpinner(SchedNode* near) {
  P* pp;
  {
    LockScope l(&sched.lock);
    pp = pidlegetSpinning(near != nullptr ? near : nodeToWake());
    if (pp == nullptr) {
      uncountSpinner("wakep: negative nmspinning");
    } else {
      countStart(pp);
    }
  }
  if (pp != nullptr) {
    startm(pp, /*spinning=*/true);
  } else {
    // A thread that set a timer relied on the spinner that we counted.
    wakeSysmonBy(timeSleepUntil());
  }
}

void injectglist(GList* glist) {
  if (glist->empty()) return;
  if (severalNodes()) {
    injectOnNodes(glist);
    return;
  }
  GQueue q;
  while (G* gp = glist->pop()) {
    casgstatus(gp, kGwaiting, kGrunnable);
    if (GUMP_UNLIKELY(gp->special)) groupReady(gp);
    q.pushBack(gp);
  }
  fuzzPoint();  // they are runnable, and on no queue
  M* mp = acquirem();
  P* pp = mp->p;
  // How many idle Ps could take one G each. Without a P, all go to the global
  // queue.
  int32_t idle = pp == nullptr ? q.size : sched.npidle.load(relaxed);
  GQueue global;
  for (int32_t i = 0; i < idle && !q.empty(); i++) global.pushBack(q.pop());
  int32_t starts = global.size;
  if (starts > 0) {
    LockScope l(&sched.lock);
    globrunqputbatch(&global);
  }
  for (; starts > 0; starts--) {
    P* other;
    {
      LockScope l(&sched.lock);
      other = pidlegetSpinning(&sched.nodes[0]);
    }
    if (other == nullptr) break;
    startm(other, /*spinning=*/false);
  }
  if (!q.empty()) {
    runqputbatch(pp, &q);
    if (!q.empty()) {
      LockScope l(&sched.lock);
      globrunqputbatch(&q);
    }
  }
  fence(seq_cst);  // W1: runqputbatch published by a plain release; S1 and S2
                   // of loseSpinning are the other side
  wakep();
  releasem(mp);
}

void resetspinning() {
  M* mp = getg()->m;
  stopSpinning(mp);
  // We were the M that looks for work, and we found some. There may be more, so
  // let the next M look. Decision 015 says when we look ourselves instead.
  const bool byThread = std::exchange(mp->wokenByThread, false);
  if (!byThread || !aloneWithoutMore()) wakeNextSpinner();
}

void wakeNextSpinner() {
  wakepAnywhere();
  // A hint. If no P is idle, wakep may have found none for a spinner.
  // Then wakep has started no spinner, and only sysmon can see to the timers.
  if (sched.npidle.load(relaxed) == 0) wakeSysmonBy(timeSleepUntil());
}

void becomeSpinning(M* mp) {
  mp->spinning = true;
  sched.nmspinning.add(1, seq_cst);
  countOnNode(mp);
  clearNeedspinning(mp->p);
  // We store needspinning, and then scan the rings. A waker publishes its G,
  // and then loads needspinning (wakep). A waker that still reads needspinning
  // == 1 published its G before this fence, so our scan finds it.
  fence(seq_cst);
}

bool takeIdleP(M* mp) {
  P* pp;
  {
    LockScope l(&sched.lock);
    pp = pidlegetSpinning(nodeOf(mp));
  }
  // pidlegetSpinning has set needspinning, so the M that next gives up a P
  // looks first.
  if (pp == nullptr) return false;
  acquirep(pp);
  becomeSpinning(mp);
  return true;
}

void stopSpinning(M* mp) {
  mp->spinning = false;
  uncountOnNode(mp);
  uncountSpinner("findRunnable: negative nmspinning");
  fuzzPoint();
}

void uncountSpinner(const char* negative) {
  // S1 of the essay.
  if (sched.nmspinning.add(-1, seq_cst) < 0) fatalthrow(negative);
}

}  // namespace gump::rt
