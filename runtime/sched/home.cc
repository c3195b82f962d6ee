// Homes: threads that many goroutines share and nothing else uses
// (runtime::Thread).
//
// A home is a locked M with a queue. The rest of the scheduler sees one locked
// goroutine, the home's *token*, which never runs code. So the protocol of
// proc_locked.cc holds unchanged, with lockedg == &token. An M that finds the
// token in a run queue gives its P to the thread of the home. A home without
// runnable goroutines sleeps like an M while its locked goroutine is parked.
//
//   ready a goroutine of h  ─▶ push it to h.incoming; is h asleep? then wake h
//   wake h                  ─▶ CAS to kHomeWaking; an idle P, if there is one,
//                              goes to the thread at once, else the token goes
//                              to a run queue
//   schedule, with a P      ─▶ run the timers that are due; take from the
//                              queue; else look at the network once; else
//                              sleep
//   the others' turn        ─▶ the token to the global queue, the P handed on
//
// Invariants:
//  (T1) A goroutine of a home has lockedm == home.m and is special. It is in
//       the home's queue, runs there, is parked, or is exclusive (T4). The
//       goroutine itself is never in a ring.
//  (T2) A wake-up is not lost, because both sides write first and read second:
//
//         waker (homeReady)               owner (idle)
//           W1  push to incoming            I1  state = kHomeAsleep
//               -- StoreLoad --                 -- StoreLoad --
//           W2  read state; asleep?         I2  read incoming; a goroutine?
//               CAS to kHomeWaking              CAS back to kHomeRunning
//
//       All four are seq_cst. If W2 reads the value from before I1, W1 precedes
//       I2, and the owner finds the goroutine. Otherwise the waker sees that
//       the home sleeps. If both see each other, the CAS decides, and the loser
//       relies on the winner. The thread that takes away the last reference
//       does so in place of W1, and I2 reads that count too.
//  (T3) A home runs nothing but its goroutines.
//  (T4) While a goroutine of a home is exclusive, lockedg is that goroutine,
//       and the state is kHomeRunning. It is exclusive when it waits for a P at
//       a place where its thread can run no other goroutine: preempted in
//       place, or back from a call. Its thread then puts the token back.
//  (T5) A home is never on the list of idle Ms. It counts in nmidlelocked while
//       it sleeps on its note.
//  (T6) A goroutine of a home is in no group. One that is started on a home
//       joins none, and a visitor is outside of its group during the visit:
//       moveIn gives up the slot, and moveOut makes a runnable member of it
//       again, which takes a slot as any other. The visitor's frame keeps the
//       reference to the group meanwhile. So a slot is never kept for a
//       goroutine that waits for a home.
//  (T7) A home is of no NUMA node, and its thread is bound to none. A waker
//       gives it the nearest idle P of any node. The rules of proc_node.cc that
//       keep a goroutine on its node do not count here: the data of the
//       goroutines is where the kernel lets the thread run. If no P is idle,
//       the token is an ordinary goroutine of the node of the waker's P. That
//       node gets the wakep, so the arguments of proc_node.cc hold for it. A
//       home gives up its P as any M does: idleP reads needspinning of the
//       node (I1 there) in the section of sched.lock that idles the P.
//
//  (T8) A goroutine that leaves the thread while it holds a lock of the thread
//       becomes the *keeper* of the home: the thread runs no other goroutine
//       before it. So no goroutine of the home can wait for a lock whose holder
//       waits for the same thread. Only hooks count locks (Home::locks). The
//       keeper takes the way of (T2) as any goroutine. A goroutine that is not
//       the keeper wakes the home, too. The owner then puts it into `local` and
//       sleeps again, so I2 asks whether the keeper is runnable, and whether
//       `incoming` is empty. The owner alone accesses keeper and keeperReady.
//
// An idle home wakes fast. A waker that finds an idle P wakes the thread
// itself, with that P. And a home that is the last to go idle blocks in the
// poller, in place of an M that would have to wake the home. It then does what
// that M would do: it runs the timers that are due, of all Ps, and hands out
// the goroutines of others that the poll has found. Through another M in the
// poller, an event reaches the home after two threads have woken. Decision 010
// has the measurements.
//
// So the place in the poller follows the events. An M that has woken a home,
// and then finds nothing to run, does not poll (leavesPollToHome), and the home
// polls when it goes idle. A home that has found only goroutines of others
// hands its P to an M and sleeps on its note, and that M polls. An M may leave
// the poll to a home only while some P is not idle. The last P to go idle finds
// that no M polls, in blockInPoller, in idle, or in handoffp (mayNotIdle).
// Until then sysmon polls, and looks after the timers, as when an M runs a
// goroutine that it has found in the poller.
//
// The owner waits for a P in two ways. If there is work, the token is runnable
// and in a queue (awaitTurn). If there is none, the owner sleeps (sleep, idle).
//
// Rejected:
//  * Homes that also run other goroutines. To enter one would cost nothing, but
//    one flock in such a goroutine would stop all clients of the home (T3).
//  * A thread for each goroutine, by LockOSThread. It costs a thread each.
//  * A lock for the queue. The thread of a home that is preempted while it
//    holds the lock would stop every waker.
//  * Goroutines of a home that need a slot of a group. A slot is kept for a
//    goroutine that leaves its group's queue, until it runs. It would wait for
//    the thread of the home, which may be in a call that ends only when another
//    goroutine of that group has run. That is a deadlock.
#include "runtime/sched/home.h"

