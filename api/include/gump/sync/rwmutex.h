// A sync::RWMutex is a lock that many readers or one writer hold at a time.
//
//   sync::RWMutex mu;
//   std::map<std::string, int> ages;
//   int Age(const std::string& who) {
//     std::shared_lock hold(mu);     // or: mu.RLock(); … mu.RUnlock();
//     auto it = ages.find(who);
//     return it == ages.end() ? 0 : it->second;
//   }
//
// A goroutine that has to wait parks, and a plain thread that has to wait
// sleeps. An RWMutex is never copied or moved. The zero value is ready.
//
// A waiting writer keeps new readers out, so writers are not starved. All
// readers that queued up behind a writer get the lock before the next writer.
//
// Requires: a goroutine that holds a read lock does not take it again, because
// a writer may wait in between, and each would then wait for the other. There
// are at most 2^30 - 1 readers. A lock cannot be upgraded or downgraded.
//
// Once the last unlock has let another goroutine in, that goroutine may destroy
// the RWMutex, as with a Mutex. That unlock may still be in its last
// instructions, and the destructor then waits for them.
//
// Time limits: TryLockFor, TryLockUntil, TryRLockFor and TryRLockUntil wait for
// a limited time. They have the names of std::shared_timed_mutex as well, so
// std::unique_lock and std::shared_lock take a limit:
//   std::shared_lock hold(mu, std::chrono::milliseconds(10));
//   if (!hold) return std::nullopt;
// While such a writer waits, it keeps new readers out. When it gives up, it
// lets them in. In a bubble of synctest that time passes outside, because a
// goroutine outside may hold the lock.
//
// Memory ordering: an Unlock happens before the return of any RLock or Lock
// that it lets in. An RUnlock happens before the return of the next writer's
// Lock.
//
// The algorithm is like that of Go's sync.RWMutex, with all counts in one word;
// see api/sync/rwmutex.cc.
#ifndef GUMP_SYNC_RWMUTEX_H_
#define GUMP_SYNC_RWMUTEX_H_

#include <cstdint>

#include "gump/internal/atomic.h"
#include "gump/internal/deadline_arg.h"
#include "gump/internal/duration_arg.h"
#include "gump/sync/mutex.h"

#pragma GCC visibility push(default)

namespace gump::sync {

// RWMutex is the lock described above. All functions may be called from
// goroutines and from plain threads.
class RWMutex {
 public:
  constexpr RWMutex() noexcept = default;
  // Parks only while the last Unlock is still in its last instructions, as
  // described above.
  ~RWMutex() {
    if (w_.Held()) [[unlikely]]
      WaitForUnlock();
  }
  RWMutex(const RWMutex&) = delete;
  RWMutex& operator=(const RWMutex&) = delete;

  // RLock takes the lock for reading. Parks while a writer that came before
  // holds the lock or waits for it.
  void RLock() noexcept {
    // Acquire: pairs with the release in Unlock. The state before the addition
    // is as good as the one after it, and costs no instruction.
    if (Closed(state_.add(kReader, rt::acquire) - kReader)) [[unlikely]] {
      RLockSlow();
    }
  }
  // TryRLock takes the lock for reading if that needs no waiting, and returns
  // whether it did. Never parks.
  [[nodiscard]] bool TryRLock() noexcept;
  // TryRLockFor takes the lock for reading if that is possible within d, and
  // returns whether it did. Parks as RLock does, but not for longer than d. If
  // d <= 0, it is TryRLock. TryRLockUntil(t) is TryRLockFor of the time that is
  // left until t, an absl::Time or a time_point of the standard library.
  [[nodiscard]] bool TryRLockFor(gump::internal::DurationArg d) noexcept {
    return TryRLock() || RLockFor(d.Nanoseconds());
  }
  [[nodiscard]] bool TryRLockUntil(gump::internal::DeadlineArg t) noexcept {
    return TryRLock() || RLockFor(t.Nanoseconds());
  }
  // RUnlock releases a read lock. Never parks. Requires: a read lock is held.
  // Otherwise it is the fatal error "sync: RUnlock of unlocked RWMutex".
  void RUnlock() noexcept {
    // Release: pairs with the acquire in Lock.
    const uint64_t old = state_.add(kLeave, rt::release) - kLeave;
    // Negative: closed. 0: no reader holds the lock.
    if (static_cast<int32_t>(old) <= 0) [[unlikely]] {
      RUnlockSlow(old);
    }
  }

