#include "gump/sync/barrier.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
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

using sync::Barrier;
using sync::WaitGroup;
using testing::PanicText;
using BarrierTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(BarrierTest);

TEST_P(BarrierTest, NoneBeginsARoundBeforeAllHaveEndedTheOneBefore) {
  Run([] {
    constexpr int kWorkers = 8;
    constexpr int kRounds = 50;
    std::atomic<int> done = 0;
    Barrier round(kWorkers);
    WaitGroup wg;
    for (int w = 0; w < kWorkers; w++) {
      wg.Go([&] {
        for (int i = 1; i <= kRounds; i++) {
          done++;
          round.arrive_and_wait();
          EXPECT_EQ(done, i * kWorkers);
          round.arrive_and_wait();
        }
      });
    }
    wg.Wait();
  });
}

// sum is not atomic: the Barrier orders all accesses.
TEST_P(BarrierTest,
       CompletionRunsOnceAPhaseAfterAllArrivalsAndBeforeAnyReturns) {
  Run([] {
    constexpr int kWorkers = 5;
    constexpr int kRounds = 100;
    std::vector<int> parts(kWorkers);
    int sum = 0;
    Barrier round(kWorkers, [&]() noexcept {
      sum = 0;
      for (const int p : parts) sum += p;
    });
    WaitGroup wg;
    for (int w = 0; w < kWorkers; w++) {
      wg.Go([&, w] {
        for (int i = 0; i < kRounds; i++) {
          parts[static_cast<size_t>(w)] = i;
          round.arrive_and_wait();
          EXPECT_EQ(sum, i * kWorkers);
        }
      });
    }
    wg.Wait();
  });
}

TEST_P(BarrierTest, CompletionMayPark) {
  Run([] {
    int completed = 0;
    Barrier round(3, [&]() noexcept {
      time::Sleep(absl::Milliseconds(1));
      completed++;
    });
    WaitGroup wg;
    for (int w = 0; w < 3; w++) {
      wg.Go([&] {
        for (int i = 1; i <= 5; i++) {
          round.arrive_and_wait();
          EXPECT_EQ(completed, i);
        }
      });
    }
    wg.Wait();
  });
}

// The producer arrives and works on. It waits later, for the phase of its
// token.
TEST_P(BarrierTest, WorkMayGoOnBetweenArrivalAndWait) {
  Run([] {
    Barrier phase(2);
    std::atomic<bool> other = false;
    auto token = phase.arrive();
    go([&] {
      other = true;
      phase.arrive_and_wait();
    });
    phase.wait(std::move(token));
    EXPECT_TRUE(other);
  });
}

TEST_P(BarrierTest, LaterPhasesDoNotExpectTheOneThatDropped) {
  Run([] {
    Barrier round(2);
    WaitGroup wg;
    wg.Go([&] { round.arrive_and_drop(); });
    round.arrive_and_wait();
    for (int i = 0; i < 10; i++) round.arrive_and_wait();  // alone
    wg.Wait();
  });
}

TEST_P(BarrierTest, OneArrivalMayCountSeveral) {
  Run([] {
    Barrier round(3);
    auto token = round.arrive(2);
    round.arrive_and_wait();
    round.wait(std::move(token));
  });
}

TEST_P(BarrierTest, PlainThreadsAndGoroutinesMeet) {
  Run([] {
    Barrier round(2);
    int turns = 0;
    std::thread t([&] {
      for (int i = 0; i < 20; i++) {
        turns++;
        round.arrive_and_wait();
        round.arrive_and_wait();
      }
    });
    for (int i = 1; i <= 20; i++) {
      round.arrive_and_wait();
      EXPECT_EQ(turns, i);
      round.arrive_and_wait();
    }
    t.join();
  });
}

TEST_P(BarrierTest, MayBeDestroyedAsSoonAsItsLastWaitHasReturned) {
  Run([] {
    for (int i = 0; i < 1000; i++) {
      auto round = std::make_unique<Barrier<>>(2);
      go([&b = *round] { (void)b.arrive(); });
      round->arrive_and_wait();
      round.reset();
    }
  });
}

TEST(BarrierPanicTest, MisuseOfABarrierPanicsWithAText) {
  gump::Run([] {
    EXPECT_EQ(PanicText([] { Barrier b(-1); }),
              "sync: Barrier made with a negative count");
    Barrier b(2);
    EXPECT_EQ(PanicText([&] { (void)b.arrive(0); }),
              "sync: number of Barrier arrivals is not positive");
    EXPECT_EQ(PanicText([&] { (void)b.arrive(3); }),
              "sync: more arrivals than the Barrier expects");
    (void)b.arrive();
    b.arrive_and_wait();  // the refused arrivals did not count
    Barrier none(0);
    EXPECT_EQ(PanicText([&] { none.arrive_and_drop(); }),
              "sync: more arrivals than the Barrier expects");
  });
}

TEST(BarrierBubbleTest, WaitLetsTheClockOfItsBubbleGoOn) {
  gump::Run([] {
    synctest::Run([] {
      Barrier round(2, []() noexcept { time::Sleep(absl::Hours(1)); });
      const absl::Time before = synctest::Now();
      go([&] {
        time::Sleep(absl::Hours(1));
        (void)round.arrive();
      });
      round.arrive_and_wait();
      EXPECT_EQ(synctest::Now() - before, absl::Hours(2));
    });
  });
}

}  // namespace
}  // namespace gump
