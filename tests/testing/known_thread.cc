#include "tests/testing/known_thread.h"

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "gtest/gtest.h"
#include "gump/gls.h"
#include "gump/go.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {

std::thread KnownThread(absl::AnyInvocable<void()> f) {
  static gls<int> introduced{0};
  std::atomic<bool> known = false;
  std::thread t([&known, f = std::move(f)]() mutable {
    ++*introduced;
    known = true;  // the caller goes on, and `known` is gone
    f();
  });
  EXPECT_TRUE(Eventually([&] { return known.load(); }));
  return t;
}

std::thread::id CurrentThread() { return std::this_thread::get_id(); }

void JoinAll(std::vector<std::thread>& threads) {
  blocking([&] {
    for (std::thread& t : threads) t.join();
  });
}

}  // namespace gump::testing
