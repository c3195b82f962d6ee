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
// Timers are looked at by the P's owner whenever it schedules, and by thieves.
// When nobody is left to do so, the last M to go idle sleeps in the poller
// until the earliest is due (blockInPoller), and whoever adds an earlier one
// sees to it that somebody wakes in time. Again both write first and read
// second:
//
//   adder (insert, timerModify)           sleeper
//     A1  publish the time                  S1  nmspinning -= 1
//         (minWhenHeap, minWhenModified)        (then S2, and)
//         -- StoreLoad --                   S3  read the times of all Ps
//     A2  in wakeNetPoller: is somebody     S4  lastpoll = 0, then pollUntil
//         in the poller? (lastpoll == 0)
//         yes: pollUntil later? break it
//         no:  wakep
//
// If S3 misses the timer, A2 comes after S1. If A2 then finds lastpoll == 0, it
// breaks the poll, unless the sleeper has said that it ends in time; a break
// before the sleep is not lost. If not, wakep, which finds nobody spinning,
// starts an M that looks at all timers. An M that was not spinning need not
// look, by the argument above: it looks at its own P's timers only.
//
// The number of spinners is bounded by half the busy Ps, so that a mostly idle
// program does not burn its cores.
#include "runtime/proc.h"

#include <algorithm>

#include "runtime/fuzzsched.h"
#include "runtime/netpoll.h"
#include "runtime/os_linux.h"
#include "runtime/panic.h"

namespace gump::rt {

namespace {

enum class Find : uint8_t { kFound, kAgain, kNothing };

// Clock is what one round of findRunnable learns about timers.
struct Clock {
  int64_t now = 0;        // nanotime; 0: not read yet
  int64_t pollUntil = 0;  // when the next timer is due; 0: there is none

  void lower(int64_t when) {
    if (when != 0 && (pollUntil == 0 || when < pollUntil)) pollUntil = when;
  }
};

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

// stealTimers runs what is due on victim. Zombies are for its owner to remove,
// if there is one.
bool stealTimers(const P* victim, Clock* clock) {
  const auto id = static_cast<uint32_t>(victim->id);
  if (!timerpMask.read(id)) return false;
  const TimerCheck check = timersCheck(&allp[id]->timers, &clock->now,
                                       /*tidy=*/idlepMask.read(id));
  clock->lower(check.next);
  // A thief spins, and wakes the next, as endSchedule does for the next Run.
  return check.ran;
}

// stealWork tries every other P four times; in the last pass timers and runnext
// too.
Find stealWork(M* mp, P* pp, Clock* clock, Runnable* out) {
  constexpr int kPasses = 4;
  // We hold a P, so the world is not stopped.
  uint32_t count = static_cast<uint32_t>(gomaxprocs.load(relaxed));
  bool ranTimers = false;
  for (int pass = 0; pass < kPasses; pass++) {
    bool last = pass == kPasses - 1;
    for (RandomOrder order(count, mp); !order.done(); order.next()) {
      // Pairs with stopTheWorld.
      if (sched.gcwaiting.load(acquire)) return Find::kAgain;
      P* victim = allp[order.position()];
      if (victim == pp) continue;
      if (last && stealTimers(victim, clock)) {
        // They made Gs ready, here: runqsteal wants an empty ring.
        RunqGet local = runqget(pp);
        if (local.gp != nullptr) {
          *out = {local.gp, /*inheritTime=*/false};
          return Find::kFound;
        }
        ranTimers = true;
      }
      if (idlepMask.read(order.position())) continue;
      if ((out->gp = runqsteal(pp, victim, /*stealRunNextG=*/last))) {
        return Find::kFound;
      }
    }
  }
  return ranTimers ? Find::kAgain : Find::kNothing;
}

// pollNetwork is step 4: one M at a time, never blocking.
G* pollNetwork() {
  // lastpoll pairs with the stores of the M that blocks in the poller,
  // pollingNet with the release below.
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

// checkTimers runs what is due on our own P. Timers wake nobody for those whom
// they ready: the first we run at once, and if there are others we wake
// somebody here. True: some were due.
bool checkTimers(P* pp, Clock* clock) {
  // Ours, or P 0's, which others add to, and then wake somebody.
  if (GUMP_LIKELY(pp->timers.len.load(relaxed) == 0)) return false;
  const TimerCheck check = timersCheck(&pp->timers, &clock->now, /*tidy=*/true);
  clock->lower(check.next);
  if (check.ran && runqlen(pp) > 0) {
    fence(seq_cst);  // W1 of the essay: the stores to the ring are release
    wakep();
  }
  return check.ran;
}

// globalTurn tells whether the global queue goes first: now and then, or two Gs
// that keep readying each other would starve it. Not while somebody waits whom
// a timer has just readied (ran): next time then.
bool globalTurn(P* pp, bool ran) {
  // schedtick: written by us.
  const bool turn = pp->globalTurn || pp->schedtick.load(relaxed) % 61 == 0 ||
                    (GUMP_UNLIKELY(pp->fuzz != 0) && fuzzOneIn(pp, 4));
  pp->globalTurn = turn && ran && !pp->globalTurn;
  return turn && !pp->globalTurn;
}

// findWithP is everything that can be found while holding the P: steps 0 to 6.
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
  if (local.gp != nullptr) {
    // Whom a timer readied does not inherit a slice, and with it the request to
    // yield for which this P may be here.
    *out = {local.gp, local.inheritTime && !ran};
    return Find::kFound;
  }
  if ((out->gp = globalBatch(pp)) != nullptr) return Find::kFound;  // 3
  if ((out->gp = pollNetwork()) != nullptr) return Find::kFound;    // 4
  // 5: steal, unless enough others already try
  // A heuristic; any value is correct.
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
  mp->timerAdded = false;  // clock knows
  return Find::kNothing;
}

// nextTimer is S3 of the essay: when the first timer of any P is due; 0: there
// is none.
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
Find loseSpinning(M* mp, Runnable* out, Clock* clock) {
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
      if (takeIdleP(mp)) return Find::kAgain;
      break;
    }
  }
  // 9, and 1: S1, then fingwake / fingwake, then nmspinning (wakep).
  if ((reclaimWorkAvailable() || fingwake.load(seq_cst)) && takeIdleP(mp)) {
    return Find::kAgain;
  }
  clock->lower(nextTimer());
  return Find::kNothing;
}

