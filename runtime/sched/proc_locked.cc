// Threads: starting, stopping and handing over Ms; locked goroutines; the
// template thread.
//
// An idle M is linked in sched.midle and sleeps on its park note. Its waker
// unlinks it under sched.lock, puts a P into nextp, and then wakes the note.
// The release and acquire of the note publish nextp. Three kinds of M are woken
// without a P:
//  * m0 when Run is about to return (wakeM0ToLeave);
//  * an M whose thread must end (retireIdleMs);
//  * an M whose goroutine, preempted in place, goes on after the end of main
//    (releasePreempted).
// A spare M (spareStart) starts without a P, and goes to sleep.
//
// Only the template thread makes threads (and schedinit, on a thread of the
// program). pthread_create takes libc's locks, which a goroutine that is
// preempted in place may hold. The scheduler must never wait for such a lock.
#include <cxxabi.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "runtime/diag/fuzzsched.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/stats.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sched/proc.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/signal.h"

namespace gump::rt {

constinit M m0;
Atomic<M*> allm;

namespace {

// NewmHandoff is the queue of Ms that need a thread. It has a leaf lock of its
// own, so the template thread needs no sched.lock to take from it. The protocol
// of the note: the template thread sets `waiting` under the lock before it
// sleeps. The thread that clears `waiting`, under the lock too, then wakes the
// note. So each sleep has exactly one wake-up.
struct NewmHandoff {
  Mutex lock{LockRank::kLeaf};
  M* head ABSL_GUARDED_BY(lock) = nullptr;
  bool waiting ABSL_GUARDED_BY(lock) = false;
  Note wake;
};
constinit NewmHandoff newmHandoff;
constinit M templateM;

constexpr char kTooFewSpin[] = "startm: negative nmspinning";

// M0Sleep is how m0 can sleep without a P and still be woken when Run has to
// return. m0 sleeps until its locked goroutine is to run (stoplockedm), or
// until Run returns (m0Stop). startlockedm and endMain may both want to wake
// it, but its note takes one wake-up per sleep. The thread that sets `woken`
// under sched.lock is the one that wakes m0.
struct M0Sleep {
  bool sleeping = false;
  bool woken = false;
};
M0Sleep m0sleep ABSL_GUARDED_BY(sched.lock);

// reportNoThread reports, in Go's words, that the kernel refuses to make a
// thread.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void reportNoThread(int err) {
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

// anyWorkers returns true if there is a thread that can run goroutines, main
// apart. These threads cannot:
//  * the runtime's own (nmsys), m0, and those that are on order;
//  * one that waits for the goroutine locked to it, unless that goroutine is
//    preempted in place.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
bool anyWorkers() {
  LockScope l(&sched.lock);
  // The two counters that are not under the lock (ninplace, nmstarting) are
  // hints. If they are wrong, they are so only for a moment, and we ask again.
  // m0 may be among the Ms that wait, and is subtracted once.
  const int32_t locked = sched.nmidlelocked - sched.ninplace.load(relaxed) -
                         (m0sleep.sleeping ? 1 : 0);
  return mcount() - sched.nmsys - sched.nmstarting.load(relaxed) -
             (sched.m0attached ? 1 : 0) - std::max(locked, 0) >
         0;
}

// tryThread makes the thread of mp. Returns 0 or an errno. It tries a second
// time if stackReclaim may have made room for the thread's stack.
// On, Locks: as spawnThread.
int tryThread(M* mp) {
  const int err = newosproc(mp);
  return err == EAGAIN && stackReclaim() ? newosproc(mp) : err;
}

// spawnThread makes the thread of mp. If the kernel refuses threads for longer
// than a fifth of a second, spawnThread reports that once. It goes on trying
// for as long as other threads can do the work. (In Go, the refusal is fatal.)
//
// Threads blocked in system calls return and pick up the waiting Ps
// (replaceStartingMs, claimForLocked), and sysmon retakes a P only if a thread
// can run it (threadForP). So every waiting goroutine makes progress as soon as
// some call returns, as at the limit of SetMaxThreads. This holds for
// goroutines that are locked to their threads and ready each other, too: their
// Ps pass through a thread that is not locked. If no thread can do the work
// (anyWorkers), nothing promises an improvement, and the refusal is fatal.
// On: the template thread, or schedinit.  P: none.  Locks: takes sched.lock,
// libc's.  Parks: blocks the thread.
void spawnThread(M* mp) {
  constexpr int kRetriesBeforeReport = 20;
  static bool told = false;  // schedinit's, then the template thread's
  for (int tries = 0;; tries++) {
    const int err = tryThread(mp);
    if (err == 0) break;
    if (err != EAGAIN || (tries >= kRetriesBeforeReport && !anyWorkers())) {
      reportNoThread(err);
      fatalthrow("newosproc");
    }
    sched.threadsShort.store(true, relaxed);  // a hint
    if (tries >= kRetriesBeforeReport && !std::exchange(told, true))
      reportNoThread(err);
    usleep(static_cast<uint32_t>(std::min(tries + 1, kRetriesBeforeReport)) *
           1000);
  }
  sched.threadsShort.store(false, relaxed);  // a hint
}

// The Ms of threads that have ended.
M* freem ABSL_GUARDED_BY(sched.lock) = nullptr;

// m0SleepBegin announces a sleep of m0. Returns false if main has ended,
// because no wake-up would come. But if m0 is `woken` already, its waker hands
// it a P, so m0 sleeps to take it.
// On: g0 of m0.  P: none.  Locks: takes sched.lock.  Parks: no.
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

// m0Stop sleeps until Run is to return. m0 runs main and nothing else. Any
// other goroutine that it ran when main ends could keep Run from returning for
// as long as it likes.
// On: g0 of m0.  P: none.  Locks: takes sched.lock.  Parks: blocks the thread.
void m0Stop() {
  if (!m0SleepBegin()) return;
  incidlelocked(1);
  notesleep(&m0.park);
  noteclear(&m0.park);
  m0SleepEnd();
}

void spinningStart() { getg()->m->spinning = true; }

// templateThread makes the threads of the Ms in newmHandoff.
// On: the template thread.  P: none.  Locks: takes sched.lock, a leaf, libc's.
// Parks: blocks the thread.
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
    // Make them in the order in which they were asked for. The first is sysmon,
    // because without it no thread would find the Ps that wait for a thread
    // which does not come (replaceStartingMs).
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

// allocm returns a used M or a new one, or nullptr if there is no memory.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
M* allocm() {
  M* mp;
  {
    LockScope l(&sched.lock);
    mp = freem;
    if (mp != nullptr) freem = mp->schedlink;
  }
  // A used M is as its thread left it: without a P, a G, a lock or a request.
  // It stays on allm for good, so it is not constructed again.
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
    // Release: pairs with the acquire of the threads that walk allm.
  } while (!allm.casWeak(head, mp, release));
}

namespace {

// lostKey is set in threads that run goroutines. It is unused if lostKeyMade is
// false. threadsinit writes both before the runtime has threads.
pthread_key_t lostKey;
bool lostKeyMade;

// threadLost is called on the stack of a thread that ends although its M is
// still in use: a goroutine has called pthread_exit, or its thread was
// cancelled. The unwinder has left the goroutine's stack at its first frame,
// gumpGostart, and libc has done the rest. All that the M holds, most likely a
// P, is lost, so all other threads would wait for it.
// On: the thread that ends.  P: either.  Locks: none.  Parks: no.
void threadLost(void*) {
  if (forked.load(relaxed)) return;  // written by this, the only thread
  fatal("pthread_exit or pthread_cancel of a goroutine's thread");
}

void setLostKey(const M* mp) {
  if (lostKeyMade) (void)pthread_setspecific(lostKey, mp);
}

}  // namespace

void threadsinit() {
  // The values of the first keys have room in the thread itself. For other keys
  // libc would call malloc, whose lock a goroutine that is preempted in place
  // may hold. Without the key, the mistake that threadLost reports is a hang.
  constexpr pthread_key_t kRoom = 32;
  lostKeyMade =
      pthread_key_create(&lostKey, threadLost) == 0 && lostKey < kRoom;
}

void unminit(M* mp) {
  setLostKey(nullptr);
  unminitSignalStack(mp);
}

void minit(M* mp) {
  // Forget the looks at the previous thread of this M. It had another CPU clock
  // (computes).
  mp->forcePreemptTime.store(0, relaxed);
  mp->resumedSleeps.store(UINT64_MAX, relaxed);
  mp->procid.store(gettid(), release);  // read by threads that signal this one
  // The previous thread may have missed a signal. Release: see preemptM.
  mp->signalSent.store(0, release);
  mp->preciseSleeps = false;
  mp->eh = reinterpret_cast<EhGlobals*>(abi::__cxa_get_globals());
  mp->errnoAddr = &errno;
  sanitizerInitThread(mp);
  const int saved = *mp->errnoAddr;  // belongs to Run's caller if this is m0
  setLostKey(mp);
  minitSignalStack(mp);  // ENOENT if getauxval does not know AT_MINSIGSTKSZ
  *mp->errnoAddr = saved;
}

namespace {

// finishStarting ends the time in which takeStartingP may take mp's P. Returns
// the P, or nullptr if mp has none. On: the new thread.  P: none.  Locks: takes
// sched.lock.  Parks: no.
P* finishStarting(M* mp) {
  LockScope l(&sched.lock);
  sched.nmstarting.add(-1, relaxed);  // a hint outside the lock
  mp->starting = false;
  P* pp = mp->nextp;
  mp->nextp = nullptr;
  return pp;
}

// minitSignalMask gives a thread of ours the signal mask of the thread that
// ordered it, but with SIGURG unblocked.
// On: the new thread.  P: none.  Locks: none.  Parks: no.
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
  P* pp = finishStarting(mp);
  if (mp->mstartfn != nullptr) mp->mstartfn();
  if (pp != nullptr) acquirep(pp);
  gumpMstart(&mp->g0, [](G*) {
    if (getg()->m->p == nullptr) stopm();  // a spare M
    return schedule();
  });
  // mexit or retireIdleMs has sent us here. The P is gone, and the M struct is
  // the last thing that we hold.
  unminit(mp);
  sanitizerEndThread();
  setg(nullptr);
  mp->retired = false;
  mp->procid.store(0, release);  // pairs with the acquire of a signaller
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
    // The thread of Run is not ours to end. But its state may be spoilt, so it
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
    mcommoninit(mp, id);  // under the lock: traces look at a recycled M
    mp->nextp = pp;
    mp->starting = true;
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
    sched.nmstarting.add(1, relaxed);  // finishStarting takes it back
  }
  templateM.mstartfn = [] { templateThread(); };
  spawnThread(&templateM);
}

