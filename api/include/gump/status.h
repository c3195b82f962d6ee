// Errno and BytesWritten return the numbers that an error of net, os or exec
// carries besides its text.
//
//   absl::StatusOr<os::File> f = os::Open("/etc/gumption");
//   if (gump::Errno(f.status()) == ENOENT) { ... }  // "open /etc/gumption: no
//                                                   // such file or directory"
//
//   absl::StatusOr<size_t> n = w.Write(data);
//   if (!n.ok()) data.remove_prefix(gump::BytesWritten(n.status()));
//
// The text is Go's. The code follows from the errno, as in
// absl::ErrnoToStatusCode: NotFound for ENOENT, PermissionDenied for EACCES,
// AlreadyExists for EEXIST, Unavailable for ECONNREFUSED. If a deadline has
// ended the operation, the error is DeadlineExceeded "i/o timeout". If a Close
// has ended it, the error is Cancelled. These two errors have no errno.
//
// Both functions may be called anywhere, and do not park.
#ifndef GUMP_STATUS_H_
#define GUMP_STATUS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump {

// Errno returns the errno of the system call that failed, or 0 if there was
// none.
[[nodiscard]] int Errno(const absl::Status& status);

// BytesWritten returns the number of bytes that a failed write wrote before it
// failed. Returns 0 for any other status.
[[nodiscard]] size_t BytesWritten(const absl::Status& status);

}  // namespace gump

#pragma GCC visibility pop

#endif  // GUMP_STATUS_H_