#include <cstring>
#include <utility>

#include "runtime/diag/fuzzsched.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/parklocks.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/group.h"
#include "runtime/sched/locked.h"
#include "runtime/sched/mfinal.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/reclaim.h"
#include "runtime/sched/rt0.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/stw.h"
#include "runtime/sched/switch.h"
#include "runtime/sched/thread.h"
#include "runtime/sched/time.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

// The cells of homes that have ended.
Mutex homesLock{LockRank::kLeaf};
Home* freeHomes ABSL_GUARDED_BY(homesLock) = nullptr;

}  // namespace

// ---- Wakers -----------------------------------------------------------------

namespace {

// claim ends the sleep of h. Returns false if h does not sleep, or if another
// thread wakes it. After true the caller must wake its thread.
// On: any, m.locks > 0.  P: either.  Locks: none.  Parks: no.
bool claim(Home* h) {
  for (;;) {
    const uint32_t s = h->state.load(seq_cst);  // W2
    if (s != kHomeAsleep && s != kHomePolling) return false;
    if (!h->state.cas(s, kHomeWaking, seq_cst)) continue;
    casgstatus(&h->token, kGwaiting, kGrunnable);
    // The thread leaves the poller, and then sleeps on its note for the P.
    if (s == kHomePolling) netpollBreak();
    return true;
  }
}

// TokenTo says into which run queue a token goes if no P is idle.
enum class TokenTo : uint8_t {
  kRing,  // runnext of our P, if we have one: most readiers soon park
  // The global queue: the caller is amid its search for work, and relies on its
  // ring being empty.
  kGlobal,
};

// wake wakes h if it sleeps. An idle P goes to its thread directly, so that no
// other thread has to wake for it. That is what startm does with an idle M that
// need not spin.
// On: any, m.locks > 0.  P: either.  Locks: takes sched.lock.  Parks: no.
void wake(Home* h, TokenTo where) {
  if (!claim(h)) return;
  P* const own = where == TokenTo::kRing ? getg()->m->p : nullptr;
  P* pp = nullptr;
  {
    LockScope l(&sched.lock);
    // Both are written under sched.lock.
    if (!sched.mainEnded.load(relaxed) && !sched.gcwaiting.load(relaxed)) {
      pp = pidleget(nodeOf(getg()->m));  // of any node: (T7)
    }
    if (pp != nullptr) {
      wakeLocked(h->m);
    } else if (own == nullptr) {
      globrunqput(&h->token);
    }
  }
  if (pp != nullptr) {
    if (h->m->nextp != nullptr) fatalthrow("home: m has p");
    h->m->nextp = pp;
    notewakeup(&h->m->park);  // publishes nextp
    getg()->m->wokenHome = h;
    return;
  }
  if (own != nullptr) runqput(own, &h->token, /*next=*/true);
  wakep();
}

// localChanged tells sysmon how many goroutines are in `local`.
// On: any, the thread of h.  P: either.  Locks: none.  Parks: no.
void localChanged(Home* h) {
  h->waiting.store(static_cast<int32_t>(h->local.size), relaxed);  // a hint
}

// queueOwn puts gp, which is kGrunnable, at the tail of the owner's queue.
// On: any, the thread of h.  P: either.  Locks: none.  Parks: no.
void queueOwn(Home* h, G* gp) {
  if (GUMP_UNLIKELY(gp == h->keeper)) {
    h->keeperReady = gp;
  } else {
    h->local.pushBack(gp);
    localChanged(h);
  }
}

// enqueue puts gp, which is kGrunnable, at the tail of the queue of h. The
// owner looks at `local` before it sleeps, so it is not woken. From here on gp
// may run.
// On: any, m.locks > 0.  P: either.  Locks: takes sched.lock.  Parks: no.
void enqueue(Home* h, G* gp, TokenTo where = TokenTo::kRing) {
  if (getg()->m->home == h) {
    queueOwn(h, gp);
    return;
  }
  G* head = h->incoming.load(relaxed);  // the CAS decides
  do {
    gp->schedlink = head;
  } while (!h->incoming.casWeak(head, gp, seq_cst));  // W1
  wake(h, where);
}

}  // namespace

