#include "sysmon/retake.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

#include "runtime/sched/preempt.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/threadstate_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {
namespace {

constexpr int64_t kMs = 1'000'000;

// A P that runs a goroutine on some M, and the M that looks at it.
class RetakeTest : public ::testing::Test {
 protected:
  RetakeTest() {
    monitor_.g0.m = &monitor_;
    setg(&monitor_.g0);
    Running(&p_, &m_, &g_);
  }
  ~RetakeTest() override { setg(nullptr); }

  static void Running(P* pp, M* mp, G* gp) {
    pp->m.store(mp, release);
    mp->p = pp;
    mp->curg.store(gp, release);
    gp->m = mp;
    pp->status.store(kPrunning, relaxed);
    pp->schedtick.store(1, relaxed);
  }
  static bool Asked(const G& gp) { return gp.preempt.load(relaxed); }

  M monitor_;
  M m_;
  G g_;
  P p_;
};

TEST_F(RetakeTest, FirstLookStartsTheClock) {
  EXPECT_FALSE(retakeP(&p_, 1000 * kMs));
  EXPECT_FALSE(Asked(g_));
  EXPECT_EQ(p_.sysmontick.schedwhen, 1000 * kMs);
}

TEST_F(RetakeTest, AsksWhenTheSliceIsUsedUp) {
  EXPECT_FALSE(retakeP(&p_, 0));
  EXPECT_FALSE(retakeP(&p_, kForcePreemptNS - 1));
  EXPECT_FALSE(Asked(g_));
  EXPECT_TRUE(retakeP(&p_, kForcePreemptNS));
  EXPECT_TRUE(Asked(g_));
}

TEST_F(RetakeTest, AsksAgainUntilTheTickMoves) {
  EXPECT_FALSE(retakeP(&p_, 0));
  EXPECT_TRUE(retakeP(&p_, 10 * kMs));
  g_.preempt.store(false, relaxed);
  EXPECT_TRUE(retakeP(&p_, 20 * kMs));
  EXPECT_TRUE(Asked(g_));
}

TEST_F(RetakeTest, SliceIsShorterWhileOthersWait) {
  G other;
  runqput(&p_, &other, /*next=*/false);
  const int32_t self = gettid();
  m_.procid.store(self, release);
  EXPECT_FALSE(retakeP(&p_, 0));
  EXPECT_FALSE(retakeP(&p_, kShortSliceNS - 1));
  EXPECT_FALSE(retakeP(&p_, kShortSliceNS));  // begins to look at its CPU time
  const int64_t cpu = threadCpuTime(self);
  EXPECT_GT(cpu, 0);
  while (threadCpuTime(self) - cpu < kShortCpuNS) {
    EXPECT_FALSE(Asked(g_));
  }
  EXPECT_TRUE(retakeP(&p_, kShortSliceNS + 1));
  EXPECT_TRUE(Asked(g_));
}

// A slice does not count as used up if the thread got no CPU time.
TEST_F(RetakeTest, SliceIsNotShorterWithoutCpuTime) {
  G other;
  runqput(&p_, &other, /*next=*/false);
  EXPECT_FALSE(retakeP(&p_, 0));  // m_ has no thread
  EXPECT_FALSE(retakeP(&p_, kForcePreemptNS - 1));
  EXPECT_TRUE(retakeP(&p_, kForcePreemptNS));
}

TEST_F(RetakeTest, NewTickIsANewSlice) {
  EXPECT_FALSE(retakeP(&p_, 0));
  p_.schedtick.store(2, relaxed);
  EXPECT_FALSE(retakeP(&p_, 10 * kMs));
  EXPECT_FALSE(retakeP(&p_, 19 * kMs));
  EXPECT_FALSE(Asked(g_));
  EXPECT_TRUE(retakeP(&p_, 20 * kMs));
}

TEST_F(RetakeTest, LeavesPsAloneThatDoNotRun) {
  for (PStatus status : {kPidle, kPsyscall, kPgcstop, kPdead}) {
    p_.status.store(status, relaxed);
    EXPECT_FALSE(retakeP(&p_, 0));
    EXPECT_FALSE(retakeP(&p_, 1000 * kMs));
    EXPECT_FALSE(Asked(g_));
  }
}

TEST_F(RetakeTest, NeverAsksTheThreadThatLooks) {
  p_.m.store(&monitor_, release);
  monitor_.curg.store(&g_, release);
  EXPECT_FALSE(retakeP(&p_, 0));
  EXPECT_FALSE(retakeP(&p_, 10 * kMs));
  EXPECT_FALSE(Asked(g_));
}

TEST_F(RetakeTest, DoesNotAskWhileTheThreadIsBetweenGoroutines) {
  m_.curg.store(nullptr, release);
  EXPECT_FALSE(retakeP(&p_, 0));
  EXPECT_FALSE(retakeP(&p_, 10 * kMs));
}

TEST_F(RetakeTest, LooksForSleepersWhileOthersWait) {
  EXPECT_FALSE(retakeAsleep(&p_, 0));  // starts the clock
  const int64_t first = p_.sysmontick.lookwhen;
  EXPECT_EQ(first, kAsleepNS);
  EXPECT_FALSE(retakeAsleep(&p_, first));
  EXPECT_EQ(p_.sysmontick.lookwhen, first);  // no goroutine waits: no look
  G other;
  runqput(&p_, &other, /*next=*/false);
  EXPECT_FALSE(retakeAsleep(&p_, first - 1));
  EXPECT_EQ(p_.sysmontick.lookwhen, first);
  // It looks, finds no thread (m_ has none), and looks again, ever more rarely.
  EXPECT_FALSE(retakeAsleep(&p_, first));
  EXPECT_EQ(p_.sysmontick.lookwhen, 2 * first);
  EXPECT_FALSE(retakeAsleep(&p_, 2 * first));
  EXPECT_EQ(p_.sysmontick.lookwhen, 4 * first);
  EXPECT_FALSE(Asked(g_));
  p_.schedtick.store(2, relaxed);
  EXPECT_FALSE(retakeAsleep(&p_, 3 * first));
  EXPECT_EQ(p_.sysmontick.lookwhen, 4 * first);  // a new slice, a new clock
}

// The M has a thread, which waits or computes. The world is being stopped, so
// no M needs a P that is taken.
class RetakeThreadTest : public RetakeTest {
 protected:
  RetakeThreadTest() {
    membarrierInit();
    thread_ = std::thread([this] {
      m_.procid.store(gettid(), release);
      while (spin_.load(relaxed) == kSpin) asm volatile("");
      notesleep(&over_);
    });
    allp[0] = &p_;
    gomaxprocs.store(1, relaxed);
    sched.gcwaiting.store(true, relaxed);
    sched.stopwait = 100;
  }
  ~RetakeThreadTest() override {
    sched.gcwaiting.store(false, relaxed);
    sched.stopwait = 0;
    gomaxprocs.store(0, relaxed);
    allp[0] = nullptr;
    Sleep();
    notewakeup(&over_);
    thread_.join();
  }

