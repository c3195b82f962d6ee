// How much earlier than due the kernel is asked to end a sleep.
#ifndef NETPOLL_WAKEUP_LEAD_H_
#define NETPOLL_WAKEUP_LEAD_H_

#include <algorithm>
#include <cstdint>

namespace gump::rt {

// WakeupLead learns how late the kernel ends sleeps. The delay is the time that
// an idle processor takes to wake: some 5 µs on a bare machine, 50 on a virtual
// one. The lead falls faster than it rises, and so stays below the middle of
// the delays that WakeupLead has seen. The reason is that a thread that is
// woken too early must stay awake for the rest. (KVM does the same for its
// guests' timers: lapic_timer_advance_ns.)
//
// All times are ns.
class WakeupLead {
 public:
  // The longest that a thread ever stays awake for one sleep. It is more than
  // the slowest processor seen takes to wake (tools/gump bench HOST: 70 µs).
  static constexpr int64_t kMost = 80'000;

  // of returns by how much to shorten a sleep of length `delay`. A sleep no
  // longer than the lead is not shortened, so it ends late. It then also
  // collects the timers that are due next, which is cheaper than staying awake
  // for each.
  int64_t of(int64_t delay) const { return lead_ < delay ? lead_ : 0; }

  // learn records that a sleep ended `late` after the time asked for. Short
  // sleeps are less late, because the processor has hardly been idle. They
  // count as well, because otherwise sleeps a little shorter than the lead
  // would always end late.
  void learn(int64_t late) {
    // If the processor ran something else for long, the sleep says little. So
    // kBelieved limits its effect.
    const int64_t step = late < lead_ ? (late - lead_) / 4
                                      : std::min(late - lead_, kBelieved) / 8;
    lead_ = std::min(lead_ + step, kMost);
  }

 private:
  // The time by which a delay exceeds the lead counts only up to this.
  static constexpr int64_t kBelieved = 8'000;

  int64_t lead_ = 0;
};

}  // namespace gump::rt

#endif  // NETPOLL_WAKEUP_LEAD_H_
