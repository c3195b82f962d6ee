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
// Memory ordering: an Unlock happens before the return of any RLock or Lock
// that it lets in. An RUnlock happens before the return of the next writer's
// Lock.
//
// The algorithm is that of Go's sync.RWMutex; see api/sync/rwmutex.cc.
#ifndef GUMP_SYNC_RWMUTEX_H_
#define GUMP_SYNC_RWMUTEX_H_

#include <cstdint>

#include "gump/internal/atomic.h"
#include "gump/sync/mutex.h"

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
    // Acquire: pairs with the release in Unlock.
    if (reader_count_.add(1, rt::acquire) < 0) [[unlikely]] {
      RLockSlow();
    }
  }
  // TryRLock takes the lock for reading if that needs no waiting, and returns
  // whether it did. Never parks.
  [[nodiscard]] bool TryRLock() noexcept;
  // RUnlock releases a read lock. Never parks. Requires: a read lock is held.
  // Otherwise it is the fatal error "sync: RUnlock of unlocked RWMutex".
  void RUnlock() noexcept {
    // Release: pairs with the acquire in Lock.
    if (const int32_t r = reader_count_.add(-1, rt::release); r < 0)
        [[unlikely]] {
      RUnlockSlow(r);
    }
  }

  // Lock takes the lock for writing. Parks until all readers and writers that
  // came before have released it.
  void Lock() noexcept;
  // TryLock takes the lock for writing if no reader or writer has it, and
  // returns whether it did. Never parks.
  [[nodiscard]] bool TryLock() noexcept;
  // Unlock releases the write lock. Never parks. Requires: the write lock is
  // held. Otherwise it is the fatal error "sync: Unlock of unlocked RWMutex".
  void Unlock() noexcept;

  // RLocker returns the reading side of this lock as a Locker, for a Cond.
  // Requires: this lock outlives the Locker.
  [[nodiscard]] Locker RLocker() noexcept;

  // The names of std::shared_mutex, for std::shared_lock and similar types.
  void lock() noexcept { Lock(); }
  [[nodiscard]] bool try_lock() noexcept { return TryLock(); }
  void unlock() noexcept { Unlock(); }
  void lock_shared() noexcept { RLock(); }
  [[nodiscard]] bool try_lock_shared() noexcept { return TryRLock(); }
  void unlock_shared() noexcept { RUnlock(); }

 private:
  static constexpr int32_t kMaxReaders = 1 << 30;

  void RLockSlow() noexcept;
  void RUnlockSlow(int32_t r) noexcept;
  void WaitForUnlock() noexcept;

  Mutex w_;  // held by the writer that has the lock or waits for readers to go
  rt::Atomic<uint32_t> writer_sem_;  // the writer waits for readers
  rt::Atomic<uint32_t> reader_sem_;  // readers wait for the writer
  // The number of readers that hold the lock or wait for it. While a writer
  // holds the lock or waits for it, kMaxReaders is subtracted. The negative
  // count keeps new readers out.
  rt::Atomic<int32_t> reader_count_;
  // The number of readers that must leave before the waiting writer may go on.
  rt::Atomic<int32_t> reader_wait_;
};

}  // namespace gump::sync

#endif  // GUMP_SYNC_RWMUTEX_H_