  void SomebodyWaits() { runqput(&p_, &other_, /*next=*/false); }
  void Sleep() {
    spin_.store(0, relaxed);
    uint64_t sleeps;
    do {
      osyield();
    } while (Tid() == 0 || threadState(Tid(), &sleeps) != ThreadState::kAsleep);
  }
  int32_t Tid() { return m_.procid.load(acquire); }
  bool Signalled() { return m_.signalSent.load(relaxed) != 0; }

 private:
  static constexpr uint32_t kSpin = 1;
  Atomic<uint32_t> spin_{kSpin};
  Note over_;
  G other_;
  std::thread thread_;
};

TEST_F(RetakeThreadTest, ASleeperLosesItsPIfAGoroutineWaits) {
  if (!haveMembarrier()) GTEST_SKIP() << "no membarrier";
  Sleep();
  EXPECT_EQ(retake(0).taken, 0);
  EXPECT_EQ(retake(kAsleepNS).taken, 0) << "no goroutine waits";
  SomebodyWaits();
  EXPECT_EQ(retake(kAsleepNS - 1).taken, 0);
  EXPECT_EQ(p_.status.load(relaxed), kPrunning);
  EXPECT_EQ(retake(kAsleepNS).taken, 1);
  EXPECT_EQ(p_.status.load(relaxed), kPgcstop);
  EXPECT_FALSE(Signalled());
}

// A goroutine that is in no other's way runs on, because stopping it has a
// cost.
TEST_F(RetakeThreadTest, AComputingGoroutineIsStoppedOnlyIfAnotherWaits) {
  while (Tid() == 0) osyield();
  int64_t now = 0;
  EXPECT_FALSE(retakeP(&p_, now));
  for (int i = 0; i < 20; i++) {
    usleep(1000);
    EXPECT_TRUE(retakeP(&p_, now += kForcePreemptNS));
  }
  EXPECT_TRUE(Asked(g_)) << "to yield when it comes by";
  EXPECT_FALSE(Signalled());
  SomebodyWaits();
  for (int i = 0; i < 10'000 && !Signalled(); i++) {
    usleep(1000);
    EXPECT_TRUE(retakeP(&p_, now += kForcePreemptNS));
  }
  EXPECT_TRUE(Signalled());
}

// A P with a goroutine in a declared call. The world is being stopped, so no M
// needs a P that is taken.
class RetakeSyscallTest : public RetakeTest {
 protected:
  RetakeSyscallTest() {
    p_.m.store(nullptr, release);
    p_.status.store(kPsyscall, relaxed);
    NextCall();  // the first
    sched.gcwaiting.store(true, relaxed);
    sched.stopwait = 100;
    sched.npidle.store(1, relaxed);
  }
  ~RetakeSyscallTest() override {
    sched.gcwaiting.store(false, relaxed);
    sched.stopwait = 0;
    sched.npidle.store(0, relaxed);
  }
  // Look is retakeSyscall. If it returns true it must have taken the P.
  bool Look(int64_t now) {
    const uint32_t tick = p_.syscalltick.load(relaxed);
    const bool taken = retakeSyscall(&p_, now);
    EXPECT_EQ(p_.status.load(relaxed), taken ? kPgcstop : kPsyscall);
    EXPECT_EQ(p_.syscalltick.load(relaxed), tick + (taken ? 1 : 0));
    return taken;
  }
  void NextCall() { p_.syscalltick.add(1, relaxed); }
  void SomebodyWaits() { runqput(&p_, &other_, /*next=*/false); }

