// Mutex and Note over futex(2).
//
// Mutex. key_ is 0 or 1. The thread that moves it from 0 to 1 owns the lock.
// unlock is a plain store and a load, without a read-modify-write. The cost of
// finding sleepers falls on the thread that is about to sleep.
//
//   unlock                               lockSlow
//     U1  key_ = 0          (release)      S1  sleepers += 1
//     U2  asymmetricLight                  S2  asymmetricHeavy
//     U3  sleepers == 0 ? done             S3  call |= 1
//         -- StoreLoad --                      -- StoreLoad --
//     U4  none of sleepers wants this      S4  key_ == 0 ? take it, done
//         lock, or call is even? done      S5  sleep while call is as S3 has
//     U5  call += 1                            left it, then S3 again
//     U6  wake one; and if sleepers
//         want several locks, all
//
// `sleepers` (lockSleepersOf) and `call` are words of a slot, which several
// locks may share. If `call` is odd, a thread calls for a wake-up. U5 ends the
// call. The word has an old value again only after 2^31 calls.
//
// Invariants:
//  (L1) sleepers counts the threads between S1 and the end of lockSlow, and has
//       the lock that they want, or "several" until the count is 0 again. An
//       unlock may still see a thread that is about to leave lockSlow. An
//       unlock with its U3 after the S2 of a thread sees that thread.
//  (L2) A thread that has passed S3 and S4 without the lock finds its call
//       ended by an unlock after it. For S2 splits the execution of every other
//       thread in two.
//        * An unlock with its U3 before the split has its U1 there too, so S4
//          sees that store or a later one.
//        * The unlock of the holder that S4 has found has its U3 after the
//          split, and goes on. Its U4 sees S3, or a U5 that has ended the call.
//  (L3) A slot with one lock forgets no sleeper. As long as a thread sleeps,
//       one of these holds. The call is odd, and the unlock of a holder is to
//       come. Or an unlock is between U5 and the end of U6. Or another thread
//       of the lock is on its way to S3, or holds the lock. For the kernel lets
//       a thread sleep only if its call has not ended. If U6 wakes a thread,
//       that one goes to S3. If U6 wakes none, then none slept. The thread that
//       goes to S3 takes the lock, and its unlock ends the call that it has
//       made, unless another one has. Or it finds a holder (L2).
//  (L4) If a slot has sleepers of several locks, the thread that U6 wakes may
//       want another lock than the one that is free. So U6 wakes all then, and
//       each goes to S3. U6 reads sleepers after it has woken one. A thread
//       that still sleeps was counted together with that one. So if they want
//       different locks, sleepers has said "several" since. (The one need not
//       be the thread that has slept longest: the kernel prefers real-time
//       threads.)
//  (L5) The lock is not fair: a thread that arrives may take it before the
//       thread that was woken. Critical sections last tens of nanoseconds, and
//       handing the lock over would cost a thread switch for each.
//  (L6) unlock does not touch the Mutex after U1, and needs only its address.
//       So the next holder may free the lock at once. For example, an M's g0
//       unlocks a channel for a goroutine that has just parked there, and
//       meanwhile the channel's last user frees it.
//  (L7) If more threads run than there are processors, a thread that was woken
//       waits for one, often for milliseconds. No call is made meanwhile, so
//       unlocks make no system calls for it. Each S3 costs at most one system
//       call in vain, or two if sleepers want several locks. A thread may also
//       lose its processor between U5 and U6. Then the sleepers of the slot
//       wait for it.
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
#include <cstdint>

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

Atomic<uint64_t> lockSleepers[kLockSleeperSlots];

namespace {

// The call of each slot; a futex word.
Atomic<uint32_t> calls[kLockSleeperSlots];

Atomic<uint32_t>* callOf(const Mutex* l) {
  return &calls[lockSleepersOf(l) - lockSleepers];
}

// Sleepers is the content of a lockSleepers. The low bits are the number of
// threads. The others are those of the lock's address that can differ, or
// kSeveral.
using Sleepers = uint64_t;
constexpr int kCountBits = 18;  // the default limit is 10,000 threads
constexpr Sleepers kCountMask = (Sleepers{1} << kCountBits) - 1;
constexpr Sleepers kSeveral = ~kCountMask;
static_assert(alignof(Mutex) >= 4);  // an address has 48 bits

Sleepers wish(const Mutex* l) {
  return (reinterpret_cast<uintptr_t>(l) >> 2) << kCountBits;
}
Sleepers wishOf(Sleepers s) { return s & ~kCountMask; }

// enter counts the caller among the sleepers of l. leave takes it off.
void enter(const Mutex* l) {
  Atomic<Sleepers>* sleepers = lockSleepersOf(l);
  Sleepers s = sleepers->load(relaxed);
  Sleepers next;
  do {
    const bool one = s == 0 || wishOf(s) == wish(l);
    next = (one ? wish(l) : kSeveral) | ((s & kCountMask) + 1);
  } while (!sleepers->casWeak(s, next, relaxed));  // S2 orders it
}
void leave(const Mutex* l) {
  Atomic<Sleepers>* sleepers = lockSleepersOf(l);
  Sleepers s = sleepers->load(relaxed);
  Sleepers next;
  do {
    next = (s & kCountMask) == 1 ? 0 : s - 1;
  } while (!sleepers->casWeak(s, next, relaxed));  // late is harmless (L1)
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
  Atomic<uint32_t>* call = callOf(l);
  enter(l);           // S1
  asymmetricHeavy();  // S2
  int64_t since = 0;  // when we first slept
  for (;;) {
    // S3: here, store call, then load key_. unlockSlow: store key_, then load
    // call.
    const uint32_t mine = call->or_(1, seq_cst) | 1;
    fence(seq_cst);
    if (l->key_.cas(0, 1, acquire)) break;  // S4: pairs with unlock's release
    if (since == 0) since = nanotime();
    futexsleep(call, mine, -1);  // S5
  }
  if (since != 0) stats.mutexWaitNS.add(nanotime() - since, relaxed);
  leave(l);
}

// U4 to U6. The other side of their argument (L2) is lockSlow. *l may be gone.
void unlockSlow(Mutex* l) {
  Atomic<uint32_t>* call = callOf(l);
  const Atomic<Sleepers>* sleepers = lockSleepersOf(l);
  fence(seq_cst);  // orders U1 before U4
  const Sleepers wanted = wishOf(sleepers->load(relaxed));
  if (wanted != wish(l) && wanted != kSeveral) return;  // U4
  uint32_t c = call->load(relaxed);
  do {
    if (c % 2 == 0) return;                     // U4
  } while (!call->casWeak(c, c + 1, seq_cst));  // U5
  futexwakeup(call, 1);                         // U6
  fence(seq_cst);                               // see (L4)
  if (wishOf(sleepers->load(relaxed)) != kSeveral) return;
  futexwakeup(call, INT32_MAX);
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
