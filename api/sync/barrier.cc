// sync::Barrier: a mutex, a condition, and the number of the phase.
//
// A phase ends under the mutex, and a waiter reads the number of the phase
// under the mutex. So no wake-up is lost. The goroutine that ends the phase
// does not touch the Barrier after it has unlocked the mutex, and no waiter of
// the phase returns before that. So a waiter that knows of no other may destroy
// it.
//
// The completion function runs without the mutex, so it may park. While it
// runs, the phase expects no arrivals, and one that comes in spite of that
// panics.
#include "gump/sync/barrier.h"

#include <mutex>

#include "gump/panic.h"

namespace gump::internal {

BarrierCounts::BarrierCounts(ptrdiff_t expected)
    : expected_(expected), pending_(expected) {
  if (expected < 0) panic("sync: Barrier made with a negative count");
}

BarrierCounts::Arrival BarrierCounts::Arrive(ptrdiff_t n, ptrdiff_t dropped) {
  std::scoped_lock hold(mu_);
  if (n <= 0) panic("sync: number of Barrier arrivals is not positive");
  if (n > pending_) panic("sync: more arrivals than the Barrier expects");
  pending_ -= n;
  expected_ -= dropped;
  return {.phase = phase_, .last = pending_ == 0};
}

void BarrierCounts::NextPhase() {
  std::scoped_lock hold(mu_);
  pending_ = expected_;
  phase_++;
  over_.Broadcast();
}

void BarrierCounts::Await(uint64_t phase) {
  std::scoped_lock hold(mu_);
  over_.Wait([&] { return phase_ != phase; });
}

}  // namespace gump::internal
