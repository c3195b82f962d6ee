// The claims of Go's time/sleep_test.go and time/tick_test.go, under its names,
// in our words. Tests of Go's collector and of its zero values of Timer and
// Ticker are left out.
#include "absl/time/time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using absl::Hours;
using absl::InfiniteDuration;
using absl::Microseconds;
using absl::Milliseconds;
using absl::Minutes;
using absl::Nanoseconds;
using absl::Seconds;
using sync::WaitGroup;
using testing::Eventually;
using testing::PanicText;
using testing::RunWith;
using time::After;
using time::AfterFunc;
using time::NewTicker;
using time::NewTimer;
using time::Sleep;
using time::Ticker;
using time::Timer;

using GoTimeTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(GoTimeTest);

// Times fewer rounds under sanitizers, which slow every round down.
constexpr int Rounds(int n) { return rt::kSanitizerBuild ? n / 20 : n; }

void StopTheWorld() { (void)runtime::Stack(true); }

// FuncTimer is a timer made of AfterFunc, whose function sends to C.
struct FuncTimer {
  explicit FuncTimer(absl::Duration d)
      : C(make_chan<absl::Time>(1)),
        timer(AfterFunc(d, [c = C] { c.Send(absl::Now()); })) {}
  bool Stop() const { return timer.Stop(); }
  bool Reset(absl::Duration d) const { return timer.Reset(d); }

  chan<absl::Time> C;
  Timer timer;
};

// ---- sleep_test.go

TEST_P(GoTimeTest, TestSleep) {
  Run([] {
    const absl::Duration delay = Milliseconds(100);
    WaitGroup wg;
    wg.Go([=] {
      Sleep(delay / 2);
      StopTheWorld();
    });
    const absl::Time start = absl::Now();
    Sleep(delay);
    EXPECT_GE(absl::Now() - start, delay - Milliseconds(1));
    wg.Wait();
  });
}

// Each function starts the next, and then waits. So each needs a goroutine of
// its own.
void AfterFuncChain(int left, chan<void> end, chan<void> release) {
  if (left == 0) {
    end.Send();
    return;
  }
  (void)AfterFunc(Milliseconds(0),
                  [=] { AfterFuncChain(left - 1, end, release); });
  release.Recv();
}

TEST_P(GoTimeTest, TestAfterFunc) {
  Run([] {
    auto end = make_chan<void>();
    auto release = make_chan<void>();
    go([=] { AfterFuncChain(10, end, release); });
    end.Recv();
    release.Close();
    EXPECT_TRUE(Eventually([] { return runtime::NumGoroutine() == 1; }));
  });
}

void TickUnderStops(int ticks) {
  const Ticker ticker = NewTicker(Nanoseconds(1));
  for (int i = 0; i < ticks; i++) (void)ticker.C.Recv();
  ticker.Stop();
}

TEST_P(GoTimeTest, TestTickerStress) {
  Run([] {
    std::atomic<bool> stop = false;
    WaitGroup wg;
    wg.Go([&] {
      while (!stop) StopTheWorld();
    });
    TickUnderStops(100);
    stop = true;
    wg.Wait();
  });
}

TEST_P(GoTimeTest, TestTickerConcurrentStress) {
  Run([] {
    std::atomic<bool> stop = false;
    WaitGroup stopper;
    stopper.Go([&] {
      while (!stop) StopTheWorld();
    });
    WaitGroup wg;
    for (int i = 0; i < 10; i++) wg.Go([] { TickUnderStops(Rounds(100)); });
    wg.Wait();
    stop = true;
    stopper.Wait();
  });
}

// One of two goroutines is always runnable. The function runs all the same.
TEST(GoTimeOneProcTest, TestAfterFuncStarvation) {
  RunWith(1, [] {
    std::atomic<bool> stop = false;
    auto c = make_chan<bool>(1);
    WaitGroup wg;
    wg.Go([&] {
      while (!stop) c.Send(true);
      c.Close();
    });
    wg.Go([&] {
      for (bool b : c) EXPECT_TRUE(b);
    });
    (void)AfterFunc(Microseconds(1), [&] { stop = true; });
    wg.Wait();
  });
}

