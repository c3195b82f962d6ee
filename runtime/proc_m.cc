// Threads: starting, stopping and handing over Ms; locked goroutines; the
// template thread; threads of others.
//
// An idle M sleeps on its park note, linked in sched.midle. Whoever wakes it
// has unlinked it under sched.lock, put a P into nextp, and then wakes the
// note: the note's release/acquire publishes nextp. Without a P are woken: m0,
// when Run is to return (wakeM0ToLeave); an M whose thread is to end
// (retireIdleMs); one whose goroutine, preempted in place, goes on after the
// end of main (letGo). A spare M (spareStart) begins without one, and goes to
// sleep.
//
// Threads are made by the template thread only (and by schedinit, on a thread
// of the user's): pthread_create takes libc's locks, which a goroutine that has
// been stopped may hold; the scheduler must never wait for such a lock.
#include <cxxabi.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "runtime/fuzzsched.h"
#include "runtime/mem.h"
#include "runtime/netpoll.h"
#include "runtime/os_linux.h"
#include "runtime/panic.h"
#include "runtime/proc.h"
#include "runtime/sanitizer.h"
#include "runtime/signal.h"
#include "runtime/stats.h"

namespace gump::rt {

constinit M m0;
Atomic<M*> allm;

namespace {

// The queue of Ms that want a thread. Guarded by its own leaf lock, so that
// newm may be called with or without sched.lock. The protocol of the note:
// `waiting` is set by the template thread under the lock before it sleeps, and
// cleared under the lock by the one who then wakes it; so each sleep has
// exactly one wake-up.
struct NewmHandoff {
  Mutex lock{LockRank::kLeaf};
  M* head ABSL_GUARDED_BY(lock) = nullptr;
  bool waiting ABSL_GUARDED_BY(lock) = false;
  Note wake;
};
constinit NewmHandoff newmHandoff;
constinit M templateM;

constexpr char kTooFewSpin[] = "startm: negative nmspinning";

// How m0 may sleep without a P and still be fetched when Run has to return. m0
// sleeps until its locked goroutine is to run (stoplockedm), or until Run
// returns (m0Stop); startlockedm and endMain may both want to wake it, and its
// note takes one wake-up per sleep. Whoever sets `woken` under sched.lock is
// the one.
struct M0Sleep {
  bool sleeping = false;
  bool woken = false;
};
M0Sleep m0sleep ABSL_GUARDED_BY(sched.lock);

// tellNoThread says that the kernel refuses a thread, in Go's words.
void tellNoThread(int err) {
  int64_t have;
  {
    LockScope l(&sched.lock);
    have = mcount();
  }
  printf(
      "runtime: failed to create new OS thread (have %D already; errno=%d)\n",
      have, err);
  if (err == EAGAIN) {
    printf("runtime: may need to increase max user processes (ulimit -u)\n");
  }
}

// anyWorkers tells whether there is a thread that can run goroutines, main
// apart: neither one of the runtime's own, nor m0, nor one on order, nor one
// that waits for the goroutine that is locked to it, unless that is preempted.
bool anyWorkers() {
  LockScope l(&sched.lock);
  // Both counters that are not under the lock are hints; what makes them wrong
  // is over when we ask again. m0 may be among those who wait.
  const int32_t locked = sched.nmidlelocked - sched.ninplace.load(relaxed) -
                         (m0sleep.sleeping ? 1 : 0);
  return mcount() - sched.nmsys - sched.nmstarting.load(relaxed) -
             (sched.m0attached ? 1 : 0) - std::max(locked, 0) >
         0;
}

// tryThread makes the thread of mp; 0, or an errno. It tries twice if there may
// be room for the thread's stack now.
int tryThread(M* mp) {
  const int err = newosproc(mp);
  return err == EAGAIN && stackReclaim() ? newosproc(mp) : err;
}

// spawnThread makes the thread of mp. If the kernel is short of threads for
// longer than a fifth of a second, it says so once, and goes on trying for as
// long as there are others to do the work. (Unlike Go, for which that is
// fatal.) Those that sleep in calls come back and find the Ps (replaceUnborn,
// claimForLocked), and none is taken from a sleeper unless there is a thread
// for it (threadForP); so what waits is behind calls that end, as at the limit
// of SetMaxThreads. So are goroutines that are locked to their threads, and
// ready each other: their Ps go by way of a thread that is not. Without any
// other there is no telling that it will get better.
void spawnThread(M* mp) {
  constexpr int kPatience = 20;
  static bool told = false;  // the template thread's, and schedinit's before
  for (int tries = 0;; tries++) {
    const int err = tryThread(mp);
    if (err == 0) break;
    if (err != EAGAIN || (tries >= kPatience && !anyWorkers())) {
      tellNoThread(err);
      fatalthrow("newosproc");
    }
    sched.threadsShort.store(true, relaxed);  // a hint
    if (tries >= kPatience && !std::exchange(told, true)) tellNoThread(err);
    usleep(static_cast<uint32_t>(std::min(tries + 1, kPatience)) * 1000);
  }
  sched.threadsShort.store(false, relaxed);  // a hint
}

// Structs of threads that have ended.
M* freem ABSL_GUARDED_BY(sched.lock) = nullptr;

// m0SleepBegin announces a sleep of m0; false: main has ended, do not sleep.
bool m0SleepBegin() {
  LockScope l(&sched.lock);
  // Written under sched.lock.
  if (sched.mainEnded.load(relaxed) && !m0sleep.woken) return false;
  m0sleep.sleeping = true;
  return true;
}

void m0SleepEnd() {
  LockScope l(&sched.lock);
  m0sleep = M0Sleep();
}

// m0Stop sleeps until Run is to return. m0 runs main and nothing else: whatever
// it ran when main ends would keep Run from returning for as long as it likes.
void m0Stop() {
  if (!m0SleepBegin()) return;
  incidlelocked(1);
  notesleep(&m0.park);
  noteclear(&m0.park);
  m0SleepEnd();
}

void spinningStart() { getg()->m->spinning = true; }

[[noreturn]] void templateThread() {
  becomeSystemThread();
  for (;;) {
    M* list;
    {
      LockScope l(&newmHandoff.lock);
      list = newmHandoff.head;
      newmHandoff.head = nullptr;
      if (list == nullptr) {
        noteclear(&newmHandoff.wake);
        newmHandoff.waiting = true;
      }
    }
    if (list == nullptr) {
      notesleep(&newmHandoff.wake);
      continue;
    }
    // In the order in which they were asked for. The first is sysmon: without
    // it the Ps of those that do not come would not be found (replaceUnborn).
    M* oldest = nullptr;
    while (list != nullptr) {
      oldest = std::exchange(list, std::exchange(list->schedlink, oldest));
    }
    while (oldest != nullptr) {
      M* mp = std::exchange(oldest, oldest->schedlink);
      mp->schedlink = nullptr;
      spawnThread(mp);
    }
  }
}

M* allocm() {
  M* mp;
  {
    LockScope l(&sched.lock);
    mp = freem;
    if (mp != nullptr) freem = mp->schedlink;
  }
  // A used one is as its thread left it: without a P, a G, a lock or a wish. It
  // stays on allm for good, so it is not constructed anew.
  if (mp != nullptr) {
    mp->schedlink = nullptr;
    mp->recycled = true;
    return mp;
  }
  return persistentallocOf<M>();
}

}  // namespace

int64_t mcount() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  return sched.mnext - sched.nmfreed - sched.nmextraAll -
         (sched.m0attached ? 0 : 1);
}

