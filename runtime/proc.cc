// The scheduler: which goroutine runs next, on which thread, and who wakes
// whom.
//
// A G is a goroutine, an M a thread, a P the right to run goroutines; an M
// needs a P to run user code. There are GOMAXPROCS Ps and as many Ms as
// blocking calls make necessary. Runnable Gs wait in the ring of a P or in the
// global queue; an M without work steals.
//
// The question that decides the design is when to wake a thread. Three answers
// do not work:
//   1. Keep all state central, so that one always knows. It does not scale:
//      every switch takes the one lock.
//   2. When a G is readied and a P is idle, wake a thread for it and hand it
//      the G. The readier usually blocks at once and would have run the G
//      itself on a warm cache; the exchange becomes thread-to-thread and costs
//      microseconds.
//   3. Wake a thread whenever a G is readied and a P is idle, without handing
//      anything over. Threads wake, find nothing, and sleep again, all the
//      time.
//
// What works: an M that is out of work *spins* for a while, that is, looks
// through every queue before it sleeps, and a readier wakes another M only if a
// P is idle and nobody spins. The spinner that finds work wakes the next
// spinner. So the number of awake threads follows the amount of work, smoothly,
// and bursts do not stampede.
//
// What remains is one race: a readier sees a spinner and wakes nobody, while
// the spinner has looked everywhere, found nothing, and goes to sleep. Both
// sides therefore write first and read second:
//
//   readier (W)                       sleeper (S), in loseSpinning
//     W1  publish the G                 S1  nmspinning -= 1
//         (xchg of runnext, or under
//         sched.lock)
//         -- StoreLoad --                   -- StoreLoad --
//     W2  read nmspinning in wakep      S2  read every queue again
//
// Both RMWs and both reads are seq_cst. If W2 reads the value from before S1,
// then W1 precedes S2 in their single total order, and S2 finds the G. If it
// reads the value from after, it is zero, and the readier wakes a thread. A G
// that is published in the global queue needs no barrier of its own: S2 looks
// there under sched.lock, and of the two sections the later sees what came
// before the earlier, be it the G or S1.
//
// An M that was not spinning when it gave up its P need not look again: whoever
// made a G runnable then either saw a spinner, who will look, or an idle P, and
// woke someone, or neither. In the last case there was no idle P, and wakep has
// set needspinning under sched.lock; the M checks that flag in the same section
// of sched.lock in which it idles its P.
//
// The number of spinners is bounded by half the busy Ps, so that a mostly idle
// program does not burn its cores.
#include "runtime/proc.h"

#include "runtime/netpoll.h"
#include "runtime/os_linux.h"
#include "runtime/panic.h"

namespace gump::rt {

namespace {

enum class Find : uint8_t { kFound, kAgain, kNothing };

// RandomOrder visits 0..count-1 in an order fixed by a start and a stride
// coprime to count, so each once.
class RandomOrder {
 public:
  RandomOrder(uint32_t count, M* mp)
      : count_(count), pos_(cheaprandn(mp, count)) {
    do {
      stride_ = 1 + cheaprandn(mp, count);
    } while (gcd(stride_, count) != 1);
  }
  bool done() const { return i_ == count_; }
  void next() {
    i_++;
    pos_ = (pos_ + stride_) % count_;
  }
  uint32_t position() const { return pos_; }

