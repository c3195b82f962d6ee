// A time::Ticker sends the time on a channel at regular intervals.
//
//   gump::time::Ticker ticker = gump::time::NewTicker(1s);
//   for (absl::Time t : ticker.C) { ... }
//
// gump/time.h says what a duration means, and how a channel of time behaves.
//
// All functions may be called from goroutines and from plain threads, several
// at a time. None parks.
#ifndef GUMP_TIME_TICKER_H_
#define GUMP_TIME_TICKER_H_

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/internal/duration_arg.h"

#pragma GCC visibility push(default)

namespace gump::time {

// Ticker sends the time to C every d, the first time after d. A tick is dropped
// if the one before it has not been received yet. A default-constructed Ticker
// can only be assigned to or stopped. A Ticker is a handle: a copy is the same
// ticker.
class Ticker {
 public:
  Ticker() noexcept = default;

  // C delivers the time at which the tick was due.
  recv_chan<absl::Time> C;

  // Stop ends the ticks: after it nothing can be received from C. Stop does not
  // close C. It does nothing if the Ticker was stopped before.
  void Stop() const;

  // Reset makes the ticks come every d, the next one after d. It also restarts
  // a Ticker that was stopped.
  //
  // Panics "non-positive interval for Ticker.Reset" and "time: Reset called on
  // uninitialized Ticker".
  void Reset(internal::DurationArg d) const;

 private:
  friend Ticker NewTicker(internal::DurationArg d);

  recv_chan<absl::Time> channel_;
};

// NewTicker makes a Ticker that ticks every d. Panics "non-positive interval
// for NewTicker". Throws std::bad_alloc.
[[nodiscard]] Ticker NewTicker(internal::DurationArg d);

// Tick returns NewTicker(d).C, or the nil channel if d is not above 0. Throws
// std::bad_alloc.
[[nodiscard]] recv_chan<absl::Time> Tick(internal::DurationArg d);

}  // namespace gump::time

#pragma GCC visibility pop

#endif  // GUMP_TIME_TICKER_H_
