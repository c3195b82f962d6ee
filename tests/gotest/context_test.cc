// The claims of Go's context/x_test.go, under its names, in our words. Tests of
// contexts that the program implements itself are left out, because a Context
// is a handle here. So are those of String and of nil contexts.
#include "gump/context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using context::AfterFunc;
using context::Background;
using context::CancelCauseFunc;
using context::CancelFunc;
using context::Cause;
using context::Context;
using context::Key;
using context::StopFunc;
using context::WithCancel;
using context::WithCancelCause;
using context::WithDeadline;
using context::WithoutCancel;
using context::WithTimeout;
using context::WithTimeoutCause;
using context::WithValue;
using sync::WaitGroup;
using testing::Eventually;

using GoContextTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(GoContextTest);

const absl::Duration kForever = absl::Hours(1000);
const absl::Status kCanceled = absl::CancelledError("context canceled");
const absl::Status kDeadlineExceeded =
    absl::DeadlineExceededError("context deadline exceeded");

bool Done(const Context& ctx) {
  return select(Recv(ctx.Done()), Default()) == 0;
}

void ExpectLive(const Context& ctx) {
  EXPECT_FALSE(Done(ctx));
  EXPECT_TRUE(ctx.Err().ok());
}

void ExpectEnded(const Context& ctx, const absl::Status& err) {
  EXPECT_TRUE(Done(ctx));
  EXPECT_EQ(ctx.Err(), err);
}

TEST_P(GoContextTest, TestBackgroundAndTestTODO) {
  Run([] {
    ExpectLive(Background());
    ExpectLive(context::TODO());
  });
}

TEST_P(GoContextTest, TestWithCancel) {
  Run([] {
    auto [c, cancel] = WithCancel(Background());
    auto [child, cancel_child] = WithCancel(c);
    ExpectLive(c);
    ExpectLive(child);
    cancel();
    // The cancel reaches the children before it returns.
    ExpectEnded(c, kCanceled);
    ExpectEnded(child, kCanceled);
    cancel();
    cancel_child();
  });
}

TEST_P(GoContextTest, TestParentFinishesChild) {
  Run([] {
    Key<std::string> key;
    auto [parent, cancel] = WithCancel(Background());
    auto [cancel_child, stop_child] = WithCancel(parent);
    const Context value_child = WithValue(parent, key, "value");
    auto [timer_child, stop_timer] = WithTimeout(value_child, kForever);
    auto after = make_chan<void>();
    const StopFunc stop = AfterFunc(parent, [=] { after.Close(); });
    cancel();
    after.Recv();
    ExpectEnded(cancel_child, kCanceled);
    ExpectEnded(value_child, kCanceled);
    ExpectEnded(timer_child, kCanceled);
    EXPECT_FALSE(stop());
    auto [precanceled, ignored] = WithCancel(parent);
    ExpectEnded(precanceled, kCanceled);
    (void)stop_child;
    (void)stop_timer;
    (void)ignored;
  });
}

TEST_P(GoContextTest, TestChildFinishesFirst) {
  Run([] {
    const auto [cancellable, stop] = WithCancel(Background());
    for (const Context& parent : {Background(), cancellable}) {
      auto [child, cancel] = WithCancel(parent);
      ExpectLive(child);
      cancel();
      ExpectEnded(child, kCanceled);
      ExpectLive(parent);
    }
    stop();
  });
}

// The children of a parent that lives on leave it when they end: the parent's
// own end calls nothing of theirs any more.
TEST_P(GoContextTest, TestCancelRemoves) {
  Run([] {
    auto [parent, cancel_parent] = WithCancel(Background());
    for (int i = 0; i < 100; i++) {
      auto [child, cancel] = WithCancel(parent);
      auto [timed, cancel_timed] = WithTimeout(parent, kForever);
      const StopFunc stop =
          AfterFunc(parent, [] { ADD_FAILURE() << "it was stopped"; });
      cancel();
      cancel_timed();
      EXPECT_TRUE(stop());
      EXPECT_FALSE(stop());
      ExpectEnded(child, kCanceled);
      ExpectEnded(timed, kCanceled);
    }
    ExpectLive(parent);
    cancel_parent();
  });
}