namespace {

// claimLocked is takeStartingP under the lock. It sets *spun if the M was to
// start by spinning; that M is counted in nmspinning.
P* claimLocked(bool ofSafePoint, bool* spun)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  for (M* mp = allm.load(acquire); mp != nullptr;
       mp = mp->alllink) {  // pairs with mcommoninit
    if (!mp->starting) continue;
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

// reuseStartingM gives pp to an M whose thread is being made and from which a P
// was taken back. Returns false if there is none. So no more threads are on
// order than Ps wait for, even if the world is stopped again and again
// meanwhile.
bool reuseStartingM(P* pp, bool spinning)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (sched.nmstarting.load(relaxed) == 0) return false;  // under sched.lock
  for (M* mp = allm.load(acquire); mp != nullptr;
       mp = mp->alllink) {  // pairs with mcommoninit
    if (!mp->starting || mp->nextp != nullptr || mp->mstartfn != nullptr) {
      continue;
    }
    mp->nextp = pp;
    mp->mstartfn = spinning ? spinningStart : nullptr;
    return true;
  }
  return false;
}

}  // namespace

P* takeStartingP(bool ofSafePoint) {
  bool spun = false;
  P* pp;
  {
    LockScope l(&sched.lock);
    pp = claimLocked(ofSafePoint, &spun);
  }
  if (spun) {
    uncountSpinner(kTooFewSpin);
    wakeNextSpinner();  // S1 without S2: another M must look, as in startm
  }
  return pp;
}

