// Tracking: which transitions are measured, and what a measurement counts.
#include "runtime/sched/tracking.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/diag/stats.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using rt::relaxed;
using testing::RunWith;

constexpr int kPeriod = rt::kTrackingPeriod;

// IsNear tells whether n is at most a fifth away from expected.
bool IsNear(int64_t n, int64_t expected) {
  return n >= expected - expected / 5 && n <= expected + expected / 5;
}

// Measured returns how many transitions the histograms of all Ps have counted.
uint64_t Measured() {
  std::vector<uint64_t> counts(rt::kTimeHistCounts);
  for (int32_t i = 0; i < rt::gomaxprocs.load(rt::acquire); i++) {
    rt::allp[i]->timeToRun.addTo(counts.data());
  }
  uint64_t sum = 0;
  for (const uint64_t n : counts) sum += n;
  return sum;
}

// Pacer is a P that executes a goroutine each time that Execute is called.
class Pacer {
 public:
  // Execute returns how often a measurement that begins at `now` is recorded,
  // or 0 if none begins.
  uint32_t Execute(int64_t now) {
    if (--until_ != 0) return 0;
    const uint32_t weight = pace_.begin(now);
    random_ = random_ * 1664525 + 1013904223;
    until_ = pace_.next(random_ >> 16);
    return weight;
  }

 private:
  rt::TrackingPace pace_;
  uint32_t until_ = rt::kTrackingPeriod;
  uint32_t random_ = 1;
};

constexpr int64_t kBegin = 1'000'000'000;

TEST(TrackingPaceTest, SlowExecutionsAreMeasuredAboutEachEighthTime) {
  Pacer pacer;
  constexpr int kExecutions = 8000;
  int measured = 0;
  int64_t now = kBegin;
  for (int i = 0; i < kExecutions; i++, now += rt::kTrackingGap) {
    const uint32_t weight = pacer.Execute(now);
    ASSERT_LE(weight, 2u);
    if (weight != 0) measured++;
  }
  EXPECT_TRUE(IsNear(measured, kExecutions / kPeriod)) << measured;
}

TEST(TrackingPaceTest, FastExecutionsAreMeasuredOnceInAGapAndNoneIsLost) {
  constexpr int64_t kExecutions = 1'000'000;
  for (const int64_t step : {1, 20, 50, 400, 2'000, 100'000}) {
    Pacer pacer;
    int64_t now = kBegin;
    int64_t measured = 0;
    int64_t counted = 0;
    for (int64_t i = 0; i < kExecutions; i++, now += step) {
      const uint32_t weight = pacer.Execute(now);
      ASSERT_LE(weight, rt::kTrackingWeightMax);
      measured += weight != 0 ? 1 : 0;
      counted += weight;
    }
    EXPECT_GE(counted, kExecutions / kPeriod - int64_t{rt::kTrackingWeightMax});
    EXPECT_LE(counted, kExecutions / kPeriod);
    if (step >= 50 && step <= 400) {
      EXPECT_LE(measured, 1 + (now - kBegin) / rt::kTrackingGap) << step;
      EXPECT_GE(measured, (now - kBegin) / rt::kTrackingGap * 2 / 3) << step;
    }
  }
}

TEST(TrackingPaceTest, EachOfSeveralInTurnIsMeasured) {
  constexpr int kExecutions = 160'000;
  for (const int n : {2, 7, 8, 16, 64}) {
    Pacer pacer;
    std::vector<int> measured(static_cast<size_t>(n));
    int64_t now = kBegin;
    for (int i = 0; i < kExecutions; i++, now += rt::kTrackingGap) {
      if (pacer.Execute(now) != 0) measured[static_cast<size_t>(i % n)]++;
    }
    for (const int m : measured) {
      EXPECT_GE(m, kExecutions / kPeriod / n / 2) << n;
    }
  }
}

