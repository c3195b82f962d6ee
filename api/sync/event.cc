// sync::Event: a wait for several Events. runtime/wait/event.cc has the rest.
#include "gump/sync/event.h"

#include <array>
#include <limits>
#include <vector>

#include "gump/panic.h"

namespace gump::sync {

std::optional<size_t> Event::FirstOf(absl::Span<Event* const> events,
                                     int64_t ns) {
  constexpr size_t kOnStack = 8;
  if (events.empty()) panic("sync: WaitAny of no events");
  std::array<rt::EventNode, kOnStack> few;
  std::vector<rt::EventNode> many;
  rt::EventNode* nodes = few.data();
  if (events.size() > few.size()) {
    many.resize(events.size());
    nodes = many.data();
  }
  for (size_t i = 0; i < events.size(); i++)
    nodes[i].event = &events[i]->event_;
  const uint32_t fired =
      rt::eventWait(nodes, static_cast<uint32_t>(events.size()), ns);
  if (fired == rt::EventWaiter::kTimedOut) return std::nullopt;
  return fired;
}

size_t WaitAny(absl::Span<Event* const> events) {
  return *Event::FirstOf(events, std::numeric_limits<int64_t>::max());
}

std::optional<size_t> WaitAnyFor(absl::Span<Event* const> events,
                                 gump::internal::DurationArg d) {
  return Event::FirstOf(events, d.Nanoseconds());
}

std::optional<size_t> WaitAnyUntil(absl::Span<Event* const> events,
                                   gump::internal::DeadlineArg t) {
  return Event::FirstOf(events, t.Nanoseconds());
}

}  // namespace gump::sync
