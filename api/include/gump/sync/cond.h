// A sync::Cond lets goroutines wait for a condition that others make true.
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
// A wait may have a time limit:
//   if (!changed.WaitFor(absl::Seconds(1), [&] { return !jobs.empty(); })) {
//     return std::nullopt;  // with mu locked, as always
//   }
//
// If one goroutine waits for one event, a channel is simpler. A Cond is for
// conditions over shared state, and for waking all waiters repeatedly.
//
// Waiters are signalled in the order in which they began to wait. There are no
// spurious wake-ups. But before a woken goroutine has locked the mutex again,
// another may have changed the state, so the condition must be tested again. A
// Cond is never copied or moved. It may be destroyed as soon as its last Wait
// has returned, even while the Signal that woke that Wait has not returned yet.
//
// Memory ordering: a Signal or Broadcast happens before the return of the Wait
// that it wakes.
//
// The algorithm is that of Go's sync.Cond: tickets; see
// runtime/wait/notify_list.cc.
#ifndef GUMP_SYNC_COND_H_
#define GUMP_SYNC_COND_H_

#include <cstdint>

#include "absl/status/status.h"
#include "gump/context.h"
#include "gump/internal/cond_watch.h"
#include "gump/internal/deadline_arg.h"
#include "gump/internal/duration_arg.h"
#include "gump/internal/linkname_sync.h"
#include "gump/sync/mutex.h"

#pragma GCC visibility push(default)

namespace gump::sync {

// Cond is the meeting point described above. All functions may be called from
// goroutines and from plain threads.
class Cond {
 public:
  // Makes a Cond over any lock with lock() and unlock(). Requires: the lock
  // outlives the Cond.
  explicit Cond(Locker l) noexcept : L(l) {}
  Cond(const Cond&) = delete;
  Cond& operator=(const Cond&) = delete;

  // Wait unlocks L, parks until a Signal or Broadcast wakes it, and locks L
  // again. Requires: L is locked.
  void Wait();
  // Wait(pred) parks while pred() is false. It calls pred with L locked. If
  // pred() is true at the start, it does not wait at all. Requires: L is
  // locked.
  template <class Pred>
  void Wait(Pred pred) {
    while (!pred()) Wait();
  }
  // Wait(ctx, pred) parks until pred() is true or ctx is done. It returns OK if
  // pred() is true, even if ctx is done, and ctx.Err() otherwise. When ctx
  // becomes done, all waiters of this Cond are woken, as by a Broadcast.
  // Requires: L is locked. Throws std::bad_alloc.
  //
  //   if (absl::Status s = changed.Wait(ctx, [&] { return !jobs.empty(); });
  //       !s.ok()) {
  //     return s;  // with mu locked, as always
  //   }
  template <class Pred>
  [[nodiscard]] absl::Status Wait(const context::Context& ctx, Pred pred);

  // WaitFor is Wait, for no longer than d. Returns whether a Signal or
  // Broadcast has woken it. A Signal that comes when the time has passed wakes
  // another waiter. WaitUntil(t) is WaitFor of the time that is left until t,
  // which is an absl::Time or a time_point of the standard library. Both lock L
  // again in any case, so they may return later. In a bubble of synctest the
  // time passes on the clock of the bubble. Requires: L is locked.
  bool WaitFor(gump::internal::DurationArg d) {
    return WaitBy(DeadlineOf(d.Nanoseconds()));
  }
  bool WaitUntil(gump::internal::DeadlineArg t) {
    return WaitBy(DeadlineOf(t.Nanoseconds()));
  }
  // WaitFor(d, pred) and WaitUntil(t, pred) park while pred() is false and
  // there is time left. They return the last pred(). They call pred with L
  // locked. If pred() is true at the start, they do not wait at all. Requires:
  // L is locked.
  template <class Pred>
  [[nodiscard]] bool WaitFor(gump::internal::DurationArg d, Pred pred) {
    return WaitBy(DeadlineOf(d.Nanoseconds()), pred);
  }
  template <class Pred>
  [[nodiscard]] bool WaitUntil(gump::internal::DeadlineArg t, Pred pred) {
    return WaitBy(DeadlineOf(t.Nanoseconds()), pred);
  }

  // Signal wakes the longest waiter, if there is one. L may be locked or not.
  // Never parks.
  void Signal() noexcept;
  // Broadcast wakes all waiters. L may be locked or not. Never parks.
  void Broadcast() noexcept;

  // The lock of this Cond, under Go's name. The Cond does not own it.
  const Locker L;

 private:
  friend class gump::internal::CondWatch;
  class TimedWaiter;

  static int64_t DeadlineOf(int64_t ns) noexcept {
    return rt::semaDeadline(rt::SemaReason::kCondWait, ns);
  }
  // WaitBy(when) waits until the time `when` of that clock.
  bool WaitBy(int64_t when);
  template <class Pred>
  bool WaitBy(int64_t when, Pred& pred) {
    while (!pred()) {
      if (!WaitBy(when)) return pred();
    }
    return true;
  }

  rt::NotifyList notify_;
};

template <class Pred>
inline absl::Status Cond::Wait(const context::Context& ctx, Pred pred) {
  if (pred()) return absl::OkStatus();
  gump::internal::CondWatch watch(this, ctx);
  while (watch.Wait()) {
    if (pred()) return absl::OkStatus();
  }
  return pred() ? absl::OkStatus() : ctx.Err();
}

}  // namespace gump::sync

#pragma GCC visibility pop

#endif  // GUMP_SYNC_COND_H_
