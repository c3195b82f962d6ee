// The time of day as the kernel has it.
#ifndef TESTS_TESTING_WALL_NOW_H_
#define TESTS_TESTING_WALL_NOW_H_

#include <chrono>

#include "absl/time/time.h"

namespace gump::testing {

// WallNow is the clock that the library goes by. absl::Now, from which it
// computes how far off a deadline is, is an estimate from the cycle counter. It
// may be off by some microseconds, to either side.
inline absl::Time WallNow() {
  return absl::FromChrono(std::chrono::system_clock::now());
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_WALL_NOW_H_
