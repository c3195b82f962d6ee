// Helpers for tests of contexts, and a fixture that notices contexts that are
// left over.
#ifndef TESTS_TESTING_CONTEXTS_H_
#define TESTS_TESTING_CONTEXTS_H_

#include <chrono>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "tests/testing/counted.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {

inline const context::Key<Counted> kCounted;

// kSoon is the time to a deadline that has to come. kNever is the time to a
// deadline that must not come.
inline constexpr std::chrono::milliseconds kSoon{2};
inline constexpr std::chrono::hours kNever{24};

inline bool IsClosed(const recv_chan<void>& c) {
  return c.TryRecv().kind == RecvResult<void>::kClosed;
}

// Live, Canceled and Exceeded tell whether all answers of a context agree on
// that state.
inline bool Live(const context::Context& c) {
  return c.Err().ok() && context::Cause(c).ok() &&
         c.Done().TryRecv().kind == RecvResult<void>::kEmpty;
}
inline bool Canceled(const context::Context& c) {
  return c.Err() == absl::CancelledError("context canceled") &&
         context::Cause(c) == c.Err() && IsClosed(c.Done());
}
inline bool Exceeded(const context::Context& c) {
  return c.Err() == absl::DeadlineExceededError("context deadline exceeded") &&
         context::Cause(c) == c.Err() && IsClosed(c.Done());
}

// Watched is a context that counts as a value as long as a child or anything
// else refers to it.
inline context::Context Watched(const context::Context& parent) {
  return context::WithValue(parent, kCounted, Counted(0));
}

// WithContexts waits at the end of each Run until all Counted values are gone,
// which stand for contexts and functions.
class WithContexts : public WithGomaxprocs {
 protected:
  template <class F>
  void Run(F f) {
    WithGomaxprocs::Run([&] {
      f();
      EXPECT_TRUE(Eventually([] { return Counted::values() == 0; }));
    });
  }
};

}  // namespace gump::testing

#endif  // TESTS_TESTING_CONTEXTS_H_
