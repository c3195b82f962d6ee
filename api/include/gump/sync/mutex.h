// A sync::Mutex is a lock that one goroutine or plain thread holds at a time.
//
//   sync::Mutex mu;
//   int balance = 0;
//   {
//     std::scoped_lock hold(mu);  // or Lock, and Unlock in a defer
//     balance += 10;
//   }
//
// A goroutine that has to wait parks, and its thread runs other goroutines. A
// plain thread that has to wait sleeps. A Mutex takes eight bytes and is never
// copied or moved. The zero value is ready.
//
// Ownership: the Mutex records no owner. The lock is not recursive, and another
// goroutine may unlock it. Once Unlock has made the lock available, it does not
// touch the Mutex again. The goroutine that locks it next may destroy it:
//   mu.Lock(); bool last = --refs == 0; mu.Unlock(); if (last) delete this;
//
// Fairness: in normal mode a goroutine that arrives may overtake the waiters.
// That is fast, because the goroutine is running already. A waiter that has
// waited for more than a millisecond switches the lock to starvation mode. In
// this mode Unlock hands the lock directly to the longest waiter. The lock goes
// back to normal mode when it is handed to the last waiter, or to one that
// waited for less than a millisecond.
//
// Time limits: TryLockFor and TryLockUntil wait for a limited time. They have
// the names of std::timed_mutex as well, so std::unique_lock takes a limit:
//   std::unique_lock hold(mu, std::chrono::milliseconds(10));
//   if (hold) balance += 10;
// In a bubble of synctest that time passes outside, because a goroutine outside
// may hold the lock.
//
// Mutex is not annotated for Clang's thread-safety analysis. The analysis would
// reject unlocking in a defer, which is how Go programs unlock.
//
// Memory ordering: an Unlock happens before the return of the next Lock, or
// successful TryLock.
//
// The algorithm is that of Go's sync.Mutex; see api/sync/mutex.cc.
#ifndef GUMP_SYNC_MUTEX_H_
#define GUMP_SYNC_MUTEX_H_

#include <chrono>
#include <cstdint>
#include <limits>

#include "gump/internal/atomic.h"
#include "gump/internal/deadline_arg.h"
#include "gump/internal/duration_arg.h"

#pragma GCC visibility push(default)

namespace gump::sync {

// Mutex is the lock described above. All functions may be called from
// goroutines and from plain threads.
class Mutex {
 public:
  constexpr Mutex() noexcept = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // Lock takes the lock. Parks until the lock is free.
  void Lock() noexcept {
    // Acquire: pairs with the release in Unlock.
    if (!state_.cas(0, kLocked, rt::acquire)) [[unlikely]] {
      LockSlow();
    }
  }

  // TryLock takes the lock if it is free and not being handed over, and returns
  // whether it did. Never parks.
  [[nodiscard]] bool TryLock() noexcept {
    // Relaxed: a hint; the CAS decides. Acquire: pairs with Unlock.
    const int32_t old = state_.load(rt::relaxed);
    return (old & (kLocked | kStarving)) == 0 &&
           state_.cas(old, old | kLocked, rt::acquire);
  }

  // TryLockFor takes the lock if that is possible within d, and returns whether
  // it did. Parks until the lock is free or the time has passed. If d <= 0, it
  // is TryLock. TryLockUntil(t) is TryLockFor of the time that is left until t,
  // which is an absl::Time or a time_point of the standard library. A caller
  // that gives up does not keep the others from the lock.
  [[nodiscard]] bool TryLockFor(gump::internal::DurationArg d) noexcept {
    return TryLock() || LockFor(d.Nanoseconds());
  }
  [[nodiscard]] bool TryLockUntil(gump::internal::DeadlineArg t) noexcept {
    return TryLock() || LockFor(t.Nanoseconds());
  }

  // Unlock releases the lock. Parks only in starvation mode, to let the new
  // owner run. Requires: the lock is held. Unlocking a free lock is the fatal
  // error "sync: unlock of unlocked mutex".
  void Unlock() noexcept {
    // Load first, because a CAS that fails costs as much as one that succeeds.
    // Release: pairs with the acquire in Lock.
    if (state_.load(rt::relaxed) != kLocked ||
        !state_.cas(kLocked, 0, rt::release)) [[unlikely]] {
      UnlockSlow(/*yield=*/true);
    }
  }

