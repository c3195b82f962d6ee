// How long sysmon sleeps between two rounds. This is apart from the loop, so
// that it can be tested without a thread.
#ifndef SYSMON_SLEEP_POLICY_H_
#define SYSMON_SLEEP_POLICY_H_

#include <algorithm>
#include <cstdint>

#include "sysmon/retake.h"

namespace gump::rt {

// SleepPolicy says how long sysmon sleeps: 20 µs while something happens. After
// 1 ms in which nothing does, the sleep doubles each round, up to 10 ms, as in
// Go. Three states limit it further:
//  * kForcePreemptDelay, while a goroutine is being forced off its P
//    (forcePreempt);
//  * kShortSlice, while a goroutine that has not been preempted in place waits
//    for a P;
//  * kTimersDelay, for a slice after timers were late. Often the M that has run
//    a late timer sets it again, and hands its P to a goroutine that computes.
//    If sysmon slept longer, that M would have to wake it (wakeSysmonBy). Then
//    the kernel would often run the goroutine's thread first, for some ms.
class SleepPolicy {
 public:
  static constexpr uint32_t kShortDelay = 20;     // µs
  static constexpr uint32_t kLongDelay = 10'000;  // µs
  static constexpr uint32_t kIdleRounds = 50;     // before the delays grow

  // delay returns how long to sleep now, in µs. It is called once a round.
  uint32_t delay() {
    if (idle_ == 0) {
      delay_ = kShortDelay;
    } else if (idle_ > kIdleRounds) {
      delay_ = std::min(2 * delay_, kLongDelay);
    }
    return std::min(delay_, most_);
  }
  // slow returns true if nothing has happened for so long that a deep sleep may
  // be worth it.
  bool slow() const { return idle_ > kIdleRounds; }
  void reset() { idle_ = 0; }
  // end ends a round that found r.
  void end(const Retaken& r) {
    idle_++;
    if (r.taken > 0) reset();
    most_ = r.forcing   ? kForcePreemptDelay
            : r.timers  ? kTimersDelay
            : r.waiting ? kShortSlice
                        : kLongDelay;
  }

 private:
  static constexpr uint32_t kForcePreemptDelay =
      kForcePreemptFirstNS / 1000;  // µs
  static constexpr uint32_t kShortSlice = kShortSliceNS / 1000;
  // A timer that is set when the sleep begins wakes nothing, because the sleep
  // ends less than kWakeSysmonSlackNS after the timer. Two such sleeps make a
  // short slice.
  static constexpr uint32_t kTimersDelay = kShortSlice / 2;
  uint32_t idle_ = 0;  // rounds since something happened
  uint32_t delay_ = kShortDelay;
  uint32_t most_ = kLongDelay;  // delay() is at most this
};

}  // namespace gump::rt

#endif  // SYSMON_SLEEP_POLICY_H_