TEST_P(GoTimeTest, TestAfter) {
  Run([] {
    const absl::Duration delay = Milliseconds(100);
    const absl::Time start = absl::Now();
    const absl::Time end = After(delay).Recv().value();
    EXPECT_GE(absl::Now() - start, delay - Milliseconds(1));
    EXPECT_GE(end - start, delay - Milliseconds(1));
  });
}

TEST_P(GoTimeTest, TestAfterTick) {
  Run([] {
    constexpr int kCount = 10;
    const absl::Duration delta = Milliseconds(10);
    const absl::Time start = absl::Now();
    for (int i = 0; i < kCount; i++) (void)After(delta).Recv();
    EXPECT_GE(absl::Now() - start, delta * kCount * 9 / 10);
  });
}

// A Stop before the time wins, and wins once.
TEST_P(GoTimeTest, TestAfterStop) {
  Run([] {
    const Timer by_chan = NewTimer(Hours(1));
    EXPECT_TRUE(by_chan.Stop());
    EXPECT_FALSE(by_chan.Stop());
    EXPECT_EQ(select(Recv(by_chan.C), Default()), 1);

    std::atomic<bool> ran = false;
    const Timer by_func = AfterFunc(Hours(1), [&] { ran = true; });
    EXPECT_TRUE(by_func.Stop());
    EXPECT_FALSE(by_func.Stop());
    EXPECT_FALSE(ran);
  });
}

template <class MakeAfter>
void AfterQueuing(MakeAfter after) {
  constexpr int kSlots[] = {5, 3, 6, 6, 6, 1, 1, 2, 7, 9, 4, 8, 0};
  const absl::Duration delta = Milliseconds(20);
  struct Result {
    int slot;
    absl::Time at;
  };
  auto results = make_chan<Result>(std::size(kSlots));
  const absl::Time start = absl::Now();
  for (int slot : kSlots) {
    go([=, c = after(slot * delta)] {
      const absl::Time at = c.Recv().value();
      results.Send(Result{slot, at});
    });
  }
  // Every value says when it was due, however late its goroutine ran.
  for (size_t i = 0; i < std::size(kSlots); i++) {
    const Result r = results.Recv().value();
    EXPECT_GE(r.at - start, r.slot * delta - delta / 2);
  }
}

TEST_P(GoTimeTest, TestAfterQueuing_Chan) {
  Run([] { AfterQueuing([](absl::Duration d) { return After(d); }); });
}

TEST_P(GoTimeTest, TestAfterQueuing_Func) {
  Run([] { AfterQueuing([](absl::Duration d) { return FuncTimer(d).C; }); });
}

TEST_P(GoTimeTest, TestTimerStopStress) {
  Run([] {
    std::vector<Timer> timers;
    std::atomic<int> fired = 0;
    for (int i = 0; i < 100; i++) {
      timers.push_back(AfterFunc(Hours(1), [&] { fired++; }));
    }
    WaitGroup wg;
    for (const Timer& t : timers) {
      wg.Go([&t] {
        Sleep(Milliseconds(1));
        EXPECT_TRUE(t.Stop());
      });
    }
    wg.Wait();
    EXPECT_EQ(fired, 0);
  });
}

// Sleep(0) returns at once and leaves the goroutine running, also beside stops
// of the world.
TEST(GoTimeOneProcTest, TestSleepZeroDeadlock) {
  RunWith(4, [] {
    WaitGroup wg;
    wg.Go([] {
      for (int i = 0; i < 100; i++) StopTheWorld();
    });
    for (int i = 0; i < 100; i++) {
      Sleep(Seconds(0));
      auto c = make_chan<bool>(1);
      c.Send(true);
      (void)c.Recv();
    }
    wg.Wait();
  });
}

