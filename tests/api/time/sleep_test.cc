#include "gump/time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync/waitgroup.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/parked.h"
#include "tests/testing/resident_bytes.h"
#include "tests/testing/stress.h"
#include "tests/testing/wall_now.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using std::chrono::steady_clock;
using testing::Eventually;
using testing::PanicText;
using namespace std::chrono_literals;

// kSoon is how long a timer runs that has to fire. kNever is for timers that
// must not fire.
constexpr auto kSoon = 2ms;
constexpr auto kNever = 24h;

// Pending tells whether a receive from c would wait.
bool Pending(const recv_chan<absl::Time>& c) {
  return c.TryRecv().kind == RecvResult<absl::Time>::kEmpty;
}

// Elapsed calls f and returns how long that took.
template <class F>
steady_clock::duration Elapsed(F&& f) {
  const auto start = steady_clock::now();
  f();
  return steady_clock::now() - start;
}

using TimeTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(TimeTest);

// ---- Sleep

TEST_P(TimeTest, SleepIsNeverEarly) {
  Run([] {
    for (auto d : {1ns, 1000ns, 100000ns, 3000000ns}) {
      EXPECT_GE(Elapsed([&] { time::Sleep(d); }), d);
    }
  });
}

TEST_P(TimeTest, SleepOfNothingReturnsAtOnce) {
  Run([] {
    for (auto d : {0ns, -1ns, std::chrono::nanoseconds::min()}) time::Sleep(d);
    time::Sleep(absl::ZeroDuration());
    time::Sleep(-absl::InfiniteDuration());
  });
}

TEST_P(TimeTest, EachSleepsAtLeastItsOwnTime) {
  Run([] {
    sync::WaitGroup wg;
    for (int i : {3, 1, 4, 0, 2}) {
      wg.Go([i] {
        const auto d = std::chrono::milliseconds(1 + 3 * i);
        EXPECT_GE(Elapsed([d] { time::Sleep(d); }), d);
      });
    }
    wg.Wait();
  });
}

TEST_P(TimeTest, ManySleepersAllWake) {
  Run([] {
    constexpr int kSleepers = 2000;
    std::atomic<int> woken = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < kSleepers; i++) {
      wg.Go([&, i] {
        time::Sleep(std::chrono::microseconds(i % 1000));
        woken++;
      });
    }
    wg.Wait();
    EXPECT_EQ(woken, kSleepers);
  });
}

TEST_P(TimeTest, SleepForEverIsNoDeadlock) {
  Run([] {
    // They sleep through all runs.
    const size_t before = testing::CountParked("sleep");
    go([] { time::Sleep(absl::InfiniteDuration()); });
    go([] { time::Sleep(std::chrono::hours::max()); });
    EXPECT_TRUE(testing::EventuallyParked("sleep", before + 2));
    time::Sleep(kSoon);
  });
}

TEST_P(TimeTest, SleepWakesWhileOthersCompute) {
  Run([] {
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    for (int i = 0; i < 2 * GetParam(); i++) {
      wg.Go([&] {
        while (!stop.load(std::memory_order_relaxed)) {
        }
      });
    }
    for (int i = 0; i < 5; i++) time::Sleep(kSoon);
    stop = true;
    wg.Wait();
  });
}

TEST_P(TimeTest, SleepWakesWhileOthersSwitch) {
  Run([] {
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    auto c = make_chan<int>();
    auto d = make_chan<int>();
    wg.Go([=, &stop] {
      while (!stop) {
        c.Send(1);
        d.Recv();
      }
      c.Close();
    });
    wg.Go([=] {
      int v;
      while (c.Recv(v)) d.Send(v);
    });
    for (int i = 0; i < 4; i++) {
      wg.Go([&] {
        while (!stop) runtime::Gosched();
      });
    }
    for (int i = 0; i < 5; i++) time::Sleep(kSoon);
    stop = true;
    wg.Wait();
  });
}