bool idleThread() {
  if (sched.ninplace.load(relaxed) > 0) return true;  // a hint; see choose
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
    notewakeup(&mp->park);  // publishes retired
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

// takeInPlace takes from the global queue the goroutine that has been preempted
// in place for longest. Returns nullptr if there is none. A P without an idle
// thread goes to that goroutine while a thread is ordered, because the
// goroutine may hold a lock that pthread_create needs.
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

// wakeLocked records that mp's locked goroutine is about to run. The caller
// then hands mp a P and wakes it.
void wakeLocked(const M* mp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (mp == &m0) m0sleep.woken = true;
  sched.nmidlelocked--;
}

// spareStart is the first call of a spare M, which has no P and then stops.
// On: the new thread.  P: none.  Locks: takes sched.lock.  Parks: no.
void spareStart() {
  LockScope l(&sched.lock);
  sched.spareOrdered = false;
}

// Chosen is the choice of a thread for a P: an idle M, or the goroutine `held`,
// or, if both are nullptr, an M on order or a new one. newID is reserved for an
// M that must be made; it is -1 if none must.
struct Chosen {
  M* idle = nullptr;
  G* held = nullptr;
  bool ordered = false;  // an M on order has the P
  bool spins = false;    // and starts by spinning; not while threads are short
  int64_t newID = -1;
};

// choose finds a thread for pp.
// On: any.  P: pp.  Locks: caller holds sched.lock.  Parks: no.
Chosen choose(P* pp, bool spinning) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  // If it is the turn of a goroutine that is preempted in place, the P goes
  // straight to its thread instead of by way of another. That thread looks
  // neither at timers nor for finalizers, so there must be none to run.
  const bool turn = !spinning && sched.runq.head != nullptr &&
                    sched.runq.head->inPlace && runqempty(pp) &&
                    !timersDueNow(&pp->timers) && !fingwake.load(relaxed);
  Chosen c;
  if (!turn && (c.idle = mget()) != nullptr) return c;
  c.held = takeInPlace();
  if (c.held != nullptr) wakeLocked(c.held->lockedm);
  // Order one spare thread, not one for every goroutine that computes, because
  // there may be very many.
  const bool threadsShort = sched.threadsShort.load(relaxed);  // a hint
  const bool spare = c.held != nullptr && !turn && !sched.spareOrdered &&
                     !threadsShort && mcount() < int64_t{sched.maxmcount} / 2;
  if (spare) sched.spareOrdered = true;
  c.spins = spinning && !threadsShort;
  c.ordered = c.held == nullptr && reuseStartingM(pp, c.spins);
  if (c.ordered) return c;
  // Reserve the id before the lock is dropped, so that checkdead counts the
  // thread that is to come.
  if (spare || c.held == nullptr) c.newID = mReserveID();
  return c;
}

