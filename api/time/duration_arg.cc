// The rounding of durations.
#include "gump/internal/duration_arg.h"

namespace gump::internal {

int64_t DurationArg::RoundedUp(absl::Duration d) {
  const int64_t ns = absl::ToInt64Nanoseconds(d);  // saturates, truncates
  const bool fraction = ns >= 0 && ns < kForever && absl::Nanoseconds(ns) < d;
  return fraction ? ns + 1 : ns;
}

}  // namespace gump::internal
