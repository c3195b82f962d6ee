// Threads: how an M gets one, what a thread of ours does first and last, when
// it ends, and how many Ms there are.
//
//   newm ──▶ newmHandoff ──▶ templateThread ──▶ spawnThread ──▶ mstart
//
// Only the template thread makes threads (and schedinit, on a thread of the
// program). pthread_create takes libc's locks, which a goroutine that is
// preempted in place may hold. The scheduler must never wait for such a lock.
//
// A thread ends in two cases: its locked goroutine has ended (mexit), or it was
// idle and not needed (retireIdleMs). Its M goes to freem and serves a later
// thread. A thread that has made a child which still runs does not end for
// being idle (child.cc).
#include "runtime/sched/thread.h"

#include <cxxabi.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "runtime/diag/cpuprof.h"
#include "runtime/diag/fuzzsched.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/stats.h"
#include "runtime/sched/affinity.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/home.h"
#include "runtime/sched/locked.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/rt0.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stack.h"
#include "runtime/sched/switch.h"
#include "runtime/sched/threadhooks.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/print.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/signal.h"
#include "runtime/sys/tls.h"

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
// The real-time priority of the threads that run goroutines, or 0 if the
// template thread has not raised its own. Written before it makes a thread.
uint32_t threadPriority;

// The Ms of threads that have ended.
M* freem ABSL_GUARDED_BY(sched.lock) = nullptr;

// order makes an M that begins with fn, and asks for its thread.
// On, P, Locks, Parks: as newm.
void order(void (*fn)(), const char* systemName, P* pp, int64_t id, Home* home);
// The steps of newm and startTemplateThread; their comments are below.
M* allocm();
[[noreturn]] void templateThread();
void spawnThread(M* mp);

}  // namespace

// ---- An M gets a thread -----------------------------------------------------

void newm(void (*fn)(), P* pp, int64_t id, Home* home) {
  order(fn, /*systemName=*/nullptr, pp, id, home);
}

void newSystemM(void (*fn)(), const char* name) {
  order(fn, name, /*pp=*/nullptr, kReserveID, /*home=*/nullptr);
}

