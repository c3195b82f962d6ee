// A sync::Semaphore holds a number of units, which callers take and give back.
//
//   sync::Semaphore memory(1 << 30);                 // bytes
//   if (absl::Status s = memory.Acquire(ctx, image.bytes); !s.ok()) return s;
//   defer _{[&] { memory.Release(image.bytes); }};
//
// Acquire is FIFO: a request that cannot be satisfied yet blocks later ones,
// even smaller ones, so large requests are not starved. A request for more
// units than the semaphore has can never be satisfied, and blocks no other. A
// Semaphore is never copied or moved.
//
// Once a call of Release has made units available, it does not touch the
// Semaphore again. So the goroutine that gets the units may destroy it.
//
// Memory ordering: a Release happens before the return of an Acquire, or
// successful TryAcquire, that gets the released units.
//
// Source: golang.org/x/sync/semaphore.
#ifndef GUMP_SYNC_SEMAPHORE_H_
#define GUMP_SYNC_SEMAPHORE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/sync/mutex.h"

#pragma GCC visibility push(default)

namespace gump::sync {

// Semaphore is described above. All functions may be called from goroutines and
// from plain threads. Only Acquire parks for long; the others may wait for a
// mutex that is held for a few instructions. Unlike in Go, a negative n panics:
// "semaphore: negative weight".
class Semaphore {
 public:
  // Makes a semaphore of n units, all free. Never parks.
  explicit Semaphore(int64_t n) noexcept : size_(n) {}
  Semaphore(const Semaphore&) = delete;
  Semaphore& operator=(const Semaphore&) = delete;

  // Acquire takes n units. Parks until they are free or ctx is done. If ctx is
  // done, even at the start and with units free, it takes nothing and returns
  // ctx.Err(). A request for more units than the semaphore has waits until ctx
  // is done. Throws std::bad_alloc.
  [[nodiscard]] absl::Status Acquire(const context::Context& ctx,
                                     int64_t n = 1) {
    return AcquireUnless(ctx.Done(), n) ? absl::OkStatus() : ctx.Err();
  }
  // Acquire(n) takes n units. Parks until they are free. A request for more
  // units than the semaphore has waits for ever. Throws std::bad_alloc.
  void Acquire(int64_t n = 1) { (void)AcquireUnless(nullptr, n); }

  // TryAcquire takes n units if they are free and no caller waits. Returns
  // whether it did.
  [[nodiscard]] bool TryAcquire(int64_t n = 1);

  // Release gives n units back, and hands them to the waiters. Panics
  // "semaphore: released more than held".
  void Release(int64_t n = 1);

 private:
  struct Waiter;
  bool AcquireUnless(const recv_chan<void>& done, int64_t n);
  bool Wait(const recv_chan<void>& done, int64_t n);
  void Withdraw(Waiter* w);
  Waiter* Grant() noexcept;
  void Unlink(Waiter* w) noexcept;

  Mutex mu_;  // guards all but size_
  const int64_t size_;
  int64_t held_ = 0;
  Waiter* first_ = nullptr;  // in order of arrival
  Waiter* last_ = nullptr;
};

}  // namespace gump::sync

#pragma GCC visibility pop

#endif  // GUMP_SYNC_SEMAPHORE_H_