TEST_P(GoTimeTest, TestReset) {
  Run([] {
    const Timer t = NewTimer(Hours(1));
    EXPECT_TRUE(t.Reset(Hours(2))) << "it was pending";
    EXPECT_TRUE(t.Reset(Milliseconds(1)));
    EXPECT_TRUE(t.C.Recv().has_value());
    EXPECT_FALSE(t.Reset(Hours(1))) << "its value was received";
    EXPECT_EQ(select(Recv(t.C), Default()), 1);
    EXPECT_TRUE(t.Stop());
  });
}

TEST_P(GoTimeTest, TestOverflowSleep) {
  Run([] {
    const absl::Duration big = Nanoseconds(INT64_MAX);
    const absl::Duration neg = Nanoseconds(INT64_MIN);
    const Timer never = NewTimer(big);
    EXPECT_EQ(select(Recv(never.C), Recv(After(Milliseconds(25)))), 1);
    EXPECT_TRUE(never.Stop());
    Sleep(neg);
    Sleep(-InfiniteDuration());
    EXPECT_TRUE(After(neg).Recv().has_value());
    EXPECT_TRUE(After(-InfiniteDuration()).Recv().has_value());
  });
}

// A function that panics inside of a timer leaves no lock held. Its panic is
// the program's, which may catch it there.
TEST_P(GoTimeTest, TestIssue5745) {
  Run([] {
    auto done = make_chan<void>();
    (void)AfterFunc(Milliseconds(1), [=] {
      EXPECT_EQ(PanicText([] { panic("in a timer"); }), "in a timer");
      done.Send();
    });
    done.Recv();
    EXPECT_TRUE(After(Milliseconds(1)).Recv().has_value());
  });
}

// A period so long that the next time overflows leaves the other timers alone.
TEST_P(GoTimeTest, TestOverflowPeriodRuntimeTimer) {
  Run([] {
    const Ticker t = NewTicker(Nanoseconds(INT64_MAX));
    const Ticker u = NewTicker(Milliseconds(1));
    u.Reset(Nanoseconds(INT64_MAX - 1));
    EXPECT_TRUE(After(Milliseconds(2)).Recv().has_value());
    EXPECT_EQ(select(Recv(t.C), Recv(u.C), Default()), 2);
    t.Stop();
    u.Stop();
  });
}