bool leavesPollToHome(M* mp) {
  const Home* h = std::exchange(mp->wokenHome, nullptr);
  const uint32_t s = h->state.load(relaxed);  // a hint: the home may be reused
  // npidle: we have idled our P before. Of the Ms that idle one at the same
  // time, the last sees that all are idle. seq_cst: as in wakep.
  if ((s != kHomeWaking && s != kHomeRunning) ||
      sched.npidle.load(seq_cst) == gomaxprocs.load(relaxed) ||
      sched.mainEnded.load(relaxed)) {
    return false;
  }
  wakeSysmonBy(timeSleepUntil());
  return true;
}

void homeReady(G* gp) { enqueue(homeOf(gp), gp); }

bool homeDeliver(G* gp) {
  Home* h = homeOf(gp);
  if (h == nullptr) return false;
  casgstatus(gp, kGwaiting, kGrunnable);
  if (getg()->m->home == h) {  // counted as running
    enqueue(h, gp);
    netpollAdjustWaiters(-1);
    return true;
  }
  // The caller may be a thread that checkdead does not count. And gp may run,
  // and wait for good, while it still counts as a waiter.
  const AwakeScope awake;
  M* mp = acquirem();
  enqueue(h, gp, TokenTo::kGlobal);
  releasem(mp);
  netpollAdjustWaiters(-1);
  return true;
}

// ---- The owner: what runs next ----------------------------------------------