TEST_P(GoContextTest, TestDeadline) {
  Run([] {
    for (const absl::Duration d :
         {absl::Milliseconds(5), absl::ZeroDuration(), -absl::Hours(1)}) {
      auto [c, cancel] = WithDeadline(Background(), absl::Now() + d);
      auto [below, cancel_below] = WithDeadline(c, absl::Now() + kForever);
      c.Done().Recv();
      below.Done().Recv();
      ExpectEnded(c, kDeadlineExceeded);
      ExpectEnded(below, kDeadlineExceeded);
      cancel_below();
      cancel();
      EXPECT_EQ(c.Err(), kDeadlineExceeded);
    }
  });
}

TEST_P(GoContextTest, TestTimeout) {
  Run([] {
    auto [c, cancel] = WithTimeout(Background(), absl::Milliseconds(5));
    auto [below, cancel_below] = WithTimeout(c, kForever);
    EXPECT_EQ(c.Deadline(), below.Deadline());
    below.Done().Recv();
    ExpectEnded(below, kDeadlineExceeded);
    cancel_below();
    cancel();
  });
}

TEST_P(GoContextTest, TestCanceledTimeout) {
  Run([] {
    auto [c, cancel] = WithTimeout(Background(), kForever);
    auto [below, cancel_below] = WithTimeout(c, kForever);
    cancel();
    ExpectEnded(below, kCanceled);
    cancel_below();
  });
}

TEST_P(GoContextTest, TestValues) {
  Run([] {
    Key<std::string> k1;
    Key<int> k2;
    const Context c0 = Background();
    const Context c1 = WithValue(c0, k1, "c1k1");
    const Context c2 = WithValue(c1, k2, 2);
    const Context c3 = WithValue(c2, k1, "c3k1");
    EXPECT_EQ(c0.Value(k1), nullptr);
    EXPECT_EQ(*c1.Value(k1), "c1k1");
    EXPECT_EQ(c1.Value(k2), nullptr);
    EXPECT_EQ(*c2.Value(k1), "c1k1");
    EXPECT_EQ(*c2.Value(k2), 2);
    EXPECT_EQ(*c3.Value(k1), "c3k1");
    EXPECT_EQ(*c3.Value(k2), 2);
  });
}

TEST_P(GoContextTest, TestSimultaneousCancels) {
  Run([] {
    std::vector<std::pair<Context, CancelFunc>> all;
    all.push_back(WithCancel(Background()));
    for (size_t i = 0; all.size() < 100; i++) {
      const Context parent = all[i].first;
      for (int n = 0; n < 4; n++) all.push_back(WithCancel(parent));
    }
    std::shuffle(all.begin(), all.end(),
                 std::minstd_rand(std::random_device()()));
    WaitGroup wg;
    for (const auto& one : all) wg.Go(one.second);
    std::reverse(all.begin(), all.end());
    for (const auto& one : all) one.first.Done().Recv();
    wg.Wait();
  });
}

TEST_P(GoContextTest, TestInterlockedCancels) {
  Run([] {
    auto [parent, cancel_parent] = WithCancel(Background());
    auto [child, cancel_child] = WithCancel(parent);
    WaitGroup wg;
    wg.Go([parent = parent, cancel_child = cancel_child] {
      parent.Done().Recv();
      cancel_child();
    });
    cancel_parent();
    child.Done().Recv();
    wg.Wait();
  });
}