// startIdle hands pp to the idle M mp; startHeld hands it to the thread of a
// goroutine that is preempted in place, and orders a spare M if spareID >= 0.
// Both:
// On: any.  P: pp, handed over.  Locks: startHeld takes sched.lock.  Parks: no.
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
  if (spinning) wakeNextSpinner();  // this M does not look after all
}

}  // namespace

void startm(P* pp, bool spinning) {
  M* self = acquirem();  // between taking a P and handing it over we must not
                         // be preempted
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
    // If that thread does not come, sysmon gives the P to another
    // (replaceStartingMs).
    if (spinning && !c.spins) uncountSpinner(kTooFewSpin);
  } else if (pp != nullptr) {
    newm(spinning ? spinningStart : nullptr, pp, c.newID);
  }
  releasem(self);
}

namespace {
// mPark sleeps until a waker hands over a P, and takes it. A waker may also
// hand over none.
// On: g0.  P: none; then maybe one.  Locks: none.  Parks: blocks the thread.
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
  // The threads that set this P's timers rely on us to look at them.
  if (const int64_t when = wakeTime(&pp->timers)) wakeNetPoller(when);
  stopm();
}

namespace {
// mayNotIdle returns true if pp, which is about to go idle because there was no
// reason to run it, has got such a reason since.
bool mayNotIdle(const P* pp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  return !sched.runq.empty() || !runqempty(pp) ||
         // A thread readied a G and found neither a spinner nor an idle P.
         sched.needspinning.load(relaxed) == 1 ||  // set under sched.lock
         // The last busy P must not go idle while no M watches the network and
         // the timers, including those of the idle Ps.
         (sched.npidle.load(relaxed) == gomaxprocs.load(relaxed) - 1 &&
          sched.lastpoll.load(relaxed) != 0 &&
          (netpollAnyWaiters() || timeSleepUntil() != kMaxWhen));
}
}  // namespace