namespace {

// Unless they say otherwise, these functions have this context:
// On: g0 of the home.  P: needed.  Locks: none.  Parks: no.

// adopt moves `incoming` to the tail of `local`, oldest first.
// P: either.
void adopt(Home* h) {
  // A hint: idle looks again, with seq_cst.
  if (h->incoming.load(relaxed) == nullptr) return;
  G* gp = h->incoming.xchg(nullptr, acquire);  // pairs with W1
  GQueue q;
  while (gp != nullptr) {
    G* older = gp->schedlink;
    q.push(gp);
    gp = older;
  }
  if (GUMP_LIKELY(h->keeper == nullptr)) {
    h->local.pushBackAll(&q);
    localChanged(h);
    return;
  }
  while ((gp = q.pop()) != nullptr) queueOwn(h, gp);
}

// hasRunnable returns true if there is a goroutine that may run next. takeNext
// returns it.
// P: either.
bool hasRunnable(const Home* h) {
  return h->keeper == nullptr ? !h->local.empty() : h->keeperReady != nullptr;
}
G* takeNext(Home* h) {
  if (GUMP_LIKELY(h->keeper == nullptr)) {
    h->taken.store(h->taken.load(relaxed) + 1, relaxed);  // written by us only
    G* gp = h->local.pop();
    localChanged(h);
    return gp;
  }
  h->keeper = nullptr;
  return std::exchange(h->keeperReady, nullptr);
}

// ended returns true if the thread has to end. No thread can add a reference
// after that.
// P: either.
bool ended(const Home* h) { return h->refs.load(seq_cst) == 0; }

// beginTurn is called when the home has let others have its P, or would have.
// P: either.
void beginTurn(Home* h) {
  h->turns = 0;
  h->sliceOver = false;
  h->mark = nullptr;
}

// othersTurn returns true if h must let others have its P: its goroutine was
// asked to yield, or all that could run when a goroutine called Gosched have
// run, or 61 have. While a P is idle, an M that looks for work takes what waits
// here.
bool othersTurn(Home* h, const P* pp) {
  const bool round = h->mark != nullptr && h->mark == h->local.head;
  if (GUMP_LIKELY(!h->sliceOver && !round && ++h->turns < 61)) return false;
  beginTurn(h);
  return sched.npidle.load(relaxed) == 0 &&  // hints, asked again soon
         (!runqempty(pp) || queuedOn(nodeOf(pp)) > 0);
}

// woken is called when the thread has been woken.
// P: either.
void woken(Home* h) {
  casgstatus(&h->token, kGrunnable, kGrunning);
  // A waker that still reads kHomeWaking need not do anything either.
  h->state.store(kHomeRunning, relaxed);
  // The token was kept (lockedMOf), but no slice was.
  getg()->m->keepsSlice = false;
  beginTurn(h);
}

// awaitTurn gives the P away although there is work. The token waits for
// another P like any locked goroutine. If the world is being stopped, the token
// stays the next of the P, which startTheWorld then hands back (lockedMOf).
// P: either; needed afterwards.  Locks: takes sched.lock.
// Parks: blocks the thread.
void awaitTurn(Home* h, M* mp) {
  announceTimer(mp);
  P* pp = mp->p;
  casgstatus(&h->token, kGrunning, kGrunnable);
  h->state.store(kHomeWaking, relaxed);  // as in woken
  // Relaxed: a hint. If the stop is over, the next M finds the token here.
  if (pp != nullptr && sched.gcwaiting.load(relaxed) &&
      pp->runnext.load(relaxed) == nullptr && keepsNext(pp)) {
    runqput(pp, &h->token, /*next=*/true);
  } else {
    LockScope l(&sched.lock);
    globrunqput(&h->token);
  }
  if (pp == nullptr) wakep();  // else stoplockedm hands the P on
  stoplockedm();
  woken(h);
}

// runTimers runs the timers of our own P that are due. As in checkTimers, they
// wake no M for the goroutines of others that they ready.
// Locks: as timersCheck.
void runTimers(P* pp) {
  // Threads without a P add their timers to P 0: see checkTimers.
  if (GUMP_LIKELY(pp->timers.len.load(relaxed) == 0)) return;
  int64_t now = 0;
  if (!timersCheck(&pp->timers, &now, /*tidy=*/true).ran) return;
  if (runqempty(pp)) return;
  fence(seq_cst);  // W1 of the essay in proc.cc
  wakep();
}

// pollOnce polls the network without blocking, unless another M does.
// Locks: takes sched.lock.
void pollOnce() {
  // As pollNetwork of proc.cc.
  if (!netpollinited() || !netpollAnyWaiters() ||
      sched.lastpoll.load(acquire) == 0 ||
      !sched.pollingNet.cas(0, 1, acquire)) {
    return;
  }
  NetpollResult r = netpoll(0);
  sched.pollingNet.store(0, release);  // pairs with the cas above
  injectglist(&r.toRun);
  netpollAdjustWaiters(r.delta);
}

// run makes gp current. Returns nullptr if there is no memory for its stack.
// Locks: as execute.
G* run(Home* h, M* mp, G* gp) {
  if (h->mark == gp) h->mark = nullptr;
  announceTimer(mp);
  return fuzzExecute(gp, /*inheritTime=*/false);
}

// ---- The owner goes to sleep ------------------------------------------------

// tokenRuns marks the token of a home that did not sleep after all, or has left
// the poller by itself.
// P: either.
void tokenRuns(Home* h) {
  casgstatus(&h->token, kGwaiting, kGrunnable);
  casgstatus(&h->token, kGrunnable, kGrunning);
}

// hasWork is I2.
// P: either.
bool hasWork(const Home* h) {
  return hasRunnable(h) || h->incoming.load(seq_cst) != nullptr || ended(h);
}

// fallAsleep is I1 and I2. Returns false if there is work after all.
// P: either.
bool fallAsleep(Home* h) {
  casgstatus(&h->token, kGrunning, kGwaiting);
  h->state.store(kHomeAsleep, seq_cst);
  if (!hasWork(h) || !h->state.cas(kHomeAsleep, kHomeRunning, seq_cst)) {
    return true;
  }
  tokenRuns(h);
  return false;
}

// sleep sleeps until a waker wakes the thread. A P is handed on first.
// P: either; then maybe one.  Locks: takes sched.lock.
// Parks: blocks the thread.
void sleep(Home* h) {
  stoplockedm();
  woken(h);
}

// idleP makes the P idle, if there is no reason to hand it to another M. It is
// releaseP of proc.cc, and mayNotIdle of proc_m.cc, for an M that may go on to
// the poller. An M that was not spinning need not look at the queues again.
// Locks: takes sched.lock.
bool idleP(M* mp) {
  P* pp = mp->p;
  if (fingwake.load(relaxed) || reclaimWorkAvailable()) return false;  // hints
  LockScope l(&sched.lock);
  // The atomics are written under sched.lock, but for a post, which W2 follows
  // (mayNotIdle). The ring is ours.
  if (sched.gcwaiting.load(relaxed) || sched.mainEnded.load(relaxed) ||
      pp->runSafePointFn.load(relaxed) != 0 || globalSize(relaxed) > 0 ||
      !runqempty(pp) || mustSearch(pp)) {
    return false;
  }
  pidleput(releasep());
  mp->timerAdded = false;  // the caller reads the times of all Ps
  return true;
}

// runAllTimers runs the timers of all Ps that are due, because no M sleeps for
// them now.
// Locks: as timersCheck.
void runAllTimers(M* mp) {
  if (!runDueTimers() || runqempty(mp->p)) return;
  fence(seq_cst);  // as in runTimers
  wakep();
}

// afterPoll is called when this thread has left the poller, where it has found
// r. If a waker has claimed the home meanwhile, a P is on its way.
// P: none; then maybe one.  Locks: takes sched.lock.
// Parks: may block the thread.
void afterPoll(Home* h, M* mp, NetpollResult* r) {
  const bool ours = h->state.cas(kHomePolling, kHomeRunning, seq_cst);
  if (ours) {
    tokenRuns(h);
    P* pp;
    {
      LockScope l(&sched.lock);
      pp = pidleget(nodeOf(mp));
    }
    if (pp != nullptr) acquirep(pp);
  }
  injectglist(&r->toRun);
  netpollAdjustWaiters(r->delta);
  // No M sleeps for the timers now (wakeForLateTimer).
  wakeSysmonBy(timeSleepUntil());
  // After main's end the waker's wakep did nothing if it still saw a thread in
  // the poller, and no M looks for another one.
  if (!ours && sched.mainEnded.load(acquire)) wakep();
  if (!ours) sleep(h);
  if (mp->p != nullptr) runAllTimers(mp);
}

// idle sleeps until there may be work: in the poller if no other M is there,
// else on the note.
// P: needed; then maybe one.  Locks: takes sched.lock.
// Parks: blocks the thread.
void idle(Home* h, M* mp) {
  if (!fallAsleep(h)) return;
  if (!idleP(mp)) {
    announceTimer(mp);
    sleep(h);
    return;
  }
  const int64_t pollUntil = nextTimer();
  if (!netpollinited() || (!netpollAnyWaiters() && pollUntil == 0) ||
      !becomePoller(pollUntil)) {
    sleep(h);
    return;
  }
  // Only now, when the place in the poller is ours, may a waker break the poll.
  // If it broke the end of another M's poll, netpollBreak would find the flag
  // of that poll still up and do nothing, and then we would begin to poll.
  NetpollResult r;
  if (h->state.cas(kHomeAsleep, kHomePolling, seq_cst)) {
    r = pollUntilTime(mp, pollUntil);
  } else {
    leavePoller();  // a waker is on its way
  }
  afterPoll(h, mp, &r);
}

// end ends the home. mstart then ends the thread.
// P: either; given away.  Locks: takes sched.lock, a leaf.
void end(Home* h, M* mp) {
  if (mp->p != nullptr) {
    announceTimer(mp);
    handoffp(releasep());  // sees if no M is in the poller
  } else {
    // homeRelease may have woken this thread out of the poller, without a P. If
    // all Ps are idle, no other M goes there by itself.
    wakep();
  }
  casgstatus(&h->token, kGrunning, kGwaiting);
  mp->home = nullptr;
  mp->lockedg = nullptr;
  mp->lockedExt = 0;
  LockScope l(&homesLock);
  h->next = freeHomes;
  freeHomes = h;
}

}  // namespace

