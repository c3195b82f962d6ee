// time::Sleep pauses the calling goroutine, or the calling plain thread.
//
//   gump::time::Sleep(absl::Milliseconds(10));
//   gump::time::Sleep(std::chrono::milliseconds(10));  // the same
//
// gump/time.h says what a duration means, and which clock measures it. A plain
// thread that sleeps while no Run is active still wakes on time.
#ifndef GUMP_TIME_SLEEP_H_
#define GUMP_TIME_SLEEP_H_

#include "gump/internal/duration_arg.h"

#pragma GCC visibility push(default)

namespace gump::time {

// Sleep pauses the calling goroutine or plain thread. Parks until at least d
// has passed. Returns at once if d is not above 0.
void Sleep(internal::DurationArg d);

}  // namespace gump::time

#pragma GCC visibility pop

#endif  // GUMP_TIME_SLEEP_H_
