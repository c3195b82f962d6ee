// The time of day as the kernel has it.
#ifndef TESTS_TESTING_WALL_NOW_H_
#define TESTS_TESTING_WALL_NOW_H_

#include <chrono>

#include "absl/time/time.h"

namespace gump::testing {

// WallNow is what the library's clocks go by. absl::Now, by which it reckons
// how far off a deadline is, is a guess from the cycle counter, off by some
// microseconds at times, to either side.
inline absl::Time WallNow() {
  return absl::FromChrono(std::chrono::system_clock::now());
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_WALL_NOW_H_
