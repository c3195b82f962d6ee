#include "gump/sync/waitgroup.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::WaitGroup;
using WaitGroupTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(WaitGroupTest);

// PanicOf returns the text of the panic that ends f, or "".
template <class F>
std::string PanicOf(F f) {
  try {
    f();
  } catch (const PanicError& e) {
    return e.what();
  }
  return "";
}

TEST_P(WaitGroupTest, WaitReturnsWhenAllAreDone) {
  Run([] {
    WaitGroup wg;
    std::atomic<int> done = 0;
    wg.Add(100);
    for (int i = 0; i < 100; i++) {
      go([&] {
        runtime::Gosched();
        done++;
        wg.Done();
      });
    }
    wg.Wait();
    EXPECT_EQ(done, 100);
  });
}

TEST_P(WaitGroupTest, WaitOnZeroReturnsAtOnce) {
  Run([] {
    WaitGroup wg;
    wg.Wait();
    wg.Add(2);
    wg.Add(-2);
    wg.Wait();
  });
}

TEST_P(WaitGroupTest, ReleasesEveryWaiter) {
  Run([] {
    WaitGroup work, waiters;
    std::atomic<bool> finished = false;
    work.Add(1);
    for (int i = 0; i < 50; i++) {
      waiters.Go([&] {
        work.Wait();
        EXPECT_TRUE(finished);
      });
    }
    EXPECT_TRUE(testing::EventuallyParked("sync.WaitGroup.Wait", 50));
    finished = true;
    work.Done();
    waiters.Wait();
  });
}

TEST_P(WaitGroupTest, MayBeUsedAgain) {
  Run([] {
    WaitGroup wg;
    std::atomic<int> n = 0;
    for (int round = 1; round <= 100; round++) {
      for (int i = 0; i < 5; i++) wg.Go([&] { n++; });
      wg.Wait();
      EXPECT_EQ(n, 5 * round);
    }
  });
}

TEST_P(WaitGroupTest, GoCountsDownAfterGoexit) {
  Run([] {
    WaitGroup wg;
    wg.Go([] { runtime::Goexit(); });
    wg.Wait();
  });
}

TEST_P(WaitGroupTest, GoexitThroughACatchAllThatRethrowsCountsDown) {
  Run([] {
    WaitGroup wg;
    wg.Go([] {
      try {
        runtime::Goexit();
      } catch (...) {
        throw;
      }
    });
    wg.Wait();
  });
}

TEST_P(WaitGroupTest, GoTakesMoveOnlyAndLargeFunctions) {
  Run([] {
    WaitGroup wg;
    std::atomic<int> sum = 0;
    wg.Go([&sum, p = std::make_unique<int>(7)] { sum += *p; });
    std::array<int, 100> large{};
    large[99] = 5;
    wg.Go([&sum, large] { sum += large[99]; });
    wg.Wait();
    EXPECT_EQ(sum, 12);
  });
}

TEST_P(WaitGroupTest, GoWithOptionsCountsAGoroutineThatHasThem) {
  Run([] {
    WaitGroup wg;
    std::string stack;
    constexpr size_t kLarge = size_t{8} << 20;
    const GoOptions options{.stack_size = 2 * kLarge, .name = "named"};
    wg.Go(options, [&] {
      char on_stack[kLarge];
      auto* volatile p = on_stack;
      p[0] = 1;
      stack = runtime::Stack(/*all=*/false);
    });
    wg.Wait();
    EXPECT_NE(stack.find("{name: named}"), std::string::npos) << stack;
  });
}

TEST_P(WaitGroupTest, GoDestroysTheFunctionBeforeDone) {
  Run([] {
    for (int i = 0; i < 200; i++) {
      WaitGroup wg;
      auto owner = std::make_shared<int>(i);
      std::weak_ptr<int> watch = owner;
      wg.Go([owner = std::move(owner)] { EXPECT_NE(owner, nullptr); });
      wg.Wait();
      EXPECT_TRUE(watch.expired());
    }
  });
}