void handoffp(P* pp) {
  flushYielded(pp);
  // The M that gets pp may go on without a look at this. Pairs with forEachP's
  // store.
  if (pp->runSafePointFn.load(acquire) != 0) runSafePointFn(pp);
  // A hint: a stop of the world wants the P now, not when its work is done.
  const bool stopping = sched.gcwaiting.load(relaxed);
  // This must know every reason for which findRunnable would return a
  // goroutine.
  if (!stopping && (!runqempty(pp) || sched.runqsize.load(seq_cst) > 0 ||
                    fingwake.load(relaxed) ||  // as in retake: a hint
                    reclaimWorkAvailable())) {
    startm(pp, /*spinning=*/false);
    return;
  }
  // No M spins and no P is idle, so other threads rely on the search of this P.
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
  // Before a P goes idle, run for it the function that forEachP asks for.
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
  // Not under the lock, because it may start an M.
  if (const int64_t when = wakeTime(&pp->timers)) wakeNetPoller(when);
}

// ---- Locked goroutines ------------------------------------------------------

void incidlelocked(int32_t v) {
  LockScope l(&sched.lock);
  sched.nmidlelocked += v;
  if (v > 0) checkdead();
}

namespace {

// requeueDuringStop puts gp at the head of the global queue if the world is
// being stopped, and returns true. gp is locked to its thread and would run
// now. If gp ran instead, its thread would not look again first, and it would
// take a signal to get the P back from a goroutine that computes. Returns false
//  * if gp was put back the last time, too. Its way to a P leads through two
//    threads. If stops follow each other faster than those threads wake, gp
//    would never run, although others may wait for it (see the head of
//    preempt.cc).
//  * if main has ended. Then no thread is certain to take gp from the queue or
//    to let it go (endMain).
bool requeueDuringStop(G* gp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  // Both are written under sched.lock, but a dying thread writes gcwaiting
  // without it.
  if (!sched.gcwaiting.load(relaxed) || sched.mainEnded.load(relaxed) ||
      gp->putBack) {
    return false;
  }
  gp->putBack = true;
  globrunqputhead(gp);
  return true;
}

// mustReturnP returns true if this M, which was just given a P for gp, must
// give it up again, because gp has been put back. On: g0.  P: needed.  Locks:
// takes sched.lock.  Parks: no.
bool mustReturnP(G* gp) {
  // A hint: if we miss a stop that begins now, a signal takes the P.
  if (GUMP_LIKELY(!sched.gcwaiting.load(relaxed))) return false;
  LockScope l(&sched.lock);
  return requeueDuringStop(gp);
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
  } while (mustReturnP(mp->lockedg));
  mp->lockedg->putBack = false;
}

void startlockedm(G* gp) {
  M* mp = gp->lockedm;
  if (mp == getg()->m) fatalthrow("startlockedm: locked to me");
  flushYielded(getg()->m->p);  // gp, if put back, goes before them
  {
    LockScope l(&sched.lock);
    // Written under sched.lock. m0 is about to leave Run, or has left it.
    if (mp == &m0 && sched.mainEnded.load(relaxed)) {
      globrunqput(gp);
      return;
    }
    if (requeueDuringStop(gp)) return;  // we go on to gcstopm; mp sleeps on
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
  // Otherwise m0 is awake, and finds mainEnded set before it sleeps, because
  // m0SleepBegin looks under this lock.
}

bool lockOSThreadExternal() noexcept {
  if (getg() == nullptr) needm();
  G* gp = getg();
  M* mp = gp->m;
  // The caller means the thread that it is on. Until it is bound to that
  // thread, it must not yield, and must not wait for a P if its own was taken.
  // preemptInPlace writes the same pair.
  const bool lost = acquiremNoPark(mp);
  const bool ok = mp->lockedExt != UINT32_MAX;
  if (ok) mp->lockedExt++;
  if (ok && !gp->foreign) {
    mp->lockedg = gp;
    gp->lockedm = mp;
  }
  if (lost) markPLost(mp);
  releasem(mp);
  return ok;
}

void unlockOSThreadExternal() noexcept {
  G* gp = runtimeEntry();
  M* mp = acquirem();  // preemptInPlace writes the same pair

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