void checkmcount() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (mcount() <= sched.maxmcount) return;
  int32_t max = sched.maxmcount;
  unlock(&sched.lock);  // the dump may need it
  printf("runtime: program exceeds %d-thread limit\n", max);
  fatalthrow("thread exhaustion");
}

int64_t mReserveID() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  int64_t id = sched.mnext++;
  checkmcount();
  return id;
}

void mcommoninit(M* mp, int64_t id) {
  mp->id = id;
  mp->g0.m = mp;
  mp->g0.systemG = true;
  mp->schedrand = static_cast<uint32_t>(nanotime()) * 2654435761u +
                  static_cast<uint32_t>(id) * 40503u + 1;
  if (fuzzing()) mp->schedrand = fuzzSeed(-1 - id);
  if (mp->schedrand == 0) mp->schedrand = 1;
  if (mp->recycled) return;
  M* head = allm.load(relaxed);
  do {
    mp->alllink = head;
    // Release: pairs with the acquire of who walks allm.
  } while (!allm.casWeak(head, mp, release));
}

namespace {

// lostKey belongs to threads that run goroutines; unused if lostKeyMade is
// false. Both are written by threadsinit, before there are threads of ours.
pthread_key_t lostKey;
bool lostKeyMade;

// threadLost is called on the stack of a thread that ends although its M goes
// on: a goroutine has called pthread_exit, or its thread was cancelled. The
// unwinder has left the goroutine's stack by the end that gumpGostart has, and
// libc did the rest. Whatever the M holds, a P most likely, is lost, so all
// would wait for it.
void threadLost(void*) {
  if (forked.load(relaxed)) return;  // written by this thread, the last one
  fatal("pthread_exit or pthread_cancel of a goroutine's thread");
}

void setLostKey(const M* mp) {
  if (lostKeyMade) (void)pthread_setspecific(lostKey, mp);
}

}  // namespace

