// time::Sleep pauses the caller.
#ifndef GUMP_TIME_SLEEP_H_
#define GUMP_TIME_SLEEP_H_

#include "gump/internal/duration_arg.h"

namespace gump::time {

// Sleep pauses the calling goroutine or plain thread. Parks until at least d
// has passed. Returns at once if d is not above 0.
void Sleep(internal::DurationArg d);

}  // namespace gump::time

#endif  // GUMP_TIME_SLEEP_H_
