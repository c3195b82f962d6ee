// How much sooner than due the kernel is asked to end a sleep.
#ifndef NETPOLL_LEAD_H_
#define NETPOLL_LEAD_H_

#include <algorithm>
#include <cstdint>

namespace gump::rt {

// Lead knows how late the kernel ends sleeps: by the time it takes to wake an
// idle processor, some 5 µs on a bare machine, 50 on a virtual one. It falls
// faster than it rises, and so stays below the middle of what it has seen:
// whoever is woken too soon has to stay awake for the rest. (KVM does so for
// its guests' timers: lapic_timer_advance_ns.)
//
// All times are ns.
class Lead {
 public:
  // As long as anybody ever stays awake for one sleep; more than the slowest
  // processor seen takes to wake (tools/gump bench HOST: 70 µs).
  static constexpr int64_t kMost = 80'000;

  // of is by how much to shorten a sleep of that length. One that is as short
  // as the lead is late anyway, and collects what is due next, which is cheaper
  // than to stay awake for each.
  int64_t of(int64_t delay) const { return lead_ < delay ? lead_ : 0; }

  // learn takes account of a sleep that has ended so much after what was asked
  // for. Short ones are less late, for the processor has hardly been idle; they
  // count as well, or those that are a little shorter than the lead would come
  // late for ever.
  void learn(int64_t late) {
    // A sleep after which the processor was with somebody else for long says
    // little.
    const int64_t step = late < lead_ ? (late - lead_) / 4
                                      : std::min(late - lead_, kBelieved) / 8;
    lead_ = std::min(lead_ + step, kMost);
  }

 private:
  static constexpr int64_t kBelieved = 8'000;  // of what one sleep adds

  int64_t lead_ = 0;
};

}  // namespace gump::rt

#endif  // NETPOLL_LEAD_H_
