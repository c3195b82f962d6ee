#include "gump/synctest.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync/cond.h"
#include "gump/sync/mutex.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "tests/api/synctest_testing.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Eventually;
using testing::kStart;
using testing::PanicText;
using testing::Since;
using testing::SynctestTest;
using namespace std::chrono_literals;

template <class T>
bool Empty(const T& c) {
  return c.TryRecv().kind == decltype(c.TryRecv())::kEmpty;
}

// EventuallyParked waits until a goroutine of a bubble is parked for `reason`.
bool EventuallyParked(std::string_view reason) {
  std::string header(1, '[');
  header.append(reason).append(", synctest bubble ");
  return Eventually(
      [&] { return runtime::Stack(true).find(header) != std::string::npos; });
}

GUMP_INSTANTIATE_GOMAXPROCS(SynctestTest);

// ---- The clock

TEST_P(SynctestTest, ClockBeginsInTheYear2000AndStandsStill) {
  Bubble([] {
    EXPECT_EQ(synctest::Now(), kStart);
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < 2ms) runtime::Gosched();
    EXPECT_EQ(synctest::Now(), kStart);
  });
}

TEST_P(SynctestTest, SleepTakesNoTime) {
  const auto begin = std::chrono::steady_clock::now();
  Bubble([] {
    for (int i = 1; i <= 100; i++) {
      time::Sleep(24h);
      EXPECT_EQ(Since(), absl::Hours(24 * i));
    }
    time::Sleep(1ns);
    EXPECT_EQ(Since(), absl::Hours(2400) + absl::Nanoseconds(1));
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 24h);
}

TEST_P(SynctestTest, OutsideTimeGoesOn) {
  Run([] {
    const absl::Time before = absl::Now();
    const absl::Time now = synctest::Now();
    EXPECT_GE(now, before);
    EXPECT_LE(now, absl::Now());
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    // This goroutine is in no bubble. Its timers use the real clock, while
    // bubbles begin and end.
    wg.Go([&] {
      time::Sleep(2ms);
      EXPECT_GE(*time::After(1ms).Recv(), before);
      stop = true;
    });
    while (!stop) synctest::Run([] { time::Sleep(1h); });
    wg.Wait();
  });
}

TEST_P(SynctestTest, EveryBubbleHasItsOwnClock) {
  Run([] {
    sync::WaitGroup wg;
    for (int b = 1; b <= 8; b++) {
      wg.Go([b] {
        synctest::Run([b] {
          for (int i = 1; i <= 20; i++) {
            time::Sleep(absl::Hours(b));
            EXPECT_EQ(Since(), absl::Hours(b * i));
          }
        });
      });
    }
    wg.Wait();
  });
}

TEST_P(SynctestTest, ChannelsOfTimeDeliverTheBubblesTime) {
  Bubble([] {
    EXPECT_EQ(*time::After(1h).Recv() - kStart, absl::Hours(1));
    time::Timer timer = time::NewTimer(90min);
    time::Sleep(2h);  // no receive since it was due
    EXPECT_EQ(*timer.C.Recv() - kStart, absl::Minutes(150));
    EXPECT_EQ(Since(), absl::Hours(3));
  });
}

TEST_P(SynctestTest, TickerTicks) {
  Bubble([] {
    time::Ticker ticker = time::NewTicker(10s);
    for (int i = 1; i <= 5; i++) {
      EXPECT_EQ(*ticker.C.Recv() - kStart, absl::Seconds(10 * i));
    }
    ticker.Reset(1s);
    EXPECT_EQ(*ticker.C.Recv() - kStart, absl::Seconds(51));
    ticker.Stop();
    time::Sleep(1h);
    EXPECT_TRUE(Empty(ticker.C));
  });
}

TEST_P(SynctestTest, LateTicksKeepToTheGrid) {
  Bubble([] {
    time::Ticker ticker = time::NewTicker(10s);
    time::Sleep(35s);
    EXPECT_EQ(*ticker.C.Recv() - kStart, absl::Seconds(10)) << "when it was";
    EXPECT_EQ(*ticker.C.Recv() - kStart, absl::Seconds(40)) << "20, 30: lost";
    EXPECT_EQ(Since(), absl::Seconds(40));
  });
}

TEST_P(SynctestTest, SelectTimesOutAtTheFirstTimer) {
  Bubble([] {
    auto never = make_chan<int>();
    const int i =
        select(Recv(never, [](int) {}), Recv(time::After(1min), [] {}),
               Recv(time::After(2min), [] {}));
    EXPECT_EQ(i, 1);
    EXPECT_EQ(Since(), absl::Minutes(1));
  });
}

TEST_P(SynctestTest, StoppedTimersDoNotMoveTheClock) {
  Bubble([] {
    bool called = false;
    time::Timer f = time::AfterFunc(1h, [&] { called = true; });
    time::Timer t = time::NewTimer(2h);
    EXPECT_TRUE(f.Stop());
    EXPECT_TRUE(t.Stop());
    EXPECT_FALSE(t.Stop());
    time::Sleep(3h);
    EXPECT_EQ(Since(), absl::Hours(3));
    EXPECT_FALSE(called);
    EXPECT_TRUE(Empty(t.C));
  });
}

TEST_P(SynctestTest, ResetMovesATimer) {
  Bubble([] {
    auto fired = make_chan<absl::Duration>(8);
    time::Timer later = time::AfterFunc(1h, [=] { fired.Send(Since()); });
    time::Timer sooner = time::AfterFunc(10h, [=] { fired.Send(Since()); });
    EXPECT_TRUE(later.Reset(5h));
    EXPECT_TRUE(sooner.Reset(3h));
    EXPECT_EQ(*fired.Recv(), absl::Hours(3));
    EXPECT_EQ(*fired.Recv(), absl::Hours(5));
    EXPECT_FALSE(later.Reset(1h));
    EXPECT_EQ(*fired.Recv(), absl::Hours(6));
    time::Timer t = time::NewTimer(1h);
    EXPECT_TRUE(t.Reset(2h));
    EXPECT_EQ(*t.C.Recv() - kStart, absl::Hours(8));
  });
}

TEST_P(SynctestTest, AfterFuncOfNothingRunsBeforeTheClockMoves) {
  Bubble([] {
    bool called = false;
    time::AfterFunc(0s, [&] {
      EXPECT_EQ(synctest::Now(), kStart);
      called = true;
    });
    synctest::Wait();
    EXPECT_TRUE(called);
  });
}

TEST_P(SynctestTest, SimultaneousTimersFireAtOneMoment) {
  Bubble([] {
    constexpr int kTimers = 100;
    std::atomic<int> fired = 0;
    for (int i = 0; i < kTimers; i++) {
      time::AfterFunc(1h, [&] {
        EXPECT_EQ(Since(), absl::Hours(1));
        fired++;
      });
    }
    time::Sleep(1h);
    synctest::Wait();
    EXPECT_EQ(fired, kTimers);
  });
}

TEST_P(SynctestTest, TimersFireInOrderOfTheirTimes) {
  Bubble([] {
    std::vector<int> order;  // one goroutine runs at each time
    for (int i : {3, 1, 4, 0, 2}) {
      go([&order, i] {
        time::Sleep(absl::Nanoseconds(1 + i));
        order.push_back(i);
      });
    }
    time::Sleep(1s);
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  });
}

// ---- Wait

TEST_P(SynctestTest, WaitReturnsWhenOthersAreBlocked) {
  Bubble([] {
    auto c = make_chan<int>();
    int state = 0;  // ordered by Wait
    go([&, c] {
      for (int i = 0; i < 100; i++) runtime::Gosched();
      state = 1;
      (void)c.Recv();
      state = 2;
      time::Sleep(1h);
      state = 3;
    });
    synctest::Wait();
    EXPECT_EQ(state, 1);
    c.Send(0);
    synctest::Wait();
    EXPECT_EQ(state, 2);
    EXPECT_EQ(synctest::Now(), kStart);
    time::Sleep(1h);
    synctest::Wait();
    EXPECT_EQ(state, 3);
  });
}

TEST_P(SynctestTest, WaitAloneReturnsAtOnce) {
  Bubble([] {
    for (int i = 0; i < 100; i++) synctest::Wait();
    EXPECT_EQ(synctest::Now(), kStart);
  });
}

TEST_P(SynctestTest, SleepWaitsForThoseThatWakeAtTheSameTime) {
  Bubble([] {
    constexpr int kGoroutines = 20;
    int done = 0;  // Sleep orders it
    auto next = make_chan<void>();
    for (int i = 0; i < kGoroutines; i++) {
      go([&done, next, i] {
        time::Sleep(1h);
        if (i > 0) next.Recv();  // one after the other
        if (++done < kGoroutines) next.Send();
      });
    }
    synctest::Sleep(1h);
    EXPECT_EQ(done, kGoroutines);
    EXPECT_EQ(Since(), absl::Hours(1));
  });
}

TEST_P(SynctestTest, SleepOfNothingIsWait) {
  Bubble([] {
    int done = 0;
    for (const auto d : {0s, -1s}) {
      go([&done] { done++; });
      synctest::Sleep(d);
    }
    EXPECT_EQ(done, 2);
    EXPECT_EQ(Since(), absl::ZeroDuration());
  });
}

TEST_P(SynctestTest, SleepOutsideOfABubblePanicsAtOnce) {
  Run([] {
    EXPECT_EQ(PanicText([] { synctest::Sleep(absl::InfiniteDuration()); }),
              "goroutine is not in a bubble");
  });
}

TEST_P(SynctestTest, WaitSeesEverythingSettle) {
  Bubble([] {
    // A chain: each wakes the next, and the last is seen.
    constexpr size_t kLength = 50;
    std::vector<chan<size_t>> c;
    for (size_t i = 0; i <= kLength; i++) {
      c.push_back(make_chan<size_t>(i % 2));
    }
    size_t last = 0;
    for (size_t i = 0; i < kLength; i++) {
      go([from = c[i], to = c[i + 1], i, &last] {
        for (size_t v : from) {
          if (i + 1 == kLength) {
            last = v;
          } else {
            to.Send(v + 1);
          }
        }
        to.Close();
      });
    }
    for (size_t round = 0; round < 20; round++) {
      c[0].Send(round);
      synctest::Wait();
      EXPECT_EQ(last, round + kLength - 1);
    }
    c[0].Close();
  });
}

TEST_P(SynctestTest, WaitSeesEveryDurableReason) {
  Bubble([] {
    auto c = make_chan<int>();
    auto d = make_chan<int>();
    auto done = make_chan<void>();
    sync::Mutex mu;
    sync::Cond cond(mu);
    sync::WaitGroup one;
    sync::WaitGroup all;
    bool go_on = false;
    one.Add(1);
    all.Go([=] { EXPECT_EQ(*c.Recv(), 1); });
    all.Go([=] { d.Send(1); });
    // It has a channel of its own. On c or d it might come before the others.
    all.Go([=, e = make_chan<int>()] {
      select(Recv(done, [] {}), Recv(e, [](int) {}));
    });
    all.Go([&] { one.Wait(); });
    all.Go([&] {
      mu.Lock();
      while (!go_on) cond.Wait();
      mu.Unlock();
    });
    all.Go([] { time::Sleep(1h); });
    synctest::Wait();
    EXPECT_EQ(synctest::Now(), kStart);
    c.Send(1);
    EXPECT_EQ(*d.Recv(), 1);
    done.Close();
    one.Done();
    mu.Lock();
    go_on = true;
    mu.Unlock();
    cond.Signal();
    all.Wait();
    EXPECT_EQ(Since(), absl::Hours(1));
  });
}

TEST_P(SynctestTest, ConcurrentWaitPanics) {
  Bubble([] {
    std::atomic<int> refused = 0;
    for (int i = 0; i < 2; i++) {
      go([&] {
        if (PanicText([] { synctest::Wait(); }) == "wait already in progress") {
          refused++;
        }
      });
    }
    // Usually both wait at once and one panics. By luck one may be done before
    // the other begins.
    time::Sleep(1s);
    EXPECT_LE(refused, 1);
  });
}

// ---- Waits that are not durable

TEST_P(SynctestTest, MutexStopsTheClock) {
  Run([] {
    sync::Mutex mu;
    mu.Lock();
    std::atomic<bool> asked = false;
    go([&] {
      EXPECT_TRUE(EventuallyParked("sync.Mutex.Lock"));
      EXPECT_FALSE(asked.load());
      mu.Unlock();
    });
    synctest::Run([&] {
      sync::WaitGroup wg;
      wg.Go([&] {
        mu.Lock();
        EXPECT_EQ(synctest::Now(), kStart);
        mu.Unlock();
      });
      time::Sleep(1h);
      asked = true;
      wg.Wait();
    });
  });
}

TEST_P(SynctestTest, ChannelFromOutsideStopsTheClock) {
  Run([] {
    auto c = make_chan<int>();
    std::atomic<bool> slept = false;
    go([&] {
      EXPECT_TRUE(EventuallyParked("chan receive"));
      EXPECT_FALSE(slept.load());
      c.Send(1);
    });
    synctest::Run([&] {
      go([&] {
        time::Sleep(1h);
        slept = true;
      });
      EXPECT_EQ(*c.Recv(), 1);
      EXPECT_EQ(synctest::Now(), kStart);
      time::Sleep(2h);
    });
  });
}

TEST_P(SynctestTest, TimerFromOutsideIsRealInside) {
  Run([] {
    time::Timer timer = time::NewTimer(2ms);
    synctest::Run([&] {
      const absl::Time fired = *timer.C.Recv();
      EXPECT_GT(fired, kStart + absl::Hours(24 * 365));
      EXPECT_EQ(synctest::Now(), kStart);
      EXPECT_FALSE(timer.Reset(1h));
      EXPECT_TRUE(timer.Stop());
    });
  });
}

TEST_P(SynctestTest, BlockingStopsTheClock) {
  Bubble([] {
    std::atomic<bool> back = false;
    go([&] {
      blocking([] { std::this_thread::sleep_for(2ms); });
      EXPECT_EQ(synctest::Now(), kStart);
      back = true;
    });
    time::Sleep(1h);
    EXPECT_TRUE(back);
  });
}

TEST_P(SynctestTest, WakesFromOutsideAreNotLost) {
  Run([] {
    sync::Mutex mu;
    sync::Cond cond(mu);
    std::atomic<bool> stop = false;
    std::atomic<int> rounds = 0;
    // A goroutine that waits for a condition counts as blocked, although a
    // thread outside is waking it. So the clock may jump, but nothing is lost.
    std::atomic<bool> gone = false;
    std::thread outside([&] {
      while (!stop) cond.Broadcast();
      gone = true;
    });
    synctest::Run([&] {
      sync::WaitGroup wg;
      std::atomic<bool> go_on = true;
      for (int i = 0; i < 4; i++) {
        wg.Go([&] {
          mu.Lock();
          while (go_on) {
            cond.Wait();
            rounds++;
          }
          mu.Unlock();
        });
      }
      for (int i = 1; i <= 200; i++) {
        time::Sleep(1s);
        EXPECT_EQ(Since(), absl::Seconds(i));
      }
      stop = true;
      while (!gone) runtime::Gosched();
      mu.Lock();
      go_on = false;
      mu.Unlock();
      cond.Broadcast();
      wg.Wait();
    });
    outside.join();
  });
}

// ---- Ends

TEST_P(SynctestTest, RunWaitsForAll) {
  std::atomic<int> ended = 0;
  Run([&] {
    synctest::Run([&] {
      for (int i = 0; i < 10; i++) {
        go([&] {
          go([&] {
            for (int k = 0; k < 100; k++) runtime::Gosched();
            ended++;
          });
          ended++;
        });
      }
    });
    EXPECT_EQ(ended, 20);
  });
}

TEST_P(SynctestTest, GoexitEndsMain) {
  Bubble([] { runtime::Goexit(); });
}

TEST_P(SynctestTest, DeadlockInABubblePanics) {
  Run([] {
    EXPECT_EQ(PanicText([] {
                synctest::Run([] {
                  auto c = make_chan<int>();
                  go([c] { c.Send(1); });
                  (void)make_chan<int>().Recv();
                });
              }),
              "deadlock: all goroutines in bubble are blocked");
    // The goroutines that are left do not disturb the next bubble.
    synctest::Run([] { time::Sleep(1h); });
  });
}

TEST_P(SynctestTest, WaitingForNothingIsADeadlock) {
  Run([] {
    for (void (*wait)() : {
             +[] { (void)chan<int>().Recv(); },
             +[] { chan<int>().Send(1); },
             +[] { select(); },
         }) {
      EXPECT_EQ(PanicText([wait] { synctest::Run(wait); }),
                "deadlock: all goroutines in bubble are blocked");
    }
  });
}

struct ThrowsWhenCopied {
  ThrowsWhenCopied() = default;
  ThrowsWhenCopied(const ThrowsWhenCopied&) { throw 5; }
  void operator()() const {}
};

TEST_P(SynctestTest, AFunctionThatCannotBeCopiedLeavesNoBubble) {
  Run([] {
    const ThrowsWhenCopied f;
    EXPECT_THROW(synctest::Run(f), int);
    synctest::Run([] { time::Sleep(1h); });  // it is not nested
  });
}

TEST_P(SynctestTest, SleepForEverIsADeadlock) {
  Run([] {
    EXPECT_EQ(PanicText([] {
                synctest::Run([] { time::Sleep(absl::InfiniteDuration()); });
              }),
              "deadlock: all goroutines in bubble are blocked");
  });
}

TEST_P(SynctestTest, TimeEndsWithMain) {
  Run([] {
    EXPECT_EQ(
        PanicText([] { synctest::Run([] { go([] { time::Sleep(1h); }); }); }),
        "deadlock: main bubble goroutine has exited but blocked goroutines "
        "remain");
  });
}

TEST_P(SynctestTest, FunctionsThatAreNotCalledAreDestroyed) {
  auto witness = std::make_shared<int>(0);
  time::Timer kept;
  Bubble([&] {
    time::AfterFunc(1h, [witness] { ADD_FAILURE(); });
    kept = time::AfterFunc(2h, [witness] { ADD_FAILURE(); });
    auto unused = time::NewTimer(3h);
    auto stopped = time::AfterFunc(4h, [witness] { ADD_FAILURE(); });
    EXPECT_TRUE(stopped.Stop());
  });
  EXPECT_EQ(witness.use_count(), 2);  // that of `kept`
  kept = time::Timer();
  EXPECT_EQ(witness.use_count(), 1);
}

TEST_P(SynctestTest, CapturesOfPendingFunctionsMayParkInTheEnd) {
  std::atomic<int> ends = 0;
  using Held = std::shared_ptr<void>;
  Bubble([&] {
    const Held waits(nullptr, [&](void*) {
      go([] { time::AfterFunc(1h, [] { ADD_FAILURE(); }); });
      synctest::Wait();
      ends++;
    });
    time::AfterFunc(1h, [waits] {});
    auto t = time::AfterFunc(1h, [] {});
    const Held stops(nullptr, [&, t](void*) mutable { ends += t.Stop(); });
    time::AfterFunc(2h, [stops] {});  // the last ones are destroyed first
  });
  EXPECT_EQ(ends, 2);
  Run([] {
    const std::string text = PanicText([] {
      synctest::Run([] {
        const Held sleeps(nullptr, [](void*) { time::Sleep(1s); });
        time::AfterFunc(1h, [sleeps] {});
      });
    });
    EXPECT_NE(text.find("blocked goroutines remain"), text.npos) << text;
  });
}

TEST_P(SynctestTest, PlainThreadMayRunABubble) {
  Run([] {
    std::atomic<bool> done = false;
    std::thread thread([&] {
      synctest::Run([] {
        time::Sleep(1h);
        synctest::Wait();
        EXPECT_EQ(Since(), absl::Hours(1));
      });
      EXPECT_EQ(PanicText([] { synctest::Wait(); }),
                "goroutine is not in a bubble");
      done = true;
    });
    EXPECT_TRUE(Eventually([&] { return done.load(); }));
    thread.join();
  });
}

TEST_P(SynctestTest, MisusePanics) {
  Run([] {
    EXPECT_EQ(PanicText([] { synctest::Wait(); }),
              "goroutine is not in a bubble");
    synctest::Run([] {
      EXPECT_EQ(PanicText([] { synctest::Run([] {}); }),
                "synctest.Run called from within a synctest bubble");
    });
  });
}

// ---- WaitGroups

TEST_P(SynctestTest, WaitGroupServesInsideAndThenOutside) {
  Run([] {
    sync::WaitGroup wg;
    synctest::Run([&] {
      for (int i = 0; i < 3; i++) {
        wg.Go([] { time::Sleep(1h); });
        wg.Wait();
      }
      EXPECT_EQ(Since(), absl::Hours(3));
      wg.Add(1);
      wg.Done();  // there is no waiter, so it stays marked
    });
    wg.Add(2);
    wg.Done();
    wg.Done();
    wg.Wait();
    synctest::Run([&] {
      wg.Go([] { time::Sleep(1h); });
      wg.Wait();
      EXPECT_EQ(Since(), absl::Hours(1));
    });
  });
}

// ---- Dumps

TEST_P(SynctestTest, DumpsNameTheBubble) {
  Bubble([] {
    auto c = make_chan<int>();
    go([c] { (void)c.Recv(); });
    go([] { time::Sleep(1h); });
    synctest::Wait();
    const std::string dump = runtime::Stack(true);
    EXPECT_NE(dump.find("[chan receive (durable), synctest bubble "),
              std::string::npos)
        << dump;
    EXPECT_NE(dump.find("[sleep (durable), synctest bubble "),
              std::string::npos)
        << dump;
    EXPECT_NE(dump.find("[synctest.Run (durable), synctest bubble "),
              std::string::npos)
        << dump;
    c.Close();
    time::Sleep(1h);
  });
}

// ---- Many

TEST_P(SynctestTest, ManyGoroutinesAndTimersKeepTime) {
  constexpr int kGoroutines = 200;
  constexpr int kRounds = 20;
  std::atomic<int> done = 0;
  Bubble([&] {
    auto tokens = make_chan<int>(3);
    sync::WaitGroup wg;
    for (int g = 0; g < kGoroutines; g++) {
      wg.Go([&, g] {
        absl::Duration expected = absl::ZeroDuration();
        for (int i = 0; i < kRounds; i++) {
          const auto d = absl::Seconds(1 + (g * 7 + i * 13) % 10);
          expected += d;
          if (i % 2 == 0) {
            time::Sleep(d);
          } else {
            select(Recv(time::After(d), [] {}),
                   Recv(time::After(1h), [] { ADD_FAILURE(); }));
          }
          EXPECT_EQ(Since(), expected);
          tokens.Send(g);  // takes no time
          (void)tokens.Recv();
        }
        done++;
      });
    }
    wg.Wait();
  });
  EXPECT_EQ(done, kGoroutines);
}

}  // namespace
}  // namespace gump
