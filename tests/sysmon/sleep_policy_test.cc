#include "sysmon/sleep_policy.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace gump::rt {
namespace {

// Rounds lets n rounds pass in which nothing is found.
void Rounds(Pace* pace, uint32_t n) {
  for (; n > 0; n--) {
    (void)pace->delay();
    pace->end({});
  }
}

TEST(PaceTest, FiftyShortRoundsThenTwiceAsLongEachTime) {
  Pace pace;
  for (int i = 0; i <= 50; i++) {
    EXPECT_EQ(pace.delay(), 20u) << i;
    EXPECT_FALSE(pace.slow()) << i;
    pace.end({});
  }
  for (const uint32_t us : {40u, 80u, 160u, 320u, 640u, 1280u, 2560u, 5120u,
                            10'000u, 10'000u, 10'000u}) {
    EXPECT_TRUE(pace.slow());
    EXPECT_EQ(pace.delay(), us);
    pace.end({});
  }
}

TEST(PaceTest, ATakenPBeginsThePaceAnew) {
  Pace pace;
  Rounds(&pace, 100);
  EXPECT_EQ(pace.delay(), 10'000u);
  pace.end({.taken = 1});
  EXPECT_FALSE(pace.slow());
  for (int i = 0; i <= 50; i++) {
    EXPECT_EQ(pace.delay(), 20u) << i;
    pace.end({});
  }
  EXPECT_EQ(pace.delay(), 40u);
}

TEST(PaceTest, ResetBeginsThePaceAnew) {
  Pace pace;
  Rounds(&pace, 100);
  pace.reset();
  EXPECT_FALSE(pace.slow());
  EXPECT_EQ(pace.delay(), 20u);
}

// Forcing a goroutine off its P needs a second look soon, and slices are short
// while another goroutine waits. Neither begins the pace anew.
TEST(PaceTest, IsShorterWhileAGoroutineIsPressedOrWaits) {
  Pace pace;
  Rounds(&pace, 100);
  pace.end({.pressing = true, .waiting = true});
  EXPECT_EQ(pace.delay(), kPressFirstNS / 1000);
  pace.end({.waiting = true});
  EXPECT_EQ(pace.delay(), kShortSliceNS / 1000);
  EXPECT_TRUE(pace.slow());
  pace.end({});
  EXPECT_EQ(pace.delay(), 10'000u);
}

}  // namespace
}  // namespace gump::rt