TEST_P(GoTimeTest, TestZeroTimer) {
  Run([] {
    const FuncTimer again(Hours(1));
    for (int i = 0; i < Rounds(20'000); i++) {
      ASSERT_TRUE(NewTimer(Seconds(0)).C.Recv().has_value());
      ASSERT_TRUE(FuncTimer(Seconds(0)).C.Recv().has_value());
      again.Reset(Seconds(0));
      ASSERT_TRUE(again.C.Recv().has_value());
    }
  });
}

// A timer that was moved into the past fires, and does not wait for its old
// time.
TEST_P(GoTimeTest, TestTimerModifiedEarlier) {
  Run([] {
    const absl::Duration past = absl::UnixEpoch() - absl::Now();
    for (int i = 0; i < Rounds(1000); i++) {
      const FuncTimer timer(Hours(1));
      for (int j = 0; j < 10; j++) {
        if (!timer.Stop()) (void)timer.C.Recv();
        timer.Reset(past);
      }
      const Timer deadline = NewTimer(Seconds(60));
      ASSERT_EQ(select(Recv(timer.C), Recv(deadline.C)), 0);
      deadline.Stop();
    }
  });
}

// A hundred timers go through ten states each, in random order.
TEST_P(GoTimeTest, TestAdjustTimers) {
  Run([] {
    std::mt19937 random(static_cast<uint32_t>(absl::ToUnixNanos(absl::Now())));
    struct Subject {
      std::unique_ptr<FuncTimer> timer;
      int state = 0;
    };
    std::vector<Subject> left(100);
    while (!left.empty()) {
      const size_t i = random() % left.size();
      Subject& s = left[i];
      switch (s.state++) {
        case 0:
          s.timer = std::make_unique<FuncTimer>(Seconds(0));
          break;
        case 1:
        case 9:
          ASSERT_TRUE(s.timer->C.Recv().has_value());
          break;
        case 2:
          EXPECT_FALSE(s.timer->Reset(Minutes(10)));
          break;
        case 4:
          EXPECT_FALSE(s.timer->Reset(Minutes(30)));
          break;
        case 6:
          EXPECT_FALSE(s.timer->Reset(Minutes(20)));
          break;
        case 3:
        case 5:
        case 7:
          EXPECT_TRUE(s.timer->Stop());
          break;
        case 8:
          EXPECT_FALSE(s.timer->Reset(Seconds(0)));
          break;
        default:
          std::swap(left[i], left.back());
          left.pop_back();
      }
    }
  });
}

// If Stop or Reset says that the timer was not pending, its value has been
// received. With a synchronous channel a due value that was not received is
// still pending, so both always say true here.
void StopOrResetResult(bool stop) {
  constexpr int kGoroutines = rt::kSanitizerBuild ? 100 : 1000;
  auto start = make_chan<void>();
  WaitGroup wg;
  for (int i = 0; i < kGoroutines; i++) {
    wg.Go([=] {
      start.Recv();
      for (int j = 0; j < Rounds(100); j++) {
        const Timer a = NewTimer(Milliseconds(1));
        const Timer b = NewTimer(Milliseconds(1));
        const Timer& other = select(Recv(a.C), Recv(b.C)) == 0 ? b : a;
        if (!(stop ? other.Stop() : other.Reset(Hours(1)))) {
          (void)other.C.Recv();
        }
      }
    });
  }
  start.Close();
  wg.Wait();
}

TEST_P(GoTimeTest, TestStopResult) {
  Run([] { StopOrResetResult(/*stop=*/true); });
}

TEST_P(GoTimeTest, TestResetResult) {
  Run([] { StopOrResetResult(/*stop=*/false); });
}

TEST_P(GoTimeTest, TestMultiWakeupTicker) {
  Run([] {
    const Ticker ticker = NewTicker(Microseconds(1));
    WaitGroup wg;
    for (int i = 0; i < runtime::GOMAXPROCS(0); i++) {
      wg.Go([&] {
        for (int n = 0; n < Rounds(5000); n++) {
          select(Recv(ticker.C), Recv(After(Milliseconds(1))));
        }
      });
    }
    wg.Wait();
    ticker.Stop();
  });
}

TEST_P(GoTimeTest, TestMultiWakeupTimer) {
  Run([] {
    const Timer timer = NewTimer(Nanoseconds(1));
    WaitGroup wg;
    for (int i = 0; i < runtime::GOMAXPROCS(0); i++) {
      wg.Go([&] {
        for (int n = 0; n < Rounds(10'000); n++) {
          select(Recv(timer.C), Default());
          timer.Reset(Nanoseconds(1));
        }
      });
    }
    wg.Wait();
    timer.Stop();
  });
}

// ---- tick_test.go

TEST_P(GoTimeTest, TestTicker) {
  Run([] {
    constexpr int kTicks = 10;
    const absl::Duration delta = Milliseconds(5);
    const absl::Time start = absl::Now();
    const Ticker ticker = NewTicker(delta);
    for (int i = 0; i < kTicks / 2; i++) (void)ticker.C.Recv();
    ticker.Reset(delta * 2);
    for (int i = 0; i < kTicks / 2; i++) (void)ticker.C.Recv();
    ticker.Stop();
    // Ticks that the machine held up fall on the grid of their period.
    EXPECT_GE(absl::Now() - start, delta * (kTicks * 3 / 2 - 2));
    Sleep(delta * 4);
    EXPECT_EQ(select(Recv(ticker.C), Default()), 1) << "it did not shut down";
  });
}

TEST_P(GoTimeTest, TestTickerStopWithDirectInitialization) {
  Run([] {
    Ticker().Stop();
    EXPECT_EQ(PanicText([] { Ticker().Reset(Seconds(1)); }),
              "time: Reset called on uninitialized Ticker");
  });
}

TEST_P(GoTimeTest, TestTeardown) {
  Run([] {
    for (int i = 0; i < 3; i++) {
      const Ticker ticker = NewTicker(Milliseconds(2));
      (void)ticker.C.Recv();
      ticker.Stop();
    }
  });
}

TEST_P(GoTimeTest, TestTick) {
  Run([] { EXPECT_FALSE(static_cast<bool>(time::Tick(Seconds(-1)))); });
}

TEST_P(GoTimeTest, TestNewTickerLtZeroDuration) {
  Run([] {
    EXPECT_EQ(PanicText([] { (void)NewTicker(Seconds(-1)); }),
              "non-positive interval for NewTicker");
  });
}

TEST_P(GoTimeTest, TestTickerResetLtZeroDuration) {
  Run([] {
    const Ticker ticker = NewTicker(Hours(1));
    EXPECT_EQ(PanicText([&] { ticker.Reset(Seconds(0)); }),
              "non-positive interval for Ticker.Reset");
    ticker.Stop();
  });
}

// Timers that were stopped do not pile up in the heap, whatever the pace at
// which they are made.
TEST_P(GoTimeTest, TestLongAdjustTimers) {
  Run([] {
    WaitGroup wg;
    for (int i = 0; i < Rounds(5000); i++) {
      wg.Go([] { Sleep(Microseconds(10)); });
    }
    auto in = make_chan<int>();
    auto out = make_chan<int>();
    wg.Go([=] {
      std::vector<int> queue;
      for (;;) {
        int v = 0;
        bool ok = false;
        const chan<int> to = queue.empty() ? chan<int>() : out;
        const int head = queue.empty() ? 0 : queue.front();
        if (select(Send(to, head), Recv(in, &v, &ok)) == 0) {
          queue.erase(queue.begin());
        } else if (ok) {
          queue.push_back(v);
        } else {
          return;
        }
      }
    });
    for (int i = 0; i < Rounds(2500); i++) {
      constexpr int kItems = 20;
      for (int n = 0; n < kItems; n++) in.Send(n);
      for (int n = 0; n < kItems; n++) {
        int v = -1;
        ASSERT_EQ(select(Recv(out, &v), Recv(After(Seconds(60)))), 0);
        ASSERT_EQ(v, n);
      }
    }
    in.Close();
    wg.Wait();
  });
}

// TestChan, in parts, for a Timer and for a Ticker.
struct AnyTimer {
  recv_chan<absl::Time> c;
  std::function<bool()> stop;
  std::function<bool(absl::Duration)> reset;
  bool is_ticker;
};

// ForBoth runs f on a far timer, and on a far ticker that says what a timer
// would say.
template <class F>
void ForBoth(F f) {
  {
    const Timer t = NewTimer(Hours(3));
    f(AnyTimer{t.C, [=] { return t.Stop(); },
               [=](absl::Duration d) { return t.Reset(d); }, false});
    t.Stop();
  }
  const Ticker t = NewTicker(Hours(3));
  f(AnyTimer{t.C,
             [=] {
               t.Stop();
               return true;
             },
             [=](absl::Duration d) {
               t.Reset(d);
               return true;
             },
             true});
  t.Stop();
}

bool NoTick(const AnyTimer& t) { return select(Recv(t.c), Default()) == 1; }

TEST_P(GoTimeTest, TestChan_LenAndCapAreZero) {
  Run([] {
    ForBoth([](const AnyTimer& t) {
      EXPECT_EQ(t.c.Len(), 0u);
      EXPECT_EQ(t.c.Cap(), 0u);
      EXPECT_TRUE(NoTick(t));
      t.reset(Nanoseconds(1));
      Sleep(Milliseconds(1));
      EXPECT_EQ(t.c.Len(), 0u) << "not even when it is due";
    });
  });
}

TEST_P(GoTimeTest, TestChan_NoValueIsStale) {
  Run([] {
    ForBoth([](const AnyTimer& t) {
      t.reset(Nanoseconds(1));
      Sleep(Milliseconds(1));
      EXPECT_TRUE(t.reset(Hours(3))) << "due and not received is pending";
      EXPECT_TRUE(NoTick(t));
      t.reset(Nanoseconds(1));
      Sleep(Milliseconds(1));
      EXPECT_TRUE(t.stop());
      EXPECT_TRUE(NoTick(t));
      t.reset(Nanoseconds(1));
      EXPECT_TRUE(t.c.Recv().has_value());
    });
  });
}

TEST_P(GoTimeTest, TestChan_ABlockedReceiverFollowsReset) {
  Run([] {
    ForBoth([](const AnyTimer& t) {
      std::atomic<bool> got = false;
      WaitGroup wg;
      wg.Go([&] { got = t.c.Recv().has_value(); });
      ASSERT_TRUE(testing::EventuallyParked("chan receive", 1));
      t.reset(Hours(2));
      t.stop();
      t.reset(Hours(1));
      EXPECT_FALSE(got);
      t.reset(Nanoseconds(1));
      wg.Wait();
      EXPECT_TRUE(got);
    });
  });
}

TEST_P(GoTimeTest, TestChan_OneOfTwoWaitersGetsATimersValue) {
  Run([] {
    ForBoth([](const AnyTimer& t) {
      auto stop = make_chan<void>();
      std::atomic<int> values = 0;
      WaitGroup wg;
      for (int i = 0; i < 2; i++) {
        wg.Go([&, stop] {
          if (select(Recv(t.c), Recv(stop)) == 0) values++;
        });
      }
      ASSERT_TRUE(testing::EventuallyParked("select", 2));
      t.reset(Milliseconds(1));
      const int want = t.is_ticker ? 2 : 1;
      EXPECT_TRUE(Eventually([&] { return values == want; }));
      stop.Close();
      wg.Wait();
      EXPECT_EQ(values, want);
    });
  });
}

TEST_P(GoTimeTest, TestChan_AStoppedTimerWithWaitersNeverFires) {
  Run([] {
    ForBoth([](const AnyTimer& t) {
      auto stop = make_chan<void>();
      std::atomic<int> values = 0;
      WaitGroup wg;
      for (int i = 0; i < 2; i++) {
        wg.Go([&, stop] {
          if (select(Recv(t.c), Recv(stop)) == 0) values++;
        });
      }
      ASSERT_TRUE(testing::EventuallyParked("select", 2));
      t.reset(Hours(1));
      EXPECT_TRUE(t.stop());
      Sleep(Milliseconds(2));
      stop.Close();
      wg.Wait();
      EXPECT_EQ(values, 0);
    });
  });
}

TEST_P(GoTimeTest, TestManualTicker) {
  Run([] {
    // A ticker that the program puts together has no timer. Its Stop does
    // nothing, and its channel is the program's.
    Ticker ticker;
    auto c = make_chan<absl::Time>(1);
    ticker.C = c;
    ticker.Stop();
    const absl::Time now = absl::Now();
    c.Send(now);
    EXPECT_EQ(ticker.C.Recv(), now);
  });
}

// A value that is received late says when it was due: after so long a time, as
// counted from a moment in the call that made c.
void ExpectTimeOfDue(absl::Duration d, absl::Time before,
                     const recv_chan<absl::Time>& c, absl::Time after) {
  const absl::Duration error = Milliseconds(1);
  Sleep(d * 10);
  const absl::Time due = c.Recv().value();
  EXPECT_GE(due, before + d - error);
  EXPECT_LE(due, after + d + error);
}

TEST_P(GoTimeTest, TestAfterTimes) {
  Run([] {
    const absl::Time before = absl::Now();
    const recv_chan<absl::Time> c = After(Milliseconds(10));
    ExpectTimeOfDue(Milliseconds(10), before, c, absl::Now());
  });
}

TEST_P(GoTimeTest, TestTickTimes) {
  Run([] {
    const absl::Time before = absl::Now();
    const Ticker ticker = NewTicker(Milliseconds(10));
    ExpectTimeOfDue(Milliseconds(10), before, ticker.C, absl::Now());
    ticker.Stop();
  });
}

}  // namespace
}  // namespace gump
