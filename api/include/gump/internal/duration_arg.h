// DurationArg: a parameter that takes a duration of absl or of the standard
// library.
#ifndef GUMP_INTERNAL_DURATION_ARG_H_
#define GUMP_INTERNAL_DURATION_ARG_H_

#include <chrono>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/time/time.h"
#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump::internal {

// DurationArg is the parameter type of functions that take a duration. Like
// Go's Duration, it counts nanoseconds in 64 bits. Fractions are rounded up, so
// that nothing happens too early. A duration that does not fit means for ever.
class DurationArg {
 public:
  DurationArg(absl::Duration d) : ns_(RoundedUp(d)) {}  // NOLINT: implicit
  template <class Rep, class Period>
  DurationArg(std::chrono::duration<Rep, Period> d)  // NOLINT: implicit
      : ns_(OfChrono(d)) {}

  // Returns INT64_MAX for a duration that never ends.
  int64_t Nanoseconds() const { return ns_; }
  absl::Duration duration() const {
    return ns_ == kForever ? absl::InfiniteDuration() : absl::Nanoseconds(ns_);
  }

 private:
  static constexpr int64_t kSecond = 1'000'000'000;
  static constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

  static int64_t RoundedUp(absl::Duration d);
  template <class Rep, class Period>
  static int64_t OfChrono(std::chrono::duration<Rep, Period> d) {
    if constexpr (!std::is_integral_v<Rep>) {
      using Seconds = std::chrono::duration<double>;
      return RoundedUp(
          absl::Seconds(std::chrono::duration_cast<Seconds>(d).count()));
    } else if constexpr (kSecond % Period::den == 0) {
      constexpr int64_t kUnit = Period::num * (kSecond / Period::den);
      int64_t ns;
      if (!__builtin_mul_overflow(d.count(), kUnit, &ns)) return ns;
      return d.count() < 0 ? -kForever : kForever;
    } else {  // finer than ns, or not a whole number of them
      const int64_t count = std::in_range<int64_t>(d.count())
                                ? static_cast<int64_t>(d.count())
                                : kForever;
      return RoundedUp(absl::Seconds(Period::num) * count / Period::den);
    }
  }

  int64_t ns_;
};

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_DURATION_ARG_H_
