// The channel of a Timer or Ticker.
#ifndef API_TIME_TIMER_CHAN_H_
#define API_TIME_TIMER_CHAN_H_

#include <cstdint>
#include <new>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/internal/chan_element.h"
#include "gump/internal/linkname_time.h"

namespace gump::internal {

inline void EncodeTime(void* elem, int64_t unix_nanos) {
  ::new (elem) absl::Time(absl::FromUnixNanos(unix_nanos));
}

// MakeTimerChan makes a channel that receives the time after ns, and then every
// period, unless the period is 0.
inline chan<absl::Time> MakeTimerChan(int64_t ns, int64_t period) {
  rt::Hchan* c = rt::newTimerChan(&kElemType<absl::Time>, EncodeTime);
  if (c == nullptr) throw std::bad_alloc();
  rt::timerChanReset(c, ns, period);
  return chan<absl::Time>(c);
}

}  // namespace gump::internal

#endif  // API_TIME_TIMER_CHAN_H_
