#include "gump/context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/hash/hash_testing.h"
#include "absl/time/clock.h"
#include "gump/defer.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync/waitgroup.h"
#include "tests/testing/contexts.h"
#include "tests/testing/counted.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/wall_now.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

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
using context::WithTimeout;
using context::WithValue;
using std::chrono::steady_clock;
using testing::Canceled;
using testing::Counted;
using testing::Eventually;
using testing::Exceeded;
using testing::IsClosed;
using testing::kCounted;
using testing::kNever;
using testing::kSoon;
using testing::Live;
using testing::Watched;
using namespace std::chrono_literals;

const Key<int> kNumber;
const Key<int> kOtherNumber;
const Key<std::string> kText;

const absl::Status kCanceled = absl::CancelledError("context canceled");
const absl::Status kExceeded =
    absl::DeadlineExceededError("context deadline exceeded");

using ContextTest = testing::WithContexts;
GUMP_INSTANTIATE_GOMAXPROCS(ContextTest);

// ---- Compile-time checks
template <class C, class V>
concept TakesValue = requires(const Context& ctx, const Key<C>& k, V v) {
  WithValue(ctx, k, v);
};
static_assert(TakesValue<std::string, const char*>);
static_assert(TakesValue<int, int>);
static_assert(!TakesValue<int, std::string>);
static_assert(!TakesValue<std::string, std::vector<int>>);

template <class K>
concept IsKey = requires(const Context& ctx, const K& k) {
  ctx.Value(k);
};
static_assert(IsKey<Key<int>>);
static_assert(!IsKey<int>);
static_assert(!IsKey<const char*>);
static_assert(
    std::same_as<decltype(Background().Value(kText)), const std::string*>);
static_assert(!std::is_convertible_v<Key<int>, Key<std::string>>);

static_assert(std::is_nothrow_move_constructible_v<Context>);
static_assert(std::is_convertible_v<CancelFunc, std::function<void()>>);
static_assert(std::is_convertible_v<StopFunc, std::function<bool()>>);

// ---- Roots

TEST_P(ContextTest, RootsNeverEnd) {
  Run([] {
    for (const Context& c : {Background(), context::TODO(), Context()}) {
      EXPECT_FALSE(c.Done());
      EXPECT_TRUE(c.Err().ok());
      EXPECT_TRUE(Cause(c).ok());
      EXPECT_EQ(c.Deadline(), std::nullopt);
      EXPECT_EQ(c.Value(kNumber), nullptr);
    }
    EXPECT_EQ(Background(), Context());
    EXPECT_EQ(context::TODO(), context::TODO());
    EXPECT_NE(context::TODO(), Background());
  });
}

TEST_P(ContextTest, HandlesAreEqualIfTheyAreTheSameContext) {
  Run([] {
    const auto [a, cancel_a] = WithCancel(Background());
    const auto [b, cancel_b] = WithCancel(Background());
    const Context copy = a;
    EXPECT_EQ(copy, a);
    EXPECT_NE(a, b);
    EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly({a, b, copy}));
    const std::unordered_set<Context> set = {a, b, copy};
    EXPECT_EQ(set.size(), 2u);
    Context moved = copy;
    const Context to = std::move(moved);
    EXPECT_EQ(moved, Background());  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(to, a);
  });
}

// ---- Cancelling

TEST_P(ContextTest, CancelEndsTheContext) {
  Run([] {
    const auto [c, cancel] = WithCancel(Background());
    EXPECT_EQ(c.Deadline(), std::nullopt);
    EXPECT_TRUE(Live(c));
    const recv_chan<void> done = c.Done();
    EXPECT_EQ(done, c.Done());
    cancel();
    EXPECT_TRUE(Canceled(c));
    EXPECT_TRUE(IsClosed(done));
    EXPECT_EQ(done, c.Done());
    cancel();
    EXPECT_TRUE(Canceled(c));
  });
}