void threadsinit() {
  // Values of the first keys have room in the thread itself; for the others
  // libc would call malloc, whose lock a goroutine that is stopped may hold.
  // Without the key the mistake is a hang.
  constexpr pthread_key_t kRoom = 32;
  lostKeyMade =
      pthread_key_create(&lostKey, threadLost) == 0 && lostKey < kRoom;
}

void unminit(M* mp) {
  setLostKey(nullptr);
  unminitSignalStack(mp);
}

void minit(M* mp) {
  // What was seen of the thread before us; its CPU clock was another
  // (computes).
  mp->pressTime.store(0, relaxed);
  mp->resumedSleeps.store(UINT64_MAX, relaxed);
  mp->procid.store(gettid(), release);  // read by whoever signals the thread
  // The thread before us may have missed one. Release: see preemptM.
  mp->signalSent.store(0, release);
  mp->preciseSleeps = false;
  mp->eh = reinterpret_cast<EhGlobals*>(abi::__cxa_get_globals());
  mp->errnoAddr = &errno;
  sanitizerInitThread(mp);
  const int saved = *mp->errnoAddr;  // of Run's caller, if this is m0
  setLostKey(mp);
  minitSignalStack(mp);  // getauxval may not know AT_MINSIGSTKSZ: ENOENT
  *mp->errnoAddr = saved;
}