// Thirty layers of every kind in random order.
void Layers(bool timeout) {
  const uint32_t seed = std::random_device()();
  std::minstd_rand random(seed);
  constexpr int kLayers = 30;
  std::vector<Key<int>> keys;
  std::vector<CancelFunc> cancels;
  bool timers = false;
  Context ctx = Background();
  for (int i = 0; i < kLayers || !timers || keys.empty(); i++) {
    switch (random() % 3) {
      case 0:
        keys.emplace_back();
        ctx = WithValue(ctx, keys.back(), static_cast<int>(keys.size()));
        break;
      case 1: {
        auto [c, cancel] = WithCancel(ctx);
        ctx = c;
        cancels.push_back(cancel);
        break;
      }
      default: {
        auto [c, cancel] =
            WithTimeout(ctx, timeout ? absl::Milliseconds(1) : kForever);
        ctx = c;
        cancels.push_back(cancel);
        timers = true;
      }
    }
  }
  auto check_values = [&] {
    for (size_t i = 0; i < keys.size(); i++) {
      ASSERT_NE(ctx.Value(keys[i]), nullptr) << "seed " << seed;
      EXPECT_EQ(*ctx.Value(keys[i]), static_cast<int>(i + 1)) << seed;
    }
  };
  check_values();
  if (timeout) {
    ctx.Done().Recv();
    EXPECT_EQ(ctx.Err(), kDeadlineExceeded);
  } else {
    ExpectLive(ctx);
    cancels[random() % cancels.size()]();
    ExpectEnded(ctx, kCanceled);
  }
  check_values();
  for (const CancelFunc& cancel : cancels) cancel();
}

TEST_P(GoContextTest, TestLayersCancel) {
  Run([] {
    for (int i = 0; i < 20; i++) Layers(/*timeout=*/false);
  });
}

TEST_P(GoContextTest, TestLayersTimeout) {
  Run([] {
    for (int i = 0; i < 20; i++) Layers(/*timeout=*/true);
  });
}

TEST_P(GoContextTest, TestWithCancelCanceledParent) {
  Run([] {
    const absl::Status because = absl::InternalError("Because!");
    auto [parent, cancel] = WithCancelCause(Background());
    cancel(because);
    auto [c, cancel_child] = WithCancel(parent);
    ExpectEnded(c, kCanceled);
    EXPECT_EQ(Cause(c), because);
    cancel_child();
  });
}

// absl counts the references to a status where TSan does not see it. So
// `because` outlives each goroutine that uses it.
TEST_P(GoContextTest, TestWithCancelSimultaneouslyCanceledParent) {
  Run([] {
    const absl::Status because = absl::InternalError("Because!");
    for (int i = 0; i < 100; i++) {
      auto [parent, cancel] = WithCancelCause(Background());
      WaitGroup wg;
      wg.Go([&because, cancel = cancel] { cancel(because); });
      auto [c, cancel_child] = WithCancel(parent);
      c.Done().Recv();
      EXPECT_EQ(c.Err(), kCanceled);
      EXPECT_EQ(Cause(c), because);
      wg.Wait();
    }
  });
}

struct CauseCase {
  const char* name;
  std::function<Context()> make;
  absl::Status err;
  absl::Status cause;
};