TEST_P(ContextTest, DoneAskedForAfterwardsIsClosed) {
  Run([] {
    const auto [c, cancel] = WithCancel(Background());
    cancel();
    EXPECT_FALSE(c.Done().Recv());
    const auto [d, cancel_d] = WithCancel(Background());
    cancel_d();
    EXPECT_TRUE(IsClosed(d.Done()));
  });
}

TEST_P(ContextTest, CancelWakesAllWaitersWithAnErr) {
  Run([] {
    const auto made = WithCancel(Background());
    const Context c = made.first;
    const Context below = WithValue(c, kNumber, 1);
    constexpr int kWaiters = 50;
    std::atomic<int> woken = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < kWaiters; i++) {
      wg.Go([&, i] {
        const Context& mine = i % 2 == 0 ? c : below;
        EXPECT_FALSE(mine.Done().Recv());
        if (mine.Err() == kCanceled) woken++;
      });
    }
    EXPECT_TRUE(testing::EventuallyParked("chan receive", kWaiters));
    made.second();
    wg.Wait();
    EXPECT_EQ(woken, kWaiters);
  });
}

TEST_P(ContextTest, ParentEndsItsChildren) {
  Run([] {
    const auto [parent, cancel] = WithCancel(Background());
    const auto [child, cancel_child] = WithCancel(parent);
    const Context value = WithValue(parent, kNumber, 1);
    const auto [grandchild, cancel_grandchild] = WithCancel(value);
    const auto [timed, cancel_timed] = WithTimeout(grandchild, kNever);
    for (const Context& c : {parent, child, value, grandchild, timed}) {
      EXPECT_TRUE(Live(c));
    }
    cancel();
    for (const Context& c : {parent, child, value, grandchild, timed}) {
      EXPECT_TRUE(Canceled(c));
    }
    // Made after the cancel.
    const auto [late, cancel_late] = WithCancel(value);
    EXPECT_TRUE(Canceled(late));
    EXPECT_TRUE(Canceled(WithTimeout(late, kNever).first));
  });
}

TEST_P(ContextTest, ChildLeavesItsParentAlone) {
  Run([] {
    const auto [parent, cancel] = WithCancel(Background());
    const auto [child, cancel_child] = WithCancel(parent);
    const auto [sibling, cancel_sibling] = WithCancel(parent);
    cancel_child();
    EXPECT_TRUE(Canceled(child));
    EXPECT_TRUE(Live(parent));
    EXPECT_TRUE(Live(sibling));
    cancel();
    EXPECT_TRUE(Canceled(sibling));
  });
}

TEST_P(ContextTest, DefaultConstructedFuncsDoNothing) {
  Run([] {
    CancelFunc()();
    CancelCauseFunc()(kExceeded);
    EXPECT_FALSE(StopFunc()());
  });
}

TEST_P(ContextTest, SimultaneousCancelsEndEveryContext) {
  Run([] {
    // A tree of 255 contexts. For each, one goroutine cancels and one waits.
    std::vector<std::pair<Context, CancelFunc>> tree;
    tree.push_back(WithCancel(Background()));
    for (size_t i = 1; i < 255; i++) {
      tree.push_back(WithCancel(tree[(i - 1) / 2].first));
    }
    sync::WaitGroup wg;
    for (auto& node : tree) {
      wg.Go([node] { node.second(); });
      wg.Go([node] { EXPECT_FALSE(node.first.Done().Recv()); });
    }
    wg.Wait();
    for (auto& node : tree) EXPECT_TRUE(Canceled(node.first));
  });
}

TEST_P(ContextTest, AfterAnyCancelReturnsAllAreCancelled) {
  Run([] {
    const auto parent = WithCancel(Background());
    std::vector<Context> below;
    for (int i = 0; i < 2000; i++) {
      const Context c = i % 10 == 0 ? parent.first : below.back();
      below.push_back(WithCancel(c).first);
    }
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([&] {
        parent.second();
        for (const Context& c : below) EXPECT_FALSE(c.Err().ok());
      });
    }
    wg.Wait();
  });
}