TEST_P(TimeTest, TimersSurviveTheirP) {
  Run([] {
    constexpr int kSleepers = 100;
    sync::WaitGroup wg;
    for (int i = 0; i < kSleepers; i++) {
      wg.Go([i] { time::Sleep(std::chrono::microseconds(5000 + 10 * i)); });
      wg.Go([i] {
        time::After(std::chrono::microseconds(5000 + 10 * i)).Recv();
      });
    }
    auto stopped = time::AfterFunc(kNever, [] {});
    for (int n : {8, 1, 3, 1, 2}) {
      runtime::GOMAXPROCS(n);
      runtime::Gosched();
    }
    EXPECT_TRUE(stopped.Stop());
    wg.Wait();
  });
}

TEST_P(TimeTest, SleepKeepsALockedThread) {
  Run([] {
    sync::WaitGroup wg;
    wg.Go([] {
      runtime::LockOSThread();
      const auto id = std::this_thread::get_id();
      time::Sleep(kSoon);
      EXPECT_EQ(std::this_thread::get_id(), id);
      runtime::UnlockOSThread();
    });
    wg.Wait();
  });
}

TEST_P(TimeTest, ThreadsSleepToo) {
  Run([] {
    auto t = testing::KnownThread(
        [] { EXPECT_GE(Elapsed([] { time::Sleep(kSoon); }), kSoon); });
    blocking([&] { t.join(); });
  });
}

// ---- Timer

TEST_P(TimeTest, TimerSendsTheTimeAtWhichItWasDue) {
  Run([] {
    const absl::Time before = testing::WallNow();
    auto t = time::NewTimer(kSoon);
    const absl::Time due = *t.C.Recv();
    EXPECT_GE(due, before + absl::FromChrono(kSoon));
    EXPECT_LE(due, testing::WallNow());
    EXPECT_FALSE(t.Stop()) << "received";
    EXPECT_TRUE(Pending(t.C)) << "one value only";
  });
}

TEST_P(TimeTest, DueTimerIsThereForALateReceiver) {
  Run([] {
    auto t = time::NewTimer(1ns);
    time::Sleep(kSoon);
    auto r = t.C.TryRecv();
    ASSERT_TRUE(r.value.has_value());
    EXPECT_LE(*r.value, absl::Now());
  });
}

TEST_P(TimeTest, StopBeforeTheTimeWins) {
  Run([] {
    auto t = time::NewTimer(kNever);
    EXPECT_TRUE(t.Stop());
    EXPECT_FALSE(t.Stop()) << "only once";
    EXPECT_TRUE(Pending(t.C));
  });
}

TEST_P(TimeTest, StopOfADueButUnreceivedTimerWins) {
  Run([] {
    auto t = time::NewTimer(1ns);
    time::Sleep(kSoon);
    EXPECT_TRUE(t.Stop());
    EXPECT_TRUE(Pending(t.C)) << "stale value";
  });
}

TEST_P(TimeTest, ResetLeavesNoStaleValue) {
  Run([] {
    auto t = time::NewTimer(1ns);
    time::Sleep(kSoon);
    EXPECT_TRUE(t.Reset(kNever));
    EXPECT_TRUE(Pending(t.C)) << "stale value";
    EXPECT_TRUE(t.Reset(kSoon));
    t.C.Recv();
    EXPECT_FALSE(t.Reset(kNever));
    EXPECT_TRUE(Pending(t.C));
    EXPECT_TRUE(t.Stop());
  });
}

TEST_P(TimeTest, ResetReachesAWaitingReceiver) {
  Run([] {
    auto t = time::NewTimer(kNever);
    sync::WaitGroup wg;
    wg.Go([&] { EXPECT_TRUE(t.C.Recv().has_value()); });
    EXPECT_TRUE(testing::EventuallyParked("chan receive", 1));
    EXPECT_TRUE(t.Reset(kSoon));
    wg.Wait();
  });
}

TEST_P(TimeTest, StopAndResetReachAWaitingReceiver) {
  Run([] {
    auto t = time::NewTimer(kNever);
    sync::WaitGroup wg;
    wg.Go([&] { EXPECT_TRUE(t.C.Recv().has_value()); });
    EXPECT_TRUE(testing::EventuallyParked("chan receive", 1));
    EXPECT_TRUE(t.Stop());
    time::Sleep(kSoon);
    EXPECT_EQ(testing::CountParked("chan receive"), 1u);
    EXPECT_FALSE(t.Reset(kSoon));
    wg.Wait();
  });
}

