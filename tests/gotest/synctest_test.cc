// The claims of Go's internal/synctest/synctest_test.go and
// testing/synctest/synctest_test.go about timers, under their names.
#include "gump/synctest.h"

#include <atomic>
#include <chrono>
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "tests/api/synctest_testing.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::kStart;
using testing::Since;
using namespace std::chrono_literals;

using GoSynctestTest = testing::SynctestTest;
GUMP_INSTANTIATE_GOMAXPROCS(GoSynctestTest);

TEST_P(GoSynctestTest, TestTimerRunsImmediately) {
  Bubble([] {
    const time::Timer t = time::NewTimer(0s);
    const auto got = t.C.TryRecv();
    ASSERT_EQ(got.kind, RecvResult<absl::Time>::kValue);
    EXPECT_EQ(got.value, kStart);
  });
}

TEST_P(GoSynctestTest, TestTimerRanInPast) {
  Bubble([] {
    const time::Timer t = time::NewTimer(1s);
    time::Sleep(2s);
    const auto got = t.C.TryRecv();
    ASSERT_EQ(got.kind, RecvResult<absl::Time>::kValue);
    EXPECT_EQ(got.value, kStart + absl::Seconds(1));
  });
}

TEST_P(GoSynctestTest, TestAfterFuncRunsImmediately) {
  Bubble([] {
    std::atomic<bool> called = false;
    time::AfterFunc(0s, [&] { called = true; });
    while (!called) runtime::Gosched();
  });
}

TEST_P(GoSynctestTest, TestTimerResetZeroDoNotHang) {
  Bubble([] {
    const time::Timer t = time::NewTimer(0s);
    auto [ctx, cancel] = context::WithCancel(context::Background());
    std::atomic<int> fired = 0;
    go([&t, &fired, done = ctx.Done()] {
      for (bool on = true; on;) {
        select(Recv(done, [&] { on = false; }),
               Recv(t.C, [&](absl::Time) { fired++; }));
      }
    });
    synctest::Wait();
    EXPECT_EQ(fired, 1);
    t.Reset(0s);
    synctest::Wait();
    EXPECT_EQ(fired, 2);
    cancel();
    synctest::Wait();
  });
}

TEST_P(GoSynctestTest, TestSynctestTimerRaceCtxCrash) {
  for (int round = 0; round < 20; round++) {
    std::atomic<int> called = 0;
    Bubble([&] {
      for (int i = 0; i < 100; i++) {
        time::AfterFunc(1s, [&] { time::AfterFunc(0s, [&] { called++; }); });
      }
      time::Sleep(2s);
    });
    EXPECT_EQ(called, 100);
  }
}

// ---- Resets and stops: claims that Go's tests do not make

TEST_P(GoSynctestTest, ResetOfAFunctionToNowCallsItAtOnce) {
  Bubble([] {
    std::atomic<int> called = 0;
    const time::Timer t = time::AfterFunc(1h, [&] { called++; });
    t.Stop();
    synctest::Sleep(2h);  // so t has left the heap
    for (int i = 1; i <= 3; i++) {
      EXPECT_FALSE(t.Reset(0s));
      while (called < i) runtime::Gosched();
    }
    EXPECT_EQ(Since(), absl::Hours(2));
  });
}

TEST_P(GoSynctestTest, ResetToNowWakesAReceiverAtOnce) {
  Bubble([] {
    const time::Timer t = time::NewTimer(1h);
    std::atomic<int> received = 0;
    go([&] {
      for (int i = 0; i < 3; i++) {
        const auto got = t.C.Recv();
        EXPECT_EQ(got, synctest::Now());
        received++;
      }
    });
    synctest::Sleep(2h);
    EXPECT_EQ(received, 1);
    for (int i = 2; i <= 3; i++) {
      EXPECT_FALSE(t.Reset(0s));
      while (received < i) runtime::Gosched();
      synctest::Wait();
    }
    EXPECT_EQ(Since(), absl::Hours(2));
  });
}

// Each Stop that returns true prevents a call, and so does each Reset.
TEST_P(GoSynctestTest, ResetsAndStopsOfOneTimerAgreeAboutItsCalls) {
  Bubble([] {
    constexpr int kGoroutines = 4;
    constexpr int kRounds = 200;
    std::atomic<int> called = 0;
    std::atomic<int> prevented = 0;
    const time::Timer t = time::AfterFunc(0s, [&] { called++; });
    sync::WaitGroup wg;
    for (int g = 0; g < kGoroutines; g++) {
      wg.Go([&, g] {
        for (int i = 0; i < kRounds; i++) {
          prevented += t.Reset((i + g) % 2 * 1ms) ? 1 : 0;
          prevented += t.Stop() ? 1 : 0;
          if (i % 16 == 0) time::Sleep(1ms);
        }
      });
    }
    wg.Wait();
    time::Sleep(1s);
    EXPECT_EQ(called + prevented, 1 + kGoroutines * kRounds);
  });
}

}  // namespace
}  // namespace gump
