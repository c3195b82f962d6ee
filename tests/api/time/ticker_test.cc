// Ticker: its ticks keep to a grid, and a slow receiver misses some.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "absl/time/clock.h"
#include "gump/go.h"
#include "gump/select.h"
#include "gump/time.h"
#include "tests/api/time/time_testing.h"
#include "tests/testing/resident_bytes.h"
#include "tests/testing/wall_now.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::kNever;
using testing::kSoon;
using testing::Pending;
using namespace std::chrono_literals;

using TimeTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(TimeTest);

TEST_P(TimeTest, TickerTicksAtMultiplesOfItsPeriod) {
  Run([] {
    auto t = time::NewTicker(1ms);
    absl::Time last = *t.C.Recv();
    for (int i = 0; i < 10; i++) {
      const absl::Time now = *t.C.Recv();
      EXPECT_GT(now, last);
      last = now;
    }
    t.Stop();
    EXPECT_TRUE(Pending(t.C));
    time::Sleep(kSoon);
    EXPECT_TRUE(Pending(t.C));
  });
}

TEST_P(TimeTest, TicksWithoutAReceiverAreDropped) {
  Run([] {
    auto t = time::NewTicker(1ms);
    time::Sleep(20ms);
    const absl::Time now = absl::Now();
    t.C.Recv();
    const absl::Time next = *t.C.Recv();
    EXPECT_GT(next, now - absl::Milliseconds(2));
  });
}

// A late receiver finds the time at which the value was due, not the time of
// the receive. The values that come after it keep to the grid.
TEST_P(TimeTest, LateValuesAreTheTimesAtWhichTheyWereDue) {
  Run([] {
    constexpr absl::Duration kPeriod = absl::Milliseconds(10);
    const absl::Time before = testing::WallNow();
    const auto timer = time::NewTimer(kPeriod);
    const auto ticker = time::NewTicker(kPeriod);
    const absl::Time after = testing::WallNow();
    time::Sleep(5 * kPeriod);
    for (const auto& c : {timer.C, ticker.C}) {
      const auto due = c.TryRecv().value;
      ASSERT_TRUE(due.has_value());
      EXPECT_GE(*due, before + kPeriod);
      EXPECT_LT(*due, after + 3 * kPeriod) << "or it is the present";
    }
  });
}

// Now and then a thread is stopped between its readings of two clocks, and the
// time that it computes is off. So only three quarters of the ticks have to be
// on the grid. Of random times, only one in five would be.
TEST_P(TimeTest, LateTicksKeepToTheGrid) {
  Run([] {
    constexpr absl::Duration kPeriod = absl::Milliseconds(10);
    constexpr int kTicks = 20;
    const auto ticker = time::NewTicker(kPeriod);
    const absl::Time first = *ticker.C.Recv();
    int on_grid = 0;
    for (int i = 0; i < kTicks; i++) {
      time::Sleep(kPeriod * 1.5);
      const absl::Duration off = (*ticker.C.Recv() - first) % kPeriod;
      if (std::min(off, kPeriod - off) < absl::Milliseconds(1)) on_grid++;
    }
    EXPECT_GE(on_grid, kTicks * 3 / 4);
  });
}

TEST_P(TimeTest, TickerObeysResetAndStop) {
  Run([] {
    auto t = time::NewTicker(kNever);
    EXPECT_TRUE(Pending(t.C));
    t.Reset(1ms);
    t.C.Recv();
    t.C.Recv();
    t.Reset(kNever);
    EXPECT_TRUE(Pending(t.C));
    t.Stop();
    t.Stop();
    t.Reset(1ms);
    t.C.Recv();
    t.Stop();
  });
}

TEST_P(TimeTest, TickerOfTheLongestPeriodIsPending) {
  Run([] {
    auto t = time::NewTicker(absl::InfiniteDuration());
    EXPECT_TRUE(Pending(t.C));
    t.Stop();
  });
}

TEST_P(TimeTest, TickIsATickersChannelOrNil) {
  Run([] {
    EXPECT_FALSE(time::Tick(0s));
    EXPECT_FALSE(time::Tick(-1s));
    auto c = time::Tick(1ms);
    c.Recv();
    c.Recv();
  });
}

}  // namespace
}  // namespace gump