  G other_;
};

constexpr int64_t kLook = 20'000;  // ns between two looks

TEST_F(RetakeSyscallTest, TakesACallThatLastsFromLookToLook) {
  SomebodyWaits();
  EXPECT_FALSE(Look(0));
  NextCall();
  EXPECT_FALSE(Look(kLook));
  EXPECT_TRUE(Look(2 * kLook));
}

TEST_F(RetakeSyscallTest, WaitsForASliceIfThePIsNotNeededAndOthersAreIdle) {
  EXPECT_FALSE(Look(0));
  EXPECT_FALSE(Look(kLook));
  EXPECT_FALSE(Look(kForcePreemptNS - 1));
  EXPECT_TRUE(Look(kForcePreemptNS));
}

TEST_F(RetakeSyscallTest, TakesTheLastPThatCouldLookForWork) {
  sched.npidle.store(0, relaxed);
  EXPECT_FALSE(Look(0));
  EXPECT_TRUE(Look(kLook));
}

TEST_F(RetakeSyscallTest, ManyShortCallsUseUpASlice) {
  SomebodyWaits();
  int64_t now = 0;
  for (; now < kShortSliceNS; now += kLook) {
    ASSERT_FALSE(Look(now));
    NextCall();
  }
  EXPECT_TRUE(Look(now));
}

TEST_F(RetakeSyscallTest, LeavesPsAloneThatAreNotInACall) {
  for (PStatus status : {kPidle, kPrunning, kPgcstop, kPdead}) {
    p_.status.store(status, relaxed);
    EXPECT_FALSE(retakeSyscall(&p_, 0));
    EXPECT_FALSE(retakeSyscall(&p_, 1000 * kMs));
    EXPECT_EQ(p_.status.load(relaxed), status);
  }
}

// Late timers are a reason to ask, unless an idle P could steal them.
TEST_F(RetakeTest, LateTimersAreAReason) {
  constexpr int64_t kDue = 5 * kMs;
  p_.timers.minWhenHeap.store(kDue, relaxed);
  EXPECT_FALSE(retakeP(&p_, kMs));
  EXPECT_FALSE(retakeP(&p_, kDue + kTimerLateNS - 1));
  sched.npidle.store(1, relaxed);
  EXPECT_FALSE(retakeP(&p_, kDue + kTimerLateNS));
  sched.npidle.store(0, relaxed);
  EXPECT_FALSE(Asked(g_));
  EXPECT_TRUE(retakeP(&p_, kDue + kTimerLateNS));
  EXPECT_TRUE(Asked(g_));
}

// forcePreempt needs two looks at a thread. A slice that sysmon sees for the
// first time when timers are late already gets the first one at once.
TEST_F(RetakeTest, FirstLookAtASliceWithLateTimersPreparesTheForce) {
  constexpr int64_t kLate = 5 * kMs + kTimerLateNS;
  m_.procid.store(gettid(), release);
  EXPECT_FALSE(retakeP(&p_, kLate));
  EXPECT_EQ(p_.sysmontick.expectwhen, -1);
  p_.schedtick.store(2, relaxed);
  p_.timers.minWhenHeap.store(5 * kMs, relaxed);
  // They will be late at the next look.
  EXPECT_FALSE(retakeP(&p_, kLate - kForcePreemptFirstNS));
  EXPECT_EQ(p_.sysmontick.expectwhen, kLate - kForcePreemptFirstNS);
  // Where /proc does not show the thread, the clock is recorded.
  EXPECT_NE(m_.forcePreemptTime.load(relaxed) + m_.clockTime.load(relaxed), 0);
  EXPECT_FALSE(Asked(g_));
  EXPECT_TRUE(retakeP(&p_, kLate));
  EXPECT_TRUE(Asked(g_));
}

TEST_F(RetakeTest, AForceThatIsExpectedMakesTheNextLookComeSoon) {
  allp[0] = &p_;
  gomaxprocs.store(1, relaxed);
  p_.timers.minWhenHeap.store(5 * kMs, relaxed);
  EXPECT_FALSE(retake(kMs).forcing);
  p_.schedtick.store(2, relaxed);
  EXPECT_TRUE(retake(5 * kMs + kTimerLateNS).forcing);
  gomaxprocs.store(0, relaxed);
  allp[0] = nullptr;
}

// The kernel takes long to tell a thread's state, so sysmon does not ask it
// about a thread whose clock shows that it computes.
TEST_F(RetakeTest, AComputingThreadIsNotLookedUp) {
  m_.procid.store(gettid(), release);
  constexpr uint64_t kMark = 12345;
  bool asked = true;
  // Again if another program has taken this thread's processor meanwhile.
  for (int i = 0; asked && i < 10'000; i++) {
    (void)forcePreempt(&p_, ForcePreempt::kIfAsleep);  // begins to count
    const int64_t end = nanotime() + 4 * kForcePreemptGap;
    while (nanotime() < end) {
    }
    m_.forcePreemptSleeps.store(kMark, relaxed);
    (void)forcePreempt(&p_, ForcePreempt::kIfAsleep);
    asked = m_.forcePreemptSleeps.load(relaxed) != kMark;
  }
  EXPECT_FALSE(asked);
}

TEST_F(RetakeTest, LateTimersAreRememberedForASlice) {
  constexpr int64_t kDue = 5 * kMs;
  allp[0] = &p_;
  gomaxprocs.store(1, relaxed);
  EXPECT_FALSE(retake(kMs).timers);
  p_.timers.minWhenHeap.store(kDue, relaxed);
  constexpr int64_t kLate = kDue + kTimerLateNS;
  EXPECT_TRUE(retake(kLate).timers);
  p_.timers.minWhenHeap.store(0, relaxed);
  EXPECT_TRUE(retake(kLate + kForcePreemptNS - 1).timers);
  EXPECT_FALSE(retake(kLate + 2 * kForcePreemptNS).timers);
  gomaxprocs.store(0, relaxed);
  allp[0] = nullptr;
}

TEST_F(RetakeTest, LooksAtEveryLiveP) {
  P other;
  M otherM;
  G otherG;
  P dead;
  M deadM;
  G deadG;
  Running(&other, &otherM, &otherG);
  Running(&dead, &deadM, &deadG);
  allp[0] = &p_;
  allp[1] = &other;
  allp[2] = &dead;
  gomaxprocs.store(2, relaxed);
  EXPECT_FALSE(retake(0).forcing);
  EXPECT_TRUE(retake(10 * kMs).forcing);
  EXPECT_TRUE(Asked(g_));
  EXPECT_TRUE(Asked(otherG));
  EXPECT_FALSE(Asked(deadG));
  gomaxprocs.store(0, relaxed);
  allp[0] = allp[1] = allp[2] = nullptr;
}

}  // namespace
}  // namespace gump::rt
