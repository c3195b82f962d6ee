// What a grace period sees of a goroutine that lost its P, on bare structs.
// (tests/sched/grace_test.cc has real readers.)
#include "runtime/sched/grace.h"

#include <gtest/gtest.h>

#include "runtime/sched/mlocks.h"
#include "runtime/sched/preempt.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/tls.h"
#include "tests/runtime/sched/presumed.h"

namespace gump::rt {
namespace {

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

}  // namespace
}  // namespace gump::rt