TEST_P(ContextTest, InterlockedCancelsBothReturn) {
  Run([] {
    const auto parent = WithCancel(Background());
    const auto child = WithCancel(parent.first);
    sync::WaitGroup wg;
    wg.Go([child, cancel = parent.second] {
      (void)child.first.Done().Recv();
      cancel();
    });
    child.second();
    EXPECT_FALSE(parent.first.Done().Recv());
    wg.Wait();
  });
}

TEST_P(ContextTest, ThreadsMayCancelAndWait) {
  Run([] {
    const auto made = WithCancel(Background());
    const Context c = made.first;
    std::atomic<int> ends = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) {
      threads.push_back(testing::KnownThread([&ends, c] {
        EXPECT_FALSE(c.Done().Recv());
        if (Canceled(c)) ends++;
      }));
    }
    for (int i = 0; i < 3; i++) {
      threads.push_back(
          testing::KnownThread([cancel = made.second] { cancel(); }));
    }
    testing::JoinAll(threads);
    EXPECT_EQ(ends, 3);
  });
}

TEST_P(ContextTest, WokenWaiterMayDestroyTheCancelFunc) {
  Run([] {
    for (int i = 0; i < 1000; i++) {
      auto made = std::make_unique<std::pair<Context, CancelFunc>>(
          WithCancel(Watched(Background())));
      const recv_chan<void> done = made->first.Done();
      go([cancel = &made->second] { (*cancel)(); });
      EXPECT_FALSE(done.Recv());
      made.reset();
    }
    EXPECT_TRUE(Eventually([] { return Counted::values() == 0; }));
  });
}

// ---- Deadlines

TEST_P(ContextTest, DeadlineEndsTheContext) {
  Run([] {
    const absl::Time deadline = testing::WallNow() + absl::FromChrono(kSoon);
    const auto [c, cancel] = WithDeadline(Background(), deadline);
    EXPECT_EQ(c.Deadline(), deadline);
    EXPECT_FALSE(c.Done().Recv());
    // The time that is left is computed from absl::Now.
    EXPECT_GE(testing::WallNow() + absl::Milliseconds(1), deadline);
    EXPECT_TRUE(Exceeded(c));
    cancel();
    EXPECT_TRUE(Exceeded(c));
  });
}

TEST_P(ContextTest, TimeoutEndsTheDescendants) {
  Run([] {
    const auto [c, cancel] = WithTimeout(Background(), kSoon);
    const auto [child, cancel_child] = WithCancel(WithValue(c, kNumber, 1));
    EXPECT_EQ(child.Deadline(), c.Deadline());
    EXPECT_FALSE(child.Done().Recv());
    EXPECT_TRUE(Exceeded(child));
    EXPECT_TRUE(Exceeded(c));
  });
}

TEST_P(ContextTest, EarlierDeadlineOfTheParentCounts) {
  Run([] {
    const auto [parent, cancel] = WithTimeout(Background(), kSoon);
    const auto [child, cancel_child] = WithTimeout(parent, kNever);
    EXPECT_EQ(child.Deadline(), parent.Deadline());
    EXPECT_FALSE(child.Done().Recv());
    EXPECT_TRUE(Exceeded(child));
  });
}

TEST_P(ContextTest, EarlierDeadlineOfTheChildIsItsOwn) {
  Run([] {
    const auto [parent, cancel] = WithTimeout(Background(), kNever);
    const auto [child, cancel_child] = WithTimeout(parent, kSoon);
    EXPECT_LT(child.Deadline(), parent.Deadline());
    EXPECT_FALSE(child.Done().Recv());
    EXPECT_TRUE(Exceeded(child));
    EXPECT_TRUE(Live(parent));
  });
}

TEST_P(ContextTest, DeadlineThatIsPastEndsAtOnce) {
  Run([] {
    for (absl::Time t : {absl::Now() - absl::Seconds(1), absl::UnixEpoch(),
                         absl::InfinitePast()}) {
      const auto [c, cancel] = WithDeadline(Background(), t);
      EXPECT_EQ(c.Deadline(), t);
      EXPECT_TRUE(Exceeded(c));
    }
    EXPECT_TRUE(Exceeded(WithTimeout(Background(), 0ns).first));
    EXPECT_TRUE(Exceeded(WithTimeout(Background(), -1h).first));
    // The parent was faster.
    const auto [parent, cancel] = WithCancel(Background());
    cancel();
    EXPECT_TRUE(Canceled(WithTimeout(parent, -1h).first));
  });
}