namespace {

// beBorn ends the time in which claimUnborn may take mp's P, and returns it.
P* beBorn(M* mp) {
  LockScope l(&sched.lock);
  sched.nmstarting.add(-1, relaxed);  // a hint outside the lock
  mp->unborn = false;
  P* pp = mp->nextp;
  mp->nextp = nullptr;
  return pp;
}

// minitSignalMask gives a thread of ours the mask of the thread that had it
// made, but never SIGURG blocked.
void minitSignalMask(const M* mp) {
  sigset_t mask = mp->sigmask;
  sigdelset(&mask, SIGURG);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

}  // namespace

// mstart is the first function of every thread of ours.
void mstart(M* mp) {
  setg(&mp->g0);
  mp->locks.store(1, relaxed);  // (K3) of proc_park.cc
  minit(mp);
  sanitizerBeginThread();
  minitSignalMask(mp);
  P* pp = beBorn(mp);
  if (mp->mstartfn != nullptr) mp->mstartfn();
  if (pp != nullptr) acquirep(pp);
  gumpMstart(&mp->g0, [](G*) {
    if (getg()->m->p == nullptr) stopm();  // a spare one
    return schedule();
  });
  // mexit or retireIdleMs sent us here: the P is gone and the struct is the
  // last thing we hold.
  unminit(mp);
  sanitizerEndThread();
  setg(nullptr);
  mp->retired = false;
  mp->procid.store(0, release);  // pairs with the acquire of who signals
  LockScope l(&sched.lock);
  sched.nmfreed++;
  mp->schedlink = freem;
  freem = mp;
  checkdead();
}

G* mexit() {
  M* mp = getg()->m;
  mp->lockedExt = 0;
  if (mp == &m0) {
    // The thread of Run is not ours to end, but its state may be spoilt: it
    // runs nothing until Run returns.
    mp->lockedg = nullptr;
    handoffp(releasep());
    m0Stop();
    return nullptr;
  }
  handoffp(releasep());
  return nullptr;
}

void becomeSystemThread() {
  LockScope l(&sched.lock);
  sched.nmsys++;
  checkdead();
}

void newm(void (*fn)(), P* pp, int64_t id) {
  M* mp = allocm();
  if (mp == nullptr) fatalthrow("newm: out of memory");
  if (id < 0) {
    LockScope l(&sched.lock);
    id = mReserveID();
  }
  mp->mstartfn = fn;
  {
    LockScope l(&sched.lock);
    mcommoninit(mp, id);  // traces look at one that is used again
    mp->nextp = pp;
    mp->unborn = true;
    sched.nmstarting.add(1, relaxed);  // a hint outside the lock
  }
  bool wake;
  {
    LockScope l(&newmHandoff.lock);
    mp->schedlink = newmHandoff.head;
    newmHandoff.head = mp;
    wake = newmHandoff.waiting;
    newmHandoff.waiting = false;
  }
  if (wake) notewakeup(&newmHandoff.wake);
}

void startTemplateThread() {
  {
    LockScope l(&sched.lock);
    mcommoninit(&templateM, mReserveID());
    sched.nmstarting.add(1, relaxed);  // mstart takes it back
  }
  templateM.mstartfn = [] { templateThread(); };
  spawnThread(&templateM);
}

namespace {

// claimLocked is claimUnborn under the lock. *spun: the M was to begin by
// spinning, and is in nmspinning.
P* claimLocked(bool ofSafePoint, bool* spun)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  for (M* mp = allm.load(acquire); mp != nullptr;
       mp = mp->alllink) {  // pairs with mcommoninit
    if (!mp->unborn) continue;
    P* pp = mp->nextp;
    if (pp == nullptr) continue;
    // Set under sched.lock.
    if (ofSafePoint && pp->runSafePointFn.load(relaxed) == 0) continue;
    mp->nextp = nullptr;
    if (mp->mstartfn == spinningStart) {
      mp->mstartfn = nullptr;
      *spun = true;
    }
    return pp;
  }
  return nullptr;
}

// reuseUnborn gives pp to an M whose thread is being made, and from which a P
// was taken back, so that there are no more on order than Ps wait for, though
// the world is stopped again and again meanwhile. False: there is none.
bool reuseUnborn(P* pp, bool spinning)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (sched.nmstarting.load(relaxed) == 0) return false;  // under sched.lock
  for (M* mp = allm.load(acquire); mp != nullptr;
       mp = mp->alllink) {  // pairs with mcommoninit
    if (!mp->unborn || mp->nextp != nullptr || mp->mstartfn != nullptr) {
      continue;
    }
    mp->nextp = pp;
    mp->mstartfn = spinning ? spinningStart : nullptr;
    return true;
  }
  return false;
}

}  // namespace

P* claimUnborn(bool ofSafePoint) {
  bool spun = false;
  P* pp;
  {
    LockScope l(&sched.lock);
    pp = claimLocked(ofSafePoint, &spun);
  }
  if (spun) {
    uncountSpinner(kTooFewSpin);
    wakeNextSpinner();  // S1 without S2: another must look, as in startm
  }
  return pp;
}

bool idleThread() {
  if (sched.ninplace.load(relaxed) > 0) return true;  // a hint: startm takes it
  LockScope l(&sched.lock);
  return sched.nmidle > 0;
}

bool threadForP() {
  if (idleThread()) return true;
  if (sched.threadsShort.load(relaxed)) return false;  // a hint
  LockScope l(&sched.lock);
  const int64_t reserve = 1 + sched.maxmcount / 64;
  return mcount() + reserve < sched.maxmcount;
}

void mput(M* mp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  mp->schedlink = sched.midle;
  sched.midle = mp;
  sched.nmidle++;
  checkdead();
}

M* mget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  M* mp = sched.midle;
  if (mp != nullptr) {
    sched.midle = mp->schedlink;
    sched.nmidle--;
    if (sched.nmidle < sched.nmidleLow) sched.nmidleLow = sched.nmidle;
  }
  return mp;
}

void retireIdleMs(int32_t keep) {
  for (;;) {
    M* mp;
    {
      LockScope l(&sched.lock);
      if (sched.nmidle <= keep) return;
      mp = mget();
    }
    mp->retired = true;
    notewakeup(&mp->park);  // publishes it
    stats.retiredMs.add(1, relaxed);
  }
}

void trimIdleMs() {
  int32_t unused;
  int32_t keep;
  {
    LockScope l(&sched.lock);
    keep = gomaxprocs.load(relaxed);  // a number to aim at
    unused = sched.nmidleLow - keep;
    keep = sched.nmidle - unused;
    sched.nmidleLow = sched.nmidle;
  }
  if (unused > 0) retireIdleMs(keep);
}

