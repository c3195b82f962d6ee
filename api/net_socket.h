// What the parts of net share: sockets, addresses and errors.
#ifndef API_NET_SOCKET_H_
#define API_NET_SOCKET_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gump/context.h"
#include "gump/net.h"
#include "gump/once.h"
#include "netpoll/fd.h"

namespace gump::internal {

// Cat puts texts and numbers together. (absl::StrCat takes std::string_view
// only where Abseil was built for C++17.)
template <class... Parts>
std::string Cat(const Parts&... parts) {
  std::string text;
  const auto append = [&](const auto& part) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) {
      text += std::to_string(part);
    } else {
      text += std::string_view(part);
    }
  };
  (append(parts), ...);
  return text;
}

// Network is a parsed network name.
struct Network {
  std::string name;    // as given: "tcp4"
  std::string family;  // "tcp", "udp", "unix", "unixgram"
  int version = 0;     // 4, 6, or 0: either

  bool stream() const { return family == "tcp" || family == "unix"; }
  bool unix_domain() const { return family[0] == 'u' && family[1] == 'n'; }
};

// Socket is what the handles of net share. Immutable once it has a handle, but
// for fd and unlink_once, which guard themselves.
struct Socket {
  Socket(int sysfd, const Network& n)
      : fd(sysfd, n.stream() ? rt::FdKind::kStream : rt::FdKind::kDatagram),
        network(n.family) {}
  ~Socket();

  absl::Status Close();

  rt::FD fd;
  const std::string network;
  // As it was when the socket was made; the kernel forgets it at Close.
  net::Addr local;
  net::Addr remote;         // nowhere: not known, or none
  bool borrowed = false;    // a listener whose options are not ours to set
  std::string unlink_path;  // of a listening unix socket
  sync::Once unlink_once;
};

// IoError is an error of an operation: an errno or a PollError, and the system
// call that gave the errno, which Go's words name.
struct IoError {
  int err = 0;
  const char* call = nullptr;
};

// OpText is "op net source->addr", without what is empty.
std::string OpText(std::string_view op, std::string_view network,
                   std::string_view source, std::string_view addr);
// OpError says what failed, in the form "<OpText>: error". bytes: how many went
// out before it.
absl::Status OpError(std::string_view op, std::string_view network,
                     std::string_view source, std::string_view addr, IoError e,
                     size_t bytes = 0);
// The same, about s: both its ends, or where it is alone.
absl::Status SocketError(std::string_view op, const Socket& s, IoError e,
                         size_t bytes = 0);
absl::Status LocalError(std::string_view op, const Socket& s, IoError e);
// Prefixed is status with "op net addr: " before its message.
absl::Status Prefixed(std::string_view op, std::string_view network,
                      std::string_view addr, const absl::Status& status);
// ContextError is why an operation ends whose context is done: "operation was
// canceled" or "i/o timeout".
absl::Status ContextError(const context::Context& ctx);

struct NetAccess {
  template <class Handle>
  static Handle Make(std::shared_ptr<Socket>&& s) {
    Handle h;
    h.socket_ = std::move(s);
    return h;
  }
  static net::Addr MakeAddr(std::string_view network, const sockaddr* sa,
                            socklen_t length);
  // AsGiven is a with a text for its host that its sockaddr does not have.
  static net::Addr AsGiven(net::Addr a, std::string_view host);
  // AsIs is a as the kernel has it.
  static net::Addr AsIs(net::Addr a);
  // Host is the host's text.
  static std::string Host(const net::Addr& a);
};

// ParseNetwork: InvalidArgument "unknown network x".
absl::StatusOr<Network> ParseNetwork(std::string_view name);
// HostPort splits "host:port".
struct HostPort {
  std::string host;
  std::string port;
};
absl::StatusOr<HostPort> SplitHostPort(std::string_view address);
// IsAbstract: a unix address "@name", or the same with a NUL for the "@", is in
// no directory.
bool IsAbstract(std::string_view path);
// ForFamily puts an address as a socket of some family takes it into *sa: one
// of version 4 for one that takes both, and the other way round. All else is
// for the kernel to judge.
absl::Status ForFamily(const net::Addr& a, int family, sockaddr_storage* sa,
                       socklen_t* length);
// JoinHostPort puts a host with colons in brackets.
std::string JoinHostPort(std::string_view host, int port);

// Resolve gives the addresses for "host:port" or a path, in the order in which
// to try them. passive: to listen at, so that no host means all interfaces.
// Only a path that no socket can have is an error with an errno: EINVAL, which
// Go gets from the call that would take it.
absl::StatusOr<std::vector<net::Addr>> Resolve(const context::Context& ctx,
                                               const Network& network,
                                               std::string_view address,
                                               bool passive);

// NewSocket makes a non-blocking socket; -1: *err has the errno.
int NewSocket(const Network& network, int family, int* err);
// SetStreamOptions sets what every socket of the family "tcp" has: NoDelay and
// keep-alive. What a listener has, its connections inherit.
void SetStreamOptions(int fd, std::string_view family);
// Adopt gives a descriptor that is bound or connecting to a new Socket; if that
// fails it closes it.
absl::StatusOr<std::shared_ptr<Socket>> Adopt(int fd, const Network& network,
                                              IoError* error);

}  // namespace gump::internal

#endif  // API_NET_SOCKET_H_
