// The slow paths of sync::Mutex. The state word is described in
// gump/sync/mutex.h.
//
// Normal mode: a woken waiter competes with goroutines that arrive. They have
// the advantage of running on a processor already, and there may be many of
// them. So the waiter may lose, and then queues at the front. Throughput is
// best this way, because the lock can change owners many times without a
// context switch.
//
// Starvation mode: a waiter that loses after having waited for more than
// kStarvationThreshold enters it. Unlock then hands the lock to the first
// waiter and yields to it. Goroutines that arrive neither try nor spin, but
// queue at the back.
//
// Unlock decides everything in one CAS: that the lock is free, and whether the
// caller will wake a waiter (woken set, one waiter less). Go first subtracts
// the locked bit and then looks again. It may do that because it has a garbage
// collector. In C++ a goroutine that locks in between may destroy the Mutex.
// After our CAS only the address of sema_ is used: (I3) in
// runtime/wait/sema.cc.
//
// No wake-up is lost. A waiter counts itself in the CAS that sees the lock
// held. The Unlock CAS that frees the lock is ordered against it, because both
// change the one state word. So Unlock either sees the waiter or makes that CAS
// fail. If woken is set, Unlock need not wake a waiter, because a goroutine is
// awake. It is a spinner, or a waiter that an earlier Unlock has woken. Either
// clears the bit in the CAS by which it takes the lock or queues.
//
// A waiter with a time limit may give up. It must not leave a wake-up or the
// lock behind. Let T be the number of threads in WaitUntil or semacquire, W the
// number in the state word, and C the number of wake-ups that Unlock has
// subtracted from W and that no thread has consumed. Then T = W + C. (A
// hand-over is not among C, because the waiter that gets it subtracts itself.)
//  * If W > 0, the waiter gives up by a CAS that subtracts itself. The other
//    T - 1 threads consume the C wake-ups. A wake-up is bound to no thread.
//  * If W == 0, each of the T threads has a wake-up, and this thread waits for
//    its own. Then it is awake like any other: it takes the lock if it is free.
//    Otherwise it clears `woken` and leaves, in one CAS. So the Unlock that
//    follows wakes another.
//  * While the lock is being handed over (starving, not locked), the lock may
//    be meant for this thread. It waits until it has it or another has it, and
//    then gives up. So W does not shrink during a hand-over.
// While it waits for what is about to come, a thread that arrives may take that
// instead and count itself in W. So it waits for a moment at a time (kMoment)
// and looks again.
#include "gump/sync/mutex.h"

#include "gump/internal/linkname_panic.h"
#include "gump/internal/linkname_sync.h"
#include "gump/internal/linkname_time.h"

