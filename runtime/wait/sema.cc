// Semaphores by address.
//
// Invariants:
//  (I1) A Sudog is on at most one list of one root: its treap, or `handed`. It
//       lies on the stack of the waiter, which has not left semacquire.
//  (I2) Only the thread that dequeues a Sudog calls goready for its G. After
//       that the Sudog is gone, unless it is in `handed`: there it stays until
//       its goroutine or semaMainEnded removes it, under the root's lock.
//  (I3) After R1, *addr is touched only under the root's lock, for a Sudog of
//       addr that is queued, handed or just dequeued. Its goroutine is inside
//       semacquire, so the object around addr is alive. (So is the object of a
//       goroutine that main leaves behind.) Otherwise addr is only a number.
//  (I4) A woken goroutine may destroy the object at once; (I3) allows it.
//  (I5) When main has ended, no count is kept for a goroutine that has not run
//       yet, and no foreign thread sleeps on addr while *addr > 0. sema_end.cc
//       has the argument.
//
// The protocol for a count that is not handed over, against lost wake-ups:
//
//   semacquire                             semrelease
//   A0 mark the page of the table
//   A1 nwait += 1                          R1 *addr += 1
//   A2 *addr > 0? take it, do not sleep    R2 nwait == 0? no waiter to wake
//   A3 enter the treap, park               R3 lock, take a waiter, wake it
//
// A1, A2, R1, R2 are seq_cst, so in their one total order either A1 precedes R2
// or R1 precedes A2: the releaser sees the waiter, or the waiter sees the
// count. In the first case R3 finds the waiter in the treap, because A1..A3
// happen under the root's lock, which is released only when the waiter is
// parked.
//
// A woken waiter competes for the count with goroutines that call semacquire in
// the meantime (barging), unless the releaser takes the count on the waiter's
// behalf (hand-off).
//
// The waiters of a root are in a treap (sema_root.cc). sema_timed.cc has
// semaphores that wait for a limited time.
//
// Rejected:
// - A wait queue inside each lock. It costs two words in every object and a
//   second lock word, and the waker would have to touch them when the object
//   may be gone.
// - Go's pool of sudogs. Go needs it because its stacks move. Ours do not, and
//   a Sudog on the waiter's stack is already in its cache.
#include "runtime/wait/sema.h"

#include "gump/internal/linkname.h"
#include "runtime/diag/mprof.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/extram.h"
#include "runtime/sched/home.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/rand.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/tracking.h"
#include "runtime/sched/waitreason.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

constinit SemaRoot semtable[kSemTabSize];
constinit Atomic<bool> semtableUsed[kSemTabSize / kRootsPerPage];

SemaRoot* semroot(const Atomic<uint32_t>* addr) {
  // Fibonacci hashing: neighbouring words spread over the table.
  uint64_t h = (reinterpret_cast<uintptr_t>(addr) >> 2) * 0x9e3779b97f4a7c15u;
  return &semtable[h >> (64 - kSemTabBits)];
}

bool cansemacquire(Atomic<uint32_t>* addr) {
  uint32_t v = addr->load(seq_cst);  // A2: pairs with R1, after A1
  while (v > 0) {
    // Acquire: pairs with R1, so that all that preceded the release is visible.
    if (addr->casWeak(v, v - 1, acquire)) return true;
  }
  return false;
}

WaitReason semaWaitReason(SemaReason reason) {
  switch (reason) {
    case SemaReason::kSemacquire:
      return WaitReason::kSemacquire;
    case SemaReason::kMutexLock:
      return WaitReason::kSyncMutexLock;
    case SemaReason::kRWMutexRLock:
      return WaitReason::kSyncRWMutexRLock;
    case SemaReason::kRWMutexLock:
      return WaitReason::kSyncRWMutexLock;
    case SemaReason::kWaitGroupWait:
      return WaitReason::kSyncWaitGroupWait;
    case SemaReason::kWaitGroupWaitDurable:
      return WaitReason::kSynctestWaitGroupWait;
    case SemaReason::kCondWait:
      return WaitReason::kSyncCondWait;
    case SemaReason::kEventWait:
      return WaitReason::kSyncEventWait;
    case SemaReason::kScopeWait:
      return WaitReason::kScopeWait;
    case SemaReason::kScopeJoin:
      return WaitReason::kScopeJoin;
    case SemaReason::kScopeJoinDurable:
      return WaitReason::kSynctestScopeJoin;
  }
  fatalthrow("semacquire: bad reason");
}

int64_t semaStart(SemaReason reason) {
  return mutexProfiled() && (reason == SemaReason::kMutexLock ||
                             reason == SemaReason::kRWMutexRLock ||
                             reason == SemaReason::kRWMutexLock)
             ? nanotime()
             : 0;
}

void semaMarkUsed(const SemaRoot* root) {
  Atomic<bool>& used =
      semtableUsed[static_cast<uintptr_t>(root - semtable) / kRootsPerPage];
  if (!used.load(seq_cst)) used.store(true, seq_cst);  // A0: for semaMainEnded
}