namespace {

// takeInPlace takes the goroutine that has longest been preempted in place off
// the global queue; nullptr: there is none. A P for which there is no idle
// thread goes to that one, while a thread is ordered: it may hold a lock that
// pthread_create needs.
G* takeInPlace() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  GQueue before;
  while (G* gp = sched.runq.pop()) {
    if (!gp->inPlace) {
      before.pushBack(gp);
      continue;
    }
    before.pushBackAll(&sched.runq);
    sched.runq = before;
    sched.runqsize.store(sched.runq.size, relaxed);  // a hint outside the lock
    return gp;
  }
  sched.runq = before;
  return nullptr;
}

// wakeLocked says that mp's locked goroutine is about to run: whoever says so
// hands mp a P and wakes it.
void wakeLocked(const M* mp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (mp == &m0) m0sleep.woken = true;
  sched.nmidlelocked--;
}

// spareStart begins an M without a P, which will stop at once.
void spareStart() {
  LockScope l(&sched.lock);
  sched.spareOrdered = false;
}

// Chosen is who is to run on a P: an idle M, or the goroutine `held`, or, both
// being nullptr, an M on order or a new one. newID: reserved for an M to be
// made, -1: for none.
struct Chosen {
  M* idle = nullptr;
  G* held = nullptr;
  bool ordered = false;  // an M on order has the P
  bool spins = false;    // and begins by spinning, unless it will be long
  int64_t newID = -1;
};

Chosen choose(P* pp, bool spinning) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  // Its turn is now: straight to its thread, instead of by way of another. (Who
  // is preempted in place does not look at timers, nor for finalizers.)
  const bool turn = !spinning && sched.runq.head != nullptr &&
                    sched.runq.head->inPlace && runqempty(pp) &&
                    !timersDueNow(&pp->timers) && !fingwake.load(relaxed);
  Chosen c;
  if (!turn && (c.idle = mget()) != nullptr) return c;
  c.held = takeInPlace();
  if (c.held != nullptr) wakeLocked(c.held->lockedm);
  // One spare thread, not one for every goroutine that computes: they may be
  // very many.
  const bool threadsShort = sched.threadsShort.load(relaxed);  // a hint
  const bool spare = c.held != nullptr && !turn && !sched.spareOrdered &&
                     !threadsShort && mcount() < int64_t{sched.maxmcount} / 2;
  if (spare) sched.spareOrdered = true;
  c.spins = spinning && !threadsShort;
  c.ordered = c.held == nullptr && reuseUnborn(pp, c.spins);
  if (c.ordered) return c;
  // Before the lock is dropped: checkdead counts the thread that is to come.
  if (spare || c.held == nullptr) c.newID = mReserveID();
  return c;
}

void startIdle(M* mp, P* pp, bool spinning) {
  if (mp->spinning) fatalthrow("startm: m is spinning");
  if (mp->nextp != nullptr) fatalthrow("startm: m has p");
  if (spinning && !runqempty(pp)) fatalthrow("startm: p has runnable gs");
  mp->spinning = spinning;
  mp->nextp = pp;
  notewakeup(&mp->park);  // publishes the two lines above
}

void startHeld(G* held, P* pp, bool spinning, int64_t spareID) {
  if (spinning) uncountSpinner(kTooFewSpin);
  held->lockedm->nextp = pp;
  notewakeup(&held->lockedm->park);  // publishes nextp
  if (spareID >= 0) newm(spareStart, nullptr, spareID);
  if (spinning) wakeNextSpinner();  // nobody looks after all
}

}  // namespace

void startm(P* pp, bool spinning) {
  M* self = acquirem();  // between taking a P and handing it over we must not
                         // be stopped
  if (pp == nullptr && spinning)
    fatalthrow("startm: P required for spinning=true");
  Chosen c;
  {
    LockScope l(&sched.lock);
    if (pp == nullptr) pp = pidleget();
    if (pp != nullptr) c = choose(pp, spinning);
  }
  if (c.idle != nullptr) {
    startIdle(c.idle, pp, spinning);
  } else if (c.held != nullptr) {
    startHeld(c.held, pp, spinning, c.newID);
  } else if (c.ordered) {
    // sysmon looks whether others can.
    if (spinning && !c.spins) uncountSpinner(kTooFewSpin);
  } else if (pp != nullptr) {
    newm(spinning ? spinningStart : nullptr, pp, c.newID);
  }
  releasem(self);
}

