#include "gump/time/sleep.h"

#include "gump/internal/linkname_time.h"

namespace gump::time {

void Sleep(internal::DurationArg d) { rt::timeSleep(d.Nanoseconds()); }

}  // namespace gump::time
