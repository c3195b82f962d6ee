// Mutex and Note over futex(2).
//
// Mutex. key_ is 0 or 1. The thread that moves it from 0 to 1 owns the lock.
// unlock is a plain store and a load, without a read-modify-write. The cost of
// finding sleepers falls on the thread that is about to sleep.
//
//   unlock                               lockSlow
//     U1  key_ = 0          (release)      S1  sleepers += 1
//     U2  asymmetricLight                  S2  asymmetricHeavy
//     U3  sleepers != 0 ? go on            S3  key_ == 0 ? take it
//         -- StoreLoad --                      : sleep while key_ == 1
//     U4  waking == this lock ? done       S4  awake: waking = nullptr
//     U5  waking = this lock, wake one         -- StoreLoad --
//                                              and S3 again
//
// Invariants:
//  (L1) sleepers (lockSleepersOf the lock) counts the threads between S1 and
//       the end of lockSlow, for all locks that share the slot. An unlock may
//       read too high a count, because of a thread that is about to leave
//       lockSlow or one that waits for another lock. It then wakes in vain. The
//       count is never too low for an unlock with its U3 after S2.
//  (L2) No sleeper is forgotten. S2 splits the execution of every other thread
//       in two.
//        * An unlock with its U3 before the split has its U1 there too, so S3
//          sees that store or a later one. The kernel compares key_ again under
//          the lock of its queue, so an unlock between S3 and the sleep is not
//          missed either.
//        * An unlock with its U3 after the split sees sleepers != 0 and wakes
//          a sleeper. If that sleeper finds the lock taken again, the unlock of
//          the new holder comes after the split as well, and wakes again.
//        * An unlock may skip the wake-up at U4: see (L5).
//  (L3) The lock is not fair: a thread that arrives may take it before the
//       thread that was woken. Critical sections last tens of nanoseconds, and
//       handing the lock over would cost a thread switch for each.
//  (L4) unlock does not touch the Mutex after U1. The count is elsewhere, and
//       waking needs only the address. So the next holder may free the lock at
//       once. For example, an M's g0 unlocks a channel for a goroutine that has
//       just parked there, and meanwhile the channel's last user frees it. A
//       late wake-up finds no sleeper, or wakes a thread that checks its word
//       again.
//
//  (L5) If more threads run than there are processors, a thread that was woken
//       waits for one, often for milliseconds. It counts as a sleeper
//       meanwhile. Without `waking`, each unlock would make a system call for
//       it. So the unlock that wakes a sleeper leaves the address of the lock
//       there (U5), and an unlock that finds it skips the call (U4). It relies
//       on that U5:
//        * U5 has woken a sleeper. That thread runs S4 and then S3. U1 of the
//          unlock that skips comes before its U4, and U4 before S4 (or before
//          the store by which another thread has replaced the address). So S3
//          sees U1 or a later store. The thread takes the lock, or finds a
//          holder whose U4 comes after S4.
//        * U5 has woken no thread. Then its thread clears `waking`, and wakes
//          once more. The U1 of the unlock that skips comes before that call.
//          So the call finds any thread that was asleep at U1, and later ones
//          see U1.
//       A skip can rely on any U5 of this lock, so it is harmless that threads
//       clear `waking` for each other, and that locks that share a slot
//       overwrite each other's addresses. Then an unlock wakes in vain.
//
//       A late U5 (L4) may wake a thread that waits for other memory at the
//       same address, and leave the address behind. If a lock is made at that
//       address later, a thread that is about to sleep clears `waking` before
//       S2.
//
// A lock holder must not be preempted. The caller is on g0, has raised m.locks,
// or is a thread without an M. lock() does not raise m.locks itself, because
// every runtime entry has done so already.
//
// Rejected: key_ with a third state "held, with sleepers" (the usual futex
// lock). Its unlock is an exchange. A lock and an unlock took 27 ns, and take
// 15 ns here (Zen 4). The barrier that buys this costs a third of a microsecond
// before each sleep.
//
// Rejected: a queue of waiting Ms as in Go. It prevents stampedes on machines
// with many cores. There sched.lock should not be contended in the first place.
//
// Note. key is 0 or 1. The sleeper sleeps while it is 0. The waker writes 1 and
// then wakes the sleeper. The kernel compares key under the lock of its queue,
// so a wake-up between the sleeper's check and its sleep is not lost.
#include "runtime/sys/lock_futex.h"

#include <algorithm>

