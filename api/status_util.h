// How net, os and exec make a status of an errno.
#ifndef API_STATUS_UTIL_H_
#define API_STATUS_UTIL_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace gump::internal {

// What an operation is told that a Close has ended, or that comes after it.
inline constexpr std::string_view kFileClosed = "file already closed";
inline constexpr std::string_view kNetClosed =
    "use of closed network connection";

// ErrorText is what Go says of err: an errno, or one of FD's own errors.
// closed: what it says of kErrClosing.
[[nodiscard]] std::string ErrorText(int err, std::string_view closed);

// ErrorStatus is "<what>: <ErrorText>", or the ErrorText alone if `what` is
// empty. err is not 0. Panics for kErrTooManyUsers, as Go.
[[nodiscard]] absl::Status ErrorStatus(std::string_view what, int err,
                                       std::string_view closed,
                                       size_t written = 0);

// Annotate puts "<what>: " before the text, and keeps the rest.
[[nodiscard]] absl::Status Annotate(std::string_view what,
                                    const absl::Status& status);

}  // namespace gump::internal

#endif  // API_STATUS_UTIL_H_