G* homeSchedule(M* mp) {
  Home* h = mp->home;
  bool looked = false;  // at the network, with an empty queue
  for (;;) {
    adopt(h);
    if (mp->p == nullptr) {
      // The thread has just begun, or was woken to end, or has left the poller
      // and found no P.
      if (hasRunnable(h)) {
        awaitTurn(h, mp);
      } else if (ended(h)) {
        end(h, mp);
        return nullptr;
      } else if (fallAsleep(h)) {
        sleep(h);
      }
      looked = false;
      continue;
    }
    P* pp = mp->p;
    if (pp->runSafePointFn.load(acquire) != 0) runSafePointFn(pp);
    runTimers(pp);
    // Pair with stopTheWorld and endMain.
    const bool stop =
        sched.gcwaiting.load(acquire) || sched.mainEnded.load(acquire);
    if (hasRunnable(h)) {
      if (GUMP_UNLIKELY(stop) || othersTurn(h, pp)) {
        awaitTurn(h, mp);
        continue;
      }
      if (G* gp = run(h, mp, takeNext(h))) return gp;
      continue;
    }
    if (ended(h)) {
      end(h, mp);
      return nullptr;
    }
    if (!looked && !stop) {
      looked = true;
      pollOnce();
      continue;
    }
    looked = false;
    idle(h, mp);
  }
}

