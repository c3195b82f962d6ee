// Setting the wall clock, back or forward, does not change any wait. And the
// times that tickers send do not depend on when a thread reads that clock.
//
// This program replaces clock_gettime by one with a CLOCK_REALTIME that it can
// set. A wait that went by it would be an hour early, or outlast the test.
#include "absl/time/clock.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/net.h"
#include "gump/rate.h"
#include "gump/select.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace {
std::atomic<int64_t> stepped;  // s by which the wall clock has been set
std::atomic<bool> held;        // the next read of it is delayed
}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* ts) noexcept {
  if (clock == CLOCK_REALTIME && held.exchange(false)) usleep(20'000);
  const auto result = static_cast<int>(
      syscall(SYS_clock_gettime, static_cast<long>(clock), ts));
  if (clock == CLOCK_REALTIME) ts->tv_sec += stepped;
  return result;
}

namespace gump {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kWait = 40ms;
constexpr int64_t kHour = 3600;  // s

// Across calls wait, which parks for `reason`, and sets the clock back and
// forward meanwhile. The wait takes no less than kWait, and ends.
template <class F>
void Across(const char* reason, F wait) {
  for (const int64_t step : {-kHour, kHour}) {
    std::atomic<bool> done = false;
    const auto start = steady_clock::now();
    sync::WaitGroup wg;
    wg.Go([&] {
      wait();
      EXPECT_GE(steady_clock::now() - start, kWait) << reason;
      done = true;
    });
    EXPECT_TRUE(testing::Eventually(
        [&] { return done || testing::CountParked(reason) > 0; }));
    stepped = step;
    wg.Wait();
    stepped = 0;
  }
}

using TimeClockTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(TimeClockTest);

TEST_P(TimeClockTest, TheClockCanBeSet) {
  const absl::Time now = absl::Now();
  stepped = -kHour;
  EXPECT_LT(absl::Now(), now - absl::Minutes(50)) << "or nothing is tested";
  stepped = 0;
}

TEST_P(TimeClockTest, DelayBetweenTheClocksSendsNoLaterTime) {
  Run([] {
    auto ticker = time::NewTicker(1ms);
    absl::Time last = *ticker.C.Recv();
    for (int i = 0; i < 10; i++) {
      held = true;
      for (int k = 0; k < 2; k++) {
        const absl::Time now = *ticker.C.Recv();
        EXPECT_GT(now, last);
        last = now;
      }
    }
    held = false;
  });
}

TEST_P(TimeClockTest, SleepersSleepOn) {
  Run([] { Across("sleep", [] { time::Sleep(kWait); }); });
}

TEST_P(TimeClockTest, TimersAndTickersGoOn) {
  Run([] {
    Across("chan receive", [] { time::NewTimer(kWait).C.Recv(); });
    Across("chan receive", [] {
      auto ticker = time::NewTicker(kWait / 4);
      for (int i = 0; i < 4; i++) ticker.C.Recv();
    });
    Across("chan receive", [] {
      auto c = make_chan<void>();
      time::AfterFunc(kWait, [c] { c.Close(); });
      c.Recv();
    });
    Across("select",
           [] { select(Recv(make_chan<int>()), Recv(time::After(kWait))); });
  });
}

// A deadline is a time of the wall clock as it was when the deadline was set.
TEST_P(TimeClockTest, DeadlinesStayWhereTheyAre) {
  Run([] {
    Across("chan receive", [] {
      const auto [ctx, cancel] = context::WithTimeout({}, kWait);
      ctx.Done().Recv();
    });
    Across("chan receive", [] {
      const auto [ctx, cancel] =
          context::WithDeadline({}, absl::Now() + absl::FromChrono(kWait));
      ctx.Done().Recv();
    });
    Across("IO wait", [] {
      auto pipe = net::Pipe();
      ASSERT_TRUE(pipe.ok());
      (void)pipe->first.SetReadDeadline(absl::Now() + absl::FromChrono(kWait));
      char buf[1];
      EXPECT_TRUE(absl::IsDeadlineExceeded(
          pipe->first.Read(absl::MakeSpan(buf)).status()));
    });
  });
}

TEST_P(TimeClockTest, LimitersGoOnFilling) {
  Run([] {
    Across("select", [] {
      rate::Limiter limiter(rate::Every(kWait), 1);
      EXPECT_TRUE(limiter.Wait({}).ok());
      EXPECT_TRUE(limiter.Wait({}).ok());
    });
  });
}

// The deadlines of parent and child are compared by a clock that cannot be set.
TEST_P(TimeClockTest, ChildrenOfLongLivedParentsEndInTime) {
  Run([] {
    for (const int64_t step : {-2 * kHour, 2 * kHour}) {
      const auto [parent, cancel] = context::WithTimeout({}, absl::Hours(1));
      stepped = step;
      const auto [child, cancel_child] = context::WithTimeout(parent, kWait);
      int which = select(Recv(child.Done()), Recv(time::After(60s)));
      EXPECT_EQ(which, 0) << step;
      const auto [heir, cancel_heir] =
          context::WithTimeout(parent, absl::Hours(1));
      EXPECT_EQ(heir.Deadline(), parent.Deadline()) << "it comes first";
      stepped = 0;
    }
  });
}

TEST_P(TimeClockTest, LimitersKnowTheTimeThatIsLeft) {
  Run([] {
    for (const int64_t step : {-2 * kHour, 2 * kHour}) {
      const auto [parent, cancel] = context::WithTimeout({}, absl::Hours(1));
      stepped = step;
      rate::Limiter limiter(rate::Every(kWait), 1);
      EXPECT_TRUE(limiter.Wait(parent).ok());
      EXPECT_TRUE(limiter.Wait(parent).ok());
      rate::Limiter slow(rate::Every(absl::Minutes(90)), 1);
      EXPECT_TRUE(slow.Wait(parent).ok());
      EXPECT_TRUE(absl::IsDeadlineExceeded(slow.Wait(parent)));
      stepped = 0;
    }
  });
}

}  // namespace
}  // namespace gump
