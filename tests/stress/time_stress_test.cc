// Timers: seeded races of Stop, Reset and expiry. In every schedule, each time
// that a timer is set has exactly one outcome: it fires, or the Stop or Reset
// that kept it from firing says so.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "tests/stress/stress_testing.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using std::chrono::nanoseconds;
using testing::Eventually;
using testing::RandomProcs;
using testing::Rng;
using testing::StressLoop;
using namespace std::chrono_literals;

nanoseconds Short(Rng& rng) {
  return nanoseconds(rng.OneIn(4) ? 0
                                  : rng.Below(rng.OneIn(2) ? 3000 : 100000));
}

// Pause lets some time pass, in one of several ways.
void Pause(Rng& rng) {
  switch (rng.Below(4)) {
    case 0:
      runtime::Gosched();
      break;
    case 1:
      time::Sleep(Short(rng));
      break;
    case 2: {
      const auto end = std::chrono::steady_clock::now() + Short(rng);
      while (std::chrono::steady_clock::now() < end) {
      }
      break;
    }
    default:
      break;
  }
}

// Everyone calls f(rng) in `goroutines` goroutines and a plain thread.
template <class F>
void Everyone(Rng& rng, int goroutines, F f) {
  sync::WaitGroup wg;
  for (int i = 0; i < goroutines; i++) {
    wg.Go([&f, seed = rng.Next()] {
      Rng own(seed);
      f(own);
    });
  }
  std::thread t;
  if (rng.OneIn(4)) {
    t = testing::KnownThread([&f, seed = rng.Next()] {
      Rng own(seed);
      f(own);
    });
  }
  wg.Wait();
  if (t.joinable()) blocking([&] { t.join(); });
}

// Setting the timer, by NewTimer, AfterFunc or Reset, opens one account. Either
// a firing closes it, or a Stop or Reset that returns true.
struct Accounts {
  std::atomic<int64_t> set = 1;
  std::atomic<int64_t> prevented = 0;
};

// Stir stops and resets timer at random.
void Stir(Rng& rng, const time::Timer& timer, Accounts& a) {
  for (int i = 0; i < 50; i++) {
    if (rng.OneIn(2)) {
      a.prevented += timer.Stop() ? 1 : 0;
    } else {
      a.set++;
      a.prevented += timer.Reset(Short(rng)) ? 1 : 0;
    }
    Pause(rng);
  }
}

TEST(TimeStressTest, EitherTheFunctionRunsOrAStopWins) {
  gump::Run([] {
    StressLoop([](Rng& rng) {
      RandomProcs(rng);
      Accounts a;
      std::atomic<int64_t> fired = 0;
      auto timer = time::AfterFunc(Short(rng), [&] { fired++; });
      Everyone(rng, 3, [&](Rng& own) { Stir(own, timer, a); });
      a.prevented += timer.Stop() ? 1 : 0;
      EXPECT_TRUE(Eventually([&] { return fired + a.prevented == a.set; }))
          << a.set << " set, " << a.prevented << " prevented, " << fired
          << " fired";
      time::Sleep(200us);
      EXPECT_EQ(fired + a.prevented, a.set);
    });
  });
}

// A timer due within a microsecond or two, and a Stop at about that time, again
// and again. There are as many races as there is time for, and it prints their
// number.
TEST(TimeStressTest, EveryRaceHasOneWinner) {
  gump::Run([] {
    int64_t races = 0;
    int64_t lost = 0;
    StressLoop([&](Rng& rng) {
      RandomProcs(rng);
      constexpr int64_t kRaces = 500;
      std::atomic<int64_t> set = 0;
      std::atomic<int64_t> prevented = 0;
      std::atomic<int64_t> fired = 0;
      Everyone(rng, 4, [&](Rng& own) {
        const auto timer = time::AfterFunc(1h, [&] { fired++; });
        EXPECT_TRUE(timer.Stop());
        int64_t stops = 0;
        for (int64_t i = 0; i < kRaces; i++) {
          timer.Reset(nanoseconds(own.Below(1500)));
          if (own.OneIn(4)) runtime::Gosched();
          const auto until =
              std::chrono::steady_clock::now() + nanoseconds(own.Below(1500));
          while (std::chrono::steady_clock::now() < until) {
          }
          stops += timer.Stop() ? 1 : 0;
        }
        set += kRaces;
        prevented += stops;
      });
      EXPECT_TRUE(Eventually([&] { return fired + prevented == set; }))
          << set << " set, " << prevented << " prevented, " << fired
          << " fired";
      races += set;
      lost += fired;
    });
    std::printf("%lld races, %lld lost by Stop\n",
                static_cast<long long>(races), static_cast<long long>(lost));
  });
}

// The same for a channel on which a goroutine waits. A value is received, or
// the Stop or Reset that came at about that time says that it is not. There are
// as many races as there is time for: some 10^5 in two seconds, 10^7 in a few
// minutes.
TEST(TimeStressTest, EveryRaceForAValueHasOneWinner) {
  gump::Run([] {
    int64_t races = 0;
    int64_t lost = 0;
    const auto round = [&](Rng& rng) {
      RandomProcs(rng);
      std::atomic<int64_t> set = 0;
      std::atomic<int64_t> received = 0;
      Everyone(rng, 3, [&](Rng& own) {
        const auto timer = time::NewTimer(1h);
        const auto quit = make_chan<void>();
        int64_t values = 0;
        sync::WaitGroup receiver;
        receiver.Go([&] {
          while (select(Recv(timer.C), Recv(quit)) == 0) values++;
        });
        int64_t times = 1;
        int64_t prevented = 0;
        for (; times < 1000; times++) {
          prevented += timer.Reset(nanoseconds(own.Below(1500))) ? 1 : 0;
          if (own.OneIn(4)) runtime::Gosched();
          const auto until =
              std::chrono::steady_clock::now() + nanoseconds(own.Below(1500));
          while (std::chrono::steady_clock::now() < until) {
          }
          if (own.OneIn(2)) prevented += timer.Stop() ? 1 : 0;
        }
        prevented += timer.Stop() ? 1 : 0;
        quit.Close();
        receiver.Wait();
        EXPECT_EQ(values + prevented, times)
            << prevented << " prevented, " << values << " received";
        EXPECT_FALSE(timer.C.TryRecv().value.has_value()) << "stale value";
        set += times;
        received += values;
      });
      races += set;
      lost += received;
    };
    StressLoop(round, 2);
    std::printf("%lld races, %lld lost by Stop and Reset\n",
                static_cast<long long>(races), static_cast<long long>(lost));
  });
}

