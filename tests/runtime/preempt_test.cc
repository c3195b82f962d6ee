// Whose P it is that was taken from a sleeper, on bare structs. (The protocol
// is explored by tests/model/syscall_model.cc, what it is for is tested by
// tests/api/preempt_test.cc.)
#include <gtest/gtest.h>

#include "runtime/os_linux.h"
#include "runtime/proc.h"

namespace gump::rt {
namespace {

// Two Ps; an M, asleep with the first; and who looks at it.
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
  // ComesIn does what cameBack does, and lets the M have the second P.
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

// It was preempted in place without a P, and let go: so preemptInPlace leaves
// it.
TEST_F(PresumedTest, AForgottenLossGivesNoPBack) {
  ASSERT_TRUE(presumeBlocked(&p_[0], &m_, &g_));
  m_.presumed.store(kPresumedTaken, relaxed);
  EXPECT_FALSE(giveBackP(&p_[0], &m_));
}

}  // namespace
}  // namespace gump::rt