  // The names of std::timed_mutex, for std::scoped_lock and similar types.
  void lock() noexcept { Lock(); }
  [[nodiscard]] bool try_lock() noexcept { return TryLock(); }
  [[nodiscard]] bool try_lock_for(gump::internal::DurationArg d) noexcept {
    return TryLockFor(d);
  }
  [[nodiscard]] bool try_lock_until(gump::internal::DeadlineArg t) noexcept {
    return TryLockUntil(t);
  }
  void unlock() noexcept { Unlock(); }

 private:
  // state_ holds three bits and a count:
  //   | waiters : 29 | starving : 1 | woken : 1 | locked : 1 |
  // locked    The lock is held. In starvation mode this bit stays clear while
  //           the lock is handed over. The starving bit then keeps others from
  //           taking it.
  // woken     A goroutine or thread is awake and trying to lock, so Unlock need
  //           not wake another. The bit may be clear although one is awake. It
  //           is never set when none is.
  // starving  The next Unlock hands the lock over. Set only while there are
  //           waiters.
  // waiters   The number of goroutines and threads that wait, or are about to
  //           call semacquire. In normal mode an Unlock that wakes a waiter
  //           subtracts it. In starvation mode the waiter subtracts itself, and
  //           so does a waiter that gives up.
  static constexpr int32_t kLocked = 1;
  static constexpr int32_t kWoken = 2;
  static constexpr int32_t kStarving = 4;
  static constexpr int kWaiterShift = 3;
  static constexpr int32_t kWaiter = 1 << kWaiterShift;
  // A time that never comes.
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  // How long a waiter that gives up waits at a time for a wake-up that is about
  // to come, in ns. An Unlock needs less, unless it is interrupted.
  static constexpr int64_t kMoment = 100'000;

  friend class RWMutex;
  // UnlockAndStay is Unlock for a caller that must not be stopped before its
  // next action. It never parks.
  void UnlockAndStay() noexcept {
    if (!state_.cas(kLocked, 0, rt::release)) UnlockSlow(/*yield=*/false);
  }
  // Held returns whether the lock is held. Acquire: pairs with Unlock.
  [[nodiscard]] bool Held() const noexcept {
    return (state_.load(rt::acquire) & kLocked) != 0;
  }

  void LockSlow() noexcept;
  bool LockFor(int64_t ns) noexcept;
  bool LockUntil(int64_t when) noexcept;
  bool WaitUntil(bool waited, int64_t when, bool* late) noexcept;
  bool GiveUp() noexcept;
  bool SpinOnce(int32_t old, bool awoke) noexcept;
  void TakeHandedOver(int32_t old, bool starving) noexcept;
  void UnlockSlow(bool yield) noexcept;

  rt::Atomic<int32_t> state_;
  rt::Atomic<uint32_t> sema_;  // 1: a wake-up that no waiter has consumed yet
};
static_assert(sizeof(Mutex) == 8);

// Locker refers to any lock that has lock() and unlock(): a Mutex, an RWMutex,
// the reading side of one (RWMutex::RLocker), a std::unique_lock. Copies refer
// to the same lock. Requires: the lock, which the Locker does not own, outlives
// it.
class Locker {
 public:
  // Refers to l.
  template <class L>
  requires requires(L& l) {
    l.lock();
    l.unlock();
  }
  Locker(L& l) noexcept  // NOLINT(google-explicit-constructor): a reference
      : Locker(
            &l, [](void* p) { static_cast<L*>(p)->lock(); },
            [](void* p) { static_cast<L*>(p)->unlock(); }) {}
  Locker(const Locker&) noexcept = default;
  // Without this constructor, copying a Locker that is not const would choose
  // the template.
  Locker(Locker&) noexcept = default;
  Locker& operator=(const Locker&) noexcept = default;

  // Lock and Unlock call lock() and unlock() of the lock, and park as these do.
  void Lock() const { lock_(object_); }
  void Unlock() const { unlock_(object_); }
  void lock() const { Lock(); }
  void unlock() const { Unlock(); }

 private:
  friend class RWMutex;
  Locker(void* object, void (*acquire)(void*), void (*release)(void*)) noexcept
      : object_(object), lock_(acquire), unlock_(release) {}

  void* object_;
  void (*lock_)(void*);
  void (*unlock_)(void*);
};

}  // namespace gump::sync

#pragma GCC visibility pop

#endif  // GUMP_SYNC_MUTEX_H_
