// The monitor finds a goroutine that waits although a P is idle. That takes a
// lost wake-up, so these tests queue a goroutine and wake no M.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/time.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/tls.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using Clock = std::chrono::steady_clock;

// Without preemption in place, a goroutine that computes keeps its P.
// Otherwise the P would go to the goroutine that waits. The variable is set
// before the runtime starts, because sysmon reads the setting at any time.
class NobodyIsPreempted : public ::testing::Environment {
  void SetUp() override { ::setenv("GODEBUG", "asyncpreemptoff=1", 1); }
};
[[maybe_unused]] ::testing::Environment* const environment =
    ::testing::AddGlobalTestEnvironment(new NobodyIsPreempted);

// Sleeper is a goroutine that parks, to be queued without a wakep.
class Sleeper {
 public:
  Sleeper() {
    go([this] {
      (void)rt::acquirem();  // gopark ends it
      parked_ = rt::getg();
      rt::gopark(nullptr, nullptr, rt::WaitReason::kZero);
      ran_ = true;
    });
    EXPECT_TRUE(testing::Eventually([&] {
      return parked_ != nullptr && rt::readgstatus(parked_) == rt::kGwaiting;
    }));
    // The other M may still be looking for work, and would find this one.
    for (int i = 0; i < 1000 && rt::sched.nmspinning.load(rt::acquire) != 0;
         i++) {
      ::usleep(10);
    }
  }
  ~Sleeper() {
    EXPECT_TRUE(testing::Eventually([&] { return ran_.load(); }));
  }

  void Queue() {
    rt::casgstatus(parked_, rt::kGwaiting, rt::kGrunnable);
    rt::LockScope l(&rt::sched.lock);
    rt::globrunqput(parked_);
  }
  // ComputeUntilRan computes, without entering the runtime, until the sleeper
  // has run. Returns false if it has not at the deadline.
  bool ComputeUntilRan(Clock::time_point deadline) const {
    while (!ran_ && Clock::now() < deadline) {
    }
    return ran_;
  }

 private:
  std::atomic<rt::G*> parked_ = nullptr;
  std::atomic<bool> ran_ = false;
};

void NotWoken(Clock::time_point deadline) {
  Sleeper s;
  s.Queue();
  (void)s.ComputeUntilRan(deadline);
}

// StallsAreCounted tells whether a goroutine without a wake-up is counted
// within a minute.
bool StallsAreCounted() {
  const uint64_t before = debug::ReadSchedStats().stalls;
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  while (debug::ReadSchedStats().stalls == before && Clock::now() < deadline) {
    NotWoken(deadline);
  }
  return debug::ReadSchedStats().stalls > before;
}

TEST(WatchdogTest, AGoroutineWithoutAWakeUpIsFoundAndCounted) {
  testing::RunWith(2, [] { EXPECT_TRUE(StallsAreCounted()); });
}

TEST(WatchdogTest, AnMInThePollerHidesNoStall) {
  testing::RunWith(2, [] {
    const time::Timer timer = time::AfterFunc(std::chrono::hours(1), [] {});
    EXPECT_TRUE(StallsAreCounted());
    EXPECT_TRUE(timer.Stop());
  });
}

// The kernel may stop a thread after it has put a goroutine into a queue and
// before it wakes an M. Such a wake-up is late, not lost.
TEST(WatchdogTest, AThreadInTheRuntimeMayStillWakeAnM) {
  testing::RunWith(2, [] {
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    for (bool ran = true; ran && Clock::now() < deadline;) {
      Sleeper s;
      rt::M* mp = rt::acquirem();
      const uint64_t before = debug::ReadSchedStats().stalls;
      s.Queue();
      ran = s.ComputeUntilRan(Clock::now() + std::chrono::milliseconds(100));
      EXPECT_EQ(debug::ReadSchedStats().stalls, before);
      rt::releasem(mp);
    }
  });
}

TEST(WatchdogDeathTest, WatchdogEndsTheProcessIfToldTo) {
  EXPECT_EXIT(
      {
        setenv("GODEBUG", "watchdog=2,asyncpreemptoff=1", 1);
        testing::RunWith(2, [] {
          const auto deadline = Clock::now() + std::chrono::seconds(60);
          while (Clock::now() < deadline) NotWoken(deadline);
        });
      },
      ::testing::ExitedWithCode(2),
      "^runtime: goroutine [0-9]+ waits beside an idle P\n"
      "fatal error: sysmon: work and an idle P\n");
}

TEST(WatchdogTest, IdleListsAreChecked) {
  testing::RunWith(4, [] {
    rt::LockScope l(&rt::sched.lock);
    rt::checkIdleLists();
  });
}

TEST(IdleListsDeathTest, WrongCountIsFound) {
  EXPECT_EXIT(testing::RunWith(4,
                               [] {
                                 rt::LockScope l(&rt::sched.lock);
                                 rt::sched.nmidle++;
                                 rt::checkIdleLists();
                               }),
              ::testing::ExitedWithCode(2),
              "^fatal error: checkIdleLists: bad nmidle\n");
}

TEST(IdleListsDeathTest, WrongNumberOfPsIsFound) {
  EXPECT_EXIT(testing::RunWith(4,
                               [] {
                                 rt::LockScope l(&rt::sched.lock);
                                 rt::sched.npidle.add(1, rt::seq_cst);
                                 rt::checkIdleLists();
                               }),
              ::testing::ExitedWithCode(2),
              "^fatal error: checkIdleLists: bad npidle\n");
}

// MarkAnIdlePAsStopped waits until there is an idle P.
void MarkAnIdlePAsStopped() {
  for (;;) {
    rt::LockScope l(&rt::sched.lock);
    if (rt::sched.nodes[0].pidle == nullptr) continue;
    rt::sched.nodes[0].pidle->status.store(rt::kPgcstop, rt::relaxed);
    rt::checkIdleLists();
  }
}

TEST(IdleListsDeathTest, PThatIsNotIdleIsFound) {
  EXPECT_EXIT(testing::RunWith(4, MarkAnIdlePAsStopped),
              ::testing::ExitedWithCode(2),
              "^fatal error: checkIdleLists: idle P that is not\n");
}

// MarkThisPAsStopped marks the P although no thread stops the world.
void MarkThisPAsStopped() {
  rt::LockScope l(&rt::sched.lock);
  rt::getg()->m->p->status.store(rt::kPgcstop, rt::relaxed);
  rt::checkIdleLists();
}

TEST(IdleListsDeathTest, PThatIsLostIsFound) {
  EXPECT_EXIT(testing::RunWith(4, MarkThisPAsStopped),
              ::testing::ExitedWithCode(2),
              "^fatal error: checkIdleLists: lost P\n");
}

}  // namespace
}  // namespace gump
