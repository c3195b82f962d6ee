// The owner of a P that was taken from a sleeper, on bare structs.
// (tests/model/syscall_model.cc explores the protocol, and
// tests/sched/preempt_blocked_test.cc tests its purpose.)
#include <gtest/gtest.h>

#include "runtime/sched/preempt.h"
#include "runtime/sched/runtime2.h"
#include "tests/runtime/sched/presumed.h"

namespace gump::rt {
namespace {

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

}  // namespace
}  // namespace gump::rt
