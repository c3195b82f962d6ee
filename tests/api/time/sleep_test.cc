// Sleep: no sleeper wakes early, and each wakes whatever the others do.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync/waitgroup.h"
#include "gump/synctest.h"
#include "gump/time.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/time.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/synctest.h"
#include "tests/api/time/time_testing.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/resident_bytes.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using std::chrono::steady_clock;
using testing::kNever;
using testing::kSoon;
using namespace std::chrono_literals;

// Elapsed calls f and returns how long that took.
template <class F>
steady_clock::duration Elapsed(F&& f) {
  const auto start = steady_clock::now();
  f();
  return steady_clock::now() - start;
}

using TimeTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(TimeTest);

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
      const auto id = testing::CurrentThread();
      time::Sleep(kSoon);
      EXPECT_EQ(testing::CurrentThread(), id);
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

// TimersOfBubble returns the timers in the heap of the caller's bubble.
std::set<const rt::Timer*> TimersOfBubble() {
  rt::Timers* ts = &rt::getg()->bubble->timers;
  std::set<const rt::Timer*> timers;
  rt::LockScope l(&ts->mu);
  for (uint32_t i = 0; i < ts->len.load(rt::relaxed); i++) {
    timers.insert(ts->heap[i].timer);
  }
  return timers;
}

// An M that runs the timers of many sleepers would wait for the address of each
// stack.
TEST(SleepCellsTest, TimersOfSleepersLieInCellsThatAreUsedAgain) {
  static constexpr size_t kSleepers = 20;
  testing::RunWith(1, [] {
    std::set<const rt::Timer*> before;
    for (int round = 0; round < 3; round++) {
      synctest::Run([&] {
        sync::WaitGroup wg;
        for (size_t i = 0; i < kSleepers; i++) {
          wg.Go([] { time::Sleep(kNever); });
        }
        synctest::Wait();
        const std::set<const rt::Timer*> timers = TimersOfBubble();
        EXPECT_EQ(timers.size(), kSleepers);
        for (const rt::Timer* t : timers) {
          const auto* gp = static_cast<const rt::G*>(t->arg);
          const auto at = reinterpret_cast<uintptr_t>(t);
          EXPECT_TRUE(at < gp->stack.lo || at >= gp->stack.hi);
        }
        if (round > 0) {
          EXPECT_EQ(timers, before);
        }
        before = timers;
        wg.Wait();
      });
    }
  });
}

}  // namespace
}  // namespace gump