TEST_P(TimeTest, ChannelPassesForUnbuffered) {
  Run([] {
    auto t = time::NewTimer(1ns);
    time::Sleep(kSoon);
    EXPECT_EQ(t.C.Len(), 0u);
    EXPECT_EQ(t.C.Cap(), 0u);
    EXPECT_FALSE(Pending(t.C));
  });
}

TEST_P(TimeTest, EachTimeHasOneReceiver) {
  Run([] {
    auto t = time::NewTimer(kSoon);
    std::atomic<int> got = 0;
    for (int i = 0; i < 10; i++) {
      go([&got, c = t.C] {
        c.Recv();
        got++;
      });
    }
    EXPECT_TRUE(Eventually([&] { return got == 1; }));
    EXPECT_TRUE(testing::EventuallyParked("chan receive", 9));
    for (int i = 2; i <= 10; i++) {
      t.Reset(1ns);
      EXPECT_TRUE(Eventually([&] { return got == i; }));
    }
  });
}

TEST_P(TimeTest, HandlesAreTheSameTimer) {
  Run([] {
    auto t = time::NewTimer(kNever);
    const time::Timer copy = t;
    EXPECT_EQ(copy.C, t.C);
    EXPECT_TRUE(copy.Stop());
    EXPECT_FALSE(t.Stop());
  });
}

TEST_P(TimeTest, CellsOfDroppedTimersAreUsedAgain) {
  Run([] {
    [[maybe_unused]] const int64_t before = testing::ResidentBytes();
    for (int i = 0; i < 20000; i++) {
      (void)time::NewTimer(kNever);
      (void)time::NewTicker(kNever);
      (void)time::After(kNever);
      recv_chan<absl::Time> c = time::After(kNever);
      select(Recv(c), Default());
    }
#if !defined(GUMP_TESTING_SANITIZED)
    // Four cells of 256 bytes each time would have been 20 MB.
    EXPECT_LE(testing::ResidentBytes() - before, 4 << 20);
#endif
  });
}

TEST_P(TimeTest, DurationsMayBeNegativeOrInfinite) {
  Run([] {
    for (absl::Duration d : {-absl::InfiniteDuration(), absl::Nanoseconds(-1),
                             absl::ZeroDuration()}) {
      auto t = time::NewTimer(d);
      EXPECT_TRUE(t.C.Recv().has_value());
      t.Reset(d);
      EXPECT_TRUE(t.C.Recv().has_value());
      EXPECT_TRUE(time::After(d).Recv().has_value());
    }
    for (absl::Duration d : {absl::InfiniteDuration(), absl::Hours(1) * 1e9}) {
      auto t = time::NewTimer(d);
      go([c = t.C] { c.Recv(); });
      EXPECT_TRUE(
          Eventually([] { return testing::CountParked("chan receive") > 0; }));
      EXPECT_TRUE(t.Reset(d));
      EXPECT_TRUE(t.Reset(kSoon));
      EXPECT_TRUE(
          Eventually([] { return testing::CountParked("chan receive") == 0; }));
    }
  });
}

TEST_P(TimeTest, ThreadsUseTimers) {
  Run([] {
    auto t = testing::KnownThread([] {
      auto timer = time::NewTimer(kNever);
      EXPECT_TRUE(timer.Reset(kSoon));
      EXPECT_TRUE(timer.C.Recv().has_value());
      EXPECT_FALSE(timer.Stop());
      EXPECT_EQ(1, select(Recv(timer.C), Recv(time::After(kSoon))));
      auto c = make_chan<int>();
      time::AfterFunc(kSoon, [c] { c.Send(7); });
      EXPECT_EQ(c.Recv(), 7);
    });
    blocking([&] { t.join(); });
  });
}

// ---- After and select

TEST_P(TimeTest, AfterIsATimeout) {
  Run([] {
    auto c = make_chan<int>();
    EXPECT_EQ(1, select(Recv(c), Recv(time::After(kSoon))));
    go([c] { c.Send(1); });
    EXPECT_EQ(0, select(Recv(c), Recv(time::After(kNever))));
  });
}

TEST_P(TimeTest, SelectSeesATimerThatIsDue) {
  Run([] {
    auto c = make_chan<int>();
    auto t = time::NewTimer(1ns);
    time::Sleep(kSoon);
    EXPECT_EQ(1, select(Recv(c), Recv(t.C), Default()));
    EXPECT_EQ(2, select(Recv(c), Recv(t.C), Default()));
  });
}

