// os::Poll waits until a descriptor is ready. It is poll(2), but only the
// goroutine waits.
//
//   pollfd p[] = {{sock, POLLIN, 0}, {pipe, POLLIN, 0}};
//   absl::StatusOr<int> n = os::Poll(p, absl::Milliseconds(250));
//   if (!n.ok()) return n.status();
//   if (*n == 0) return absl::DeadlineExceededError("no answer");
//   if ((p[0].revents & POLLIN) != 0) ReadFrom(sock);
//
// It is for descriptors that belong to other code: to a library with a
// non-blocking interface, to an event loop, or to a device. For connections and
// pipes of your own, net::Conn and os::File are simpler and cheaper.
//
// The descriptors stay the caller's. Poll makes no call that changes them. They
// may be blocking or non-blocking, and of any kind that poll(2) takes. Several
// goroutines may poll the same descriptor at a time.
//
// A descriptor should not be closed while a goroutine polls it. As with
// poll(2), that need not end the wait. To end a wait early, put a descriptor
// for that purpose into the array, such as an eventfd.
#ifndef GUMP_OS_POLL_H_
#define GUMP_OS_POLL_H_

#include <poll.h>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gump/internal/duration_arg.h"

#pragma GCC visibility push(default)

namespace gump::os {

// Poll waits until at least one of the descriptors has one of its events, an
// error or a hangup, or until `timeout` has passed. Parks meanwhile. It sets
// revents in each element, as poll(2) does. Returns the number of elements
// whose revents are not 0. Returns 0 after the timeout, never earlier. A
// timeout of 0 means not to wait. A timeout below 0 or an infinite one means to
// wait without limit. A number that is not open has POLLNVAL in revents, and
// negative numbers are ignored. Without any descriptor, Poll sleeps.
//
// The errors are those of poll(2), with its errno (status.h), such as "poll:
// invalid argument" if there are more elements than the process may have
// descriptors. Signals do not end the wait.
//
// Poll may be called from goroutines and from plain threads. It blocks the
// thread, as poll(2) does, in these cases:
//   * the caller is a plain thread, or a child of fork;
//   * the caller is inside blocking(). Other goroutines run meanwhile;
//   * the process has no descriptor or no memory left for the poller, or epoll
//     cannot watch a descriptor that poll(2) can. Other goroutines run
//     meanwhile.
//
// In a bubble of synctest, a goroutine that waits for a descriptor is not
// durably blocked, and `timeout` is real time. Without any descriptor, it
// sleeps by the clock of the bubble, as in time::Sleep.
//
// Each element costs a system call for each time that Poll waits.
[[nodiscard]] absl::StatusOr<int> Poll(absl::Span<pollfd> fds,
                                       internal::DurationArg timeout);

}  // namespace gump::os

#pragma GCC visibility pop

#endif  // GUMP_OS_POLL_H_
