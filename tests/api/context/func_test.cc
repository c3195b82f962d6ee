// AfterFunc, and how long contexts live.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gump/chan.h"
#include "gump/context.h"
#include "gump/defer.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/contexts.h"
#include "tests/testing/counted.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using context::AfterFunc;
using context::Background;
using context::CancelFunc;
using context::Context;
using context::StopFunc;
using context::WithCancel;
using context::WithTimeout;
using testing::Canceled;
using testing::Counted;
using testing::Eventually;
using testing::Exceeded;
using testing::IsClosed;
using testing::kNever;
using testing::kSoon;
using testing::Watched;
using namespace std::chrono_literals;

const context::Key<int> kNumber;

using ContextFuncTest = testing::WithContexts;
GUMP_INSTANTIATE_GOMAXPROCS(ContextFuncTest);

TEST_P(ContextFuncTest, AfterFuncRunsOnceItIsCancelled) {
  Run([] {
    const auto made = WithCancel(Background());
    const Context c = WithValue(made.first, kNumber, 1);
    auto called = make_chan<uint64_t>(2);
    const StopFunc stop =
        AfterFunc(c, [called] { called.Send(runtime::Goid()); });
    runtime::Gosched();
    EXPECT_EQ(called.Len(), 0u);
    made.second();
    EXPECT_NE(called.Recv(), runtime::Goid());
    EXPECT_FALSE(stop());
    made.second();
    runtime::Gosched();
    EXPECT_EQ(called.Len(), 0u);
  });
}

TEST_P(ContextFuncTest, AfterFuncRunsAtTheDeadline) {
  Run([] {
    const auto [c, cancel] = WithTimeout(Background(), kSoon);
    auto called = make_chan<void>();
    AfterFunc(c, [called] { called.Send(); });
    EXPECT_TRUE(called.Recv());
    EXPECT_TRUE(Exceeded(c));
  });
}

TEST_P(ContextFuncTest, AfterFuncOfACancelledContextRunsAtOnce) {
  Run([] {
    const auto [c, cancel] = WithCancel(Background());
    cancel();
    auto called = make_chan<void>();
    const StopFunc stop = AfterFunc(c, [called] { called.Send(); });
    EXPECT_TRUE(called.Recv());
    EXPECT_FALSE(stop());
  });
}

TEST_P(ContextFuncTest, StoppedFuncIsDestroyedAndNotCalled) {
  Run([] {
    const auto [c, cancel] = WithCancel(Background());
    auto called = make_chan<void>(1);
    const StopFunc stop =
        AfterFunc(c, [called, value = Counted(0)] { called.Send(); });
    const StopFunc copy = stop;
    EXPECT_EQ(Counted::values(), 1);
    EXPECT_TRUE(copy());
    EXPECT_EQ(Counted::values(), 0);
    EXPECT_FALSE(stop());
    cancel();
    runtime::Gosched();
    EXPECT_EQ(called.Len(), 0u);
  });
}

TEST_P(ContextFuncTest, AfterFuncOfAnEndlessContextIsDropped) {
  Run([] {
    const StopFunc stop =
        AfterFunc(Background(), [value = Counted(0)] { FAIL(); });
    EXPECT_TRUE(stop());
    EXPECT_FALSE(stop());
    AfterFunc(Background(), [value = Counted(0)] { FAIL(); });
    EXPECT_EQ(Counted::values(), 0);  // it cannot be called any more
  });
}

TEST_P(ContextFuncTest, EachAfterFuncHasItsGoroutine) {
  Run([] {
    const auto [c, cancel] = WithCancel(Background());
    auto go_on = make_chan<void>();
    sync::WaitGroup wg;
    constexpr int kFuncs = 10;
    std::vector<StopFunc> stops;
    for (int i = 0; i < kFuncs; i++) {
      wg.Add(1);
      stops.push_back(AfterFunc(c, [go_on, &wg, p = std::make_unique<int>(i)] {
        (void)go_on.Recv();
        wg.Done();
      }));
    }
    EXPECT_TRUE(stops[3]());
    wg.Done();
    cancel();
    EXPECT_TRUE(testing::EventuallyParked("chan receive", kFuncs - 1));
    go_on.Close();
    wg.Wait();
  });
}

TEST_P(ContextFuncTest, AfterFuncNeedsNoGoroutineMeanwhile) {
  Run([] {
    const auto [c, cancel] = WithCancel(Background());
    const int before = runtime::NumGoroutine();
    std::vector<StopFunc> stops;
    for (int i = 0; i < 1000; i++) stops.push_back(AfterFunc(c, [] {}));
    EXPECT_LE(runtime::NumGoroutine(), before);  // an earlier one may end
    for (auto& stop : stops) EXPECT_TRUE(stop());
  });
}

TEST_P(ContextFuncTest, AfterFuncMayDoAnything) {
  Run([] {
    const auto made = WithCancel(Background());
    const auto other = WithCancel(Background());
    auto stop = std::make_shared<StopFunc>();
    auto results = make_chan<bool>(8);
    *stop = AfterFunc(made.first, [=] {
      made.second();  // once more
      results.Send((*stop)());
      results.Send(Canceled(made.first));
      AfterFunc(made.first, [=] {
        results.Send(true);
        other.second();
      });
    });
    made.second();
    EXPECT_EQ(results.Recv(), false);
    EXPECT_EQ(results.Recv(), true);
    EXPECT_EQ(results.Recv(), true);
    EXPECT_FALSE(other.first.Done().Recv());
  });
}