TEST(TimeStressTest, EitherAValueComesOrAStopWins) {
  gump::Run([] {
    StressLoop([](Rng& rng) {
      RandomProcs(rng);
      Accounts a;
      std::atomic<int64_t> received = 0;
      auto timer = time::NewTimer(Short(rng));
      auto quit = make_chan<void>();
      sync::WaitGroup receivers;
      for (int i = 0; i < 3; i++) {
        receivers.Go([&, seed = rng.Next()] {
          Rng own(seed);
          for (;;) {
            if (own.OneIn(4)) {
              received += timer.C.TryRecv().value.has_value() ? 1 : 0;
              Pause(own);
              continue;
            }
            if (select(Recv(quit), Recv(timer.C)) == 0) return;
            received++;
          }
        });
      }
      Everyone(rng, 2, [&](Rng& own) { Stir(own, timer, a); });
      a.prevented += timer.Stop() ? 1 : 0;
      quit.Close();
      receivers.Wait();
      EXPECT_EQ(received + a.prevented, a.set)
          << a.set << " set, " << a.prevented << " prevented, " << received
          << " received";
      EXPECT_FALSE(timer.C.TryRecv().value.has_value()) << "stale value";
    });
  });
}

// After Stop or Reset returns, no value from before is received: every value
// is at least as late as the reset that preceded it.
TEST(TimeStressTest, NoValueIsStale) {
  gump::Run([] {
    StressLoop([](Rng& rng) {
      RandomProcs(rng);
      auto timer = time::NewTimer(Short(rng));
      for (int i = 0; i < 100; i++) {
        Pause(rng);
        const absl::Time before = absl::Now();
        const nanoseconds d = Short(rng);
        timer.Reset(d);
        if (rng.OneIn(3)) {
          timer.Stop();
          Pause(rng);
          ASSERT_FALSE(timer.C.TryRecv().value.has_value());
          continue;
        }
        // The two clocks may drift apart a little.
        ASSERT_GE(*timer.C.Recv(),
                  before + absl::FromChrono(d) - absl::Milliseconds(5));
      }
    });
  });
}

TEST(TimeStressTest, SleepersTickersAndTimeoutsAllEnd) {
  gump::Run([] {
    StressLoop([](Rng& rng) {
      RandomProcs(rng);
      Everyone(rng, 20, [](Rng& own) {
        for (int i = 0; i < 20; i++) {
          switch (own.Below(6)) {
            case 0:
              time::Sleep(Short(own));
              break;
            case 1:
              select(Recv(make_chan<int>()), Recv(time::After(Short(own))));
              break;
            case 2: {
              auto ticker = time::NewTicker(Short(own) + 1us);
              for (uint64_t n = own.Below(4); n > 0; n--) ticker.C.Recv();
              if (own.OneIn(2)) ticker.Stop();
              break;
            }
            case 3: {
              auto c = make_chan<void>();
              (void)time::AfterFunc(Short(own), [c] { c.Close(); });
              c.Recv();
              break;
            }
            case 4: {
              // Two timers, of which one is left over.
              auto a = time::After(Short(own));
              auto b = time::NewTimer(1h);
              select(Recv(a), Recv(b.C));
              break;
            }
            default:
              if (own.OneIn(10)) RandomProcs(own);  // moves timers
              break;
          }
        }
      });
    });
  });
}

// Sleepers still wake with every P busy, and with Ps that come and go.
TEST(TimeStressTest, SleepersWakeBesideGoroutinesThatCompute) {
  gump::Run([] {
    StressLoop([](Rng& rng) {
      const int procs = RandomProcs(rng);
      std::atomic<bool> stop = false;
      sync::WaitGroup wg;
      for (int i = 0; i < procs; i++) {
        wg.Go([&] {
          while (!stop.load(std::memory_order_relaxed)) {
          }
        });
      }
      Everyone(rng, 4, [](Rng& own) {
        for (int i = 0; i < 3; i++) time::Sleep(Short(own) + 100us);
      });
      stop = true;
      wg.Wait();
    });
  });
}

// No M polls, no M spins, and one goroutine sleeps. The wake-up must not be
// lost, and a later sleeper must not be late because of an earlier one.
TEST(TimeStressTest, LoneSleepersAreNotForgotten) {
  gump::Run([] {
    StressLoop([](Rng& rng) {
      RandomProcs(rng);
      auto c = make_chan<int>();
      go([c] {
        for (int i = 0; i < 20; i++) {
          time::Sleep(50us);
          c.Send(i);
        }
      });
      auto timer = time::NewTimer(10min);
      for (int i = 0; i < 20; i++) {
        ASSERT_EQ(0, select(Recv(c), Recv(timer.C)));
        timer.Reset(10min);
      }
    });
  });
}

}  // namespace
}  // namespace gump