  // Lock takes the lock for writing. Parks until all readers and writers that
  // came before have released it.
  void Lock() noexcept;
  // TryLock takes the lock for writing if no reader or writer has it, and
  // returns whether it did. Never parks.
  [[nodiscard]] bool TryLock() noexcept;
  // TryLockFor takes the lock for writing if that is possible within d, and
  // returns whether it did. Parks as Lock does, but not for longer than d. If
  // d <= 0, it is TryLock. TryLockUntil(t) is TryLockFor of the time that is
  // left until t, an absl::Time or a time_point of the standard library.
  [[nodiscard]] bool TryLockFor(gump::internal::DurationArg d) noexcept {
    return TryLock() || LockFor(d.Nanoseconds());
  }
  [[nodiscard]] bool TryLockUntil(gump::internal::DeadlineArg t) noexcept {
    return TryLock() || LockFor(t.Nanoseconds());
  }
  // Unlock releases the write lock. Never parks. Requires: the write lock is
  // held. Otherwise it is the fatal error "sync: Unlock of unlocked RWMutex".
  void Unlock() noexcept;

  // RLocker returns the reading side of this lock as a Locker, for a Cond.
  // Requires: this lock outlives the Locker.
  [[nodiscard]] Locker RLocker() noexcept;

  // The names of std::shared_timed_mutex, for std::shared_lock and similar
  // types.
  void lock() noexcept { Lock(); }
  [[nodiscard]] bool try_lock() noexcept { return TryLock(); }
  [[nodiscard]] bool try_lock_for(gump::internal::DurationArg d) noexcept {
    return TryLockFor(d);
  }
  [[nodiscard]] bool try_lock_until(gump::internal::DeadlineArg t) noexcept {
    return TryLockUntil(t);
  }
  void unlock() noexcept { Unlock(); }
  void lock_shared() noexcept { RLock(); }
  [[nodiscard]] bool try_lock_shared() noexcept { return TryRLock(); }
  [[nodiscard]] bool try_lock_shared_for(
      gump::internal::DurationArg d) noexcept {
    return TryRLockFor(d);
  }
  [[nodiscard]] bool try_lock_shared_until(
      gump::internal::DeadlineArg t) noexcept {
    return TryRLockUntil(t);
  }
  void unlock_shared() noexcept { RUnlock(); }

 private:
  // state_ holds two counts and two bits:
  //   | left : 32 | closed : 1 | counted : 1 | readers : 30 |
  // closed   A writer has the lock or waits for its readers to leave. New
  //          readers wait.
  // counted  Set soon after `closed`, and cleared with it. `left` is then less
  //          than 0 by the number of readers that must leave before the writer
  //          may go on.
  // readers  The number of readers that hold the lock or wait for it.
  // left     Without `counted`, the number of readers that have left. It wraps
  //          around. Each RUnlock raises it.
  static constexpr uint64_t kReader = 1;
  static constexpr uint64_t kCounted = uint64_t{1} << 30;
  static constexpr uint64_t kClosed = uint64_t{1} << 31;
  static constexpr int kLeftShift = 32;
  static constexpr uint64_t kLeave = (uint64_t{1} << kLeftShift) - kReader;

  static constexpr bool Closed(uint64_t v) {
    return static_cast<int32_t>(v) < 0;
  }
  static constexpr uint32_t Readers(uint64_t v) {
    return static_cast<uint32_t>(v & (kCounted - 1));
  }
  static constexpr uint32_t Left(uint64_t v) {
    return static_cast<uint32_t>(v >> kLeftShift);
  }
  static constexpr uint32_t ToLeave(uint64_t v) { return -Left(v); }
  // Counted returns v with `counted`, and with another `left`.
  static constexpr uint64_t Counted(uint64_t v, uint32_t left) {
    return static_cast<uint32_t>(v) | kCounted | uint64_t{left} << kLeftShift;
  }

  void RLockSlow() noexcept;
  bool RLockFor(int64_t ns) noexcept;
  bool RGiveUp() noexcept;
  void RUnlockSlow(uint64_t old) noexcept;
  bool LockFor(int64_t ns) noexcept;
  bool Close(int64_t when) noexcept;
  bool GiveUp() noexcept;
  void WaitForUnlock() noexcept;

  rt::Atomic<uint64_t> state_;
  Mutex w_;  // held by the writer that has the lock or waits for readers to go
  rt::Atomic<uint32_t> writer_sem_;  // the writer waits for readers
  rt::Atomic<uint32_t> reader_sem_;  // readers wait for the writer
};
static_assert(sizeof(RWMutex) == 24);

}  // namespace gump::sync

#pragma GCC visibility pop

#endif  // GUMP_SYNC_RWMUTEX_H_