TEST_P(ContextFuncTest, StopMayBeDeferred) {
  Run([] {
    const auto [c, cancel] = WithCancel(Background());
    {
      const StopFunc stop = AfterFunc(c, [value = Counted(0)] { FAIL(); });
      defer _{stop};
      EXPECT_EQ(Counted::values(), 1);
    }
    EXPECT_EQ(Counted::values(), 0);
    cancel();
  });
}

using ContextLifetimeTest = testing::WithContexts;
GUMP_INSTANTIATE_GOMAXPROCS(ContextLifetimeTest);

// ---- Lifetime

TEST_P(ContextLifetimeTest, CancelledOrDroppedChildrenLeaveTheirParent) {
  Run([] {
    const auto [parent, cancel] = WithCancel(Background());
    {
      const auto [child, cancel_child] = WithCancel(Watched(parent));
      (void)child.Done();
      const auto [timed, cancel_timed] = WithTimeout(Watched(child), kNever);
      (void)timed.Done();
      EXPECT_EQ(Counted::values(), 2);
    }
    EXPECT_EQ(Counted::values(), 0);
    Context kept;
    {
      auto [child, cancel_child] = WithCancel(Watched(parent));
      cancel_child();
      kept = WithCancel(child).first;
    }
    EXPECT_EQ(Counted::values(), 1);  // a child holds its parent
    EXPECT_TRUE(Canceled(kept));
    cancel();
  });
}

TEST_P(ContextLifetimeTest, DoneOutlivesTheHandles) {
  Run([] {
    // The deadline ends the first context, an ancestor the second.
    const recv_chan<void> timed =
        WithTimeout(Watched(Background()), kSoon).first.Done();
    const auto root = WithCancel(Background());
    const recv_chan<void> deep =
        WithCancel(Watched(WithTimeout(root.first, kNever).first)).first.Done();
    EXPECT_FALSE(timed.Recv());
    runtime::Gosched();
    EXPECT_FALSE(IsClosed(deep));
    root.second();
    EXPECT_TRUE(IsClosed(deep));
  });
}

TEST_P(ContextLifetimeTest, AfterFuncOutlivesTheHandles) {
  Run([] {
    const auto root = WithCancel(Background());
    auto called = make_chan<void>(2);
    AfterFunc(WithCancel(WithCancel(root.first).first).first,
              [called, value = Counted(0)] { called.Send(); });
    AfterFunc(WithTimeout(WithCancel(Background()).first, kSoon).first,
              [called, value = Counted(0)] { called.Send(); });
    EXPECT_TRUE(called.Recv());
    EXPECT_EQ(called.Len(), 0u);
    root.second();
    EXPECT_TRUE(called.Recv());
    EXPECT_TRUE(Eventually([] { return Counted::values() == 0; }));
  });
}

TEST_P(ContextLifetimeTest, ContextsThatCannotEndAnyMoreAreFreed) {
  Run([] {
    recv_chan<void> done;
    auto root = std::make_optional(WithCancel(Background()));
    {
      const auto middle = WithCancel(root->first);
      AfterFunc(middle.first, [value = Counted(0)] { FAIL(); });
      AfterFunc(WithCancel(middle.first).first,
                [value = Counted(0)] { FAIL(); });
      done = WithCancel(middle.first).first.Done();
    }
    EXPECT_EQ(Counted::values(), 2);
    root.reset();
    EXPECT_EQ(Counted::values(), 0);
    EXPECT_FALSE(IsClosed(done));
  });
}

// ---- Size

TEST_P(ContextLifetimeTest, ManyChildrenMayEndOrBeDroppedInAnyOrder) {
  Run([] {
    constexpr int kChildren = 100'000;
    const auto [parent, cancel] = WithCancel(Background());
    std::vector<std::pair<Context, CancelFunc>> children;
    children.reserve(kChildren);
    for (int i = 0; i < kChildren; i++) children.push_back(WithCancel(parent));
    for (size_t i = 0; i < kChildren; i += 3) children[i].second();
    for (size_t i = 1; i < kChildren; i += 3) children[i] = {};
    cancel();
    for (size_t i = 0; i < kChildren; i++) {
      EXPECT_EQ(children[i].first.Err().ok(), i % 3 == 1);
    }
  });
}

TEST_P(ContextLifetimeTest, DeepTreeNeedsNoStack) {
  Run([] {
    constexpr int kDeep = rt::kSanitizerBuild ? 20'000 : 100'000;
    const auto root = WithCancel(Watched(Background()));
    Context c = root.first;
    for (int i = 0; i < kDeep; i++) {
      c = WithCancel(WithValue(c, kNumber, i)).first;
    }
    EXPECT_EQ(*c.Value(kNumber), kDeep - 1);
    root.second();
    EXPECT_TRUE(Canceled(c));
    c = Background();
    // Now a tree that is held by its functions alone.
    auto other = std::make_optional(WithCancel(Watched(Background())));
    c = other->first;
    for (int i = 0; i < kDeep; i++) {
      c = WithCancel(c).first;
      AfterFunc(c, [] {});
    }
    c = Background();
    other.reset();
  });
}

// ---- Without Run

TEST(ContextThreadTest, PlainThreadsNeedNoRun) {
  const auto [c, cancel] = WithTimeout(Background(), kSoon);
  std::atomic<bool> called = false;
  AfterFunc(c, [&called] { called = true; });
  EXPECT_FALSE(c.Done().Recv());
  EXPECT_TRUE(Exceeded(c));
  EXPECT_TRUE(Eventually([&] { return called.load(); }));
}

}  // namespace
}  // namespace gump
