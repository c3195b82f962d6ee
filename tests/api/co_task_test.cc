// Tasks by themselves: laziness, results, exceptions, ownership, and chains.
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gump/co.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/counted.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/with_counted.h"

namespace gump {
namespace {

using testing::Counted;
using testing::PanicText;
using CoTaskTest = testing::WithCounted;
GUMP_INSTANTIATE_GOMAXPROCS(CoTaskTest);

co::task<int> Value(int v) { co_return v; }

co::task<int> Noting(bool* started) {
  *started = true;
  co_return 1;
}

TEST_P(CoTaskTest, NothingRunsBeforeTheAwait) {
  Run([] {
    bool started = false;
    co::task<int> t = Noting(&started);
    EXPECT_FALSE(started);
    EXPECT_TRUE(t);
    EXPECT_EQ(co::Wait(std::move(t)), 1);
    EXPECT_TRUE(started);
    EXPECT_FALSE(t);
  });
}

TEST_P(CoTaskTest, TaskThatIsNotAwaitedIsDestroyed) {
  Run([] {
    bool started = false;
    {
      auto with = [](bool* s, Counted c) -> co::task<int> {
        *s = true;
        co_return c.n();
      };
      co::task<int> t = with(&started, Counted(1));
      EXPECT_EQ(Counted::values(), 1);
    }
    EXPECT_FALSE(started);
    EXPECT_EQ(Counted::values(), 0);
  });
}

TEST_P(CoTaskTest, ResultMayBeMoveOnlyAndNotDefaultConstructible) {
  Run([] {
    auto make = [](int n) -> co::task<Counted> { co_return Counted(n); };
    auto twice = [&]() -> co::task<Counted> {
      Counted a = co_await make(1);
      Counted b = co_await make(a.n() + 1);
      co_return b;
    };
    Counted c = co::Wait(twice());
    EXPECT_EQ(c.n(), 2);
    EXPECT_EQ(Counted::values(), 1);
  });
}

TEST_P(CoTaskTest, ResultMayBeAReference) {
  Run([] {
    int x = 1;
    auto ref = [](int& r) -> co::task<int&> { co_return r; };
    auto through = [&](int& r) -> co::task<int&> { co_return co_await ref(r); };
    co::Wait(through(x)) = 7;
    EXPECT_EQ(x, 7);
  });
}

TEST_P(CoTaskTest, ResultIsConvertedByReturn) {
  Run([] {
    auto text = []() -> co::task<std::string> { co_return "text"; };
    auto list = []() -> co::task<std::vector<int>> {
      co_return std::vector<int>{1, 2, 3};
    };
    EXPECT_EQ(co::Wait(text()), "text");
    EXPECT_EQ(co::Wait(list()).size(), 3u);
  });
}

TEST_P(CoTaskTest, ExceptionPassesThroughEveryTask) {
  Run([] {
    auto fail = [](Counted) -> co::task<int> {
      throw std::runtime_error("lost");
      co_return 0;
    };
    auto middle = [&]() -> co::task<int> {
      Counted local(2);
      co_return 1 + co_await fail(Counted(1));
    };
    auto top = [&]() -> co::task<std::string> {
      try {
        co_await middle();
      } catch (const std::runtime_error& e) {
        co_return e.what();
      }
      co_return "nothing";
    };
    EXPECT_EQ(co::Wait(top()), "lost");
    EXPECT_THROW(co::Wait(middle()), std::runtime_error);
  });
}

TEST_P(CoTaskTest, ExceptionOfTheResultsConstructorPassesThrough) {
  struct Picky {
    explicit Picky(int n) {
      if (n < 0) throw std::invalid_argument("negative");
    }
  };
  Run([] {
    auto make = [](int n) -> co::task<Picky> { co_return Picky(n); };
    auto emplace = [](int n) -> co::task<Picky> { co_return n; };
    (void)co::Wait(make(1));
    EXPECT_THROW((void)co::Wait(make(-1)), std::invalid_argument);
    EXPECT_THROW((void)co::Wait(emplace(-1)), std::invalid_argument);
  });
}

constexpr char kSpent[] = "co: task is awaited twice, or was moved from";

TEST_P(CoTaskTest, SecondAwaitPanics) {
  Run([] {
    auto twice = []() -> co::task<int> {
      co::task<int> t = Value(1);
      const int first = co_await std::move(t);
      co_return first + co_await std::move(t);
    };
    EXPECT_EQ(PanicText([&] { co::Wait(twice()); }), kSpent);
    co::task<int> t = Value(1);
    EXPECT_EQ(co::Wait(std::move(t)), 1);
    EXPECT_EQ(PanicText([&] { co::Wait(std::move(t)); }), kSpent);
  });
}

TEST_P(CoTaskTest, AwaitOfAMovedFromOrEmptyTaskPanics) {
  Run([] {
    auto await = [](co::task<int> t) -> co::task<int> {
      co_return co_await std::move(t);
    };
    co::task<int> a = Value(3);
    co::task<int> b = std::move(a);
    EXPECT_EQ(PanicText([&] { co::Wait(await(std::move(a))); }), kSpent);
    EXPECT_EQ(PanicText([&] { co::Wait(await({})); }), kSpent);
    EXPECT_EQ(PanicText([&] { co::Wait(co::task<int>()); }), kSpent);
    EXPECT_EQ(co::Wait(await(std::move(b))), 3);
  });
}

TEST_P(CoTaskTest, MoveAssignmentDestroysTheOldCoroutine) {
  Run([] {
    auto hold = [](Counted c) -> co::task<int> { co_return c.n(); };
    co::task<int> t = hold(Counted(1));
    t = hold(Counted(2));
    EXPECT_EQ(Counted::values(), 1);
    co::task<int>& same = t;
    t = std::move(same);
    EXPECT_EQ(co::Wait(std::move(t)), 2);
  });
}

// A task is awaited as an rvalue, and neither copied.
static_assert(!std::is_copy_constructible_v<co::task<int>>);
static_assert(!std::is_copy_assignable_v<co::task<int>>);
static_assert(std::is_nothrow_move_constructible_v<co::task<int>>);
template <class A>
concept Waits = requires(A&& a) {
  co::Wait(static_cast<A&&>(a));
};
static_assert(Waits<co::task<int>>);
static_assert(!Waits<co::task<int>&>);
static_assert(!Waits<int>);

// The stack of a goroutine has room for a few thousand frames, and for fewer
// with a sanitizer.
constexpr int kMany = rt::kSanitizerBuild ? 100'000 : 1'000'000;

co::task<int> Loop(int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) sum += co_await Value(1);
  co_return sum;
}

TEST_P(CoTaskTest, MillionReadyTasksInALoopNeedNoStack) {
  Run([] { EXPECT_EQ(co::Wait(Loop(kMany)), kMany); });
}

co::task<int> Depth(int n) {
  if (n == 0) co_return 0;
  co_return 1 + co_await Depth(n - 1);
}

TEST_P(CoTaskTest, MillionNestedTasksNeedNoStack) {
  Run([] { EXPECT_EQ(co::Wait(Depth(kMany)), kMany); });
}

co::task<int> ThrowAt(int n) {
  if (n == 0) throw std::runtime_error("bottom");
  co_return 1 + co_await ThrowAt(n - 1);
}

TEST_P(CoTaskTest, ExceptionPassesThroughManyNestedTasks) {
  Run([] { EXPECT_THROW(co::Wait(ThrowAt(10'000)), std::runtime_error); });
}

co::task<int> Tree(int depth) {
  if (depth == 0) co_return 1;
  const int left = co_await Tree(depth - 1);
  co_return left + co_await Tree(depth - 1);
}

TEST_P(CoTaskTest, TreeOfTasksAddsUp) {
  Run([] { EXPECT_EQ(co::Wait(Tree(14)), 1 << 14); });
}

// g++ 12 moves a temporary aggregate of an expression with co_await as bytes
// (docs/hazards.md), so Pair has a constructor.
struct Pair {
  Pair(std::unique_ptr<Counted> x, Counted y)
      : a(std::move(x)), b(std::move(y)) {}
  std::unique_ptr<Counted> a;
  Counted b;
};
co::task<int> Take(Pair p, std::string s) {
  co_return p.a->n() + p.b.n() + static_cast<int>(s.size());
}

TEST_P(CoTaskTest, TemporariesOfAnAwaitLiveOnce) {
  Run([] {
    auto f = []() -> co::task<int> {
      int sum = co_await Take(Pair(std::make_unique<Counted>(1), Counted(2)),
                              std::string(100, 'x'));
      sum += co_await Take(Pair(std::make_unique<Counted>(co_await Value(3)),
                                Counted(co_await Value(4))),
                           "");
      for (int i = co_await Value(0); i < co_await Value(2); i++) {
        if (co_await Value(i) == 1) sum += co_await Value(1000);
      }
      co_return sum;
    };
    EXPECT_EQ(co::Wait(f()), 103 + 7 + 1000);
  });
}

TEST_P(CoTaskTest, GoexitOnTheWaitersStackEndsItsGoroutine) {
  Run([] {
    chan<void> ended = make_chan<void>();
    go([ended] {
      defer _{[&] { ended.Close(); }};
      auto inner = [](Counted) -> co::task<> {
        runtime::Goexit();
        co_return;
      };
      auto outer = [&](Counted) -> co::task<> {
        co_await inner(Counted(2));
        ADD_FAILURE() << "continued after Goexit";
      };
      co::Wait(outer(Counted(1)));
    });
    EXPECT_FALSE(ended.Recv());
  });
}

}  // namespace
}  // namespace gump
