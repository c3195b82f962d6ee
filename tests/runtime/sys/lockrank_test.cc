// The check itself is compiled only with GUMP_LOCKRANK. Without it these tests
// show that nothing is checked and that it costs nothing.
#include "runtime/sys/lockrank.h"

#include <gtest/gtest.h>

#include "runtime/sched/runtime2.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/tls.h"

namespace gump {
namespace {

using rt::LockRank;
using rt::Mutex;

#if defined(GUMP_LOCKRANK)
constexpr bool kChecked = true;
#else
constexpr bool kChecked = false;
#endif

// Locks are checked per M, so each case runs as the g0 of a bare M.
class LockrankTest : public testing::Test {
 protected:
  void SetUp() override {
    mp_.g0.m = &mp_;
    rt::setg(&mp_.g0);
  }
  void TearDown() override {
    EXPECT_EQ(mp_.nlocksheld, 0);
    EXPECT_EQ(mp_.nhchansheld, 0u);
    rt::setg(nullptr);
  }
  rt::M mp_;
};
using LockrankDeathTest = LockrankTest;

void TakeBoth(Mutex* first, Mutex* second) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  rt::lock(first);
  rt::lock(second);
  rt::unlock(second);
  rt::unlock(first);
}

void UnlockOnly(Mutex* mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  rt::unlock(mutex);
}

TEST_F(LockrankTest, OrderOfTheGraphIsAllowed) {
  Mutex sched(LockRank::kSched);
  Mutex gfree(LockRank::kGFree);
  Mutex mem(LockRank::kMem);
  TakeBoth(&sched, &gfree);
  TakeBoth(&sched, &mem);  // over several edges
}

TEST_F(LockrankTest, LeafIsAllowedUnderEverythingElse) {
  Mutex leaf(LockRank::kLeaf);
  for (int r = 0; r + 1 < rt::kNumLockRanks; r++) {
    Mutex mutex(static_cast<LockRank>(r));
    TakeBoth(&mutex, &leaf);
  }
}

TEST_F(LockrankTest, LocksMayBeReleasedInAnyOrder)
ABSL_NO_THREAD_SAFETY_ANALYSIS {
  Mutex hchan(LockRank::kHchan);
  Mutex sched(LockRank::kSched);
  Mutex leaf(LockRank::kLeaf);
  rt::lock(&hchan);
  rt::lock(&sched);
  rt::lock(&leaf);
  rt::unlock(&sched);
  rt::unlock(&hchan);
  rt::unlock(&leaf);
}

TEST_F(LockrankTest, ManyChannelsMayBeLockedInAddressOrder)
ABSL_NO_THREAD_SAFETY_ANALYSIS {
  struct Chan {
    Mutex mutex{LockRank::kHchan};
  };
  static Chan chans[1000];
  Mutex sched(LockRank::kSched);
  for (Chan& c : chans) rt::lock(&c.mutex);
  rt::lock(&sched);
  rt::unlock(&sched);
  for (Chan& c : chans) rt::unlock(&c.mutex);
}

TEST_F(LockrankTest, ThreadWithoutAnMIsNotChecked) {
  rt::setg(nullptr);
  Mutex sched(LockRank::kSched);
  Mutex hchan(LockRank::kHchan);
  TakeBoth(&sched, &hchan);
}

TEST_F(LockrankDeathTest, WrongOrderThrowsWithBothNames) {
  if (!kChecked) GTEST_SKIP() << "built without GUMP_LOCKRANK";
  Mutex sched(LockRank::kSched);
  Mutex hchan(LockRank::kHchan);
  EXPECT_DEATH(TakeBoth(&sched, &hchan),
               "acquires hchan .* while holding sched .*\n"
               "fatal error: lock ordering problem");
}

TEST_F(LockrankDeathTest, NothingIsAllowedUnderALeaf) {
  if (!kChecked) GTEST_SKIP() << "built without GUMP_LOCKRANK";
  Mutex leaf(LockRank::kLeaf);
  Mutex other(LockRank::kLeaf);
  EXPECT_DEATH(TakeBoth(&leaf, &other), "lock ordering problem");
}

TEST_F(LockrankDeathTest, ChannelsAgainstAddressOrderThrow) {
  if (!kChecked) GTEST_SKIP() << "built without GUMP_LOCKRANK";
  struct {
    Mutex low{LockRank::kHchan};
    Mutex high{LockRank::kHchan};
  } pair;
  TakeBoth(&pair.low, &pair.high);
  EXPECT_DEATH(TakeBoth(&pair.high, &pair.low), "lock ordering problem");
}

TEST_F(LockrankDeathTest, SameChannelTwiceThrows) {
  if (!kChecked) GTEST_SKIP() << "built without GUMP_LOCKRANK";
  Mutex hchan(LockRank::kHchan);
  EXPECT_DEATH(TakeBoth(&hchan, &hchan), "lock ordering problem");
}

TEST_F(LockrankDeathTest, UnlockOfALockNotHeldThrows) {
  if (!kChecked) GTEST_SKIP() << "built without GUMP_LOCKRANK";
  Mutex sched(LockRank::kSched);
  EXPECT_DEATH(UnlockOnly(&sched), "unlock without matching lock acquire");
}

}  // namespace
}  // namespace gump
