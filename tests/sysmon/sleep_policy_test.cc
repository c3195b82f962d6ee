#include "sysmon/sleep_policy.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace gump::rt {
namespace {

// Rounds lets n rounds pass in which nothing is found.
void Rounds(SleepPolicy* policy, uint32_t n) {
  for (; n > 0; n--) {
    (void)policy->delay();
    policy->end({});
  }
}

TEST(SleepPolicyTest, FiftyShortRoundsThenTwiceAsLongEachTime) {
  SleepPolicy policy;
  for (int i = 0; i <= 50; i++) {
    EXPECT_EQ(policy.delay(), 20u) << i;
    EXPECT_FALSE(policy.slow()) << i;
    policy.end({});
  }
  for (const uint32_t us : {40u, 80u, 160u, 320u, 640u, 1280u, 2560u, 5120u,
                            10'000u, 10'000u, 10'000u}) {
    EXPECT_TRUE(policy.slow());
    EXPECT_EQ(policy.delay(), us);
    policy.end({});
  }
}

TEST(SleepPolicyTest, ATakenPRestartsTheShortSleeps) {
  SleepPolicy policy;
  Rounds(&policy, 100);
  EXPECT_EQ(policy.delay(), 10'000u);
  policy.end({.taken = 1});
  EXPECT_FALSE(policy.slow());
  for (int i = 0; i <= 50; i++) {
    EXPECT_EQ(policy.delay(), 20u) << i;
    policy.end({});
  }
  EXPECT_EQ(policy.delay(), 40u);
}

TEST(SleepPolicyTest, ResetRestartsTheShortSleeps) {
  SleepPolicy policy;
  Rounds(&policy, 100);
  policy.reset();
  EXPECT_FALSE(policy.slow());
  EXPECT_EQ(policy.delay(), 20u);
}

// Forcing a goroutine off its P needs a second look soon, and slices are short
// while another goroutine waits. Neither resets the number of idle rounds.
TEST(SleepPolicyTest, SleepIsShorterWhileAGoroutineIsForcedOrWaits) {
  SleepPolicy policy;
  Rounds(&policy, 100);
  policy.end({.forcing = true, .waiting = true});
  EXPECT_EQ(policy.delay(), kForcePreemptFirstNS / 1000);
  policy.end({.waiting = true});
  EXPECT_EQ(policy.delay(), kShortSliceNS / 1000);
  EXPECT_TRUE(policy.slow());
  policy.end({});
  EXPECT_EQ(policy.delay(), 10'000u);
}

// A late timer that repeats is set again at once. sysmon then sleeps so shortly
// that it need not be woken for the timer.
TEST(SleepPolicyTest, SleepIsShorterWhileTimersAreLate) {
  SleepPolicy policy;
  Rounds(&policy, 100);
  policy.end({.waiting = true, .timers = true});
  EXPECT_EQ(policy.delay(), 1'000u);
  policy.end({.forcing = true, .timers = true});
  EXPECT_EQ(policy.delay(), kForcePreemptFirstNS / 1000);
}

}  // namespace
}  // namespace gump::rt