namespace {
// mPark sleeps until somebody hands over a P, and takes it.
void mPark(M* mp) {
  mp->blocked.store(true, relaxed);  // a hint
  notesleep(&mp->park);
  noteclear(&mp->park);
  mp->blocked.store(false, relaxed);
  P* pp = mp->nextp;
  mp->nextp = nullptr;
  if (pp != nullptr) acquirep(pp);
}
}  // namespace

void stopm() {
  M* mp = getg()->m;
  if (mp->locks.load(relaxed) != 1) fatalthrow("stopm holding locks");  // ours
  if (mp->p != nullptr) fatalthrow("stopm holding p");
  if (mp->spinning) fatalthrow("stopm spinning");
  if (mp == &m0) {
    m0Stop();
    return;
  }
  {
    LockScope l(&sched.lock);
    mput(mp);
  }
  mPark(mp);
}

void gcstopm() {
  M* mp = getg()->m;
  // Pairs with stopTheWorld.
  if (!sched.gcwaiting.load(acquire)) fatalthrow("gcstopm: not waiting for gc");
  if (mp->spinning) {
    mp->spinning = false;
    // startTheWorld's wakep restarts enough.
    uncountSpinner("gcstopm: negative nmspinning");
  }
  flushYielded(mp->p);
  P* pp = releasep();
  {
    LockScope l(&sched.lock);
    if (sched.gcwaiting.load(relaxed)) {  // written under sched.lock
      countStopped(pp);
    } else {
      pidleput(pp);  // the world has started again meanwhile
    }
  }
  // Whoever looked after this P's timers relied on us.
  if (const int64_t when = wakeTime(&pp->timers)) wakeNetPoller(when);
  stopm();
}

namespace {
// mayNotIdle tells whether pp, about to go idle for want of a reason to run,
// has got one since.
bool mayNotIdle(const P* pp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  return !sched.runq.empty() || !runqempty(pp) ||
         // Somebody readied a G and found neither a spinner nor an idle P.
         sched.needspinning.load(relaxed) == 1 ||  // set under sched.lock
         // The last busy P must not go idle while nobody watches the network
         // and the timers, of the idle Ps, too.
         (sched.npidle.load(relaxed) == gomaxprocs.load(relaxed) - 1 &&
          sched.lastpoll.load(relaxed) != 0 &&
          (netpollAnyWaiters() || timeSleepUntil() != kMaxWhen));
}
}  // namespace

void handoffp(P* pp) {
  flushYielded(pp);
  // Who gets it may go on without a look at this.
  if (pp->runSafePointFn.load(acquire) != 0) runSafePointFn(pp);  // forEachP's
  // A hint: who stops the world wants it now, not when its work is done.
  const bool stopping = sched.gcwaiting.load(relaxed);
  // Must know every reason for which findRunnable would return something.
  if (!stopping && (!runqempty(pp) || sched.runqsize.load(seq_cst) > 0 ||
                    fingwake.load(relaxed) ||  // as in retake: a hint
                    reclaimWorkAvailable())) {
    startm(pp, /*spinning=*/false);
    return;
  }
  // Nobody looks for work and no P is idle: this P's search is what others rely
  // on.
  if (!stopping &&
      sched.nmspinning.load(seq_cst) + sched.npidle.load(seq_cst) == 0 &&
      sched.nmspinning.cas(0, 1, seq_cst)) {
    sched.needspinning.store(0, seq_cst);  // as becomeSpinning
    startm(pp, /*spinning=*/true);
    return;
  }
  lock(&sched.lock);
  if (sched.gcwaiting.load(relaxed)) {  // written under sched.lock
    countStopped(pp);
    unlock(&sched.lock);
    return;
  }
  // Whoever idles a P first runs what forEachP asked of it.
  if (pp->runSafePointFn.cas(1, 0, acq_rel)) {
    sched.safePointFn(pp);
    if (--sched.safePointWait == 0) notewakeup(&sched.safePointNote);
  }
  if (mayNotIdle(pp)) {
    unlock(&sched.lock);
    startm(pp, /*spinning=*/false);
    return;
  }
  pidleput(pp);
  unlock(&sched.lock);
  // Not under the lock: it may start an M.
  if (const int64_t when = wakeTime(&pp->timers)) wakeNetPoller(when);
}

