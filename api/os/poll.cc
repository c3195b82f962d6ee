// os::Poll. netpoll/once.cc waits.
#include "gump/os/poll.h"

#include "api/status_util.h"
#include "netpoll/once.h"

namespace gump::os {

absl::StatusOr<int> Poll(absl::Span<pollfd> fds,
                         internal::DurationArg timeout) {
  const int n = rt::oncePoll(fds.data(), fds.size(), timeout.Nanoseconds());
  if (n < 0) return internal::ErrorStatus("poll", -n, internal::kFileClosed);
  return n;
}

}  // namespace gump::os