TEST_P(TimeTest, SelectOnSeveralTimersTakesTheFirst) {
  Run([] {
    for (int i = 0; i < 20; i++) {
      auto late = time::NewTimer(kNever);
      auto first = time::NewTimer(std::chrono::microseconds(50 * i));
      EXPECT_EQ(1, select(Recv(late.C), Recv(first.C), Recv(late.C)));
      EXPECT_TRUE(late.Stop());
    }
  });
}

// ---- AfterFunc

TEST_P(TimeTest, AfterFuncRunsInAGoroutineOfItsOwn) {
  Run([] {
    auto c = make_chan<uint64_t>();
    const auto start = steady_clock::now();
    auto t = time::AfterFunc(kSoon, [c] { c.Send(runtime::Goid()); });
    EXPECT_FALSE(t.C) << "no channel";
    EXPECT_NE(*c.Recv(), runtime::Goid());
    EXPECT_GE(steady_clock::now() - start, kSoon);
    EXPECT_FALSE(t.Stop());
  });
}

TEST_P(TimeTest, AfterFuncThatWasStoppedMayBeReset) {
  Run([] {
    std::atomic<int> calls = 0;
    auto t = time::AfterFunc(kNever, [&] { calls++; });
    EXPECT_TRUE(t.Stop());
    EXPECT_FALSE(t.Stop());
    EXPECT_FALSE(t.Reset(kSoon));
    EXPECT_TRUE(Eventually([&] { return calls == 1; }));
    EXPECT_FALSE(t.Reset(kNever));
    EXPECT_TRUE(t.Reset(kSoon));
    EXPECT_TRUE(Eventually([&] { return calls == 2; }));
  });
}

TEST_P(TimeTest, AfterFuncRunsWithoutAHandle) {
  Run([] {
    auto c = make_chan<int>(100);
    for (int i = 0; i < 100; i++) {
      (void)time::AfterFunc(std::chrono::microseconds(i), [c] { c.Send(1); });
    }
    for (int i = 0; i < 100; i++) c.Recv();
  });
}

TEST_P(TimeTest, AfterFuncResetsItself) {
  Run([] {
    auto done = make_chan<void>();
    auto timer = std::make_shared<time::Timer>();
    auto ready = make_chan<void>();
    int left = 20;
    *timer = time::AfterFunc(1us, [&, done] {
      ready.Recv();
      if (left == 20) {
        EXPECT_FALSE(timer->Stop()) << "it runs";
      }
      if (--left == 0) {
        done.Close();
        return;
      }
      EXPECT_FALSE(timer->Reset(1us));
    });
    ready.Close();
    done.Recv();
    EXPECT_EQ(left, 0);
  });
}

TEST_P(TimeTest, FunctionsAreDestroyedWhenTheyCanRunNoMore) {
  Run([] {
    auto held = std::make_shared<std::atomic<int>>(0);
    auto alone = [&] { return held.use_count() == 1; };
    {
      auto t = time::AfterFunc(kNever, [held] {});
      EXPECT_EQ(held.use_count(), 2);
      EXPECT_TRUE(t.Stop());
      EXPECT_EQ(held.use_count(), 2) << "Reset may come";
    }
    EXPECT_TRUE(alone());
    (void)time::AfterFunc(1ns, [held] { ++*held; });
    EXPECT_TRUE(Eventually(alone));
    EXPECT_EQ(*held, 1);
    {
      auto t = time::AfterFunc(1ns, [held] { ++*held; });
      EXPECT_TRUE(Eventually([&] { return *held == 2; }));
      EXPECT_FALSE(t.Stop());
    }
    EXPECT_TRUE(Eventually(alone));
  });
}

TEST_P(TimeTest, FunctionsMayBeMoveOnly) {
  Run([] {
    auto c = make_chan<int>();
    time::AfterFunc(absl::ZeroDuration(),
                    [c, p = std::make_unique<int>(5)] { c.Send(*p); });
    EXPECT_EQ(c.Recv(), 5);
  });
}

// ---- Ticker

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

// The readings of two clocks may be off if a thread is stopped in between,
// which is rare. A time that is on no grid is near one of this every fifth
// time.
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
