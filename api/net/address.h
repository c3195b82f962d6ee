// Addresses and names inside net: parsing, printing, looking up.
#ifndef API_NET_ADDRESS_H_
#define API_NET_ADDRESS_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/cat.h"
#include "gump/context.h"
#include "gump/net/addr.h"

namespace gump::internal {

struct Socket;

// Network is a parsed network name.
struct Network {
  std::string name;    // as given: "tcp4"
  std::string family;  // "tcp", "udp", "unix", "unixgram"
  int version = 0;     // 4, 6, or 0 for either

  bool stream() const { return family == "tcp" || family == "unix"; }
  bool unix_domain() const { return family[0] == 'u' && family[1] == 'n'; }
};

struct NetAccess {
  template <class Handle>
  static Handle Make(std::shared_ptr<Socket>&& s) {
    Handle h;
    h.socket_ = std::move(s);
    return h;
  }
  static net::Addr MakeAddr(std::string_view network, const sockaddr* sa,
                            socklen_t length);
  // AsGiven returns a with `host` as the text of its host. It is for a host
  // that a sockaddr cannot express.
  static net::Addr AsGiven(net::Addr a, std::string_view host);
  // AsIs returns a without such a text. Its host is the one in its sockaddr.
  static net::Addr AsIs(net::Addr a);
  // Host returns the text of the host.
  static std::string Host(const net::Addr& a);
};

// ParseNetwork parses a network name. It may return the error InvalidArgument
// "unknown network x".
absl::StatusOr<Network> ParseNetwork(std::string_view name);
// HostPort is the result of SplitHostPort, which splits "host:port".
struct HostPort {
  std::string host;
  std::string port;
};
absl::StatusOr<HostPort> SplitHostPort(std::string_view address);
// IsAbstract returns true for a unix address "@name", or the same with a NUL
// for the "@". Such an address is in no directory.
bool IsAbstract(std::string_view path);
// ForFamily stores an address in *sa, in the form that a socket of some family
// takes. It converts an address of version 4 for a socket that takes both
// versions, and the other way round. It leaves all else for the kernel to
// judge.
absl::Status ForFamily(const net::Addr& a, int family, sockaddr_storage* sa,
                       socklen_t* length);
// JoinHostPort returns "host:port", with a host that has colons in brackets.
std::string JoinHostPort(std::string_view host, int port);

// AddrError returns the error "address x: why".
absl::Status AddrError(std::string_view address, std::string_view why);
// HoldsNul returns true if text contains a NUL. The C library would take the
// text to end there.
bool HoldsNul(std::string_view text);
// ParsePort returns a number, or the port of a service.
absl::StatusOr<int> ParsePort(const Network& network, const std::string& text);
// SetPort sets the port of an address of version 4 or 6.
void SetPort(sockaddr* sa, int port);
// UnixAddr returns the address for a path, or for "@name".
absl::StatusOr<net::Addr> UnixAddr(const Network& network,
                                   std::string_view path);
// LiteralAddr parses an IP address, with a zone if it is of version 6. Returns
// an Addr of length 0 if host is none. As in Go, "::ffff:127.0.0.1" is of
// version 4.
net::Addr LiteralAddr(const Network& network, const std::string& host);

// Resolve returns the addresses for "host:port" or a path, in the order in
// which to try them. If `passive` is true, the caller will listen at them, and
// an empty host means all interfaces. An error has an errno only if no socket
// can have the path. The errno is EINVAL, which Go gets from the call that
// takes the path.
absl::StatusOr<std::vector<net::Addr>> Resolve(const context::Context& ctx,
                                               const Network& network,
                                               std::string_view address,
                                               bool passive);

}  // namespace gump::internal

#endif  // API_NET_ADDRESS_H_
