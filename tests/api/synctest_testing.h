// A fixture for tests that run in a bubble, and the time there.
#ifndef TESTS_API_SYNCTEST_TESTING_H_
#define TESTS_API_SYNCTEST_TESTING_H_

#include <utility>

#include "absl/time/time.h"
#include "gump/synctest.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {

inline const absl::Time kStart = absl::FromUnixSeconds(946684800);

// Since is the time on the bubble's clock since it began.
inline absl::Duration Since() { return synctest::Now() - kStart; }

class SynctestTest : public WithGomaxprocs {
 protected:
  // Bubble calls f in a bubble.
  template <class F>
  void Bubble(F&& f) {
    Run([&] { synctest::Run(std::forward<F>(f)); });
  }
};

}  // namespace gump::testing

#endif  // TESTS_API_SYNCTEST_TESTING_H_
