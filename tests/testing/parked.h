// Tells how many goroutines, and plain threads, are parked for a reason, as a
// dump shows them.
#ifndef TESTS_TESTING_PARKED_H_
#define TESTS_TESTING_PARKED_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "gump/runtime.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {

// CountParked counts those with exactly the wait reason `reason`, such as "chan
// send".
inline size_t CountParked(std::string_view reason) {
  const std::string all = runtime::Stack(true);
  std::string header(1, '[');
  header.append(reason).append("]:");
  size_t n = 0;
  for (size_t at = 0; (at = all.find(header, at)) != std::string::npos; at++) {
    n++;
  }
  return n;
}

// EventuallyParked waits until n are parked for `reason`.
inline bool EventuallyParked(std::string_view reason, size_t n) {
  return Eventually([=] { return CountParked(reason) == n; });
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_PARKED_H_
