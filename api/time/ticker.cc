// Ticker and Tick.
#include "gump/time/ticker.h"

#include <utility>

#include "api/time/timer_chan.h"
#include "gump/internal/linkname_time.h"
#include "gump/panic.h"

namespace gump::time {

void Ticker::Stop() const {
  if (channel_) rt::timerChanStop(channel_.raw());
}

void Ticker::Reset(internal::DurationArg d) const {
  const int64_t ns = d.Nanoseconds();
  if (ns <= 0) panic("non-positive interval for Ticker.Reset");
  if (!channel_) panic("time: Reset called on uninitialized Ticker");
  rt::timerChanReset(channel_.raw(), ns, ns);
}

Ticker NewTicker(internal::DurationArg d) {
  const int64_t ns = d.Nanoseconds();
  if (ns <= 0) panic("non-positive interval for NewTicker");
  chan<absl::Time> c = internal::MakeTimerChan(ns, ns);
  Ticker t;
  t.channel_ = c;
  t.C = std::move(c);
  return t;
}

recv_chan<absl::Time> Tick(internal::DurationArg d) {
  if (d.Nanoseconds() <= 0) return {};
  return NewTicker(d).C;
}

}  // namespace gump::time
