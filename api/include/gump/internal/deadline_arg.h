// DeadlineArg: a parameter that takes a point in time of absl or of the
// standard library.
#ifndef GUMP_INTERNAL_DEADLINE_ARG_H_
#define GUMP_INTERNAL_DEADLINE_ARG_H_

#include <chrono>
#include <cstdint>

#include "absl/time/time.h"
#include "gump/internal/duration_arg.h"

#pragma GCC visibility push(default)

namespace gump::internal {

// NanosUntil returns how long it is until t, in ns, rounded up: 0 or less if t
// has come, and INT64_MAX for absl::InfiniteFuture(). It reads the clock of the
// caller's bubble, or absl::Now() outside of bubbles.
int64_t NanosUntil(absl::Time t);

// DeadlineArg is the parameter type of functions that take a point in time. It
// is what is left until then, by the clock of that type, at the moment of the
// call. A step of a wall clock during the call has no effect.
class DeadlineArg {
 public:
  DeadlineArg(absl::Time t) : ns_(NanosUntil(t)) {}  // NOLINT: implicit
  template <class Clock, class D>
  DeadlineArg(  // NOLINT: implicit
      const std::chrono::time_point<Clock, D>& t)
      : ns_(UntilChrono(t)) {}

  // Returns 0 or less if the time has come, and INT64_MAX if it never comes.
  int64_t Nanoseconds() const { return ns_; }

 private:
  template <class Clock, class D>
  static int64_t UntilChrono(const std::chrono::time_point<Clock, D>& t) {
    const auto now = Clock::now();
    // Compared first: the difference to a time in the far past may overflow.
    return t > now ? DurationArg(t - now).Nanoseconds() : 0;
  }

  int64_t ns_;
};

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_DEADLINE_ARG_H_
