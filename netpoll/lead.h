// How much sooner than due the kernel is asked to end a sleep.
#ifndef NETPOLL_LEAD_H_
#define NETPOLL_LEAD_H_

#include <algorithm>
#include <cstdint>

#include "runtime/atomic.h"

namespace gump::rt {

// Lead knows how late the kernel ends sleeps: by what it takes to bring an idle
// processor back, 5 µs on a bare machine, 50 on a virtual one. It stays among
// the lower half of what it has seen, since it falls faster than it rises: who
// is woken too soon has to stay awake for the rest. (KVM does so for its
// guests' timers: lapic_timer_advance_ns.)
//
// One thread at a time learns; all times are ns.
class Lead {
 public:
  static constexpr int64_t kMost = 80'000;

  // of is by how much to shorten a sleep of that length. One that is as short
  // as the lead is late anyway, and collects what is due next, which is cheaper
  // than to stay awake for each.
  int64_t of(int64_t delay) const {
    const int64_t lead = lead_.load(relaxed);  // publishes nothing
    return lead < delay ? lead : 0;
  }

  // learn takes account of a sleep that has ended so much after what was asked
  // for. Short ones are less late, for the processor has hardly been idle; they
  // count as well, or those that are a little shorter than the lead would come
  // late for ever.
  void learn(int64_t late) {
    const int64_t lead = lead_.load(relaxed);  // as in of
    // Of a processor that was taken away for long, not much.
    const int64_t step =
        late < lead ? (late - lead) / 4 : std::min(late - lead, kOutlier) / 8;
    lead_.store(std::min(lead + step, kMost), relaxed);
  }

 private:
  static constexpr int64_t kOutlier = 8'000;

  Atomic<int64_t> lead_;
};

}  // namespace gump::rt

#endif  // NETPOLL_LEAD_H_