namespace gump::sync {

namespace {
constexpr int64_t kStarvationThreshold = 1'000'000;  // ns; Go's
}  // namespace

// SpinOnce waits for a moment for the holder to unlock. Returns true if `woken`
// now stands for the caller.
bool Mutex::SpinOnce(int32_t old, bool awoke) noexcept {
  if (!awoke && (old & kWoken) == 0 && (old >> kWaiterShift) != 0 &&
      state_.cas(old, old | kWoken, rt::relaxed)) {  // guards nothing
    awoke = true;
  }
  rt::doSpin();
  return awoke;
}

void Mutex::LockSlow() noexcept { (void)LockUntil(kNever); }

bool Mutex::LockFor(int64_t ns) noexcept {
  return ns > 0 && LockUntil(rt::semaDeadline(rt::SemaReason::kMutexLock, ns));
}

// LockUntil takes the lock. Returns false if the time `when` has come before.
bool Mutex::LockUntil(int64_t when) noexcept {
  int64_t wait_start = 0;
  bool starving = false;                   // the caller has waited too long
  bool awoke = false;                      // `woken` stands for the caller
  bool late = false;                       // the time has come
  int round = 0;                           // of spinning
  int32_t old = state_.load(rt::relaxed);  // a guess; the CAS decides
  for (;;) {
    if ((old & (kLocked | kStarving)) == kLocked && !late &&
        rt::canSpin(round)) {
      awoke = SpinOnce(old, awoke);
      round++;
      old = state_.load(rt::relaxed);  // a guess, as above
      continue;
    }
    int32_t desired = old;
    if ((old & kStarving) == 0) desired |= kLocked;
    if ((old & (kLocked | kStarving)) != 0) {
      desired = late ? old : desired + kWaiter;
    }
    if (starving && !late && (old & kLocked) != 0) desired |= kStarving;
    if (awoke) {
      if ((desired & kWoken) == 0) {
        rt::fatalInvariant("sync: inconsistent mutex state");
      }
      desired &= ~kWoken;
    }
    // Acquire: pairs with the release in Unlock.
    if (!state_.casWeak(old, desired, rt::acquire)) continue;
    if ((old & (kLocked | kStarving)) == 0) return true;
    if (late) return false;

    const bool waited = wait_start != 0;
    if (!waited) wait_start = rt::monotonicNanos();
    if (when == kNever) {
      rt::semacquire(&sema_, /*lifo=*/waited, rt::SemaReason::kMutexLock);
    } else if (!WaitUntil(waited, when, &late)) {
      return false;
    }
    starving =
        starving || rt::monotonicNanos() - wait_start > kStarvationThreshold;
    // Relaxed: if kStarving is set, only this waiter can clear it. If it is
    // not, the CAS decides.
    old = state_.load(rt::relaxed);
    if ((old & kStarving) != 0) {
      TakeHandedOver(old, starving);
      return true;
    }
    awoke = true;
    round = 0;
  }
}

// WaitUntil waits for a wake-up, or for the lock to be handed over. The caller
// is counted as a waiter. Returns false if the caller has given up. *late tells
// whether the time has come.
bool Mutex::WaitUntil(bool waited, int64_t when, bool* late) noexcept {
  constexpr auto kReason = rt::SemaReason::kMutexLock;
  if (rt::semacquireUntil(&sema_, /*lifo=*/waited, kReason, when)) return true;
  *late = true;
  while (!GiveUp()) {
    if (rt::semacquireUntil(&sema_, /*lifo=*/true, kReason,
                            rt::semaDeadline(kReason, kMoment))) {
      return true;
    }
  }
  return false;
}

// GiveUp subtracts the caller from the waiters. Returns false if a wake-up or
// the lock may be on its way to the caller.
bool Mutex::GiveUp() noexcept {
  int32_t old = state_.load(rt::relaxed);  // a guess; the CAS decides
  for (;;) {
    const int32_t waiters = old >> kWaiterShift;
    if (waiters == 0 || (old & (kLocked | kStarving)) == kStarving) {
      return false;
    }
    int32_t desired = old - kWaiter;
    if (waiters == 1) desired &= ~kStarving;
    // Relaxed: a caller that has not got the lock is ordered by nothing.
    if (state_.casWeak(old, desired, rt::relaxed)) return true;
  }
}

// TakeHandedOver completes the hand-over to the caller, which is still counted
// as a waiter. It removes one waiter and sets locked. It goes back to normal
// mode if there is no other waiter, or if the caller has not waited for long.
void Mutex::TakeHandedOver(int32_t old, bool starving) noexcept {
  if ((old & (kLocked | kWoken)) != 0 || (old >> kWaiterShift) == 0) {
    rt::fatalInvariant("sync: inconsistent mutex state");
  }
  int32_t delta = kLocked - kWaiter;
  // It is important to leave starvation mode as soon as possible. Two
  // goroutines that both switch the lock to it would go on in lockstep for
  // ever.
  if (!starving || (old >> kWaiterShift) == 1) delta -= kStarving;
  // An addition, because goroutines that arrive still count themselves.
  // Acquire: the semaphore has ordered us after the Unlock already. Kept for
  // uniformity.
  state_.add(delta, rt::acquire);
}

void Mutex::UnlockSlow(bool yield) noexcept {
  int32_t old = state_.load(rt::relaxed);  // a guess; the CAS decides
  for (;;) {
    if ((old & kLocked) == 0) rt::fatalError("sync: unlock of unlocked mutex");
    const bool starving = (old & kStarving) != 0;
    const bool wake =
        starving || ((old >> kWaiterShift) != 0 && (old & kWoken) == 0);
    int32_t desired = old & ~kLocked;
    if (wake && !starving) desired = (desired - kWaiter) | kWoken;
    // Release: pairs with the acquire in Lock.
    if (!state_.casWeak(old, desired, rt::release)) continue;
    if (wake) rt::semrelease(&sema_, /*handoff=*/starving, yield);
    return;
  }
}

}  // namespace gump::sync
