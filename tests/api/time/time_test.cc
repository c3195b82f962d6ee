// Misuse of timers and tickers, and the durations that all calls take.
#include "gump/time.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <limits>
#include <thread>
#include <utility>

#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "tests/api/time/time_testing.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/resident_bytes.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::kNever;
using testing::PanicText;
using namespace std::chrono_literals;

using TimeTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(TimeTest);

// ---- Misuse

TEST_P(TimeTest, PanicsInGosWords) {
  Run([] {
    EXPECT_EQ(PanicText([] { time::Timer().Stop(); }),
              "time: Stop called on uninitialized Timer");
    EXPECT_EQ(PanicText([] { time::Timer().Reset(1s); }),
              "time: Reset called on uninitialized Timer");
    EXPECT_EQ(PanicText([] { time::Ticker().Reset(1s); }),
              "time: Reset called on uninitialized Ticker");
    EXPECT_EQ(PanicText([] { time::Ticker().Stop(); }), "no panic");
    for (auto d : {0ns, -1ns}) {
      EXPECT_EQ(PanicText([d] { (void)time::NewTicker(d); }),
                "non-positive interval for NewTicker");
      EXPECT_EQ(PanicText([d] { time::NewTicker(1s).Reset(d); }),
                "non-positive interval for Ticker.Reset");
    }
  });
}

// After Run, and on a thread that has never been in the runtime.
TEST(TimeHandleTest, MayBeDroppedAnywhere) {
  time::Ticker ticker;
  recv_chan<absl::Time> after;
  gump::Run([&] {
    ticker = time::NewTicker(kNever);
    after = time::After(kNever);
  });
  std::thread([c = std::move(after)]() mutable { c = nullptr; }).join();
  EXPECT_TRUE(after == nullptr);
  ticker = {};
}

TEST(TimeDeathTest, TickerWithoutAPeriodEndsTheProcess) {
  EXPECT_EXIT(gump::Run([] { (void)time::NewTicker(0s); }),
              ::testing::ExitedWithCode(2),
              "panic: non-positive interval for NewTicker");
}

TEST(TimeDeathTest, StopOfNoTimerEndsTheProcess) {
  EXPECT_EXIT(gump::Run([] { time::Timer().Stop(); }),
              ::testing::ExitedWithCode(2),
              "panic: time: Stop called on uninitialized Timer");
}

TEST(TimeDeathTest, NullFunctionIsFatal) {
  EXPECT_EXIT(gump::Run([] { time::AfterFunc(1s, std::function<void()>()); }),
              ::testing::ExitedWithCode(2), "go of nil func value");
}

TEST(TimeDeathTest, DeadlockWithStoppedTimersIsReported) {
  EXPECT_EXIT(gump::Run([] {
                for (int procs : {1, 4}) {
                  runtime::GOMAXPROCS(procs);
                  for (int i = 0; i < 10; i++) {
                    auto c = make_chan<int>(1);
                    c.Send(1);
                    auto t = time::AfterFunc(kNever, [] {});
                    t.Stop();
                    go([] { time::Sleep(1us); });
                    auto d = make_chan<int>();
                    go([d] {
                      time::Sleep(1ms);
                      d.Send(1);
                    });
                    select(Recv(d), Recv(time::After(kNever)));
                  }
                }
                make_chan<int>().Recv();
              }),
              ::testing::ExitedWithCode(2),
              "all goroutines are asleep - deadlock!");
}

// ---- Durations

TEST(DurationTest, FractionsRoundUpAndTheRestSaturates) {
  using internal::DurationArg;
  EXPECT_EQ(DurationArg(1ns).Nanoseconds(), 1);
  EXPECT_EQ(DurationArg(3h).Nanoseconds(), 3 * 3600 * 1'000'000'000LL);
  EXPECT_EQ(DurationArg(-5us).Nanoseconds(), -5000);
  using Ps = std::chrono::duration<int64_t, std::pico>;
  EXPECT_EQ(DurationArg(Ps(1)).Nanoseconds(), 0);
  EXPECT_EQ(DurationArg(Ps(1500)).Nanoseconds(), 2);
  EXPECT_EQ(DurationArg(absl::Nanoseconds(0.25)).Nanoseconds(), 1);
  EXPECT_EQ(DurationArg(absl::Nanoseconds(-0.25)).Nanoseconds(), 0);
  EXPECT_EQ(DurationArg(std::chrono::duration<double>(0.5)).Nanoseconds(),
            500'000'000);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(DurationArg(absl::InfiniteDuration()).Nanoseconds(), kMax);
  EXPECT_EQ(DurationArg(std::chrono::hours::max()).Nanoseconds(), kMax);
  EXPECT_EQ(DurationArg(std::chrono::nanoseconds::max()).Nanoseconds(), kMax);
  using Unsigned = std::chrono::duration<uint64_t>;
  EXPECT_EQ(DurationArg(Unsigned::max()).Nanoseconds(), kMax);
  EXPECT_EQ(DurationArg(std::chrono::hours::min()).Nanoseconds(), -kMax);
  EXPECT_EQ(DurationArg(std::chrono::hours::max()).duration(),
            absl::InfiniteDuration());
  EXPECT_EQ(DurationArg(90s).duration(), absl::Seconds(90));
  EXPECT_EQ(DurationArg(absl::Nanoseconds(0.25)).duration(),
            absl::Nanoseconds(1));
}

}  // namespace
}  // namespace gump
