// Helpers for tests of functions that return a status.
#ifndef TESTS_TESTING_STATUS_H_
#define TESTS_TESTING_STATUS_H_

#include <cstdlib>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace gump::testing {

// Ready returns the value in s. Without a value the test cannot go on.
template <class T>
T Ready(absl::StatusOr<T> s) {
  EXPECT_TRUE(s.ok()) << s.status();
  if (!s.ok()) std::abort();
  return *std::move(s);
}

inline std::string Text(const absl::Status& s) {
  return std::string(s.message());
}
template <class T>
std::string Text(const absl::StatusOr<T>& s) {
  return Text(s.status());
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_STATUS_H_
