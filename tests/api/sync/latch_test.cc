#include "gump/sync/latch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "gump/synctest.h"
#include "gump/time/sleep.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::Latch;
using sync::WaitGroup;
using testing::PanicText;
using LatchTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(LatchTest);

TEST_P(LatchTest, WaitReturnsWhenTheCountIsZero) {
  Run([] {
    constexpr int kParts = 100;
    Latch latch(kParts);
    std::atomic<int> done = 0;
    for (int i = 0; i < kParts; i++) {
      go([&] {
        runtime::Gosched();
        done++;
        latch.count_down();
      });
    }
    latch.wait();
    EXPECT_EQ(done, kParts);
    EXPECT_TRUE(latch.try_wait());
    latch.wait();  // stays open
  });
}

TEST_P(LatchTest, OneCountDownMayCountSeveral) {
  Run([] {
    Latch latch(5);
    latch.count_down(0);
    latch.count_down(3);
    EXPECT_FALSE(latch.try_wait());
    latch.count_down(2);
    EXPECT_TRUE(latch.try_wait());
  });
}

TEST_P(LatchTest, LatchOfNothingIsOpen) {
  Run([] {
    Latch latch(0);
    EXPECT_TRUE(latch.try_wait());
    latch.wait();
    latch.count_down(0);
  });
}

// None passes the line before all have reached it.
TEST_P(LatchTest, AllThatArriveWaitForTheLast) {
  Run([] {
    constexpr int kRunners = 20;
    Latch start(kRunners);
    std::atomic<int> ready = 0;
    WaitGroup wg;
    for (int i = 0; i < kRunners; i++) {
      wg.Go([&] {
        ready++;
        start.arrive_and_wait();
        EXPECT_EQ(ready, kRunners);
      });
    }
    wg.Wait();
  });
}

TEST_P(LatchTest, PlainThreadsWaitAndCountDown) {
  Run([] {
    Latch opened(1);
    Latch seen(1);
    std::thread t([&] {
      opened.wait();
      seen.count_down();
    });
    opened.count_down();
    seen.wait();
    t.join();
  });
}

// The waiter frees the memory that count_down has just written.
TEST_P(LatchTest, MayBeDestroyedAsSoonAsWaitHasReturned) {
  Run([] {
    for (int i = 0; i < 2000; i++) {
      auto latch = std::make_unique<Latch>(2);
      go([&l = *latch] { l.count_down(); });
      go([&l = *latch] { l.count_down(); });
      latch->wait();
      latch.reset();
    }
  });
}

TEST(LatchPanicTest, MisuseOfALatchPanicsWithAText) {
  gump::Run([] {
    EXPECT_EQ(PanicText([] { Latch latch(-1); }),
              "sync: Latch made with a count that is negative or too large");
    EXPECT_EQ(PanicText([] { Latch latch(Latch::max() + 1); }),
              "sync: Latch made with a count that is negative or too large");
    Latch latch(2);
    EXPECT_EQ(PanicText([&] { latch.count_down(-1); }),
              "sync: Latch counted down by a negative number");
    EXPECT_EQ(PanicText([&] { latch.count_down(3); }),
              "sync: Latch counted down below zero");
    EXPECT_FALSE(latch.try_wait());
    latch.count_down(2);
    EXPECT_TRUE(latch.try_wait());
  });
}

// A wait in a bubble is durable, so the bubble's clock goes on.
TEST(LatchBubbleTest, WaitLetsTheClockOfItsBubbleGoOn) {
  gump::Run([] {
    synctest::Run([] {
      Latch latch(1);
      go([&] {
        time::Sleep(absl::Hours(1));
        latch.count_down();
      });
      const absl::Time before = synctest::Now();
      latch.wait();
      EXPECT_EQ(synctest::Now() - before, absl::Hours(1));
    });
  });
}

}  // namespace
}  // namespace gump
