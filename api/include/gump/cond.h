// sync::Cond: waiting for a condition that other goroutines make true.
//
//   sync::Mutex mu;
//   sync::Cond changed{mu};
//   std::deque<Job> jobs;                       // guarded by mu
//
//   void Put(Job j) {
//     std::scoped_lock hold(mu);
//     jobs.push_back(std::move(j));
//     changed.Signal();
//   }
//   Job Take() {
//     std::scoped_lock hold(mu);
//     changed.Wait([&] { return !jobs.empty(); });
//     Job j = std::move(jobs.front());
//     jobs.pop_front();
//     return j;
//   }
//
// Where one goroutine waits for one event, a channel is simpler. A Cond is for
// conditions over shared state, and for waking all who wait, repeatedly.
//
// Who waits first is signalled first. There are no spurious wake-ups, but by
// the time a woken goroutine has the lock another may have changed the state,
// so the condition is tested again. Never copied or moved. A Cond may be
// destroyed as soon as its last Wait has returned, while the Signal that woke
// it is still on its way out.
//
// Memory ordering: a Signal or Broadcast happens before the return of the Wait
// that it wakes.
//
// The algorithm is that of Go's sync.Cond: tickets; see runtime/sema.cc.
#ifndef GUMP_COND_H_
#define GUMP_COND_H_

#include <memory>

#include "absl/status/status.h"
#include "gump/context.h"
#include "gump/internal/linkname.h"
#include "gump/mutex.h"

namespace gump::sync {

class Cond;

}  // namespace gump::sync

namespace gump::internal {

// CondWatch wakes all who wait for a Cond when a context is done, from its
// construction to its destruction.
class CondWatch {
 public:
  CondWatch(sync::Cond* cond, const context::Context& ctx);
  ~CondWatch();
  CondWatch(const CondWatch&) = delete;
  CondWatch& operator=(const CondWatch&) = delete;

  // Wait is cond->Wait(), unless the context is done. False: it is.
  bool Wait();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  context::StopFunc stop_;
};

}  // namespace gump::internal

namespace gump::sync {

// Cond is the meeting point described above. All functions may be called from
// goroutines and from plain threads.
class Cond {
 public:
  // A Cond over any lock with lock() and unlock(), which must outlive it.
  explicit Cond(Locker l) noexcept : L(l) {}
  Cond(const Cond&) = delete;
  Cond& operator=(const Cond&) = delete;

  // Wait unlocks L, waits for a Signal or Broadcast, and locks L again. L must
  // be locked. Parks.
  void Wait();
  // Wait(pred) waits until pred() is true; it is called with L locked. Does not
  // wait at all if it is true at the start.
  template <class Pred>
  void Wait(Pred pred) {
    while (!pred()) Wait();
  }
  // Wait(ctx, pred) waits until pred() is true, or ctx is done; then it returns
  // ctx.Err(). A pred() that is true is OK, whatever ctx is. When ctx is done,
  // all who wait are woken, as by a Broadcast. Throws std::bad_alloc.
  //
  //   if (absl::Status s = changed.Wait(ctx, [&] { return !jobs.empty(); });
  //       !s.ok()) {
  //     return s;  // with mu locked, as ever
  //   }
  template <class Pred>
  [[nodiscard]] absl::Status Wait(const context::Context& ctx, Pred pred) {
    if (pred()) return absl::OkStatus();
    gump::internal::CondWatch watch(this, ctx);
    while (watch.Wait()) {
      if (pred()) return absl::OkStatus();
    }
    return pred() ? absl::OkStatus() : ctx.Err();
  }

  // Signal wakes the one who has waited longest, if anybody waits. L may be
  // locked or not. Never parks.
  void Signal() noexcept;
  // Broadcast wakes all who wait. L may be locked or not. Never parks.
  void Broadcast() noexcept;

  // The lock of this condition, under Go's name. Not owned.
  const Locker L;

 private:
  friend class gump::internal::CondWatch;
  rt::NotifyList notify_;
};

}  // namespace gump::sync

#endif  // GUMP_COND_H_