// ---- Locked goroutines ------------------------------------------------------

void incidlelocked(int32_t v) {
  LockScope l(&sched.lock);
  sched.nmidlelocked += v;
  if (v > 0) checkdead();
}

namespace {

// putBackInStop puts gp, which is locked to its thread and would run now, at
// the head of the global queue if the world stops. Its thread would not look
// again before it computes: a hog would need a signal to give its P up. Not
//  * twice in a row: its way to a P leads over two threads, and stops that
//    follow each other faster than those wake would keep it for ever from
//    what others may wait for (see the head of preempt.cc);
//  * when main has ended: then nobody is bound to take it from the queue, or
//    to let it go (endMain).
bool putBackInStop(G* gp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  // Both are written under sched.lock; gcwaiting, by who is dying, without it.
  if (!sched.gcwaiting.load(relaxed) || sched.mainEnded.load(relaxed) ||
      gp->putBack) {
    return false;
  }
  gp->putBack = true;
  globrunqputhead(gp);
  return true;
}

// givesBack tells whether this M, just given a P for gp, is to give it up
// again: gp has been put back.
bool givesBack(G* gp) {
  // A hint: if it comes too late, a signal does it.
  if (GUMP_LIKELY(!sched.gcwaiting.load(relaxed))) return false;
  LockScope l(&sched.lock);
  return putBackInStop(gp);
}

}  // namespace

void stoplockedm() {
  M* mp = getg()->m;
  if (mp->lockedg == nullptr || mp->lockedg->lockedm != mp) {
    fatalthrow("stoplockedm: inconsistent locking");
  }
  do {
    if (mp->p != nullptr) handoffp(releasep());
    if (mp == &m0 && !m0SleepBegin()) return;
    incidlelocked(1);
    mPark(mp);
    if (mp == &m0) m0SleepEnd();
    if (mp->p == nullptr) return;
    if (readgstatus(mp->lockedg) != kGrunnable) {
      fatalthrow("stoplockedm: not runnable");
    }
  } while (givesBack(mp->lockedg));
  mp->lockedg->putBack = false;
}

void startlockedm(G* gp) {
  M* mp = gp->lockedm;
  if (mp == getg()->m) fatalthrow("startlockedm: locked to me");
  flushYielded(getg()->m->p);  // gp, if put back, goes before them
  {
    LockScope l(&sched.lock);
    // Written under sched.lock. m0 is on its way out, or gone.
    if (mp == &m0 && sched.mainEnded.load(relaxed)) {
      globrunqput(gp);
      return;
    }
    if (putBackInStop(gp)) return;  // we go on to gcstopm; mp sleeps on
    wakeLocked(mp);
  }
  if (mp->nextp != nullptr) fatalthrow("startlockedm: m has p");
  mp->nextp = releasep();
  notewakeup(&mp->park);  // publishes nextp
  stopm();
}

void wakeM0ToLeave() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (m0sleep.sleeping && !m0sleep.woken) {
    m0sleep.woken = true;
    sched.nmidlelocked--;
    notewakeup(&m0.park);
  }
  // Otherwise it runs, and finds mainEnded set before it sleeps: m0SleepBegin
  // looks under this lock.
}

bool lockOSThreadExternal() noexcept {
  if (getg() == nullptr) needm();
  G* gp = getg();
  M* mp = gp->m;
  // The caller means the thread that he is on: no yield, nor a wait for a P, if
  // that was taken, before he is bound to it. preemptInPlace writes the same
  // pair.
  const bool lost = acquiremAsIs(mp);
  const bool ok = mp->lockedExt != UINT32_MAX;
  if (ok) mp->lockedExt++;
  if (ok && !gp->foreign) {
    mp->lockedg = gp;
    gp->lockedm = mp;
  }
  if (lost) stayLost(mp);
  releasem(mp);
  return ok;
}

void unlockOSThreadExternal() noexcept {
  G* gp = runtimeEntry();
  M* mp = acquirem();  // as above
  if (mp->lockedExt != 0 && --mp->lockedExt == 0) {
    mp->lockedg = nullptr;
    gp->lockedm = nullptr;
  }
  releasem(mp);
}

int32_t setMaxThreads(int32_t n) noexcept {
  schedinit();
  LockScope l(&sched.lock);
  int32_t old = sched.maxmcount;
  sched.maxmcount = n;
  checkmcount();
  return old;
}

}  // namespace gump::rt