// ---- A goroutine of a home yields or ends -----------------------------------

G* homeYield(G* gp) {
  M* mp = getg()->m;
  Home* h = mp->home;
  casgstatus(gp, kGrunning, kGrunnable);
  dropg();
  homeKeep(mp, gp);
  queueOwn(h, gp);
  if (h->keeper == gp) {
    h->sliceOver = true;  // those of other threads get a turn
  } else if (h->mark == nullptr) {
    h->mark = gp;
  }
  return schedule();
}

G* homePreempt(G* gp) {
  M* mp = getg()->m;
  Home* h = mp->home;
  casgstatus(gp, kGrunning, kGrunnable);
  dropg();
  homeKeep(mp, gp);
  // A hint. If a stop of the world asked, gp goes on where it was.
  if (sched.gcwaiting.load(relaxed) && h->keeper != gp) {
    h->local.push(gp);
    localChanged(h);
  } else {
    queueOwn(h, gp);
    h->sliceOver = true;
  }
  return schedule();
}

G* homeGoexit(M* mp) {
  Home* h = mp->home;
  mp->lockedg = &h->token;         // gdestroy has unbound the goroutine
  (void)h->refs.add(-1, acq_rel);  // schedule looks at it
  return schedule();
}

// ---- Handles ----------------------------------------------------------------

namespace {

// startHome is the first call of the thread of a home.
// On: the new thread.  P: none.  Locks: none.  Parks: no.
void startHome() {
  const Home* h = getg()->m->home;
  if (h->name[0] != '\0') setThreadName(h->name);
}

Home* allocHome() {
  {
    LockScope l(&homesLock);
    if (Home* h = freeHomes) {
      freeHomes = h->next;
      return h;
    }
  }
  auto* h = persistentallocOf<Home>();
  if (h == nullptr) return nullptr;
  h->token.special = true;
  h->token.systemG = true;
  casgstatus(&h->token, kGidle, kGdead);
  casgstatus(&h->token, kGdead, kGrunnable);
  casgstatus(&h->token, kGrunnable, kGrunning);
  casgstatus(&h->token, kGrunning, kGwaiting);
  return h;
}

// setName copies what Linux keeps of a thread's name, and cuts it before a
// character that would be cut in two.
void setName(Home* h, const char* name, size_t size) {
  size_t n = size < sizeof(h->name) ? size : sizeof(h->name) - 1;
  const auto continues = [](char c) { return (c & 0xc0) == 0x80; };  // UTF-8
  if (n < size) {
    while (n > 0 && continues(name[n])) n--;
  }
  if (n > 0) std::memcpy(h->name, name, n);
  h->name[n] = '\0';
}

}  // namespace

Home* newHome(const char* name, size_t size) noexcept {
  schedinit();
  dieIfForked();
  Home* h = allocHome();
  if (h == nullptr) return nullptr;
  setName(h, name, size);
  h->local = GQueue();
  h->locks = nullptr;
  beginTurn(h);
  // A waker of an earlier home that used this cell sees kHomeRunning, and does
  // nothing. The rest is published by the start of the thread, and by the
  // caller's publication of h.
  tokenRuns(h);
  h->refs.store(1, relaxed);
  newm(startHome, /*pp=*/nullptr, kReserveID, h);
  return h;
}