namespace {

void order(void (*fn)(), const char* systemName, P* pp, int64_t id,
           Home* home) {
  M* mp = allocm();
  if (mp == nullptr) fatalthrow("newm: out of memory");
  if (home != nullptr) bindHome(mp, home);
  if (id == kReserveID) {
    LockScope l(&sched.lock);
    id = mReserveID();
  }
  mp->mstartfn = fn;
  mp->systemName = systemName;
  {
    LockScope l(&sched.lock);
    mcommoninit(mp, id);  // under the lock: traces look at a recycled M
    mp->nextp = pp;
    mp->starting = true;
    mp->startingSince = nanotime();
    sched.nmstarting.add(1, relaxed);  // a hint to readers without the lock
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

}  // namespace

void systemThreadRunsOnWake() {
  if (threadPriority == 0) (void)runOnWake();
}

void systemThreadQueuesOnWake() {
  if (threadPriority == 0) queueOnWake();
}

void startTemplateThread() {
  {
    LockScope l(&sched.lock);
    mcommoninit(&templateM, mReserveID());
    sched.nmstarting.add(1, relaxed);  // finishStarting takes it back
  }
  templateM.mstartfn = [] { templateThread(); };
  templateM.systemName = "gump-template";
  spawnThread(&templateM);
}

namespace {

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

// templateThread makes the threads of the Ms in newmHandoff.
// On: the template thread.  P: none.  Locks: takes sched.lock, a leaf, libc's.
// Parks: blocks the thread.
[[noreturn]] void templateThread() {
  becomeSystemThread();
  // Among SCHED_FIFO threads that compute on all processors, it would never
  // run. Its threads inherit the raised priority. Those that run goroutines
  // lower it (mstart). A thread that lowered it first and raised it again would
  // be overtaken in between, perhaps for ever.
  threadPriority = raisePriority();
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
    // Make them in the order in which they were asked for. sysmon was asked for
    // first and must come first, because without it no thread would find the Ps
    // that wait for a thread which does not come (replaceStartingMs).
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

// anyWorkers returns true if there is a thread that can run goroutines other
// than main. These threads cannot:
//  * the runtime's own (nmsys), m0, and those that are on order;
//  * one that waits for the goroutine locked to it, unless that goroutine is
//    preempted in place.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
bool anyWorkers() {
  LockScope l(&sched.lock);
  // The two counters that are not under the lock (ninplace, nmstarting) are
  // hints. If they are wrong, they are so only for a moment, and we ask again.
  // m0 may be among the Ms that wait, and is subtracted once.
  const int32_t locked =
      sched.nmidlelocked - sched.ninplace.load(relaxed) - (m0Sleeps() ? 1 : 0);
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
// some call returns, as at the limit of SetMaxThreads. This holds also for
// locked goroutines that ready each other: the P goes from one to the next
// through a thread that is not locked. If no thread can do the work
// (anyWorkers), nothing promises an improvement, and the refusal is fatal.
// On: the template thread, or schedinit.  P: none.  Locks: takes sched.lock,
// libc's.  Parks: blocks the thread.
void spawnThread(M* mp) {
  constexpr int kRetriesBeforeReport = 20;
  static bool told = false;  // used by schedinit, then by the template thread
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

}  // namespace

// ---- A thread, from its first call to its last ------------------------------

namespace {

// finishStarting ends the time in which takeStartingP may take mp's P. Returns
// the P, or nullptr if mp has none.
// On: the new thread.  P: none.  Locks: takes sched.lock.  Parks: no.
P* finishStarting(M* mp) {
  LockScope l(&sched.lock);
  sched.nmstarting.add(-1, relaxed);  // a hint to readers without the lock
  mp->starting = false;
  if (std::exchange(mp->startsLate, false)) sched.nmlate--;
  P* pp = mp->nextp;
  mp->nextp = nullptr;
  return pp;
}

// minitName names a thread of ours, as top, ps and perf show it. (m0 belongs to
// the program.)
// On: the new thread.  P: none.  Locks: none.  Parks: no.
void minitName(const M* mp) {
  if (mp->systemName != nullptr) {
    setThreadName(mp->systemName);
    return;
  }
  char name[32];
  Writer w{.buf = name, .cap = sizeof(name) - 1};
  print(&w, "%s%D", kThreadNamePrefix, mp->id);
  name[w.len] = '\0';
  setThreadName(name);
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
  minitSignalMask(mp);
  minitName(mp);
  if (mp->systemName == nullptr && hasStartHook()) {
    // Before finishStarting, so the P that is meant for this thread can be
    // taken from it while the hook runs.
    lowerPriority(threadPriority);  // the hook is code of the program
    threadStarts();
  }
  P* pp = finishStarting(mp);
  // The functions of the runtime's own threads do not return, so those threads
  // keep the priority of the template thread.
  if (mp->mstartfn != nullptr) mp->mstartfn();
  lowerPriority(threadPriority);
  if (pp != nullptr) acquirep(pp);
  if (mp->spinning) takeCount(mp, pp);
  gumpMstart(&mp->g0, [](G*) {
    const M* self = getg()->m;
    if (self->p == nullptr && self->home == nullptr) stopm();  // a spare M
    return schedule();
  });
  // mexit or retireIdleMs has sent us here. The P is gone, and the M struct is
  // the last thing that we hold.
  threadEnds();
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
  if (mp->home != nullptr) return homeGoexit(mp);
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
  if (forked.load(relaxed)) return;  // if set, this very thread has set it
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

void minit(M* mp) {
  // The previous thread of this M had another CPU clock. So `computes` must
  // forget its looks at that thread.
  mp->forcePreemptTime.store(0, relaxed);
  mp->clockTime.store(0, relaxed);  // likewise lookAtClock
  mp->resumedSleeps.store(UINT64_MAX, relaxed);
  mp->procid.store(gettid(), release);  // read by threads that signal this one
  // The previous thread may have missed a signal. Release: see preemptM.
  mp->signalSent.store(0, release);
  mp->preciseSleeps = false;
  forgetBinding(mp);
  mp->eh = reinterpret_cast<EhGlobals*>(abi::__cxa_get_globals());
  mp->errnoAddr = &errno;
  sanitizerInitThread(mp);
  const int saved = *mp->errnoAddr;  // belongs to Run's caller if this is m0
  setLostKey(mp);
  minitSignalStack(mp);  // errno: ENOENT if getauxval has no AT_MINSIGSTKSZ
  *mp->errnoAddr = saved;
  cpuProfileThreadStarts(mp);
}

void unminit(M* mp) {
  cpuProfileThreadEnds(mp);
  // m0's thread goes back to the caller of Run.
  ordinarySleeps(mp);
  if (mp == &m0) unbindThread(mp);
  setLostKey(nullptr);
  unminitSignalStack(mp);
}

// ---- Idle threads end -------------------------------------------------------

void retireIdleMs(int32_t keep) {
  for (;;) {
    M* mp;
    {
      LockScope l(&sched.lock);
      if (sched.nmidle <= keep) return;
      mp = mgetChildless();
      if (mp == nullptr) {
        sched.nmidleKept.store(sched.nmidle, relaxed);
        return;
      }
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

// ---- How many Ms there are --------------------------------------------------

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

int64_t mReserveID() {
  int64_t id = sched.mnext++;
  checkmcount();
  return id;
}

int64_t mcount() {
  return sched.mnext - sched.nmfreed - sched.nmextraAll -
         (sched.m0attached ? 0 : 1);
}

void checkmcount() {
  if (mcount() <= sched.maxmcount) return;
  int32_t max = sched.maxmcount;
  claimDeathAndUnlock(&sched.lock);  // the next thread exceeds it as well
  printf("runtime: program exceeds %d-thread limit\n", max);
  fatalthrow("thread exhaustion");
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
