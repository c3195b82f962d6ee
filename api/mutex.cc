// The slow paths of sync::Mutex. The state word is described in gump/mutex.h.
//
// Normal mode: a woken waiter competes with those who arrive. They have the
// advantage of being on a processor already, and there may be many of them, so
// it may lose; it then queues at the front. Throughput is best so, since the
// lock can go through many hands without a switch.
//
// Starvation mode: entered by a waiter that loses after having waited for more
// than kStarvationThreshold. Unlock then hands the lock to the first waiter and
// yields to it; those who arrive neither try nor spin, but queue at the back.
//
// Unlock decides everything in one CAS: that the lock is free, and whether the
// caller will wake somebody (woken set, one waiter less). Go first subtracts
// the locked bit and then looks again, which it may, having a garbage
// collector. In C++ the one who locks in between may destroy the Mutex. After
// our CAS only the address of sema_ is used: (I3) in runtime/sema.cc.
//
// Lost wake-ups: a waiter counts itself in the CAS that sees the lock held; the
// Unlock CAS that frees the lock is ordered against it in the one state word,
// so it either sees the waiter or makes that CAS fail. If woken is set instead
// of waking, somebody is awake: a spinner, who clears the bit in the CAS by
// which it takes the lock or queues, or a waiter that an earlier Unlock has
// woken, who does the same.
#include "gump/mutex.h"

#include "gump/internal/linkname.h"

namespace gump::sync {

namespace {
constexpr int64_t kStarvationThreshold = 1'000'000;  // ns; Go's
}  // namespace

// SpinOnce waits for a moment for the holder to unlock; true if the caller is
// now the one whom `woken` stands for.
bool Mutex::SpinOnce(int32_t old, bool awoke) noexcept {
  if (!awoke && (old & kWoken) == 0 && (old >> kWaiterShift) != 0 &&
      state_.cas(old, old | kWoken, rt::relaxed)) {  // guards nothing
    awoke = true;
  }
  rt::doSpin();
  return awoke;
}

void Mutex::LockSlow() noexcept {
  int64_t wait_start = 0;
  bool starving = false;  // I have waited too long
  bool awoke = false;     // I am the one whom `woken` stands for
  int round = 0;          // of spinning
  int32_t old = state_.load(rt::relaxed);  // a guess; the CAS decides
  for (;;) {
    if ((old & (kLocked | kStarving)) == kLocked && rt::canSpin(round)) {
      awoke = SpinOnce(old, awoke);
      round++;
      old = state_.load(rt::relaxed);  // a guess, as above
      continue;
    }
    int32_t desired = old;
    if ((old & kStarving) == 0) desired |= kLocked;
    if ((old & (kLocked | kStarving)) != 0) desired += kWaiter;
    if (starving && (old & kLocked) != 0) desired |= kStarving;
    if (awoke) {
      if ((desired & kWoken) == 0) {
        rt::fatalError("sync: inconsistent mutex state");
      }
      desired &= ~kWoken;
    }
    // Acquire: pairs with the release in Unlock.
    if (!state_.casWeak(old, desired, rt::acquire)) continue;
    if ((old & (kLocked | kStarving)) == 0) return;

    const bool waited = wait_start != 0;
    if (!waited) wait_start = rt::monotonicNanos();
    rt::semacquire(&sema_, /*lifo=*/waited, rt::SemaReason::kMutexLock);
    starving =
        starving || rt::monotonicNanos() - wait_start > kStarvationThreshold;
    old = state_.load(rt::relaxed);  // starving cannot change before we act
    if ((old & kStarving) != 0) {
      TakeHandedOver(old, starving);
      return;
    }
    awoke = true;
    round = 0;
  }
}

// TakeHandedOver completes the hand-over to the caller, which is still counted
// as a waiter: one waiter less, locked, and back to normal mode if nobody else
// waits or the caller has not waited for long.
void Mutex::TakeHandedOver(int32_t old, bool starving) noexcept {
  if ((old & (kLocked | kWoken)) != 0 || (old >> kWaiterShift) == 0) {
    rt::fatalError("sync: inconsistent mutex state");
  }
  int32_t delta = kLocked - kWaiter;
  // Leaving as soon as possible matters: two goroutines that both switch the
  // lock to starvation mode would go on in lockstep for ever.
  if (!starving || (old >> kWaiterShift) == 1) delta -= kStarving;
  // An addition, because those who arrive still count themselves. Acquire: the
  // semaphore has ordered us after the Unlock already; kept for uniformity.
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
