// Where a goroutine that yields goes if there are several Ps. Models with the
// names sched_yield* explore the same code.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/os.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "tests/testing/fuzzsched.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Eventually;

// Hog is a goroutine that computes, so that the others have one P less.
class Hog {
 public:
  Hog() {
    wg_.Go([this] {
      running_ = true;
      while (!stop_) {
      }
    });
    EXPECT_TRUE(Eventually([this] { return running_.load(); }));
  }
  ~Hog() {
    stop_ = true;
    wg_.Wait();
  }
  Hog(const Hog&) = delete;
  Hog& operator=(const Hog&) = delete;

 private:
  std::atomic<bool> running_ = false;
  std::atomic<bool> stop_ = false;
  sync::WaitGroup wg_;
};

// TurnsOfThree returns the order in which three goroutines run that yield four
// times each.
std::string TurnsOfThree() {
  std::array<std::atomic<char>, 12> log = {};
  std::atomic<size_t> n = 0;
  sync::WaitGroup wg;
  for (char name : {'A', 'B', 'C'}) {
    wg.Go([&log, &n, name] {
      for (int i = 0; i < 4; i++) {
        log[n++] = name;
        runtime::Gosched();
      }
    });
  }
  wg.Wait();
  return {log.begin(), log.end()};
}

TEST(SchedYieldTest, GoroutinesOfOneRingTakeTurns) {
  if (testing::FuzzSched()) GTEST_SKIP() << "fuzzsched changes the order";
  // sysmon may end a slice within a round, and the hog's P may then take
  // goroutines. So one of 100 tries in this order is enough.
  std::string last;
  testing::RunWith(2, [&last] {
    const Hog hog;
    for (int i = 0; i < 100 && last != "CABCABCABCAB"; i++) {
      last = TurnsOfThree();
    }
  });
  EXPECT_EQ(last, "CABCABCABCAB");
}

TEST(SchedYieldTest, TheGlobalQueueGetsATurnAfterThatOfTheRing) {
  if (testing::FuzzSched()) GTEST_SKIP() << "fuzzsched changes the order";
  // The kernel may preempt the thread that has taken the goroutine. In most
  // rounds it does not.
  constexpr int kRounds = 50;
  // A turn of this ring is two yields. Without turns, the global queue waits
  // for up to 61.
  constexpr int kSoon = 16;
  int soon = 0;
  testing::RunWith(2, [&soon] {
    const Hog hog;
    for (int round = 0; round < kRounds; round++) {
      std::atomic<bool> waits = false;
      std::atomic<bool> ran = false;
      std::atomic<int> yields = 0;
      const auto yield_until = [&] {
        while (!ran) {
          if (waits) yields++;
          runtime::Gosched();
        }
      };
      sync::WaitGroup wg;
      wg.Go(yield_until);
      wg.Go(yield_until);
      // A plain thread puts its goroutine into the global queue.
      std::thread thread([&] {
        go([&ran] { ran = true; });
        waits = true;
      });
      wg.Wait();
      if (yields <= kSoon) soon++;
      blocking([&thread] { thread.join(); });
    }
  });
  EXPECT_GE(soon, kRounds / 2);
}

class SchedYieldLoopTest : public testing::WithGomaxprocs {};
GUMP_INSTANTIATE_GOMAXPROCS(SchedYieldLoopTest);

TEST_P(SchedYieldLoopTest, ALoopOfYieldsDoesNotStarveTimersAndPipes) {
  Run([] {
    std::atomic<bool> fired = false;
    const time::Timer timer =
        time::AfterFunc(absl::Milliseconds(2), [&fired] { fired = true; });
    while (!fired) runtime::Gosched();

    auto pipe = os::Pipe();
    ASSERT_TRUE(pipe.ok()) << pipe.status();
    auto& [r, w] = *pipe;
    std::atomic<bool> read = false;
    sync::WaitGroup wg;
    wg.Go([&r = r, &read] {
      char c;
      EXPECT_TRUE(r.Read(absl::MakeSpan(&c, 1)).ok());
      read = true;
    });
    ASSERT_TRUE(testing::EventuallyParked("IO wait", 1));
    EXPECT_TRUE(w.Write("x").ok());
    while (!read) runtime::Gosched();
    wg.Wait();
  });
}

// A goroutine that is preempted in place waits in the global queue while its
// thread sleeps. If it is the first there when a turn of the ring ends,
// turnOverImpl must leave it to schedule.
TEST_P(SchedYieldLoopTest, YieldsAndPreemptionStarveNoGoroutine) {
  const size_t hogs = 2 * static_cast<size_t>(GetParam());
  constexpr size_t kYielders = 4;
  std::vector<std::atomic<int64_t>> steps(hogs + kYielders);
  Run([&] {
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    for (size_t i = 0; i < steps.size(); i++) {
      wg.Go([&steps, &stop, i, yields = i >= hogs] {
        while (!stop) {
          steps[i]++;
          if (yields) runtime::Gosched();
        }
      });
    }
    for (int round = 0; round < 5; round++) {
      std::vector<int64_t> before(steps.begin(), steps.end());
      EXPECT_TRUE(Eventually([&] {
        return std::equal(before.begin(), before.end(), steps.begin(),
                          std::less<int64_t>());
      }));
    }
    stop = true;
    wg.Wait();
  });
}

}  // namespace
}  // namespace gump
