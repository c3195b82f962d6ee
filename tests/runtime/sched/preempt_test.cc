// The function `computes`: how two looks at a thread tell whether the thread
// computes or sleeps.
#include "runtime/sched/preempt.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>

#include "runtime/sched/rt0.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/threadstate_linux.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::rt {
namespace {

// A thread that computes or waits, and the number of sleeps that is reported
// for it.
class ComputesTest : public ::testing::Test {
 protected:
  ComputesTest() {
    schedinit();
    thread_ = std::thread([this] {
      tid_ = gettid();
      tid_.notify_all();
      task_.wait(kUndecided);
      while (task_ == kSpin) asm volatile("");
      task_.wait(kSleep);
    });
    tid_.wait(0);
    EXPECT_TRUE(testing::Eventually([this] {
      uint64_t n;
      return threadState(tid_, &n) == ThreadState::kAsleep;
    }));
  }
  ~ComputesTest() override {
    Do(kEnd);
    thread_.join();
  }

  enum Task { kUndecided, kSpin, kSleep, kEnd };
  void Do(Task task) {
    task_ = task;
    task_.notify_all();
  }
  bool Computes(ForcePreempt how) { return computes(&m_, tid_, sleeps_, how); }
  bool EventuallyComputes(ForcePreempt how) {
    return testing::Eventually([&] { return Computes(how); });
  }

  M m_;
  uint64_t sleeps_ = 7;
  std::atomic<int32_t> tid_ = 0;
  std::atomic<Task> task_ = kUndecided;
  std::thread thread_;
};

TEST_F(ComputesTest, ItTakesTwoLooks) {
  Do(kSpin);
  EXPECT_FALSE(Computes(ForcePreempt::kHandOff));
  EXPECT_TRUE(EventuallyComputes(ForcePreempt::kHandOff));
  sleeps_++;
  EXPECT_FALSE(Computes(ForcePreempt::kHandOff));
  EXPECT_TRUE(EventuallyComputes(ForcePreempt::kHandOff));
}

TEST_F(ComputesTest, TheLooksMustBeTheGapApart) {
  Do(kSpin);
  EXPECT_FALSE(Computes(ForcePreempt::kHandOff));
  EXPECT_TRUE(EventuallyComputes(ForcePreempt::kHandOff));
  m_.forcePreemptTime.store(nanotime() + 60'000'000'000, relaxed);
  EXPECT_FALSE(Computes(ForcePreempt::kHandOff));
  EXPECT_FALSE(Computes(ForcePreempt::kStop));
}

// It has been woken and waits for a processor, as far as computes can tell.
TEST_F(ComputesTest, AThreadWithAStandingClockDoesNotCompute) {
  auto stands = [this, cpu = int64_t{-1}]() mutable {
    return std::exchange(cpu, threadCpuTime(tid_)) == cpu;
  };
  EXPECT_TRUE(testing::Eventually(stands));
  EXPECT_FALSE(Computes(ForcePreempt::kHandOff));
  while (nanotime() < m_.forcePreemptTime.load(relaxed) + 2'000'000) {
    EXPECT_FALSE(Computes(ForcePreempt::kHandOff));
  }
  EXPECT_TRUE(Computes(ForcePreempt::kStop));  // a stop waits no longer
  bool early;
  int64_t now;
  do {
    now = nanotime();
    m_.forcePreemptTime.store(now - 5 * kStopGap, relaxed);
    early = Computes(ForcePreempt::kStop);
  } while (nanotime() - now > 500'000);
  EXPECT_FALSE(early);
}

// Its clock stands, but it last slept in our own handler.
TEST_F(ComputesTest, AThreadThatHasNotSleptSincePreemptionInPlaceComputes) {
  m_.resumedSleeps.store(sleeps_, relaxed);
  EXPECT_FALSE(Computes(ForcePreempt::kHandOff));
  m_.forcePreemptTime.store(nanotime() - 2 * kForcePreemptGap, relaxed);
  EXPECT_TRUE(Computes(ForcePreempt::kHandOff));
  sleeps_++;
  EXPECT_FALSE(Computes(ForcePreempt::kHandOff));
  m_.forcePreemptTime.store(nanotime() - 2 * kForcePreemptGap, relaxed);
  EXPECT_FALSE(Computes(ForcePreempt::kHandOff));
}

}  // namespace
}  // namespace gump::rt
