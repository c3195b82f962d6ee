// TimeHistogram: which duration has which place.
//
// The bounds are those of Go's timeHistogramMetricsBuckets. Go's own test is
// TestTimeHistogram (runtime/histogram_test.go), which these follow.
#include "runtime/sched/timehist.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace gump::rt {
namespace {

constexpr size_t kFirst = 1;  // the place of 0 ns
constexpr size_t kLast = kTimeHistCounts - 1;

std::vector<uint64_t> Counts(const TimeHistogram& h) {
  std::vector<uint64_t> counts(kTimeHistCounts);
  h.addTo(counts.data());
  return counts;
}

TEST(TimeHistogramTest, NegativeDurationsHaveTheFirstPlace) {
  EXPECT_EQ(TimeHistogram::indexOf(-1), 0u);
  EXPECT_EQ(TimeHistogram::indexOf(INT64_MIN), 0u);
}

TEST(TimeHistogramTest, DurationsBeyondTheLastBoundHaveTheLastPlace) {
  EXPECT_EQ(TimeHistogram::indexOf(INT64_MAX), kLast);
  EXPECT_EQ(TimeHistogram::indexOf(int64_t{1} << 47), kLast);
  EXPECT_EQ(TimeHistogram::indexOf((int64_t{1} << 47) - 1), kLast - 1);
}

TEST(TimeHistogramTest, BoundsAreThoseOfGo) {
  // Go: the parts of the lowest bucket are 64 ns wide. 512 ns begins the third
  // bucket, and 2^47 ns the overflow.
  EXPECT_EQ(TimeHistogram::lowerBound(kFirst), 0u);
  EXPECT_EQ(TimeHistogram::lowerBound(kFirst + 1), 64u);
  EXPECT_EQ(TimeHistogram::lowerBound(kFirst + 4), 256u);
  EXPECT_EQ(TimeHistogram::lowerBound(kFirst + 5), 320u);
  EXPECT_EQ(TimeHistogram::lowerBound(kFirst + 8), 512u);
  EXPECT_EQ(TimeHistogram::lowerBound(kFirst + 9), 640u);
  EXPECT_EQ(TimeHistogram::lowerBound(kLast), uint64_t{1} << 47);
}

TEST(TimeHistogramTest, EachPlaceBeginsAtItsBoundAndEndsBelowTheNext) {
  for (size_t i = kFirst; i <= kLast; i++) {
    const auto low = static_cast<int64_t>(TimeHistogram::lowerBound(i));
    EXPECT_EQ(TimeHistogram::indexOf(low), i);
    if (i > kFirst) {
      EXPECT_EQ(TimeHistogram::indexOf(low - 1), i - 1);
    }
  }
}

TEST(TimeHistogramTest, EachRecordCountsOnce) {
  TimeHistogram h;
  for (size_t i = kFirst; i <= kLast; i++) {
    for (size_t n = 0; n < i; n++) {
      h.record(static_cast<int64_t>(TimeHistogram::lowerBound(i)));
    }
  }
  h.record(-7);
  const std::vector<uint64_t> counts = Counts(h);
  EXPECT_EQ(counts[0], 1u);
  for (size_t i = kFirst; i <= kLast; i++) EXPECT_EQ(counts[i], i);
}

TEST(TimeHistogramTest, RecordOwnedCountsWithAWeight) {
  TimeHistogram h;
  h.recordOwned(100, 3);
  h.recordOwned(100, 1);
  EXPECT_EQ(Counts(h)[TimeHistogram::indexOf(100)], 4u);
}

TEST(TimeHistogramTest, RecordsOfManyThreadsAreAllCounted) {
  TimeHistogram h;
  constexpr int kThreads = 4;
  constexpr int kRecords = 10000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; t++) {
    threads.emplace_back([&h] {
      for (int i = 0; i < kRecords; i++) h.record(i);
    });
  }
  for (std::thread& t : threads) t.join();
  uint64_t sum = 0;
  for (const uint64_t n : Counts(h)) sum += n;
  EXPECT_EQ(sum, uint64_t{kThreads} * kRecords);
}

}  // namespace
}  // namespace gump::rt
