// runOnWake, queueOnWake and raisePriority, in each scheduling class.
#include "runtime/sys/os_linux.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "tests/testing/real_time.h"

namespace gump::rt {
namespace {

using testing::MayBeRealTime;

// Class is a thread's scheduling class and its priority in it.
struct Class {
  int policy = 0;
  int priority = 0;

  static Class OfThisThread() {
    sched_param p = {};
    sched_getparam(0, &p);
    return {sched_getscheduler(0), p.sched_priority};
  }
  // Set returns false if the kernel refuses.
  bool Set() const {
    sched_param p = {};
    p.sched_priority = priority;
    return sched_setscheduler(0, policy, &p) == 0;
  }
  friend bool operator==(const Class&, const Class&) = default;
};

// On runs f on a thread of its own.
void On(const std::function<void()>& f) { std::thread(f).join(); }

TEST(RunOnWakeTest, OtherClassesKeepClassAndNiceness) {
  for (const int policy : {SCHED_OTHER, SCHED_BATCH, SCHED_IDLE}) {
    On([policy] {
      const Class before = {policy, 0};
      ASSERT_TRUE(before.Set());
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);
      const RunOnWake old = runOnWake();
      EXPECT_EQ(old.priority, 0u);
      EXPECT_EQ(Class::OfThisThread(), before);
      undoRunOnWake(old);
      EXPECT_EQ(Class::OfThisThread(), before);
      EXPECT_EQ(getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())), 19);
    });
  }
}

TEST(RunOnWakeTest, RealTimeThreadGetsThePriorityAbove) {
  if (!MayBeRealTime()) GTEST_SKIP() << "needs CAP_SYS_NICE";
  for (const int policy : {SCHED_FIFO, SCHED_RR}) {
    On([policy] {
      const Class before = {policy, 10};
      ASSERT_TRUE(before.Set());
      const RunOnWake old = runOnWake();
      EXPECT_EQ(old.priority, 10u);
      EXPECT_EQ(Class::OfThisThread(), (Class{policy, 11}));
      undoRunOnWake(old);
      EXPECT_EQ(Class::OfThisThread(), before);
    });
  }
}

TEST(RunOnWakeTest, HighestPriorityStays) {
  if (!MayBeRealTime()) GTEST_SKIP() << "needs CAP_SYS_NICE";
  On([] {
    const Class before = {SCHED_RR, sched_get_priority_max(SCHED_RR)};
    ASSERT_TRUE(before.Set());
    EXPECT_EQ(raisePriority(), 0u);
    EXPECT_EQ(Class::OfThisThread(), before);
  });
}

TEST(QueueOnWakeTest, OrdinaryThreadBecomesBatchWithItsNiceness) {
  On([] {
    ASSERT_TRUE((Class{SCHED_OTHER, 0}.Set()));
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);
    queueOnWake();
    EXPECT_EQ(Class::OfThisThread(), (Class{SCHED_BATCH, 0}));
    EXPECT_EQ(getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())), 19);
  });
}

TEST(QueueOnWakeTest, OtherClassesStay) {
  std::vector<Class> classes = {{SCHED_BATCH, 0}, {SCHED_IDLE, 0}};
  if (MayBeRealTime()) classes.push_back({SCHED_FIFO, 10});
  for (const Class before : classes) {
    On([before] {
      ASSERT_TRUE(before.Set());
      queueOnWake();
      EXPECT_EQ(Class::OfThisThread(), before);
    });
  }
}

// The program has chosen another priority meanwhile.
TEST(RunOnWakeTest, UndoLeavesAnotherPriorityAlone) {
  if (!MayBeRealTime()) GTEST_SKIP() << "needs CAP_SYS_NICE";
  On([] {
    ASSERT_TRUE((Class{SCHED_RR, 10}.Set()));
    const RunOnWake old = runOnWake();
    for (const Class c : {Class{SCHED_FIFO, 30}, Class{SCHED_OTHER, 0}}) {
      ASSERT_TRUE(c.Set());
      undoRunOnWake(old);
      EXPECT_EQ(Class::OfThisThread(), c);
    }
  });
}

}  // namespace
}  // namespace gump::rt