// Go's table, but for contexts that programs implement.
std::vector<CauseCase> CauseCases() {
  const absl::Status parent_cause = absl::InternalError("parentCause");
  const absl::Status child_cause = absl::InternalError("childCause");
  const absl::Status too_slow = absl::InternalError("tooSlow");
  const absl::Status finished_early = absl::InternalError("finishedEarly");
  const absl::Status ok;
  const absl::Duration none = absl::ZeroDuration();
  // Two contexts, one below the other, that both can be given a cause. f
  // cancels them, and the lower is the result.
  auto two = [](std::function<void(const CancelCauseFunc& parent,
                                   const CancelCauseFunc& child)>
                    f) {
    return [f = std::move(f)] {
      auto [parent, cancel_parent] = WithCancelCause(Background());
      auto [child, cancel_child] = WithCancelCause(parent);
      f(cancel_parent, cancel_child);
      return child;
    };
  };
  return {
      {"Background", Background, ok, ok},
      {"TODO", context::TODO, ok, ok},
      {"WithCancel",
       [] {
         auto [ctx, cancel] = WithCancel(Background());
         cancel();
         return ctx;
       },
       kCanceled, kCanceled},
      {"WithCancelCause",
       [=] {
         auto [ctx, cancel] = WithCancelCause(Background());
         cancel(parent_cause);
         return ctx;
       },
       kCanceled, parent_cause},
      {"WithCancelCause nil",
       [=] {
         auto [ctx, cancel] = WithCancelCause(Background());
         cancel(ok);
         return ctx;
       },
       kCanceled, kCanceled},
      {"WithCancelCause: parent cause before child",
       two([=](const auto& parent, const auto& child) {
         parent(parent_cause);
         child(child_cause);
       }),
       kCanceled, parent_cause},
      {"WithCancelCause: parent cause after child",
       two([=](const auto& parent, const auto& child) {
         child(child_cause);
         parent(parent_cause);
       }),
       kCanceled, child_cause},
      {"WithCancelCause: parent cause before nil",
       two([=](const auto& parent, const auto& child) {
         parent(parent_cause);
         child(ok);
       }),
       kCanceled, parent_cause},
      {"WithCancelCause: parent cause after nil",
       two([=](const auto& parent, const auto& child) {
         child(ok);
         parent(parent_cause);
       }),
       kCanceled, kCanceled},
      {"WithCancelCause: child cause after nil",
       two([=](const auto& parent, const auto& child) {
         parent(ok);
         child(child_cause);
       }),
       kCanceled, kCanceled},
      {"WithCancelCause: child cause before nil",
       two([=](const auto& parent, const auto& child) {
         child(child_cause);
         parent(ok);
       }),
       kCanceled, child_cause},
      {"WithTimeout",
       [=] {
         auto [ctx, cancel] = WithTimeout(Background(), none);
         cancel();
         return ctx;
       },
       kDeadlineExceeded, kDeadlineExceeded},
      {"WithTimeout canceled",
       [] {
         auto [ctx, cancel] = WithTimeout(Background(), kForever);
         cancel();
         return ctx;
       },
       kCanceled, kCanceled},
      {"WithTimeoutCause",
       [=] {
         auto [ctx, cancel] = WithTimeoutCause(Background(), none, too_slow);
         cancel();
         return ctx;
       },
       kDeadlineExceeded, too_slow},
      {"WithTimeoutCause canceled",
       [=] {
         auto [ctx, cancel] =
             WithTimeoutCause(Background(), kForever, too_slow);
         cancel();
         return ctx;
       },
       kCanceled, kCanceled},
      {"WithTimeoutCause stacked",
       [=] {
         auto [parent, cancel] = WithCancelCause(Background());
         auto [ctx, ignored] = WithTimeoutCause(parent, none, too_slow);
         cancel(finished_early);
         return ctx;
       },
       kDeadlineExceeded, too_slow},
      {"WithTimeoutCause stacked canceled",
       [=] {
         auto [parent, cancel] = WithCancelCause(Background());
         auto [ctx, ignored] = WithTimeoutCause(parent, kForever, too_slow);
         cancel(finished_early);
         return ctx;
       },
       kCanceled, finished_early},
      {"WithoutCancel", [] { return WithoutCancel(Background()); }, ok, ok},
      {"WithoutCancel canceled",
       [=] {
         auto [parent, cancel] = WithCancelCause(Background());
         const Context ctx = WithoutCancel(parent);
         cancel(finished_early);
         return ctx;
       },
       ok, ok},
      {"WithoutCancel timeout",
       [=] {
         auto [parent, cancel] = WithTimeoutCause(Background(), none, too_slow);
         const Context ctx = WithoutCancel(parent);
         cancel();
         return ctx;
       },
       ok, ok},
  };
}

TEST_P(GoContextTest, TestCause) {
  Run([] {
    for (const CauseCase& c : CauseCases()) {
      const Context ctx = c.make();
      EXPECT_EQ(ctx.Err(), c.err) << c.name;
      EXPECT_EQ(Cause(ctx), c.cause) << c.name;
    }
  });
}