TEST_P(ContextTest, InfiniteDeadlineIsNone) {
  Run([] {
    const auto [c, cancel] = WithDeadline(Background(), absl::InfiniteFuture());
    EXPECT_EQ(c.Deadline(), std::nullopt);
    const auto [d, cancel_d] =
        WithTimeout(Background(), absl::InfiniteDuration());
    EXPECT_EQ(d.Deadline(), std::nullopt);
    cancel_d();
    EXPECT_TRUE(Canceled(d));
    EXPECT_TRUE(Live(c));
  });
}

TEST_P(ContextTest, CancelComesBeforeTheDeadline) {
  Run([] {
    const auto [c, cancel] = WithTimeout(Background(), kNever);
    cancel();
    EXPECT_TRUE(Canceled(c));
    EXPECT_NE(c.Deadline(), std::nullopt);
  });
}

// ---- Causes

TEST_P(ContextTest, FirstCauseWins) {
  Run([] {
    const absl::Status first = absl::DataLossError("checksum");
    const auto [parent, cancel] = WithCancelCause(Background());
    const auto [child, cancel_child] = WithCancelCause(parent);
    const auto [other, cancel_other] = WithCancelCause(parent);
    EXPECT_TRUE(Live(child));
    cancel_other(absl::AbortedError("other"));
    cancel(first);
    cancel(absl::AbortedError("second"));
    cancel_child(absl::AbortedError("third"));
    for (const Context& c : {parent, child}) {
      EXPECT_EQ(c.Err(), kCanceled);
      EXPECT_EQ(Cause(c), first);
    }
    EXPECT_EQ(Cause(other), absl::AbortedError("other"));
    EXPECT_EQ(Cause(WithCancel(WithValue(child, kNumber, 1)).first), first);
  });
}

TEST_P(ContextTest, CauseOfAChildStaysWithIt) {
  Run([] {
    const auto [parent, cancel] = WithCancelCause(Background());
    const auto [child, cancel_child] = WithCancelCause(parent);
    cancel_child(absl::AbortedError("child"));
    EXPECT_TRUE(Live(parent));
    cancel(absl::OkStatus());
    EXPECT_TRUE(Canceled(parent));
    EXPECT_EQ(Cause(child), absl::AbortedError("child"));
  });
}

TEST_P(ContextTest, DeadlineHasItsCause) {
  Run([] {
    const absl::Status late = absl::UnavailableError("too late");
    const auto a = context::WithTimeoutCause(Background(), kSoon, late);
    EXPECT_FALSE(a.first.Done().Recv());
    EXPECT_EQ(a.first.Err(), kExceeded);
    EXPECT_EQ(Cause(a.first), late);
    const auto b =
        context::WithDeadlineCause(Background(), absl::UnixEpoch(), late);
    EXPECT_EQ(b.first.Err(), kExceeded);
    EXPECT_EQ(Cause(b.first), late);
    // Not if the deadline was not the reason.
    const auto c = context::WithTimeoutCause(Background(), kNever, late);
    c.second();
    EXPECT_TRUE(Canceled(c.first));
    const auto d =
        context::WithTimeoutCause(a.first, kNever, absl::AbortedError("never"));
    EXPECT_EQ(Cause(d.first), late);
  });
}

// ---- Values

