// Conversion of an errno to a status, for net, os and exec.
#ifndef API_STATUS_UTIL_H_
#define API_STATUS_UTIL_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace gump::internal {

// The error text of an operation that a Close has ended, or that begins after
// the Close.
inline constexpr std::string_view kFileClosed = "file already closed";
inline constexpr std::string_view kNetClosed =
    "use of closed network connection";

// ErrorText returns Go's text for err, which is an errno or one of FD's own
// errors. `closed` is the text for kErrClosing.
[[nodiscard]] std::string ErrorText(int err, std::string_view closed);

// ErrorStatus is "<what>: <ErrorText>", or the ErrorText alone if `what` is
// empty. Requires: err is not 0. Panics for kErrTooManyUsers, as Go does.
[[nodiscard]] absl::Status ErrorStatus(std::string_view what, int err,
                                       std::string_view closed,
                                       size_t written = 0);

// Annotate puts "<what>: " before the text of a status, and keeps the rest.
[[nodiscard]] absl::Status Annotate(std::string_view what,
                                    const absl::Status& status);

}  // namespace gump::internal

#endif  // API_STATUS_UTIL_H_