// Cause is polled without a look at Done.
TEST_P(GoContextTest, TestCauseRace) {
  Run([] {
    const absl::Status because = absl::InternalError("TestCauseRace");
    for (int i = 0; i < 100; i++) {
      auto [ctx, cancel] = WithCancelCause(Background());
      WaitGroup wg;
      wg.Go([&because, cancel = cancel] { cancel(because); });
      absl::Status cause;
      EXPECT_TRUE(Eventually([&, &ctx = ctx] {
        cause = Cause(ctx);
        return !cause.ok();
      }));
      EXPECT_EQ(cause, because);
      wg.Wait();
    }
  });
}

TEST_P(GoContextTest, TestWithoutCancel) {
  Run([] {
    Key<std::string> key;
    auto [parent, cancel] = WithTimeout(WithValue(Background(), key, "value"),
                                        absl::ZeroDuration());
    const Context ctx = WithoutCancel(parent);
    EXPECT_EQ(ctx.Deadline(), std::nullopt);
    EXPECT_FALSE(static_cast<bool>(ctx.Done()));
    EXPECT_TRUE(ctx.Err().ok());
    EXPECT_EQ(*ctx.Value(key), "value");
    cancel();
  });
}

TEST_P(GoContextTest, TestAfterFuncCalledAfterCancel) {
  Run([] {
    auto [ctx, cancel] = WithCancel(Background());
    auto done = make_chan<void>();
    const StopFunc stop = AfterFunc(ctx, [=] { done.Close(); });
    EXPECT_EQ(select(Recv(done), Default()), 1);
    cancel();
    done.Recv();
    EXPECT_FALSE(stop());
  });
}

TEST_P(GoContextTest, TestAfterFuncCalledAfterTimeout) {
  Run([] {
    auto [ctx, cancel] = WithTimeout(Background(), absl::Milliseconds(5));
    auto done = make_chan<void>();
    const StopFunc stop = AfterFunc(ctx, [=] { done.Close(); });
    done.Recv();
    EXPECT_FALSE(stop());
    cancel();
  });
}

TEST_P(GoContextTest, TestAfterFuncCalledImmediately) {
  Run([] {
    auto [ctx, cancel] = WithCancel(Background());
    cancel();
    auto done = make_chan<void>();
    const StopFunc stop = AfterFunc(ctx, [=] { done.Close(); });
    done.Recv();
    EXPECT_FALSE(stop());
  });
}

TEST_P(GoContextTest, TestAfterFuncNotCalledAfterStop) {
  Run([] {
    auto [ctx, cancel] = WithCancel(Background());
    std::atomic<bool> called = false;
    const StopFunc stop = AfterFunc(ctx, [&] { called = true; });
    EXPECT_TRUE(stop());
    cancel();
    EXPECT_FALSE(stop());
    // Functions of the same context that were not stopped run now, and after
    // them this one would have run, too.
    auto done = make_chan<void>();
    const StopFunc last = AfterFunc(ctx, [=] { done.Close(); });
    done.Recv();
    EXPECT_FALSE(called);
    EXPECT_FALSE(last());
  });
}

// Cancel does not wait for the function, which blocks until main receives.
TEST_P(GoContextTest, TestAfterFuncCalledAsynchronously) {
  Run([] {
    auto [ctx, cancel] = WithCancel(Background());
    auto c = make_chan<bool>();
    const StopFunc stop = AfterFunc(ctx, [=] { c.Send(true); });
    cancel();
    EXPECT_TRUE(c.Recv().value());
    EXPECT_FALSE(stop());
  });
}

// Done is closed before Err says anything.
TEST_P(GoContextTest, TestContextErrDoneRace) {
  Run([] {
    for (int i = 0; i < (rt::kSanitizerBuild ? 10 : 200); i++) {
      auto [ctx, cancel] = WithCancel(Background());
      const recv_chan<void> done = ctx.Done();
      go([cancel = cancel] { cancel(); });
      // It yields seldom, so that it reads while the other thread cancels.
      for (int n = 1; ctx.Err().ok(); n++) {
        if (n % 1000 == 0) runtime::Gosched();
      }
      ASSERT_EQ(select(Recv(done), Default()), 0);
    }
  });
}

}  // namespace
}  // namespace gump