// The caller has a reference, so nothing is published.
void homeRetain(Home* h) noexcept { h->refs.add(1, relaxed); }

void homeRelease(Home* h) noexcept {
  // Acquire and release: the thread that ends sees what the others have done.
  // seq_cst: in place of W1.
  if (h->refs.add(-1, seq_cst) != 0) return;
  if (forked.load(relaxed)) return;  // the thread is not in this process
  runtimeEntry();
  M* mp = acquirem();
  if (claim(h)) {
    {
      LockScope l(&sched.lock);
      wakeLocked(h->m);
    }
    notewakeup(&h->m->park);  // without a P
  }
  releasem(mp);
}

const char* homeName(const Home* h) noexcept { return h->name; }

bool homeCountsLocks() noexcept {
  const G* gp = getg();
  if (gp == nullptr || gp->foreign || gp->lockedm == nullptr) return false;
  const Home* h = gp->lockedm->home;  // the goroutine stays there
  return h != nullptr && h->locks != nullptr;
}

// ---- Goroutines come and go -------------------------------------------------

void homeJoin(Home* h, G* gp) {
  gp->lockedm = h->m;
  gp->special = true;
  h->refs.add(1, relaxed);  // as in homeRetain
}

namespace {

// moveIn is homeEnter on g0. If gp is locked to its thread, the thread waits
// until gp has come back and is to run: its lockedg stays gp meanwhile, and
// gp's lockedm does not.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: blocks the thread.
G* moveIn(G* gp) {
  M* mp = getg()->m;
  auto* h = static_cast<Home*>(std::exchange(mp->waitlock, nullptr));
  casgstatus(gp, kGrunning, kGrunnable);
  dropg();
  if (Group* g = groupOf(gp)) {  // (T6)
    gp->group = 0;
    groupLeave(g);
  }
  const bool waits = mp->lockedg == gp;
  homeJoin(h, gp);
  enqueue(h, gp);
  homeKeep(mp, gp);
  if (!waits) return schedule();
  announceTimer(mp);
  awaitLocked();
  if (mp->p == nullptr) return nullptr;
  G* next = fuzzExecute(gp, /*inheritTime=*/false);
  return next != nullptr ? next : schedule();  // the group of gp is full again
}

// moveOut is homeLeave on g0.
// On: g0 of a home.  P: needed.  Locks: takes sched.lock.
// Parks: blocks the thread.
G* moveOut(G* gp) {
  M* mp = getg()->m;
  Home* h = mp->home;
  const auto* v =
      static_cast<HomeVisitor*>(std::exchange(mp->waitlock, nullptr));
  M* const from = v->from;
  casgstatus(gp, kGrunning, kGrunnable);
  dropg();
  gp->lockedm = from;
  if (from != nullptr && from->home != nullptr) {
    enqueue(from->home, gp);  // so v->group is 0: (T6)
  } else {
    gp->group = v->group;
    gp->special = gp->bubble != nullptr || gp->group != 0 ||
                  sanitizerOfProgram() || debug.parklocks != 0;
    groupReady(gp);
    if (from != nullptr) {
      LockScope l(&sched.lock);
      globrunqput(gp);
    } else {
      runqput(mp->p, gp, /*next=*/true);
    }
    wakep();
  }
  (void)h->refs.add(-1, acq_rel);  // as in homeGoexit
  return schedule();
}

}  // namespace

HomeVisit homeEnter(Home* h, HomeVisitor* v) noexcept {
  G* gp = runtimeEntry();
  if (gp->foreign) return HomeVisit::kPlainThread;
  M* mp = acquirem();
  if (mp->home == h) {
    releasem(mp);
    return HomeVisit::kHere;
  }
  if (mp->p == nullptr) fatal("goroutine parks inside gump::blocking");
  v->from = gp->lockedm;
  v->group = gp->group;
  mp->waitlock = h;
  checkHeldLocks(gp, "moves", "to a Thread");
  mcallAnnounced(moveIn);
  return HomeVisit::kWent;
}

void homeLeave(HomeVisitor* v) noexcept {
  M* mp = acquirem();
  if (mp->p == nullptr) fatal("goroutine parks inside gump::blocking");
  mp->waitlock = v;
  checkHeldLocks(getg(), "moves", "from a Thread");
  mcallAnnounced(moveOut);
}

}  // namespace gump::rt