// blockInPoller is step 10: the last M to go idle waits for the network, and
// until the next timer, instead of its note.
Find blockInPoller(M* mp, Runnable* out, const Clock& clock) {
  if (!netpollinited() || (!netpollAnyWaiters() && clock.pollUntil == 0)) {
    return Find::kNothing;
  }
  fuzzPoint();
  // S4. seq_cst: see wakeNetPoller.
  if (sched.lastpoll.xchg(0, seq_cst) == 0) {
    // Somebody does so already; but does he know this timer?
    if (clock.pollUntil != 0) breakPollAfter(clock.pollUntil);
    return Find::kNothing;
  }
  if (mp->p != nullptr) fatalthrow("findRunnable: netpoll with p");
  if (mp->spinning) fatalthrow("findRunnable: netpoll with spinning");
  sched.pollUntil.store(clock.pollUntil, seq_cst);  // as above
  int64_t delay = -1;
  if (clock.pollUntil != 0) {
    delay = std::max(clock.pollUntil - nanotime(), int64_t{0});
    // Whoever goes idle after this sees lastpoll, and asks too (checkdead).
    LockScope l(&sched.lock);
    if (pollsInVain()) delay = 0;  // remove the zombies, and come to checkdead
  } else if (!netpollAnyWaiters()) {
    // The last one has just been readied, and may have ended in a checkdead
    // that did not see lastpoll. seq_cst: lastpoll, then the waiters.
    delay = 0;
  }
  mp->blocked.store(true, relaxed);  // a hint
  NetpollResult r = netpoll(delay);
  mp->blocked.store(false, relaxed);
  sched.pollUntil.store(0, seq_cst);          // as above
  sched.lastpoll.store(nanotime(), seq_cst);  // pairs with the xchg above
  P* pp;
  {
    LockScope l(&sched.lock);
    pp = pidleget();
  }
  if (pp == nullptr) {
    // Those who hold the Ps have to look at the timers: also at those for which
    // this poll was broken.
    hurrySysmon(timeSleepUntil());
    injectglist(&r.toRun);
    netpollAdjustWaiters(r.delta);
    return Find::kNothing;
  }
  acquirep(pp);
  out->gp = r.toRun.pop();
  if (out->gp == nullptr) {
    // Nobody sleeps for the timers of the other Ps now, nor for the later ones
    // of this. Who spins finds those that are due, or wakes somebody who does.
    becomeSpinning(mp);
    return Find::kAgain;
  }
  casgstatus(out->gp, kGwaiting, kGrunnable);
  injectglist(&r.toRun);
  netpollAdjustWaiters(r.delta);
  hurrySysmon(timeSleepUntil());  // nobody sleeps for them now (runForgotten)
  return Find::kFound;
}

