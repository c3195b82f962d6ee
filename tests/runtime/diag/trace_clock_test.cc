// The clock of the execution trace. Where the kernel does not trust the
// counter, the clock is nanotime, and the tests pass for that reason.
#include "runtime/diag/trace_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace gump::rt {
namespace {

void PassTime(int64_t ns) {
  const int64_t end = nanotime() + ns;
  while (nanotime() < end) {
  }
}

// ExpectAgrees checks that c shows what nanotime shows: a reading that is not
// interrupted lies between two readings of nanotime, but for the tolerance.
void ExpectAgrees(const TraceClock& c, int64_t tolerance) {
  int64_t best = INT64_MAX;
  for (int i = 0; i < 1000; i++) {
    const int64_t before = nanotime();
    const int64_t now = c.now();
    const int64_t after = nanotime();
    best = std::min(best, std::max(before - now, now - after));
  }
  EXPECT_LE(best, tolerance);
}

TEST(TraceClockTest, FirstClockIsNanotime) {
  traceProbeCounter();
  ExpectAgrees(TraceClock(), 0);
  ExpectAgrees(TraceClock().next(), 0);
}

TEST(TraceClockTest, ClocksOfLaterGenerationsAgreeWithNanotime) {
  traceProbeCounter();
  TraceClock c = TraceClock().next();
  for (int generation = 0; generation < 4; generation++) {
    PassTime(150'000'000);
    c = c.next();
    ExpectAgrees(c, 2'000);
  }
  PassTime(150'000'000);
  ExpectAgrees(c, 50'000);
}

TEST(TraceClockTest, ManyShortGenerationsDoNotSpoilTheRate) {
  traceProbeCounter();
  TraceClock c = TraceClock().next();
  PassTime(150'000'000);
  for (int generation = 0; generation < 1000; generation++) {
    c = c.next();
    PassTime(10'000);
  }
  PassTime(150'000'000);
  ExpectAgrees(c, 50'000);
}

}  // namespace
}  // namespace gump::rt
