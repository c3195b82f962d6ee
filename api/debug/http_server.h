// debug::ServeHTTP with limits that a test may set.
#ifndef API_DEBUG_HTTP_SERVER_H_
#define API_DEBUG_HTTP_SERVER_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gump/net/listener.h"

namespace gump::internal {

// ServeLimits bound what a client can take from the server.
struct ServeLimits {
  // How long the server waits for a client that does not read, in all for one
  // answer. A client gets a second more for each write_rate bytes.
  absl::Duration write_timeout = absl::Seconds(30);
  int64_t write_rate = 64 << 10;
  // The most bytes that a page holds for a client that is slower than the page.
  size_t backlog = size_t{64} << 20;
};

// ServeHttp is debug::ServeHTTP.
[[nodiscard]] absl::Status ServeHttp(net::Listener listener,
                                     const ServeLimits& limits);

}  // namespace gump::internal

#endif  // API_DEBUG_HTTP_SERVER_H_