bool semaTakeHanded(SemaRoot* root, Sudog* s) {
  lock(&root->lock);
  const bool mine = s->elem != nullptr;
  if (mine) root->removeHanded(s);
  unlock(&root->lock);
  return mine;
}

namespace {

// acquireSlow is semacquirePinned. If kProfiled, it notes times for the block
// and the mutex profiles. Not analysed: goparkunlock releases the root's lock
// once this goroutine is parked.
// On, P, Locks, Parks: as semacquirePinned.
template <bool kProfiled>
GUMP_ALWAYS_INLINE M* acquireSlow(Atomic<uint32_t>* addr, bool lifo,
                                  SemaReason reason)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  Sudog s;
  s.g = runtimeEntry();
  int64_t since = 0;
  if constexpr (kProfiled) {
    s.acquiretime = semaStart(reason);
    since = blockStart();
  }
  SemaRoot* root = semroot(addr);
  semaMarkUsed(root);  // A0
  M* mp = acquirem();
  for (bool parked = false;; parked = true) {
    lock(&root->lock);
    // A1, then A2. The releaser does R1, then R2. See the top of the file.
    root->nwait.add(1, seq_cst);
    if (cansemacquire(addr)) {
      root->nwait.add(UINT32_MAX, relaxed);  // too high for a moment: harmless
      unlock(&root->lock);
      if (!parked) return mp;
      break;
    }
    // A releaser that saw A1 waits for the lock, and so until we are parked.
    const uint32_t random = cheaprand(mp);
    root->queue(addr, &s, lifo, random | 1);
    sampleLockWait(s.g, semaWaitReason(reason), random >> 1);
    goparkunlock(&root->lock, semaWaitReason(reason));  // ends acquirem
    mp = acquirem();
    // The releaser writes ticket before goready, which orders it.
    if (s.ticket == kSemaHanded) {
      if (s.g->foreign || semaTakeHanded(root, &s)) break;
      s.ticket = kSemaWoken;
    }
    if (cansemacquire(addr)) break;
    // The wait until now has been charged to the release that woke us.
    if constexpr (kProfiled) {
      if (s.acquiretime != 0) s.acquiretime = nanotime();
    }
  }
  if constexpr (kProfiled) {
    if (since != 0) blockEvent(since);
  }
  return mp;
}

// On, P, Locks, Parks: as semacquirePinned.
GUMP_COLD M* acquireProfiled(Atomic<uint32_t>* addr, bool lifo,
                             SemaReason reason) {
  return acquireSlow</*kProfiled=*/true>(addr, lifo, reason);
}

}  // namespace

M* semacquirePinned(Atomic<uint32_t>* addr, bool lifo, SemaReason reason) {
  if (waitsProfiled()) return acquireProfiled(addr, lifo, reason);
  return acquireSlow</*kProfiled=*/false>(addr, lifo, reason);
}

void semacquire(Atomic<uint32_t>* addr, bool lifo, SemaReason reason) noexcept {
  if (cansemacquire(addr)) return;
  releasem(semacquirePinned(addr, lifo, reason));
}

