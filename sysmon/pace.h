// How long sysmon sleeps between two rounds. Apart from the loop, so that it
// can be tested without a thread.
#ifndef SYSMON_PACE_H_
#define SYSMON_PACE_H_

#include <algorithm>
#include <cstdint>

#include "sysmon/retake.h"

namespace gump::rt {

// Pace says how long sysmon sleeps: 20 µs while something happens; after 1 ms
// without, twice as long each round, up to 10 ms, as in Go. No longer than
// kPressDelay while somebody is pressed, nor than kShortSlice while somebody
// waits for whom slices are short.
class Pace {
 public:
  static constexpr uint32_t kShortDelay = 20;     // µs
  static constexpr uint32_t kLongDelay = 10'000;  // µs
  static constexpr uint32_t kIdleRounds = 50;     // before the delays grow

  // delay is how long to sleep now, µs. Once a round.
  uint32_t delay() {
    if (idle_ == 0) {
      delay_ = kShortDelay;
    } else if (idle_ > kIdleRounds) {
      delay_ = std::min(2 * delay_, kLongDelay);
    }
    return std::min(delay_, most_);
  }
  // slow tells that nothing has happened for so long that a deep sleep may be
  // worth it.
  bool slow() const { return idle_ > kIdleRounds; }
  void reset() { idle_ = 0; }
  // end ends a round, in which r was found.
  void end(const Retaken& r) {
    idle_++;
    if (r.taken > 0) reset();
    most_ = r.pressing ? kPressDelay : r.waiting ? kShortSlice : kLongDelay;
  }

 private:
  static constexpr uint32_t kPressDelay = kPressFirstNS / 1000;  // µs
  static constexpr uint32_t kShortSlice = kShortSliceNS / 1000;
  uint32_t idle_ = 0;  // rounds since something happened
  uint32_t delay_ = kShortDelay;
  uint32_t most_ = kLongDelay;  // and at most so long
};

}  // namespace gump::rt

#endif  // SYSMON_PACE_H_
