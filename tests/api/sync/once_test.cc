#include "gump/sync/once.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "gump/go.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::Once;
using sync::OnceFunc;
using sync::OnceValue;
using sync::OnceValues;
using OnceTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(OnceTest);

TEST_P(OnceTest, RunsOnceAndEveryCallerWaitsForIt) {
  Run([] {
    for (int round = 0; round < 50; round++) {
      Once once;
      int calls = 0;
      int value = 0;
      sync::WaitGroup wg;
      for (int i = 0; i < 10; i++) {
        wg.Go([&] {
          once.Do([&] {
            calls++;
            runtime::Gosched();
            value = 42;
          });
          EXPECT_EQ(value, 42);
        });
      }
      wg.Wait();
      EXPECT_EQ(calls, 1);
    }
  });
}

TEST_P(OnceTest, OnlyTheFirstFunctionRuns) {
  Run([] {
    Once once;
    std::string ran;
    once.Do([&] { ran += 'a'; });
    once.Do([&] { ran += 'b'; });
    EXPECT_EQ(ran, "a");
  });
}

TEST_P(OnceTest, TakesMoveOnlyFunctionsAndRvalueCallOperators) {
  Run([] {
    struct RvalueOnly {
      std::unique_ptr<int> p;
      int* out;
      void operator()() && { *out = *p; }
    };
    int got = 0;
    Once once;
    once.Do(RvalueOnly{std::make_unique<int>(3), &got});
    EXPECT_EQ(got, 3);
    const auto constant = [&] { got = 4; };
    Once other;
    other.Do(constant);
    EXPECT_EQ(got, 4);
  });
}

int calls_of_count;
void Count() { calls_of_count++; }

TEST_P(OnceTest, TakesTheNameOfAFunction) {
  Run([] {
    calls_of_count = 0;
    Once once;
    once.Do(Count);
    once.Do(Count);
    EXPECT_EQ(calls_of_count, 1);
  });
}

TEST_P(OnceTest, AFunctionThatThrowsCountsAsDone) {
  Run([] {
    Once once;
    EXPECT_THROW(once.Do([] { throw std::runtime_error("no"); }),
                 std::runtime_error);
    bool again = false;
    once.Do([&] { again = true; });
    EXPECT_FALSE(again);
  });
}

TEST_P(OnceTest, AFunctionThatCallsGoexitCountsAsDone) {
  Run([] {
    Once once;
    sync::WaitGroup wg;
    wg.Go([&] { once.Do([] { runtime::Goexit(); }); });
    wg.Wait();
    bool again = false;
    once.Do([&] { again = true; });
    EXPECT_FALSE(again);
  });
}

TEST_P(OnceTest, PlainThreadsWaitForAGoroutine) {
  Run([] {
    Once once;
    int value = 0;
    auto use = [&] {
      once.Do([&] { value = 7; });
      EXPECT_EQ(value, 7);
    };
    std::thread a = testing::KnownThread(use);
    std::thread b = testing::KnownThread(use);
    use();
    blocking([&] {
      a.join();
      b.join();
    });
  });
}

TEST_P(OnceTest, OnceFuncRunsOnceForAllCopies) {
  Run([] {
    std::atomic<int> calls = 0;
    auto f = OnceFunc([&] { calls++; });
    auto g = f;
    EXPECT_EQ(calls, 0);
    f();
    g();
    f();
    EXPECT_EQ(calls, 1);
  });
}

TEST_P(OnceTest, OnceValueKeepsTheValue) {
  Run([] {
    int calls = 0;
    auto f = OnceValue([&] { return std::make_unique<int>(++calls); });
    const std::unique_ptr<int>& first = f();
    EXPECT_EQ(*first, 1);
    EXPECT_EQ(&f(), &first);
    EXPECT_EQ(calls, 1);
  });
}

TEST_P(OnceTest, OnceValuesReturnsAllValues) {
  Run([] {
    auto f = OnceValues([] { return std::pair(1, std::string("one")); });
    const auto& [n, s] = f();
    EXPECT_EQ(n, 1);
    EXPECT_EQ(s, "one");
  });
}

TEST_P(OnceTest, EveryCallThrowsTheFunctionsException) {
  Run([] {
    int calls = 0;
    auto f = OnceValue([&]() -> int {
      calls++;
      throw std::out_of_range("far");
    });
    for (int i = 0; i < 3; i++) {
      try {
        f();
        ADD_FAILURE() << "no exception";
      } catch (const std::out_of_range& e) {
        EXPECT_STREQ(e.what(), "far");
      }
    }
    EXPECT_EQ(calls, 1);
  });
}

TEST_P(OnceTest, CallsAfterGoexitPanic) {
  Run([] {
    auto f = OnceFunc([] { runtime::Goexit(); });
    sync::WaitGroup wg;
    wg.Go([&] { f(); });
    wg.Wait();
    EXPECT_THROW(f(), PanicError);
  });
}

TEST_P(OnceTest, CapturesAreDestroyedAfterTheCall) {
  Run([] {
    auto held = std::make_shared<int>(1);
    auto f = OnceFunc([held] { EXPECT_EQ(*held, 1); });
    EXPECT_EQ(held.use_count(), 2);
    f();
    EXPECT_EQ(held.use_count(), 1);
  });
}

TEST(OnceDeathTest, DoInsideDoIsADeadlock) {
  EXPECT_EXIT(gump::Run([] {
                Once once;
                once.Do([&] { once.Do([] {}); });
              }),
              ::testing::ExitedWithCode(2),
              "fatal error: all goroutines are asleep - deadlock!");
}

}  // namespace
}  // namespace gump
