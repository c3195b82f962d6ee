// The owner of a P that was taken from a sleeper, on bare structs.
// (tests/model/syscall_model.cc explores the protocol, and
// tests/sched/preempt_test.cc tests its purpose.)
#include "runtime/sched/preempt.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "runtime/sched/grace.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/rt0.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/threadstate_linux.h"
#include "runtime/sys/tls.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::rt {
namespace {

// Two Ps, an M that sleeps with the first, and an M that looks at it.
class PresumedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!haveMembarrier) GTEST_SKIP() << "no membarrier";
  }

  PresumedTest() {
    schedinit();
    asker_.g0.m = &asker_;
    setg(&asker_.g0);
    m_.curg.store(&g_, release);
    g_.m = &m_;
    Running(&p_[0]);
  }
  ~PresumedTest() override { setg(nullptr); }

  void Running(P* pp) {
    m_.p = pp;
    pp->m.store(&m_, release);
    pp->status.store(kPrunning, relaxed);
  }
  // ComesIn does what endPresumption does, and lets the M have the second P.
  void ComesIn() {
    m_.presumed.store(kPresumedNot, relaxed);
    Running(&p_[1]);
  }

  M asker_;
  M m_;
  G g_;
  P p_[2];
};

TEST_F(PresumedTest, ASleeperGetsItsPBack) {
  ASSERT_TRUE(presumeBlocked(&p_[0], &m_, &g_));
  EXPECT_EQ(p_[0].status.load(relaxed), kPidle);
  EXPECT_TRUE(giveBackP(&p_[0], &m_));
  EXPECT_EQ(p_[0].status.load(relaxed), kPrunning);
  EXPECT_EQ(p_[0].m.load(relaxed), &m_);
  EXPECT_EQ(m_.presumed.load(relaxed), kPresumedMarked);
}

TEST_F(PresumedTest, AnMThatHasComeInGetsNoPBack) {
  ASSERT_TRUE(presumeBlocked(&p_[0], &m_, &g_));
  ComesIn();
  EXPECT_FALSE(giveBackP(&p_[0], &m_));
  EXPECT_EQ(p_[0].status.load(relaxed), kPidle);
  EXPECT_EQ(p_[0].m.load(relaxed), nullptr);
}

TEST_F(PresumedTest, ALaterLossIsNotTakenForThisOne) {
  ASSERT_TRUE(presumeBlocked(&p_[0], &m_, &g_));
  ComesIn();
  ASSERT_TRUE(presumeBlocked(&p_[1], &m_, &g_));
  EXPECT_FALSE(giveBackP(&p_[0], &m_));
  EXPECT_TRUE(giveBackP(&p_[1], &m_));
}

// The goroutine was preempted in place without a P, and was released. This is
// the state in which preemptInPlace leaves it.
TEST_F(PresumedTest, AForgottenLossGivesNoPBack) {
  ASSERT_TRUE(presumeBlocked(&p_[0], &m_, &g_));
  m_.presumed.store(kPresumedTaken, relaxed);
  EXPECT_FALSE(giveBackP(&p_[0], &m_));
}

// ---- Grace periods

// A signal comes between two looks at the goroutine.
TEST_F(PresumedTest, PreemptionInPlaceAfterALossIsNoEntry) {
  ASSERT_TRUE(presumeBlocked(&p_[0], &m_, &g_));
  EntryWatch watch(&g_);
  g_.interrupted.store(1, release);
  m_.presumed.store(kPresumedNot, relaxed);
  m_.curg.store(nullptr, release);
  g_.m = nullptr;
  EXPECT_FALSE(watch.entered());
  EXPECT_FALSE(watch.entered());
  g_.interrupted.store(2, release);
  EXPECT_TRUE(watch.entered());
}

// The goroutine sleeps for most of the time, so every look may find that it has
// lost its P.
TEST_F(PresumedTest, AnEntryBeforeAnotherLossIsSeen) {
  ASSERT_TRUE(presumeBlocked(&p_[0], &m_, &g_));
  EntryWatch watch(&g_);
  EXPECT_FALSE(watch.entered());
  setg(&g_);
  m_.locks.store(1, relaxed);  // as acquirem
  EXPECT_TRUE(reenterNoPark(&m_));
  m_.locks.store(0, relaxed);
  setg(&asker_.g0);
  Running(&p_[0]);
  ASSERT_TRUE(presumeBlocked(&p_[0], &m_, &g_));
  EXPECT_TRUE(watch.entered());
}

TEST_F(PresumedTest, AnEntryBeforeAnotherPreemptionInPlaceIsSeen) {
  ASSERT_TRUE(presumeBlocked(&p_[0], &m_, &g_));
  EntryWatch watch(&g_);
  EXPECT_FALSE(watch.entered());
  g_.interrupted.store(1, release);
  m_.presumed.store(kPresumedNot, relaxed);
  EXPECT_FALSE(watch.entered());
  g_.interrupted.store(3, release);
  EXPECT_TRUE(watch.entered());
}

// ---- threadState

TEST(ThreadStateTest, AParentThatWaitsForItsVforkChildSleeps) {
  if (kSanitizerBuild) GTEST_SKIP() << "vfork is fork";
  schedinit();
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  std::atomic<int32_t> tid = 0;
  std::thread parent([&] {
    tid = gettid();
    if (vfork() == 0) {
      char c;
      (void)!read(fds[0], &c, 1);
      _exit(0);
    }
  });
  EXPECT_TRUE(testing::Eventually([&] {
    uint64_t sleeps;
    return tid != 0 && threadState(tid, &sleeps) == ThreadState::kAsleep;
  }));
  EXPECT_EQ(write(fds[1], "", 1), 1);
  parent.join();
  close(fds[0]);
  close(fds[1]);
}

// ---- preemptM

std::atomic<int> urgents;

TEST(PreemptMTest, SendsAgainAfterASliceWithoutAnAnswer) {
  if (kSanitizerDefersHandlers) GTEST_SKIP() << "always sends";
  schedinit();
  struct sigaction counting = {};
  counting.sa_handler = [](int) { urgents++; };
  struct sigaction before;
  sigaction(SIGURG, &counting, &before);
  M m;
  m.procid.store(gettid(), relaxed);  // so each has come when tgkill returns
  preemptM(&m);
  EXPECT_EQ(urgents, 1);
  // If this thread is kept from running for a slice, the time still looks
  // later.
  const int64_t later = nanotime() + 60'000'000'000;
  m.signalSent.store(later, relaxed);
  preemptM(&m);
  EXPECT_EQ(urgents, 1);
  EXPECT_EQ(m.signalSent.load(relaxed), later);
  m.signalSent.store(nanotime() - kForcePreemptNS, relaxed);
  preemptM(&m);
  EXPECT_EQ(urgents, 2);
  m.signalSent.store(0, relaxed);  // as the handler does
  preemptM(&m);
  EXPECT_EQ(urgents, 3);
  sigaction(SIGURG, &before, nullptr);
}

// ---- computes

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