// A const member is not moved, but copied. Each copy goes before Done.
TEST_P(WaitGroupTest, GoDestroysCopiesBeforeDone) {
  Run([] {
    std::atomic<bool> gone = false;
    const auto end = [&gone](void*) {
      for (int i = 0; i < 100; i++) runtime::Gosched();
      gone = true;
    };
    WaitGroup wg;
    chan<void> go_on = make_chan<void>();
    {
      const std::shared_ptr<void> owner(&gone, end);
      wg.Go([owner, go_on] { go_on.Recv(); });
    }
    go_on.Send();
    wg.Wait();
    EXPECT_TRUE(gone);
  });
}

TEST_P(WaitGroupTest, MayBeDestroyedAsSoonAsWaitReturns) {
  Run([] {
    for (int i = 0; i < 20000; i++) {
      auto wg = std::make_unique<WaitGroup>();
      wg->Add(1);
      go([w = wg.get()] { w->Done(); });
      wg->Wait();
    }
  });
}

TEST_P(WaitGroupTest, MixesWithPlainThreads) {
  Run([] {
    WaitGroup wg;
    std::atomic<int> n = 0;
    wg.Add(3);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) {
      threads.push_back(testing::KnownThread([&] {
        n++;
        wg.Done();
      }));
    }
    threads.push_back(testing::KnownThread([&] {
      wg.Wait();
      EXPECT_GE(n, 3);
    }));
    wg.Wait();
    EXPECT_EQ(n, 3);
    testing::JoinAll(threads);
  });
}

TEST_P(WaitGroupTest, NegativeCounterPanics) {
  Run([] {
    WaitGroup wg;
    wg.Add(1);
    wg.Done();
    EXPECT_EQ(PanicOf([&] { wg.Done(); }), "sync: negative WaitGroup counter");
  });
}

// The WaitGroup is as an Add may find it while the last Done releases the
// waiters: nothing is counted, and there is one waiter.
TEST_P(WaitGroupTest, AddWhileWaitersAreReleasedPanics) {
  Run([] {
    WaitGroup wg;
    const uint64_t one_waiter = 1;
    std::memcpy(static_cast<void*>(&wg), &one_waiter, sizeof one_waiter);
    EXPECT_EQ(PanicOf([&] { wg.Add(1); }),
              "sync: WaitGroup misuse: Add called concurrently with Wait");
  });
}

// Several attempts: a goroutine may be preempted anywhere.
TEST(WaitGroupMisuseTest, ReuseBeforeWaitHasReturnedPanics) {
  const std::string want =
      "sync: WaitGroup is reused before previous Wait has returned";
  std::string text;
  testing::RunWith(1, [&] {
    for (int i = 0; i < 10 && text != want; i++) {
      WaitGroup wg, waiter;
      wg.Add(1);
      waiter.Go([&] { text = PanicOf([&] { wg.Wait(); }); });
      EXPECT_TRUE(testing::EventuallyParked("sync.WaitGroup.Wait", 1));
      wg.Done();  // the waiter is ready, but has not run
      wg.Add(1);
      waiter.Wait();
    }
  });
  EXPECT_EQ(text, want);
}

TEST(WaitGroupDeathTest, ExceptionInGoEndsTheProcess) {
  EXPECT_EXIT(gump::Run([] {
                WaitGroup wg;
                wg.Go([] { panic("out of cheese"); });
                wg.Wait();
                std::_Exit(0);  // only if Done was called
              }),
              ::testing::ExitedWithCode(2), "panic: out of cheese");
}

TEST(WaitGroupDeathTest, NegativeCounterUncaughtEndsTheProcess) {
  EXPECT_EXIT(gump::Run([] {
                WaitGroup wg;
                wg.Done();
              }),
              ::testing::ExitedWithCode(2),
              "panic: sync: negative WaitGroup counter");
}

TEST(WaitGroupDeathTest, WaitWithoutAWakerIsADeadlock) {
  EXPECT_EXIT(gump::Run([] {
                WaitGroup wg;
                wg.Add(1);
                wg.Wait();
              }),
              ::testing::ExitedWithCode(2),
              "fatal error: all goroutines are asleep - deadlock!(.|\n)*"
              "sync\\.WaitGroup\\.Wait");
}

}  // namespace
}  // namespace gump