// idleAfterMain follows endSchedule's pidleput. One M polls, since plain
// threads may still wait for descriptors and timers; the others sleep until
// they are given a P. No queue is searched again: what lies there is the next
// Run's.
void idleAfterMain(M* mp) {
  // nmspinning (S1) and npidle, then the timers / a timer, then both (wakep).
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

// endSchedule is what every M does once main has returned: it runs timers, for
// plain threads may wait for them, its work goes to the global queue, where the
// next Run finds it, and its P goes idle. (m0 never comes here: see schedule.)
void endSchedule(M* mp) {
  if (mp->spinning) stopSpinning(mp);
  P* pp = mp->p;
  Clock clock;
  const int32_t n = gomaxprocs.load(relaxed);  // we hold a P
  for (int32_t i = 0; i < n; i++) {
    if (allp[i] != pp) (void)stealTimers(allp[i], &clock);
  }
  (void)timersCheck(&pp->timers, &clock.now, /*tidy=*/true);
  flushYielded(pp);
  GQueue q = runqdrain(pp);
  bool ended;  // or the next Run has begun
  bool stopping = false;
  bool safePoint = false;  // forEachP, too, sets its flags under sched.lock
  {
    LockScope l(&sched.lock);
    globrunqputbatch(&q);
    ended = sched.mainEnded.load(relaxed);
    if (ended) {
      letGo();
      // Written under sched.lock; who stops the world counts our P.
      stopping = sched.gcwaiting.load(relaxed);
      safePoint = pp->runSafePointFn.load(relaxed) != 0;
      if (!stopping && !safePoint) pidleput(releasep());
    }
  }
  if (!ended) {
    // W2, and what stopSpinning owes: the wakep of that Run may have relied on
    // us, and whoever has looked since then did not see q.
    wakep();
  } else if (stopping) {
    gcstopm();
  } else if (safePoint) {
    runSafePointFn(pp);
  } else {
    idleAfterMain(mp);
  }
}

// noPollerAfterMain tells whether plain threads may wait for what nobody polls
// for. seq_cst: after the caller's publication, as in wakep.
bool noPollerAfterMain() {
  return sched.lastpoll.load(seq_cst) != 0 &&
         (netpollAnyWaiters() || timersPending());
}

}  // namespace

void stopSpinning(M* mp) {
  mp->spinning = false;
  uncountSpinner("findRunnable: negative nmspinning");
  fuzzPoint();
}

