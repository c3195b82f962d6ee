// A histogram of durations with the buckets of Go's runtime/metrics.
//
// A bucket is a power of two, from 2^8 ns on, and is cut into four parts of the
// same width. Below 2^8 ns there are four parts of 64 ns. So a part is at most
// a quarter as wide as the values in it are large. Values from 2^47 ns on,
// which is 39 hours, share one part, and so do negative ones.
//
// Source of the algorithm: timeHistogram of Go's runtime/histogram.go.
#ifndef RUNTIME_SCHED_TIMEHIST_H_
#define RUNTIME_SCHED_TIMEHIST_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "gump/internal/linkname_metrics.h"
#include "runtime/sys/atomic.h"

namespace gump::rt {

// TimeHistogram counts durations. Its counts only grow. All accesses are
// relaxed, because a count publishes nothing: a reader may see one count before
// another that is older.
class TimeHistogram {
 public:
  // indexOf is the place of a duration, in ns, among the counts.
  static size_t indexOf(int64_t ns) {
    if (ns < 0) return 0;
    const auto n = static_cast<uint64_t>(ns);
    const auto bits = static_cast<uint32_t>(std::bit_width(n));
    // The highest bit that tells buckets apart. Below it are the two bits that
    // tell the parts of a bucket apart.
    const uint32_t top = bits < kMinBits ? kMinBits : bits;
    const uint32_t bucket = bits < kMinBits ? 0 : bits - kMinBits + 1;
    if (bucket >= kBuckets) return kTimeHistCounts - 1;
    const size_t part = (n >> (top - 1 - kPartBits)) % kParts;
    return size_t{bucket} * kParts + part + 1;
  }
  // lowerBound is the smallest duration, in ns, that has place i. i is above 0.
  static uint64_t lowerBound(size_t i) {
    const size_t bucket = (i - 1) / kParts;
    const uint64_t part = (i - 1) % kParts;
    if (bucket == 0) return part << (kMinBits - 1 - kPartBits);
    const auto top = static_cast<uint32_t>(kMinBits + bucket - 1);
    return uint64_t{1} << (top - 1) | part << (top - 1 - kPartBits);
  }

  // record counts a duration. Any thread may call it at any time.
  // On: any.  P: either.  Locks: none.  Parks: no.
  void record(int64_t ns) { counts_[indexOf(ns)].add(1, relaxed); }
  // recordOwned counts a duration n times. Only one thread at a time may change
  // the histogram, so this needs no read-modify-write.
  // On: any.  P: either.  Locks: none.  Parks: no.
  void recordOwned(int64_t ns, uint64_t n) {
    Atomic<uint64_t>& c = counts_[indexOf(ns)];
    c.store(c.load(relaxed) + n, relaxed);
  }
  // addTo adds the counts to sum, which has kTimeHistCounts elements.
  // On: any.  P: either.  Locks: none.  Parks: no.
  void addTo(uint64_t* sum) const {
    for (size_t i = 0; i < kTimeHistCounts; i++) {
      sum[i] += counts_[i].load(relaxed);
    }
  }

 private:
  // Go's constants.
  static constexpr uint32_t kMinBits = 9;
  static constexpr uint32_t kMaxBits = 48;  // exclusive
  static constexpr uint32_t kPartBits = 2;
  static constexpr uint32_t kParts = 1 << kPartBits;
  static constexpr uint32_t kBuckets = kMaxBits - kMinBits + 1;
  static_assert(kTimeHistCounts == size_t{kBuckets} * kParts + 2);

  // First the negative durations, last those that are too long.
  Atomic<uint64_t> counts_[kTimeHistCounts];
};

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_TIMEHIST_H_
