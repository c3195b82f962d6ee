// Dial, DialTimeout and DialContext connect to an address.
//
//   absl::StatusOr<net::Conn> c = net::Dial("tcp", "localhost:6379");
//   if (!c.ok()) return c.status();  // "dial tcp 127.0.0.1:6379: connect:
//                                    // connection refused"
//
// gump/net.h says how networks and addresses are written, and describes the
// errors. Functions may be called from goroutines and from plain threads. They
// park until there is a connection or an error.
#ifndef GUMP_NET_DIAL_H_
#define GUMP_NET_DIAL_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gump/context.h"
#include "gump/internal/duration_arg.h"
#include "gump/net/conn.h"

#pragma GCC visibility push(default)

namespace gump::net {

// DialOptions holds the options of Dial and DialContext.
struct DialOptions {
  // The limit for the lookup of the name and all attempts together. Zero, like
  // an infinite duration, means no limit. After this time Dial fails with "i/o
  // timeout" (DeadlineExceeded).
  absl::Duration timeout = absl::InfiniteDuration();
  // The time for which Dial tries only addresses of the family, IPv6 or IPv4,
  // that the resolver puts first. After that time it tries those of the other
  // family in parallel. A negative delay makes Dial try all addresses one after
  // the other. Source: RFC 6555.
  absl::Duration fallback_delay = absl::Milliseconds(300);
  // The address of the local end: "host:port", or a path. If it is empty, the
  // kernel chooses.
  std::string local_address;
};

// Dial connects to an address. Parks until there is a connection or an error.
// If the name has several addresses, Dial tries those of one family in turn. On
// tcp it tries the two families in parallel (DialOptions::fallback_delay). If
// all attempts fail, it returns the first error. On tcp, NoDelay and keep-alive
// (15 s) are on. On "udp", each Read and Write of the Conn is a datagram.
absl::StatusOr<Conn> Dial(std::string_view network, std::string_view address,
                          const DialOptions& options = {});
// DialTimeout is Dial with DialOptions::timeout.
absl::StatusOr<Conn> DialTimeout(std::string_view network,
                                 std::string_view address,
                                 internal::DurationArg timeout);
// DialContext is Dial, but gives up when ctx is done. It then fails with
// "operation was canceled" (Cancelled) or "i/o timeout" (DeadlineExceeded). The
// Conn does not depend on ctx.
absl::StatusOr<Conn> DialContext(const context::Context& ctx,
                                 std::string_view network,
                                 std::string_view address,
                                 const DialOptions& options = {});

}  // namespace gump::net

#pragma GCC visibility pop

#endif  // GUMP_NET_DIAL_H_
