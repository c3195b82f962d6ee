// Times that tests of timers use, and what they ask of a channel.
#ifndef TESTS_API_TIME_TIME_TESTING_H_
#define TESTS_API_TIME_TIME_TESTING_H_

#include <chrono>

#include "absl/time/time.h"
#include "gump/chan.h"

namespace gump::testing {

// kSoon is how long a timer runs that has to fire. kNever is for timers that
// must not fire.
inline constexpr std::chrono::milliseconds kSoon{2};
inline constexpr std::chrono::hours kNever{24};

// Pending tells whether a receive from c would wait.
inline bool Pending(const recv_chan<absl::Time>& c) {
  return c.TryRecv().kind == RecvResult<absl::Time>::kEmpty;
}

}  // namespace gump::testing

#endif  // TESTS_API_TIME_TIME_TESTING_H_
