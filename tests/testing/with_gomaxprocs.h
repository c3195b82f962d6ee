// Runs a test's body as the main goroutine, at several GOMAXPROCS.
//
//   using ChanTest = gump::testing::WithGomaxprocs;
//   GUMP_INSTANTIATE_GOMAXPROCS(ChanTest);
//
//   TEST_P(ChanTest, SendWakesTheReceiver) {
//     Run([] { ... });
//   }
//
// A body that does not return hangs the test. ctest's timeout reports that, so
// conditions in bodies need deadlines only where they poll.
#ifndef TESTS_TESTING_WITH_GOMAXPROCS_H_
#define TESTS_TESTING_WITH_GOMAXPROCS_H_

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gtest/gtest.h"
#include "gump/runtime.h"

namespace gump::testing {

// RunWith calls f on the main goroutine of a Run with n Ps. It is not a
// template, because to instantiate gump::Run for each body would be a fifth of
// a test's compile time.
void RunWith(int n, absl::FunctionRef<void()> f);

// WithGomaxprocs is a fixture whose parameter is GOMAXPROCS.
class WithGomaxprocs : public ::testing::TestWithParam<int> {
 protected:
  void Run(absl::FunctionRef<void()> f) { RunWith(GetParam(), f); }
};

using GomaxprocsValues =
    decltype(::testing::ValuesIn(std::declval<const std::vector<int>&>()));
// Gomaxprocs returns the values of the parameter.
GomaxprocsValues Gomaxprocs();
std::string GomaxprocsName(const ::testing::TestParamInfo<int>& info);

// Eventually yields until condition() holds, for at most a minute. Returns
// false if it never did.
template <class C>
bool Eventually(C&& condition) {
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    runtime::Gosched();
  }
  return true;
}

}  // namespace gump::testing

#define GUMP_INSTANTIATE_GOMAXPROCS(suite)                         \
  INSTANTIATE_TEST_SUITE_P(, suite, ::gump::testing::Gomaxprocs(), \
                           ::gump::testing::GomaxprocsName)

#endif  // TESTS_TESTING_WITH_GOMAXPROCS_H_
