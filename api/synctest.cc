// The public interface of bubbles. runtime/wait/synctest.h describes their
// mechanism.
#include "gump/synctest.h"

#include <new>

#include "absl/time/clock.h"
#include "gump/internal/linkname_synctest.h"
#include "gump/internal/linkname_time.h"
#include "gump/panic.h"

namespace gump::internal {

BubbleScope::BubbleScope() {
  switch (rt::bubbleEnter()) {
    case rt::BubbleResult::kOk:
      return;
    case rt::BubbleResult::kNoMemory:
      throw std::bad_alloc();
    default:
      panic("synctest.Run called from within a synctest bubble");
  }
}

BubbleScope::~BubbleScope() {
  if (open_) rt::bubbleAbandon();
}

void BubbleScope::Run() {
  open_ = false;
  switch (rt::bubbleRun()) {
    case rt::BubbleEnd::kOk:
      return;
    case rt::BubbleEnd::kDeadlock:
      panic("deadlock: all goroutines in bubble are blocked");
    case rt::BubbleEnd::kLeftovers:
      panic(
          "deadlock: main bubble goroutine has exited but blocked goroutines "
          "remain");
  }
}

}  // namespace gump::internal

namespace gump::synctest {

void Wait() {
  switch (rt::bubbleWait()) {
    case rt::BubbleResult::kOk:
      return;
    case rt::BubbleResult::kInProgress:
      panic("wait already in progress");
    default:
      panic("goroutine is not in a bubble");
  }
}

void Sleep(internal::DurationArg d) {
  // Outside of a bubble the sleep would be a real one, and the panic late.
  if (rt::currentBubble() == 0) panic("goroutine is not in a bubble");
  rt::timeSleep(d.Nanoseconds());
  Wait();
}

absl::Time Now() {
  if (rt::currentBubble() == 0) return absl::Now();
  return absl::FromUnixNanos(rt::bubbleNanos());
}

}  // namespace gump::synctest

namespace gump::internal {

int64_t NanosUntil(absl::Time t) {
  return DurationArg(t - synctest::Now()).Nanoseconds();
}

}  // namespace gump::internal
