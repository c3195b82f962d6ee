// Mutex and Note over futex(2).
//
// Mutex. key_ is 0 or 1; whoever moves it from 0 to 1 owns the lock. unlock is
// a plain store and a load, no read-modify-write: the price of finding sleepers
// is paid by the one who is about to sleep.
//
//   unlock                               lockSlow
//     U1  key_ = 0          (release)      S1  sleepers += 1
//     U2  asymmetricLight                  S2  asymmetricHeavy
//     U3  sleepers != 0 ? wake one         S3  key_ == 0 ? take it
//                                              : sleep while key_ == 1
//
// Invariants:
//  (L1) sleepers (lockSleepersOf the lock) counts the threads between S1 and
//       the end of lockSlow, for all locks that share the slot. It may be read
//       too high (a thread that is about to leave, a thread that waits for
//       another lock): a wasted wake-up. It is never too low for an unlock
//       whose U3 comes after S2.
//  (L2) No sleeper is forgotten. S2 splits the life of every other thread in
//       two. An unlock whose U3 lies before the split has its U1 there too, so
//       S3 sees that store or a later one; the kernel compares key_ again under
//       the lock of its queue, so an unlock between S3 and the sleep is not
//       missed either. An unlock whose U3 lies behind the split sees
//       sleepers != 0 and wakes somebody. If that one finds the lock taken
//       again, its taker's unlock comes behind the split as well and wakes
//       again.
//  (L3) Not fair: a thread that comes by may take the lock before the one that
//       was woken. Critical sections last tens of nanoseconds, and handing over
//       costs a thread switch for each.
//  (L4) unlock does not touch the Mutex after U1: the count is elsewhere, and
//       waking needs the address only. So whoever takes a lock may free it at
//       once, as the last user of a channel does while the goroutine that
//       parked on it before is still being unlocked on another M's g0. A
//       wake-up that comes late hits nobody, or somebody who looks again.
//
// Who locks must not be preempted before it unlocks: it is on g0, or has raised
// m.locks, or is a thread without an M. lock() does not raise m.locks itself,
// because every entry of the runtime has done so already.
//
// Rejected: key_ with a third state "held, somebody sleeps" (the usual futex
// lock): its unlock is an exchange, and a lock and an unlock took 27 ns where
// this pair takes 15 (Zen 4); the barrier that buys this costs a third of a
// microsecond before each sleep. A queue of waiting Ms as in Go: protects from
// stampedes at core counts where sched.lock should not be contended in the
// first place.
//
// Note. key is 0 or 1; a sleeper sleeps while it is 0, the waker writes 1 and
// then wakes. The kernel compares under its queue's lock, so a wake-up between
// the sleeper's look and its sleep is not lost.
#include "runtime/lock_futex.h"

#include <algorithm>

#include "runtime/fuzzsched.h"
#include "runtime/os_linux.h"
#include "runtime/panic.h"
#include "runtime/runtime2.h"

namespace gump::rt {
namespace {

// As Go, four looks where another processor can make progress, one yield, then
// sleep. The waits between the looks are long, and double, although a critical
// section is over in tens of nanoseconds: whoever holds the lock usually wants
// it again at once, and it is far cheaper that one core runs on with the lock's
// line for some microseconds, and then the other, than that they take turns at
// every operation. (A channel between four senders and four receivers on two
// cores between which a line travels for 190 ns: 27 ns an item, with short
// waits 97.)
constexpr int kActiveSpin = 4;
constexpr int kActiveSpinCnt = 64;      // pauses before the first look
constexpr int kActiveSpinCntMax = 256;  // and at most
constexpr int kPassiveSpin = 1;

// BlockedScope tells others that this M sleeps in the kernel on a word of ours.
class BlockedScope {
 public:
  BlockedScope() : mp_(getg() == nullptr ? nullptr : getg()->m) {
    if (mp_ != nullptr) mp_->blocked.store(true, relaxed);  // a hint
  }
  ~BlockedScope() {
    if (mp_ != nullptr) mp_->blocked.store(false, relaxed);  // likewise
  }
  BlockedScope(const BlockedScope&) = delete;
  BlockedScope& operator=(const BlockedScope&) = delete;

 private:
  M* const mp_;
};

}  // namespace

Atomic<uint32_t> lockSleepers[kLockSleeperSlots];

void lockSlow(Mutex* l) {
  const int spins = ncpu > 1 ? kActiveSpin : 0;
  int pauses = kActiveSpinCnt;
  for (int i = 0; i < spins + kPassiveSpin; i++) {
    if (i < spins) {
      procyield(pauses);
      pauses = std::min(2 * pauses, kActiveSpinCntMax);
    } else {
      osyield();
    }
    if (l->key_.load(relaxed) == 0 &&  // only to spare the cas; it decides
        l->key_.cas(0, 1, acquire)) {  // pairs with store-release in unlock
      return;
    }
  }
  Atomic<uint32_t>* sleepers = lockSleepersOf(l);
  sleepers->add(1, relaxed);  // S1: ordered before S3 by S2
  asymmetricHeavy();          // S2
  // S3: pairs with store-release in unlock.
  while (!l->key_.cas(0, 1, acquire)) {
    futexsleep(&l->key_, 1, -1);  // U3 of the holder's unlock wakes us (L2)
  }
  sleepers->add(static_cast<uint32_t>(-1), relaxed);  // late is harmless (L1)
}

// The sleeper's side of the argument is (L2), at S3 in lockSlow.
void unlockSlow(Mutex* l) { futexwakeup(&l->key_, 1); }

void noteclear(Note* n) {
  // Nobody else looks at it; handing it out orders it.
  n->key.store(0, relaxed);
}

void notewakeup(Note* n) {
  fuzzPoint();
  // Pairs with load-acquire in notesleep.
  const uint32_t old = n->key.xchg(1, release);
  if (old != 0) fatalthrow("notewakeup - double wakeup");
  // The sleeper may be gone, and its note in use again, before this call: then
  // it wakes somebody who looks again.
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
