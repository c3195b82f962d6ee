// Timer, After and AfterFunc: a timer fires once for each time that it is set,
// and Stop and Reset tell whether they were in time.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "absl/time/clock.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "tests/api/time/time_testing.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/resident_bytes.h"
#include "tests/testing/stress.h"
#include "tests/testing/wall_now.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using std::chrono::steady_clock;
using testing::Eventually;
using testing::kNever;
using testing::kSoon;
using testing::Pending;
using namespace std::chrono_literals;

using TimeTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(TimeTest);

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

}  // namespace
}  // namespace gump