TEST_P(ContextTest, ValuesAreFoundFromBelow) {
  Run([] {
    const Context a = WithValue(Background(), kNumber, 1);
    const Context b = WithValue(a, kText, "one");
    const auto [c, cancel] = WithCancel(b);
    const Context d = WithValue(c, kNumber, 2);
    EXPECT_EQ(*a.Value(kNumber), 1);
    EXPECT_EQ(a.Value(kText), nullptr);
    EXPECT_EQ(*c.Value(kNumber), 1);
    EXPECT_EQ(*c.Value(kText), "one");
    EXPECT_EQ(c.Value(kText), b.Value(kText));
    EXPECT_EQ(*d.Value(kNumber), 2);
    EXPECT_EQ(*d.Value(kText), "one");
    EXPECT_EQ(d.Value(kOtherNumber), nullptr);
    const Key<int> copy = kNumber;
    EXPECT_EQ(*d.Value(copy), 2);
    cancel();
    EXPECT_EQ(*d.Value(kText), "one");
  });
}

TEST_P(ContextTest, ValuesLiveAsLongAsTheirContexts) {
  Run([] {
    Context c = WithValue(Background(), kCounted, Counted(1));
    c = WithValue(c, kNumber, 7);
    c = WithCancel(c).first;
    EXPECT_EQ(Counted::values(), 1);
    EXPECT_EQ(c.Value(kCounted)->n(), 1);
    c = Background();
    EXPECT_EQ(Counted::values(), 0);
  });
}

// ---- Cost

// The same children are cancelled, under one parent and under many. The work is
// the same, unless each child looks at its siblings. If it did, the one parent
// would take kParents times as long as the many.
TEST_P(ContextTest, CancellingTakesTimeLinearInTheChildren) {
  constexpr int kParents = 16;
  constexpr int kChildren = 1000;
  const auto time_of = [](int parents, int children) {
    std::vector<std::pair<Context, CancelFunc>> all;
    std::vector<Context> held;
    for (int i = 0; i < parents; i++) {
      all.push_back(WithCancel(Background()));
      for (int k = 0; k < children; k++) {
        held.push_back(WithCancel(all.back().first).first);
      }
    }
    const auto start = steady_clock::now();
    for (const auto& [ctx, cancel] : all) cancel();
    return steady_clock::now() - start;
  };
  Run([&] {
    auto one = time_of(1, kParents * kChildren);
    auto many = time_of(kParents, kChildren);
    for (int i = 1; i < 10 && one >= many * 3; i++) {
      one = std::min(one, time_of(1, kParents * kChildren));
      many = std::min(many, time_of(kParents, kChildren));
    }
    EXPECT_LT(one, many * 3);
  });
}

// ---- WithoutCancel

TEST_P(ContextTest, WithoutCancelKeepsOnlyTheValues) {
  Run([] {
    const auto [parent, cancel] =
        WithTimeout(WithValue(Background(), kNumber, 5), kNever);
    const Context free = context::WithoutCancel(parent);
    EXPECT_EQ(*free.Value(kNumber), 5);
    EXPECT_EQ(free.Deadline(), std::nullopt);
    EXPECT_FALSE(free.Done());
    const auto [child, cancel_child] = WithCancel(free);
    cancel();
    EXPECT_TRUE(free.Err().ok());
    EXPECT_TRUE(Cause(free).ok());
    EXPECT_TRUE(Live(child));
    cancel_child();
    EXPECT_TRUE(Canceled(child));
    EXPECT_FALSE(context::WithoutCancel(Background()).Done());
  });
}

// ---- As in the header

TEST_P(ContextTest, CallerAndHelperStopTogether) {
  Run([] {
    for (bool late : {false, true}) {
      auto parent = WithCancel(Background());
      if (late) parent.second();
      auto [ctx, cancel] = WithTimeout(parent.first, kNever);
      defer _{cancel};
      auto answer = make_chan<int>();
      auto left = make_chan<int>(1);
      go([ctx = ctx, answer, left, late] {
        if (late) (void)ctx.Done().Recv();
        left.Send(select(Send(answer, 42), Recv(ctx.Done())));
      });
      int got = 0;
      select(Recv(answer, [&](int v) { got = v; }),
             Recv(ctx.Done(), [&got, &ctx = ctx] {
               EXPECT_EQ(ctx.Err(), kCanceled);
               got = -1;
             }));
      EXPECT_TRUE(late || got == 42);
      (void)left.Recv();
    }
  });
}

}  // namespace
}  // namespace gump
