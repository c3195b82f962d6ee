// How much earlier than wanted a sleep is told to end, given a late kernel.
#include "netpoll/wakeup_lead.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace gump::rt {
namespace {

constexpr int64_t kMs = 1'000'000;

// Sleep sleeps `times` times for a millisecond, under a kernel that is late by
// `least` and up to `spread` more. It returns how often it was woken too soon.
int Sleep(WakeupLead* lead, int times, int64_t least, int64_t spread) {
  int early = 0;
  uint32_t random = 1;
  for (int i = 0; i < times; i++) {
    random = random * 1664525 + 1013904223;
    const int64_t late = least + (spread == 0 ? 0 : (random >> 8) % spread);
    if (late < lead->of(kMs)) early++;
    lead->learn(late);
  }
  return early;
}

TEST(WakeupLeadTest, TakesNothingOffBeforeItHasLearnt) {
  const WakeupLead lead;
  EXPECT_EQ(lead.of(kMs), 0);
}

TEST(WakeupLeadTest, FollowsAKernelThatIsAlwaysEquallyLate) {
  WakeupLead lead;
  Sleep(&lead, 200, 50'000, 0);
  EXPECT_GT(lead.of(kMs), 49'900);
  EXPECT_LE(lead.of(kMs), 50'000);
  Sleep(&lead, 200, 5'000, 0);  // as if the process had moved to a better host
  EXPECT_LE(lead.of(kMs), 5'010);
}

TEST(WakeupLeadTest, MostSleepsEndAfterwards) {
  WakeupLead lead;
  Sleep(&lead, 200, 45'000, 6'000);
  EXPECT_LT(Sleep(&lead, 1000, 45'000, 6'000), 450);
  EXPECT_GT(lead.of(kMs), 45'000);
  EXPECT_LT(lead.of(kMs), 48'000);
}

TEST(WakeupLeadTest, OneSleepInWhichTheProcessorWasTakenAwayCountsLittle) {
  WakeupLead lead;
  Sleep(&lead, 200, 50'000, 0);
  const int64_t before = lead.of(kMs);
  lead.learn(20 * kMs);
  EXPECT_LE(lead.of(kMs), before + 1'000);
}

TEST(WakeupLeadTest, NeverExceedsItsBound) {
  WakeupLead lead;
  Sleep(&lead, 10'000, 20 * kMs, 0);
  EXPECT_EQ(lead.of(kMs), WakeupLead::kMost);
}

TEST(WakeupLeadTest, ShorterSleepsAreNotMadeShorter) {
  WakeupLead lead;
  Sleep(&lead, 200, 50'000, 0);
  EXPECT_EQ(lead.of(40'000), 0);
  EXPECT_GT(lead.of(60'000), 49'000);
  // They are late at first. If the kernel is found to be less late, they get a
  // lead, too.
  for (int i = 0; i < 20; i++) lead.learn(25'000);
  EXPECT_GT(lead.of(40'000), 24'000);
}

}  // namespace
}  // namespace gump::rt