 private:
  static uint32_t gcd(uint32_t a, uint32_t b) {
    while (b != 0) {
      uint32_t t = a % b;
      a = b;
      b = t;
    }
    return a;
  }
  uint32_t count_;
  uint32_t pos_;
  uint32_t stride_;
  uint32_t i_ = 0;
};

void becomeSpinning(M* mp) {
  mp->spinning = true;
  sched.nmspinning.add(1, seq_cst);
  sched.needspinning.store(0, seq_cst);
  // store needspinning, then scan the rings / publish a G, then load
  // needspinning (wakep): who still read 1 published before our scan.
  fence(seq_cst);
}

// stealWork tries every other P four times; in the last pass runnext too.
G* stealWork(M* mp, P* pp, bool* newWork) {
  constexpr int kPasses = 4;
  // We hold a P, so the world is not stopped.
  uint32_t count = static_cast<uint32_t>(gomaxprocs.load(relaxed));
  for (int pass = 0; pass < kPasses; pass++) {
    bool last = pass == kPasses - 1;
    for (RandomOrder order(count, mp); !order.done(); order.next()) {
      if (sched.gcwaiting.load(acquire)) {  // pairs with stopTheWorld
        *newWork = true;
        return nullptr;
      }
      P* victim = allp[order.position()];
      if (victim == pp || idlepMask.read(order.position())) continue;
      if (G* gp = runqsteal(pp, victim, /*stealRunNextG=*/last)) return gp;
    }
  }
  return nullptr;
}

// pollNetwork is steps 4 and, for sysmon's sake, part of 10: one M at a time,
// never blocking.
G* pollNetwork() {
  // Pairs with the store of the M that blocks in the poller.
  // Pairs with the release below.
  if (!netpollinited() || !netpollAnyWaiters() ||
      sched.lastpoll.load(acquire) == 0 ||
      !sched.pollingNet.cas(0, 1, acquire)) {
    return nullptr;
  }
  NetpollResult r = netpoll(0);
  sched.pollingNet.store(0, release);  // pairs with the cas above
  G* gp = r.toRun.pop();
  if (gp == nullptr) return nullptr;
  casgstatus(gp, kGwaiting, kGrunnable);
  injectglist(&r.toRun);
  netpollAdjustWaiters(r.delta);
  return gp;
}

// globalOne and globalBatch take from the global queue. A stale runqsize of
// zero is repaired by the locked look in releaseP.
G* globalOne(P* pp) {
  if (soleP()) return popYielded(pp, /*adopt=*/true);
  if (GUMP_LIKELY(sched.runqsize.load(relaxed) == 0)) return nullptr;
  LockScope l(&sched.lock);
  return globrunqget();
}

G* globalBatch(P* pp) {
  if (soleP()) return popYielded(pp, /*adopt=*/true);
  if (GUMP_LIKELY(sched.runqsize.load(relaxed) == 0)) return nullptr;
  LockScope l(&sched.lock);
  return globrunqgetbatch(pp, kRunqSize / 2);
}

// findWithP is everything that can be found while holding the P: steps 1 to 6.
Find findWithP(M* mp, Runnable* out) {
  P* pp = mp->p;
  // Pairs with forEachP's store.
  if (pp->runSafePointFn.load(acquire) != 0) runSafePointFn(pp);
  // Now and then the global queue goes first, or two Gs that keep readying each
  // other would starve it.
  if (pp->schedtick.load(relaxed) % 61 == 0 &&
      (out->gp = globalOne(pp)) != nullptr) {
    return Find::kFound;
  }
  if (G* gp = wakefing()) goready(gp);  // 1: the finalizer goroutine
  RunqGet local = runqget(pp);          // 2
  if (local.gp != nullptr) {
    *out = {local.gp, local.inheritTime};
    return Find::kFound;
  }
  if ((out->gp = globalBatch(pp)) != nullptr) return Find::kFound;  // 3
  if ((out->gp = pollNetwork()) != nullptr) return Find::kFound;    // 4
  // 5: steal, unless enough others already try
  // A heuristic; any value is correct.
  int32_t busy = gomaxprocs.load(relaxed) - sched.npidle.load(relaxed);
  if (mp->spinning || 2 * sched.nmspinning.load(relaxed) < busy) {
    if (!mp->spinning) becomeSpinning(mp);
    bool newWork = false;
    if ((out->gp = stealWork(mp, pp, &newWork)) != nullptr) return Find::kFound;
    if (newWork) return Find::kAgain;
  }
  if (reclaimWorkAvailable(pp) &&
      (out->gp = reclaimIdleWorker(pp)) != nullptr) {  // 6
    return Find::kFound;
  }
  return Find::kNothing;
}

// releaseP is step 7: a last look at the global queue in the same section of
// sched.lock that idles the P.
Find releaseP(M* mp, Runnable* out) {
  LockScope l(&sched.lock);
  P* pp = mp->p;
  // Written under sched.lock.
  if (sched.gcwaiting.load(relaxed) || sched.mainEnded.load(relaxed) ||
      pp->runSafePointFn.load(relaxed) != 0) {
    return Find::kAgain;
  }
  if ((out->gp = globrunqgetbatch(pp, kRunqSize / 2)) != nullptr) {
    return Find::kFound;
  }
  // Set under sched.lock.
  if (!mp->spinning && sched.needspinning.load(relaxed) == 1) {
    becomeSpinning(mp);
    return Find::kAgain;
  }
  pidleput(releasep());
  return Find::kNothing;
}

// takeIdleP gets a P for an M that has just found work without one, and makes
// it spin.
bool takeIdleP(M* mp) {
  P* pp;
  {
    LockScope l(&sched.lock);
    pp = pidlegetSpinning();
  }
  // needspinning is set: whoever releases a P looks first.
  if (pp == nullptr) return false;
  acquirep(pp);
  becomeSpinning(mp);
  return true;
}

// loseSpinning is steps 8 and 9, the sleeper's half of the essay: stop spinning
// first, look again second.
Find loseSpinning(M* mp, Runnable* out) {
  if (!mp->spinning) return Find::kNothing;
  stopSpinning(mp);
  // S2, the global queue. Under the lock, not by runqsize: unlock is a plain
  // store, so a readier may read nmspinning before its runqsize is visible. If
  // its section of sched.lock comes before ours, we see the G; if after, it
  // sees S1, because our unlock made that visible.
  P* pp = nullptr;
  {
    LockScope l(&sched.lock);
    if (!sched.runq.empty() && (pp = pidlegetSpinning()) != nullptr) {
      out->gp = globrunqgetbatch(pp, kRunqSize / 2);
    }
  }
  if (pp != nullptr) {
    acquirep(pp);
    becomeSpinning(mp);
    return Find::kFound;
  }
  // S1, then the rings: the reads of runqempty are not all seq_cst, so a fence
  // orders them. allp is read without the world being stopped: entries are
  // never unset, new ones are idle or ours.
  fence(seq_cst);
  int32_t n = gomaxprocs.load(acquire);  // pairs with procresize's store
  for (int32_t i = 0; i < n; i++) {
    if (!idlepMask.read(static_cast<uint32_t>(i)) && !runqempty(allp[i])) {
      return takeIdleP(mp) ? Find::kAgain : Find::kNothing;
    }
  }
  if (reclaimWorkAvailable(nullptr) && takeIdleP(mp)) return Find::kAgain;  // 9
  return Find::kNothing;
}

// blockInPoller is step 10: the last M to go idle waits for the network instead
// of its note.
Find blockInPoller(M* mp, Runnable* out) {
  // Pairs with the stores of lastpoll by other pollers.
  if (!netpollinited() || !netpollAnyWaiters() ||
      sched.lastpoll.xchg(0, acq_rel) == 0) {
    return Find::kNothing;
  }
  if (mp->p != nullptr) fatalthrow("findRunnable: netpoll with p");
  if (mp->spinning) fatalthrow("findRunnable: netpoll with spinning");
  NetpollResult r = netpoll(-1);
  sched.lastpoll.store(nanotime(), release);  // pairs with the xchg above
  P* pp;
  {
    LockScope l(&sched.lock);
    pp = pidleget();
  }
  if (pp == nullptr) {
    injectglist(&r.toRun);
    netpollAdjustWaiters(r.delta);
    return Find::kNothing;
  }
  acquirep(pp);
  out->gp = r.toRun.pop();
  if (out->gp == nullptr) return Find::kAgain;
  casgstatus(out->gp, kGwaiting, kGrunnable);
  injectglist(&r.toRun);
  netpollAdjustWaiters(r.delta);
  return Find::kFound;
}

// endSchedule is what every M does once main has returned: its work goes to the
// global queue, where the next Run finds it, its P goes idle, and it sleeps
// until it is given one again. (m0 never comes here: see schedule.)
void endSchedule(M* mp) {
  if (mp->spinning) stopSpinning(mp);
  P* pp = mp->p;
  flushYielded(pp);
  GQueue q = runqdrain(pp);
  bool stopping;
  bool safePoint;  // forEachP, too, sets its flags under sched.lock
  {
    LockScope l(&sched.lock);
    globrunqputbatch(&q);
    if (!sched.mainEnded.load(relaxed)) return;  // the next Run has begun
    letGo(&sched.runq);
    sched.runqsize.store(sched.runq.size, relaxed);  // a hint outside the lock
    // Written under sched.lock; who stops the world counts our P.
    stopping = sched.gcwaiting.load(relaxed);
    safePoint = pp->runSafePointFn.load(relaxed) != 0;
    if (!stopping && !safePoint) pidleput(releasep());
  }
  if (stopping) {
    gcstopm();
  } else if (safePoint) {
    runSafePointFn(pp);
  } else {
    stopm();
  }
}

}  // namespace

void stopSpinning(M* mp) {
  mp->spinning = false;
  if (sched.nmspinning.add(-1, seq_cst) < 0) {  // S1 of the essay
    fatalthrow("findRunnable: negative nmspinning");
  }
}

void runSafePointFn(P* pp) {
  // The winner runs it, once per P.
  if (!pp->runSafePointFn.cas(1, 0, acq_rel)) return;
  sched.safePointFn(pp);
  LockScope l(&sched.lock);
  if (--sched.safePointWait == 0) notewakeup(&sched.safePointNote);
}

Runnable findRunnable() {
  M* mp = getg()->m;
  for (;;) {
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
    Find f = findWithP(mp, &out);
    if (f == Find::kNothing) f = releaseP(mp, &out);
    if (f == Find::kNothing) f = loseSpinning(mp, &out);
    if (f == Find::kNothing) f = blockInPoller(mp, &out);
    if (f == Find::kFound) return out;
    if (f == Find::kAgain) continue;
    stopm();
  }
}

namespace {

// headOfQueue is the G that findWithP would take from the queues of pp. With
// more than one P somebody may steal it meanwhile.
G* headOfQueue(const P* pp) {
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

// startsAtHand tells whether gp can be resumed here without locks and system
// calls: the caller may hold a lock.
bool startsAtHand(const P* pp, const G* gp) {
  if (peek(gp->lockedm) != nullptr) return false;
  return peek(gp->stack.lo) != 0 ||
         (peek(gp->stacksize) == 0 && pp->stackCache != nullptr);
}

}  // namespace

// Every reason for which findRunnable would do something else than take from
// the queues must be known here.
G* directNext(M* mp) {
  P* pp = mp->p;
  // All are requests that the next look would honour just as well; findWithP
  // says who stores them.
  if (sched.gcwaiting.load(acquire) || sched.mainEnded.load(acquire) ||
      pp->runSafePointFn.load(acquire) != 0 || fingwake.load(relaxed) ||
      mp->lockedg != nullptr || mp == &m0) {
    return nullptr;
  }
  // A thief may have it by now: a hint, looked at again below.
  const G* head = headOfQueue(pp);
  if (head == nullptr || !startsAtHand(pp, head)) return nullptr;
  RunqGet next = head == pp->yielded.head
                     ? RunqGet{popYielded(pp, /*adopt=*/false), false}
                     : runqget(pp);
  if (GUMP_UNLIKELY(next.gp == nullptr)) return nullptr;  // stolen
  if (GUMP_UNLIKELY(!startsAtHand(pp, next.gp))) {
    // Not the one we looked at. It has lost its place, to be found again.
    LockScope l(&sched.lock);
    globrunqput(next.gp);
    return nullptr;
  }
  return execute(next.gp, next.inheritTime);
}

G* schedule() {
  M* mp = getg()->m;
  if (GUMP_UNLIKELY(mp->locks.load(relaxed) != 1)) {  // written by us only
    fatalthrow("schedule: holding locks");
  }
  if (GUMP_UNLIKELY(mp->lockedg != nullptr)) {
    stoplockedm();
    if (mp->p == nullptr) return nullptr;  // m0, woken to leave Run
    // It has a stack: it locked itself.
    return execute(mp->lockedg,
                   /*inheritTime=*/false);
  }
  if (GUMP_UNLIKELY(mp == &m0)) {
    // Main has left it, see m0Stop.
    if (mp->spinning) resetspinning();
    handoffp(releasep());
    stopm();
    return nullptr;
  }
  for (;;) {
    if (GUMP_UNLIKELY(mp->spinning && !runqempty(mp->p))) {
      fatalthrow("schedule: spinning with local work");
    }
    Runnable r = findRunnable();
    if (mp->spinning) resetspinning();
    if (GUMP_UNLIKELY(r.gp->lockedm != nullptr)) {
      startlockedm(r.gp);
      continue;
    }
    if (G* gp = execute(r.gp, r.inheritTime)) return gp;
  }
}

G* execute(G* gp, bool inheritTime) {
  M* mp = getg()->m;
  if (gp->stack.lo == 0 && GUMP_UNLIKELY(!bindStack(mp->p, gp))) {
    return nullptr;
  }
  mp->curg.store(gp, release);  // pairs with the acquire in preemptone
  gp->m = mp;
  casgstatus(gp, kGrunnable, kGrunning);
  gp->waitsince = 0;
  P* pp = mp->p;
  if (inheritTime) {
    // A request to yield concerns the slice. Goroutines that ready each other
    // would lose it between them, and keep everyone else waiting.
    gp->preempt.store(pp->preempt.load(relaxed), relaxed);  // best effort
  } else {
    pp->preempt.store(false, relaxed);  // best effort: who asks, asks again
    gp->preempt.store(false, relaxed);
    // Written by us; sysmon only compares values.
    pp->schedtick.store(pp->schedtick.load(relaxed) + 1, relaxed);
  }
  return gp;
}

void resetspinning() {
  stopSpinning(getg()->m);
  // We were the one who looks for work, and found some. There may be more: let
  // the next one look.
  wakep();
}

void wakep() {
  // With one P, and that in our hands, there is nobody to wake.
  if (gomaxprocs.load(relaxed) == 1 && getg()->m->p != nullptr) return;
  // W2 of the essay. All three loads are seq_cst and follow the caller's
  // publication.
  if (sched.nmspinning.load(seq_cst) != 0) return;
  // No idle P, and the M that next gives one up is already told to look first
  // (the flag is set under sched.lock, where that M reads it before it idles
  // its P). If a new spinner clears the flag after our load, it scans after our
  // publication.
  if (sched.npidle.load(seq_cst) == 0 &&
      sched.needspinning.load(seq_cst) == 1) {
    return;
  }
  // The next Run wakes a P after it has cleared this.
  if (sched.mainEnded.load(relaxed)) return;
  if (!sched.nmspinning.cas(0, 1, seq_cst)) return;
  M* mp = acquirem();  // between taking the P and handing it over, we must not
                       // be stopped
  P* pp;
  {
    LockScope l(&sched.lock);
    pp = pidlegetSpinning();
    if (pp == nullptr && sched.nmspinning.add(-1, seq_cst) < 0) {
      fatalthrow("wakep: negative nmspinning");
    }
  }
  if (pp != nullptr) startm(pp, /*spinning=*/true);
  releasem(mp);
}

void injectglist(GList* glist) {
  if (glist->empty()) return;
  GQueue q;
  while (G* gp = glist->pop()) {
    casgstatus(gp, kGwaiting, kGrunnable);
    q.pushBack(gp);
  }
  M* mp = acquirem();
  P* pp = mp->p;
  // How many others could take one each.
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
      other = pidlegetSpinning();
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

}  // namespace gump::rt
