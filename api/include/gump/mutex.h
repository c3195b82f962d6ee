// sync::Mutex: mutual exclusion between goroutines, and between goroutines and
// plain threads.
//
//   sync::Mutex mu;
//   int balance = 0;
//   {
//     std::scoped_lock hold(mu);  // or Lock, and Unlock in a defer
//     balance += 10;
//   }
//
// A goroutine that has to wait parks and its thread goes on with others; a
// plain thread sleeps. Eight bytes, usable without construction beyond zeroes,
// never copied or moved.
//
// Ownership: none is recorded. The lock is not recursive, and another goroutine
// may unlock it. Once Unlock has made the lock available, it does not touch the
// Mutex again: whoever locks it next may destroy it, as in
//   mu.Lock(); bool last = --refs == 0; mu.Unlock(); if (last) delete this;
//
// Fairness: normally a goroutine that arrives may overtake those that wait,
// which is fast, because it is running already. One that has waited for more
// than a millisecond switches the lock to starvation mode, in which Unlock
// hands it to the longest waiter directly; the last waiter, or one that waited
// for less, switches back.
//
// Memory ordering: what precedes an Unlock happens before what follows the
// next Lock, or successful TryLock.
//
// Not annotated for Clang's thread-safety analysis: that would reject unlocking
// in a defer, which is how Go programs do it.
//
// The algorithm is that of Go's sync.Mutex; see api/mutex.cc.
#ifndef GUMP_MUTEX_H_
#define GUMP_MUTEX_H_

#include <cstdint>

#include "gump/internal/linkname.h"

namespace gump::sync {

// Mutex is the lock described above. All functions may be called from
// goroutines and from plain threads.
class Mutex {
 public:
  constexpr Mutex() noexcept = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // Lock waits until the lock is free and takes it. Parks.
  void Lock() noexcept {
    // Acquire: pairs with the release in Unlock.
    if (!state_.cas(0, kLocked, rt::acquire)) [[unlikely]] {
      LockSlow();
    }
  }

  // TryLock takes the lock if it is free and not being handed over. Never
  // parks.
  [[nodiscard]] bool TryLock() noexcept {
    // Relaxed: a hint; the CAS decides. Acquire: pairs with Unlock.
    const int32_t old = state_.load(rt::relaxed);
    return (old & (kLocked | kStarving)) == 0 &&
           state_.cas(old, old | kLocked, rt::acquire);
  }

  // Unlock releases the lock. Parks only in starvation mode, to let the new
  // owner run. Unlocking a free lock is fatal: "sync: unlock of unlocked
  // mutex".
  void Unlock() noexcept {
    // A look first, because a CAS that must fail costs as much as one that
    // succeeds. Release: pairs with the acquire in Lock.
    if (state_.load(rt::relaxed) != kLocked ||
        !state_.cas(kLocked, 0, rt::release)) [[unlikely]] {
      UnlockSlow(/*yield=*/true);
    }
  }

  // The names of the standard library, for std::scoped_lock and its kin.
  void lock() noexcept { Lock(); }
  [[nodiscard]] bool try_lock() noexcept { return TryLock(); }
  void unlock() noexcept { Unlock(); }

 private:
  // state_ is a bit set and a count:
  //   | waiters : 29 | starving : 1 | woken : 1 | locked : 1 |
  // locked    held. In starvation mode it stays clear while the lock is handed
  //           over, and starving keeps everybody else from taking it.
  // woken     somebody is awake and trying: Unlock need not wake another. May
  //           be clear although somebody is; never set when nobody is.
  // starving  the next Unlock hands over. Set only while there are waiters.
  // waiters   those in semacquire on sema_, or on their way into it.
  static constexpr int32_t kLocked = 1;
  static constexpr int32_t kWoken = 2;
  static constexpr int32_t kStarving = 4;
  static constexpr int kWaiterShift = 3;
  static constexpr int32_t kWaiter = 1 << kWaiterShift;

  friend class RWMutex;
  // UnlockAndStay is Unlock for a caller that must not be stopped before what
  // it does next: it never parks.
  void UnlockAndStay() noexcept {
    if (!state_.cas(kLocked, 0, rt::release)) UnlockSlow(/*yield=*/false);
  }
  // Held tells whether somebody holds the lock. Acquire: pairs with Unlock.
  [[nodiscard]] bool Held() const noexcept {
    return (state_.load(rt::acquire) & kLocked) != 0;
  }

  void LockSlow() noexcept;
  bool SpinOnce(int32_t old, bool awoke) noexcept;
  void TakeHandedOver(int32_t old, bool starving) noexcept;
  void UnlockSlow(bool yield) noexcept;

  rt::Atomic<int32_t> state_;
  rt::Atomic<uint32_t> sema_;  // 1: a wake-up that nobody has consumed yet
};
static_assert(sizeof(Mutex) == 8);

// Locker refers to any lock that has lock() and unlock(): a Mutex, an RWMutex,
// the reading side of one (RWMutex::RLocker), a std::unique_lock. It does not
// own the lock, which must outlive it. Copies refer to the same lock.
class Locker {
 public:
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
  Locker(Locker&) noexcept = default;  // not the template, for an lvalue
  Locker& operator=(const Locker&) noexcept = default;

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

#endif  // GUMP_MUTEX_H_
