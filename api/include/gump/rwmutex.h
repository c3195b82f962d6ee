// sync::RWMutex: many readers or one writer.
//
//   sync::RWMutex mu;
//   std::map<std::string, int> ages;
//   int Age(const std::string& who) {
//     std::shared_lock hold(mu);     // or: mu.RLock(); … mu.RUnlock();
//     auto it = ages.find(who);
//     return it == ages.end() ? 0 : it->second;
//   }
//
// Who has to wait parks (a plain thread sleeps). Never copied or moved; the
// zero value is ready.
//
// A writer that waits keeps new readers out, so writers are not starved; and a
// goroutine that holds a read lock must not take it again, because a writer may
// have come in between. The readers that queued up behind a writer all go
// before the next writer. At most 2^30 - 1 readers. No upgrade, no downgrade.
// After its last unlock has let others in, it may be destroyed, as a Mutex may;
// the destructor waits for that unlock's last instructions.
//
// Memory ordering: an Unlock happens before any RLock or Lock that it lets in;
// an RUnlock happens before the next writer's Lock returns.
//
// The algorithm is that of Go's sync.RWMutex; see api/rwmutex.cc.
#ifndef GUMP_RWMUTEX_H_
#define GUMP_RWMUTEX_H_

#include <cstdint>

#include "gump/internal/linkname.h"
#include "gump/mutex.h"

namespace gump::sync {

// RWMutex is the lock described above. All functions may be called from
// goroutines and from plain threads.
class RWMutex {
 public:
  constexpr RWMutex() noexcept = default;
  ~RWMutex() {
    if (w_.Held()) [[unlikely]]
      WaitForUnlock();
  }
  RWMutex(const RWMutex&) = delete;
  RWMutex& operator=(const RWMutex&) = delete;

  // RLock takes the lock for reading. Parks while a writer holds it or waits.
  void RLock() noexcept {
    // Acquire: pairs with the release in Unlock.
    if (reader_count_.add(1, rt::acquire) < 0) [[unlikely]] {
      RLockSlow();
    }
  }
  // TryRLock takes the lock for reading if that needs no waiting. Never parks.
  [[nodiscard]] bool TryRLock() noexcept;
  // RUnlock gives a read lock back. Never parks. Fatal if there is none to give
  // back: "sync: RUnlock of unlocked RWMutex".
  void RUnlock() noexcept {
    // Release: pairs with the acquire in Lock.
    if (const int32_t r = reader_count_.add(-1, rt::release); r < 0)
        [[unlikely]] {
      RUnlockSlow(r);
    }
  }

  // Lock takes the lock for writing. Parks until all readers and writers that
  // came before are gone.
  void Lock() noexcept;
  // TryLock takes the lock for writing if it is free. Never parks.
  [[nodiscard]] bool TryLock() noexcept;
  // Unlock gives the write lock back. Never parks. Fatal if there is none:
  // "sync: Unlock of unlocked RWMutex".
  void Unlock() noexcept;

  // RLocker is this lock's reading side as a Locker, for a Cond.
  [[nodiscard]] Locker RLocker() noexcept;

  // The names of std::shared_mutex, for std::shared_lock and its kin.
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

  Mutex w_;  // held by the writer, or by the one that waits for readers to go
  rt::Atomic<uint32_t> writer_sem_;  // the writer waits for readers
  rt::Atomic<uint32_t> reader_sem_;  // readers wait for the writer
  // Readers that hold the lock or wait for it, less kMaxReaders while a writer
  // holds it or waits: negative keeps new readers out.
  rt::Atomic<int32_t> reader_count_;
  // Readers that the waiting writer still has to see leave.
  rt::Atomic<int32_t> reader_wait_;
};

}  // namespace gump::sync

#endif  // GUMP_RWMUTEX_H_
