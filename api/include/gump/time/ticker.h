// time::Ticker
#ifndef GUMP_TIME_TICKER_H_
#define GUMP_TIME_TICKER_H_

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/internal/duration_arg.h"

namespace gump::time {

// Ticker sends the time to C every d, the first time after d. A tick is dropped
// if the one before it has not been received yet. A default-constructed Ticker
// can only be assigned to or stopped.
class Ticker {
 public:
  Ticker() noexcept = default;

  recv_chan<absl::Time> C;

  // Stop ends the ticks: after it nothing can be received from C. It does not
  // close C.
  void Stop() const;

  // Reset makes the ticks come every d, the next one after d.
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

#endif  // GUMP_TIME_TICKER_H_