namespace {

// mayYield returns true if the caller may give its slice to the goroutine that
// it has just readied. To do so the caller must be a goroutine that runs on its
// own stack, pins nothing, and has not given up its P in a system call.
bool mayYield() {
  const G* gp = getg();
  return !gp->foreign && gp == gp->m->curg.load(relaxed) &&
         gp->m->locks.load(relaxed) == 0 &&  // written by this thread only
         (readgstatus(gp) & ~uint32_t{kGscan}) != kGsyscall;
}

// Handoff says to which waiter a count is handed.
enum class Handoff : uint8_t {
  kNone,
  kFirst,
  // The first that may run as soon as a P is free. Those before it are woken,
  // and try to take a count. They come after all others for as long as these
  // wait.
  kFirstFree,
};

// isFree returns true if gp, which waits, needs no slot and no thread that
// other goroutines use. A locked goroutine is free: its thread waits for it.
bool isFree(const G* gp) {
  return !gp->special || (gp->group == 0 && homeOf(gp) == nullptr);
}

// Woken is what wakeWaiter has done.
enum class Woken : uint8_t {
  kNone,    // there is no waiter
  kFirst,   // the first waiter, which tries to take a count
  kBound,   // the same, for kFirstFree: it may not run for long
  kHanded,  // the waiter has been handed the count
};

// Delay is what waiters have lost, for the mutex profile.
struct Delay {
  int64_t nanos = 0;
  uint32_t waits = 0;
};

// wakeWaiter is R3. If kProfiled, it adds to *delay what the waiters have lost.
// On: any.  P: either, m.locks > 0.  Locks: takes root->lock.  Parks: no.
template <bool kProfiled>
GUMP_ALWAYS_INLINE Woken wakeWaiter(SemaRoot* root, Atomic<uint32_t>* addr,
                                    Handoff handoff, Delay* delay) {
  lock(&root->lock);
  if constexpr (kProfiled) {
    if (const int64_t ns = root->chargeWaits(addr, nanotime()); ns > 0) {
      delay->nanos += ns;
      delay->waits++;
    }
  }
  const bool ended = sched.mainEnded.load(seq_cst);  // (I5)
  Sudog* s = GUMP_UNLIKELY(ended) ? root->dequeueThread(addr) : nullptr;
  // This finds no waiter if another goroutine has already taken the count, or
  // if the root has waiters on other addresses only.
  if (s == nullptr) s = root->dequeue(addr);
  const bool bound =
      s != nullptr && handoff == Handoff::kFirstFree && !isFree(s->g);
  const bool handed = s != nullptr && handoff != Handoff::kNone && !bound &&
                      !ended && cansemacquire(addr);
  if (handed) s->ticket = kSemaHanded;
  if (handed && !s->g->foreign) {
    root->addHanded(addr, s);
  } else if (s != nullptr) {
    root->nwait.add(UINT32_MAX, relaxed);  // under the lock
  }
  unlock(&root->lock);
  if (s == nullptr) return Woken::kNone;
  goready(s->g);  // (I2): s is gone, unless handed
  if (bound) return Woken::kBound;
  return handed ? Woken::kHanded : Woken::kFirst;
}

// wakeWaiters is releaseN from R2 on.
// On: any.  P: either.  Locks: takes that of the root.  Parks: no.
template <bool kProfiled>
GUMP_ALWAYS_INLINE bool wakeWaiters(SemaRoot* root, Atomic<uint32_t>* addr,
                                    uint32_t n, Handoff handoff) {
  // Do not call runtimeEntry here, because it may yield. After a yield between
  // R1 and the wake-up, the waiter would sleep on although the count is there.
  if (getg() == nullptr) needm();
  M* mp = getg()->m;
  // acquiremNoPark does not wait for a P. If main has ended, such a wait would
  // withhold the count that we release (I5), and all that our caller will
  // release after it.
  const bool lost = acquiremNoPark(mp);
  Woken woken = Woken::kNone;
  Delay delay;
  for (; n != 0 && root->nwait.load(seq_cst) != 0; n--) {  // R2, each time
    do {
      woken = wakeWaiter<kProfiled>(root, addr, handoff, &delay);
    } while (woken == Woken::kBound);
  }
  if constexpr (kProfiled) {
    // Nested in acquiremNoPark, so it does not park.
    if (delay.waits != 0) mutexEvent(delay.nanos, delay.waits);
  }
  if (lost) markPLost(mp);
  releasem(mp);
  return woken == Woken::kHanded && !lost;
}

// On, P, Locks, Parks: as wakeWaiters.
GUMP_COLD bool wakeProfiled(SemaRoot* root, Atomic<uint32_t>* addr, uint32_t n,
                            Handoff handoff) {
  return wakeWaiters</*kProfiled=*/true>(root, addr, n, handoff);
}

// releaseN is semrelease of n. Returns true if the waiter that it woke (the
// last one, if several) was handed the count, and the caller still has its P.
// On: any.  P: either.  Locks: takes that of the root.  Parks: no.
bool releaseN(Atomic<uint32_t>* addr, uint32_t n, Handoff handoff) {
  SemaRoot* root = semroot(addr);
  addr->add(n, seq_cst);                             // R1; from here on (I3)
  if (root->nwait.load(seq_cst) == 0) return false;  // R2: pairs with A1
  if (mutexProfiled()) return wakeProfiled(root, addr, n, handoff);
  return wakeWaiters</*kProfiled=*/false>(root, addr, n, handoff);
}

}  // namespace

void semrelease(Atomic<uint32_t>* addr, bool handoff, bool yield) noexcept {
  // The new owner runs at once, in the rest of this slice. Otherwise every
  // release of a starving lock would leave the lock idle until we block.
  const Handoff how = handoff ? Handoff::kFirst : Handoff::kNone;
  if (releaseN(addr, 1, how) && yield && mayYield()) goyield();
}

void semreleasePinned(M* mp, Atomic<uint32_t>* addr) {
  releaseN(addr, 1, Handoff::kFirstFree);
  releasem(mp);
}

void semreleaseN(Atomic<uint32_t>* addr, uint32_t n) noexcept {
  releaseN(addr, n, Handoff::kNone);
}

// ---- Spinning ---------------------------------------------------------------

namespace {
constexpr int kActiveSpin = 4;  // rounds before giving up
constexpr int kActiveSpinCnt =
    60;  // pauses per round; Go has 30, of a slower kind
}  // namespace

// Spinning pays only while the holder can be running elsewhere. So there must
// be another core and another busy P, and nothing else for this P to run. A
// foreign thread keeps no P from working, so only the cores count for it.
bool canSpin(int i) noexcept {
  if (i >= kActiveSpin || ncpu.load(relaxed) <= 1) return false;
  const G* gp = getg();
  const P* pp = gp == nullptr ? nullptr : gp->m->p;
  if (pp == nullptr) return true;
  // A guess: all three may change at any time, and nothing depends on them.
  if (gomaxprocs.load(relaxed) <=
      sched.npidle.load(relaxed) + sched.nmspinning.load(relaxed) + 1) {
    return false;
  }
  return runqempty(pp);
}

void doSpin() noexcept { procyield(kActiveSpinCnt); }

int64_t monotonicNanos() noexcept { return nanotime(); }

}  // namespace gump::rt