#include "runtime/diag/fuzzsched.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/stats.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {
namespace {

// Like Go, we look four times, yield once, and then sleep. Before the yield we
// look only if another processor can make progress. The waits between the looks
// are long and grow, although a critical section is over in tens of
// nanoseconds. The holder usually wants the lock again at once. It is cheap if
// one core keeps the lock's cache line for some microseconds before another
// core takes it. It is far more expensive if the cores take turns at every
// operation. (A channel between four senders and four receivers, on two cores
// between which a line travels for 190 ns, takes 27 ns an item. With short
// waits it takes 97 ns.)
constexpr int kActiveSpin = 4;
constexpr int kActiveSpinCnt = 64;      // pauses before the first look
constexpr int kActiveSpinCntMax = 256;  // pauses before any look, at most
constexpr int kPassiveSpin = 1;

// BlockedScope tells other threads that this M sleeps in the kernel on a word
// of the runtime.
class BlockedScope {
 public:
  BlockedScope() : mp_(getg() == nullptr ? nullptr : getg()->m) {
    if (mp_ != nullptr) mp_->blocked.store(true, relaxed);  // a hint
  }
  ~BlockedScope() {
    if (mp_ != nullptr) mp_->blocked.store(false, relaxed);  // a hint too
  }
  BlockedScope(const BlockedScope&) = delete;
  BlockedScope& operator=(const BlockedScope&) = delete;

 private:
  M* const mp_;
};

}  // namespace

Atomic<uint32_t> lockSleepers[kLockSleeperSlots];

namespace {

// The lock of which a sleeper has been woken and has not run since, or nullptr;
// for each slot of lockSleepers. (L5) orders the accesses.
Atomic<const Mutex*> waking[kLockSleeperSlots];

Atomic<const Mutex*>* wakingOf(const Mutex* l) {
  return &waking[lockSleepersOf(l) - lockSleepers];
}

// stopWaking lets unlocks of l wake sleepers again.
void stopWaking(const Mutex* l) {
  Atomic<const Mutex*>* w = wakingOf(l);
  if (w->load(relaxed) == l) (void)w->cas(l, nullptr, relaxed);
}

}  // namespace

void lockSlow(Mutex* l) {
  // Constant, or 0 if the runtime is not initialised yet.
  const int spins = ncpu.load(relaxed) > 1 ? kActiveSpin : 0;
  int pauses = kActiveSpinCnt;
  for (int i = 0; i < spins + kPassiveSpin; i++) {
    if (i < spins) {
      procyield(pauses);
      pauses = std::min(2 * pauses, kActiveSpinCntMax);
    } else {
      osyield();
    }
    if (l->key_.load(relaxed) == 0 &&  // only to spare the cas, which decides
        l->key_.cas(0, 1, acquire)) {  // pairs with store-release in unlock
      return;
    }
  }
  Atomic<uint32_t>* sleepers = lockSleepersOf(l);
  sleepers->add(1, relaxed);  // S1: ordered before S3 by S2
  stopWaking(l);              // ordered as S1
  asymmetricHeavy();          // S2
  int64_t since = 0;          // when we first slept
  // S3: pairs with store-release in unlock.
  while (!l->key_.cas(0, 1, acquire)) {
    if (since == 0) since = nanotime();
    futexsleep(&l->key_, 1, -1);  // U3 of the holder's unlock wakes us (L2)
    stopWaking(l);                // S4: here, store waking, then load key_.
    fence(seq_cst);               // unlockSlow: store key_, then load waking.
  }
  if (since != 0) stats.mutexWaitNS.add(nanotime() - since, relaxed);
  sleepers->add(static_cast<uint32_t>(-1), relaxed);  // late is harmless (L1)
}

// U3. The other side of its argument (L2, L5) is lockSlow. *l may be gone.
void unlockSlow(Mutex* l) {
  Atomic<const Mutex*>* w = wakingOf(l);
  // Orders U1 before U4. The other sides are S4, and the CAS below, after which
  // the kernel looks for sleepers.
  fence(seq_cst);
  if (w->load(relaxed) == l) return;  // U4
  w->store(l, relaxed);  // U5: the kernel orders it before the sleeper's S4
  if (futexwakeup(&l->key_, 1) > 0) return;
  // Another thread may have cleared or overwritten U5 already.
  (void)w->cas(l, nullptr, seq_cst);
  futexwakeup(&l->key_, 1);
}

void noteclear(Note* n) {
  // No other thread uses the note now. Handing the note out orders this store.
  n->key.store(0, relaxed);
}

void notewakeup(Note* n) {
  fuzzPoint();
  // Pairs with load-acquire in notesleep.
  const uint32_t old = n->key.xchg(1, release);
  if (old != 0) fatalthrow("notewakeup - double wakeup");
  // The sleeper may have left, and its note may be in use again, before this
  // call. The call then wakes a thread that checks its word again.
  futexwakeup(&n->key, 1);
}

void notesleep(Note* n) {
  BlockedScope blocked;
  while (n->key.load(acquire) == 0) {  // pairs with xchg-release in notewakeup
    futexsleep(&n->key, 0, -1);  // returns at once if notewakeup came between
  }
}

bool notetsleep(Note* n, int64_t ns) {
  if (ns < 0) {
    notesleep(n);
    return true;
  }
  BlockedScope blocked;
  const int64_t deadline = nanotime() + ns;
  while (n->key.load(acquire) == 0) {  // pairs with xchg-release in notewakeup
    if (ns <= 0) return false;
    futexsleep(&n->key, 0, ns);  // returns at once if notewakeup came between
    ns = deadline - nanotime();
  }
  return true;
}

}  // namespace gump::rt