TEST(TrackingPaceTest, PauseMakesThePaceSlowAgain) {
  Pacer pacer;
  int64_t now = kBegin;
  for (int i = 0; i < 10'000; i++, now += 20) (void)pacer.Execute(now);
  now += 1'000'000'000;
  while (pacer.Execute(now) == 0) {
  }
  int until = 1;
  while (pacer.Execute(now) == 0) until++;
  EXPECT_LT(until, 2 * kPeriod);
}

TEST(TrackingPaceTest, TimeThatGoesBackDoesNoHarm) {
  Pacer pacer;
  for (int64_t now = kBegin; now > 0; now -= 1'000'000) {
    ASSERT_LE(pacer.Execute(now), rt::kTrackingWeightMax);
  }
}

// Everything that the two goroutines do is a transition, and one of eight is
// counted. Each P holds back at most kTrackingWeightMax, and so does each
// measurement that has begun and is not over.
TEST(TrackingTest, EveryEighthTransitionIsCounted) {
  for (const int procs : {1, 2, 4, 8}) {
    RunWith(procs, [procs] {
      constexpr int kTrips = 40'000;
      const uint64_t before = Measured();
      auto ping = make_chan<int>();
      auto pong = make_chan<int>();
      sync::WaitGroup wg;
      wg.Go([=] {
        for (int i = 0; i < kTrips; i++) {
          (void)ping.Recv();
          pong.Send(i);
        }
      });
      for (int i = 0; i < kTrips; i++) {
        ping.Send(i);
        (void)pong.Recv();
      }
      wg.Wait();
      const auto counted = static_cast<int64_t>(Measured() - before);
      // Each trip makes each of the two wait, once or twice. Preemptions come
      // on top.
      const int64_t slack = int64_t{2} * rt::kTrackingWeightMax * procs + 64;
      EXPECT_GE(counted, 2 * kTrips / kPeriod - slack) << procs;
      EXPECT_LE(counted, 5 * kTrips / kPeriod + slack) << procs;
    });
  }
}

TEST(TrackingTest, EveryEighthGoroutineThatEndsAtOnceIsCounted) {
  RunWith(1, [] {
    constexpr int kGoroutines = 64'000;
    const uint64_t before = Measured();
    for (int i = 0; i < kGoroutines / 100; i++) {
      sync::WaitGroup wg;
      for (int k = 0; k < 100; k++) wg.Go([] {});
      wg.Wait();
    }
    const auto counted = static_cast<int64_t>(Measured() - before);
    EXPECT_TRUE(IsNear(counted, kGoroutines / kPeriod)) << counted;
  });
}

TEST(TrackingTest, GoroutinesForgetWhenADumpHasSeenThem) {
  RunWith(2, [] {
    sync::WaitGroup wg;
    auto stop = make_chan<int>();
    for (int i = 0; i < 64; i++) {
      wg.Go([=] { (void)stop.Recv(); });
    }
    ASSERT_TRUE(testing::Eventually([] {
      return runtime::Stack(true).find("chan receive") != std::string::npos;
    }));
    for (int i = 0; i < 20; i++) {
      (void)runtime::Stack(true);
      for (int k = 0; k < 100; k++) runtime::Gosched();
    }
    int seen = 0;
    rt::forEachG(
        [](rt::G* gp, void* n) {
          if (rt::readgstatus(gp) == rt::kGwaiting && gp->waitsince != 0) {
            ++*static_cast<int*>(n);
          }
        },
        &seen);
    EXPECT_GE(seen, 64);
    stop.Close();
    wg.Wait();
    rt::forEachG(
        [](rt::G* gp, void*) {
          if (rt::readgstatus(gp) != rt::kGdead) return;
          EXPECT_EQ(gp->waitsince, 0);
        },
        nullptr);
  });
}

TEST(TrackingTest, WaitsForAMutexAreAddedUp) {
  RunWith(2, [] {
    const int64_t before = rt::stats.mutexWaitNS.load(relaxed);
    sync::Mutex mu;
    sync::WaitGroup wg;
    // In each round 32 goroutines wait, all at once, for at least 1 ms. Of all
    // waits every eighth is tracked, in the long run.
    for (int round = 0; round < 16; round++) {
      std::atomic<int> at = 0;
      mu.Lock();
      for (int i = 0; i < 32; i++) {
        wg.Go([&] {
          at++;
          mu.Lock();
          mu.Unlock();
        });
      }
      while (at < 32) blocking([] { usleep(100); });
      blocking([] { usleep(1000); });
      mu.Unlock();
      wg.Wait();
    }
    EXPECT_GE(rt::stats.mutexWaitNS.load(relaxed) - before, 16'000'000);
  });
}

}  // namespace
}  // namespace gump
