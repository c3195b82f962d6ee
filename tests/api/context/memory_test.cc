// The memory of contexts is given back, even without a cancel. A context that
// lingers for an observer is freed when the observer has gone.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/malloc_hook.h"
#include "tests/testing/with_gomaxprocs.h"

namespace {
std::atomic<int64_t> blocks;  // now allocated
}  // namespace

void gump::testing::OnMalloc(size_t) {
  blocks.fetch_add(1, std::memory_order_relaxed);
}
void gump::testing::OnFree() { blocks.fetch_sub(1, std::memory_order_relaxed); }

namespace gump {
namespace {

using context::Background;
using context::CancelFunc;
using context::Context;
using context::WithCancel;
using context::WithTimeout;
using testing::Eventually;

constexpr int kTimes = 2000;

class ContextMemoryTest : public testing::WithGomaxprocs {
 protected:
  // Steady expects that kTimes calls of step(), which leaves nothing behind,
  // take at most `slack` blocks for good.
  template <class F>
  static void Steady(int64_t slack, F step) {
    if (rt::kSanitizerBuild) GTEST_SKIP() << "the sanitizer's malloc";
    step();  // makes the allocations that last
    const int64_t before = blocks;
    for (int i = 0; i < kTimes; i++) step();
    EXPECT_TRUE(Eventually([&] { return blocks - before <= slack; }))
        << blocks - before;
  }
};
GUMP_INSTANTIATE_GOMAXPROCS(ContextMemoryTest);

TEST_P(ContextMemoryTest, AncestorsAreFreedWithTheLastDescendant) {
  Run([] {
    const auto root = WithCancel(Background());
    std::atomic<int> called = 0;
    int made = 0;
    Steady(kTimes / 4, [&] {
      const Context high = WithCancel(root.first).first;
      const Context middle = WithCancel(high).first;
      const Context timed = WithTimeout(middle, absl::Microseconds(1)).first;
      context::AfterFunc(timed, [&called] { called++; });
      made++;
    });
    EXPECT_TRUE(Eventually([&] { return called == made; }));
  });
}

// The channel is destroyed last, so the context lingers for it.
struct Owner {
  explicit Owner(const Context& parent) {
    std::tie(context, cancel) = WithCancel(parent);
    done = context.Done();
  }
  recv_chan<void> done;
  Context context;
  CancelFunc cancel;
};

TEST_P(ContextMemoryTest, LeftoversAreFreedAsOtherContextsAreMade) {
  Run([] {
    const auto root = WithCancel(Background());
    std::vector<Owner> others;
    for (int i = 0; i < 50; i++) others.emplace_back(root.first);
    Steady(kTimes / 4, [&] { Owner owner(root.first); });
    for (const Owner& o : others) {
      EXPECT_EQ(o.done.TryRecv().kind, RecvResult<void>::kEmpty);
    }
    root.second();
    for (const Owner& o : others) EXPECT_FALSE(o.done.Recv());
  });
}

}  // namespace
}  // namespace gump