void uncountSpinner(const char* negative) {
  // S1 of the essay.
  if (sched.nmspinning.add(-1, seq_cst) < 0) fatalthrow(negative);
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

// timersWant tells whether schedule must be called because of timers.
GUMP_ALWAYS_INLINE bool timersWant(const M* mp, P* pp) {
  // Ours, or P 0's, added to by others, who wake somebody.
  if (GUMP_LIKELY(pp->timers.len.load(relaxed) == 0)) return false;
  return mp->timerAdded || timersDue(&pp->timers);
}

// Every reason for which findRunnable would do something else than take from
// the queues must be known here.
GUMP_ALWAYS_INLINE G* takeHead(M* mp) {
  P* pp = mp->p;
  // All are requests that the next look would honour just as well; findWithP
  // says who stores them.
  if (sched.gcwaiting.load(acquire) || sched.mainEnded.load(acquire) ||
      pp->runSafePointFn.load(acquire) != 0 || fingwake.load(relaxed) ||
      mp->lockedg != nullptr || mp == &m0 || timersWant(mp, pp)) {
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

GUMP_NOINLINE G* takeHeadFuzzed(M* mp) {
  P* pp = mp->p;
  if (fuzzOneIn(pp, 2)) return nullptr;
  const G* head = headOfQueue(pp);  // a hint, as above
  if (head != nullptr && fuzzMoves(mp, head)) return nullptr;
  G* gp = takeHead(mp);
  if (gp != nullptr) fuzzExecuted(gp);
  return gp;
}

// executeFuzzed is the end of schedule; nullptr: r.gp is queued elsewhere, and
// perhaps the P is gone.
GUMP_NOINLINE G* executeFuzzed(M* mp, Runnable r) {
  if (!fuzzMoves(mp, r.gp)) return fuzzExecute(r.gp, r.inheritTime);
  fuzzMove(r.gp);
  return nullptr;
}

// announceTimer tells those in the poller of the timer that this M's goroutine
// has set as it parked.
void announceTimer(M* mp) {
  if (GUMP_LIKELY(!mp->timerAdded) || mp->p == nullptr) return;
  mp->timerAdded = false;
  if (const int64_t w = wakeTime(&mp->p->timers)) wakeNetPoller(w);
}

}  // namespace

G* directNext(M* mp) {
  if (GUMP_UNLIKELY(mp->p->fuzz != 0)) return takeHeadFuzzed(mp);
  return takeHead(mp);
}

G* schedule() {
  M* mp = getg()->m;
  if (GUMP_UNLIKELY(mp->locks.load(relaxed) != 1)) {  // written by us only
    fatalthrow("schedule: holding locks");
  }
  if (GUMP_UNLIKELY(mp->lockedg != nullptr)) {
    announceTimer(mp);
    for (;;) {
      stoplockedm();
      if (mp->p == nullptr) return nullptr;  // m0, woken to leave Run
      // Main, if it is locked from the start, may still wait for a stack.
      G* gp = fuzzExecute(mp->lockedg, /*inheritTime=*/false);
      if (gp != nullptr) return gp;
    }
  }
  if (GUMP_UNLIKELY(mp == &m0)) {
    // Main has left it, see m0Stop.
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
      startlockedm(r.gp);
      continue;
    }
    G* gp = fuzzing() ? executeFuzzed(mp, r) : execute(r.gp, r.inheritTime);
    if (gp != nullptr) return gp;
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
  wakeNextSpinner();
}

void wakeNextSpinner() {
  wakep();
  // A hint. wakep has done nothing, or the next one has its P.
  if (sched.npidle.load(relaxed) == 0) hurrySysmon(timeSleepUntil());
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
  // Once main has ended, work waits for the next Run, which wakes a P after
  // clearing this. Only plain threads may need an M now, one that polls.
  if (GUMP_UNLIKELY(sched.mainEnded.load(relaxed)) && !noPollerAfterMain()) {
    return;
  }
  // From here to the hand-over we must not be stopped: everybody would rely on
  // a spinner that is not there yet.
  M* mp = acquirem();
  if (sched.nmspinning.cas(0, 1, seq_cst)) {
    P* pp;
    {
      LockScope l(&sched.lock);
      pp = pidlegetSpinning();
      if (pp == nullptr) uncountSpinner("wakep: negative nmspinning");
    }
    if (pp != nullptr) {
      startm(pp, /*spinning=*/true);
    } else {
      hurrySysmon(timeSleepUntil());  // who set one relied on the count
    }
  }
  releasem(mp);
}

void injectglist(GList* glist) {
  if (glist->empty()) return;
  GQueue q;
  while (G* gp = glist->pop()) {
    casgstatus(gp, kGwaiting, kGrunnable);
    q.pushBack(gp);
  }
  fuzzPoint();  // they are runnable, and on no queue
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
