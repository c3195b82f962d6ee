// A sync::Event is a flag for which goroutines wait until it is set.
//
//   sync::Event work(sync::Event::Mode::kAuto);
//   sync::Event stop(sync::Event::Mode::kManual);
//   sync::WaitGroup wg;
//   wg.Go([&] {
//     while (sync::WaitAny({&stop, &work}) != 0) {   // may park
//       DoAllWork();
//     }
//   });
//
// There are two kinds:
//   * A kManual Event stays set until Reset. Set wakes all that wait.
//   * A kAuto Event lets one waiter through for each Set, and is unset again.
//     Set wakes the longest waiter. If there is none, the Event stays set, and
//     the next Wait returns at once. An Event is a flag, not a counter: two
//     calls of Set without a Wait in between let one waiter through.
//
// A goroutine that waits parks, and its thread runs other goroutines. A plain
// thread that waits sleeps. If each signal carries a value, or none may be
// lost, a channel is simpler. To wait for several things that happen once, take
// a Latch or a WaitGroup.
//
// An Event is never copied or moved. It may be destroyed as soon as every wait
// for it has returned and no more calls follow, even while the Set that ended
// the last wait has not returned yet. Every other Set must have returned.
//
// In a bubble of synctest a wait is durable, and a time limit passes on the
// clock of the bubble. So Set should be called inside the bubble.
//
// Memory ordering: a Set happens before the return of every wait that it ends,
// or that finds the Event set by it or by a later Set.
//
// The model is marl::Event; see runtime/wait/event.cc for the algorithm.
#ifndef GUMP_SYNC_EVENT_H_
#define GUMP_SYNC_EVENT_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "absl/types/span.h"
#include "gump/internal/deadline_arg.h"
#include "gump/internal/duration_arg.h"
#include "gump/internal/linkname_sync.h"

#pragma GCC visibility push(default)

namespace gump::sync {

// Event is the flag described above. All functions may be called from
// goroutines and from plain threads.
class Event {
 public:
  enum class Mode : uint8_t {
    kManual,  // stays set until Reset
    kAuto,    // is reset by the wait that it ends
  };

  // Makes an Event, which is set at first if `set` is true.
  explicit Event(Mode mode = Mode::kAuto, bool set = false) noexcept
      : event_(mode == Mode::kAuto, set) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // Set sets the Event, which wakes one waiter or all, as said above. Never
  // parks.
  void Set() noexcept { rt::eventSet(&event_); }
  // Reset makes the Event unset. Never parks.
  void Reset() noexcept { rt::eventReset(&event_); }

  // IsSet returns whether the Event is set now, and does not reset it. Never
  // parks. The Set happens before a return of true.
  [[nodiscard]] bool IsSet() const noexcept {
    return (event_.state.load(rt::acquire) & rt::Event::kSet) != 0;
  }
  // TryWait returns whether the Event is set. If so, a kAuto Event is reset.
  // Never parks.
  [[nodiscard]] bool TryWait() noexcept { return rt::eventTryWait(&event_); }
  // Wait parks until the Event is set. A kAuto Event is reset.
  void Wait() noexcept { (void)WaitNanos(std::numeric_limits<int64_t>::max()); }
  // WaitFor is Wait, for no longer than d. Returns false if the time has passed
  // before. If d <= 0, it is TryWait. WaitUntil(t) is WaitFor of the time that
  // is left until t, an absl::Time or a time_point of the standard library.
  [[nodiscard]] bool WaitFor(gump::internal::DurationArg d) noexcept {
    return WaitNanos(d.Nanoseconds());
  }
  [[nodiscard]] bool WaitUntil(gump::internal::DeadlineArg t) noexcept {
    return WaitNanos(t.Nanoseconds());
  }

 private:
  friend size_t WaitAny(absl::Span<Event* const> events);
  friend std::optional<size_t> WaitAnyFor(absl::Span<Event* const> events,
                                          gump::internal::DurationArg d);
  friend std::optional<size_t> WaitAnyUntil(absl::Span<Event* const> events,
                                            gump::internal::DeadlineArg t);
  static std::optional<size_t> FirstOf(absl::Span<Event* const> events,
                                       int64_t ns);
  bool WaitNanos(int64_t ns) noexcept {
    if (rt::eventTryWait(&event_)) return true;
    rt::EventNode node;
    node.event = &event_;
    return rt::eventWait(&node, 1, ns) == 0;
  }

  rt::Event event_;
};

// WaitAny parks until one of the events is set, and returns its index. If
// several are set, that is the first of them. Only that Event is reset, if it
// is kAuto. All stay the caller's, and must live until WaitAny returns. Panics
// if there are no events. Throws std::bad_alloc for more than eight.
//
//   switch (sync::WaitAny({&readable, &closed})) {
//     case 0: return Read();
//     case 1: return std::nullopt;
//   }
size_t WaitAny(absl::Span<Event* const> events);
// WaitAnyFor is WaitAny, for no longer than d. Returns std::nullopt if the time
// has passed before. If d <= 0, it does not park. WaitAnyUntil(t) is WaitAnyFor
// of the time that is left until t, an absl::Time or a time_point of the
// standard library.
[[nodiscard]] std::optional<size_t> WaitAnyFor(absl::Span<Event* const> events,
                                               gump::internal::DurationArg d);
[[nodiscard]] std::optional<size_t> WaitAnyUntil(
    absl::Span<Event* const> events, gump::internal::DeadlineArg t);

}  // namespace gump::sync

#pragma GCC visibility pop

#endif  // GUMP_SYNC_EVENT_H_
