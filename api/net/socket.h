// The parts that the sources of net share: sockets, addresses and errors.
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
#include "gump/sync/once.h"
#include "netpoll/fd.h"

namespace gump::internal {

// Cat concatenates texts and numbers. (absl::StrCat takes std::string_view only
// where Abseil was built for C++17.)
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
  int version = 0;     // 4, 6, or 0 for either

  bool stream() const { return family == "tcp" || family == "unix"; }
  bool unix_domain() const { return family[0] == 'u' && family[1] == 'n'; }
};

// Socket is the state that the handles of net share. It is immutable once it
// has a handle, except for fd and unlink_once, which guard themselves.
struct Socket {
  Socket(int sysfd, const Network& n)
      : fd(sysfd, n.stream() ? rt::FdKind::kStream : rt::FdKind::kDatagram),
        network(n.family) {}
  ~Socket();

  absl::Status Close();

  rt::FD fd;
  const std::string network;
  // The local address when the socket was made. The kernel forgets it at Close.
  net::Addr local;
  net::Addr remote;         // empty if not known, or none
  bool borrowed = false;    // a listener with options that are not ours to set
  std::string unlink_path;  // of a listening unix socket
  sync::Once unlink_once;
};

// IoError is an error of an operation: an errno or a PollError. It also names
// the system call that gave the errno, because Go's error text does.
struct IoError {
  int err = 0;
  const char* call = nullptr;
};

// OpText returns "op net source->addr", without the empty parts.
std::string OpText(std::string_view op, std::string_view network,
                   std::string_view source, std::string_view addr);
// OpError describes a failure, in the form "<OpText>: error". `bytes` is the
// number of bytes written before the error.
absl::Status OpError(std::string_view op, std::string_view network,
                     std::string_view source, std::string_view addr, IoError e,
                     size_t bytes = 0);
// The same, about s. SocketError names both ends of s, LocalError the local
// one.
absl::Status SocketError(std::string_view op, const Socket& s, IoError e,
                         size_t bytes = 0);
absl::Status LocalError(std::string_view op, const Socket& s, IoError e);
// Prefixed returns status with "op net addr: " before its message.
absl::Status Prefixed(std::string_view op, std::string_view network,
                      std::string_view addr, const absl::Status& status);
// ContextError returns the error of an operation that ends because its context
// is done: "operation was canceled" or "i/o timeout".
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
  // AsGiven returns a with a text for its host that its sockaddr does not have.
  static net::Addr AsGiven(net::Addr a, std::string_view host);
  // AsIs returns a as the kernel has it.
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

// Resolve returns the addresses for "host:port" or a path, in the order in
// which to try them. If `passive` is true, they are to listen at, and no host
// means all interfaces. Only a path that no socket can have gives an error with
// an errno. It is EINVAL, which Go gets from the call that takes the path.
absl::StatusOr<std::vector<net::Addr>> Resolve(const context::Context& ctx,
                                               const Network& network,
                                               std::string_view address,
                                               bool passive);

// NewSocket makes a non-blocking socket. Returns -1, with the errno in *err, on
// failure.
int NewSocket(const Network& network, int family, int* err);
// SetStreamOptions sets the options that every socket of the family "tcp" has:
// NoDelay and keep-alive. Connections inherit the options of their listener.
void SetStreamOptions(int fd, std::string_view family);
// Adopt gives a descriptor that is bound or connecting to a new Socket. If that
// fails, it closes the descriptor.
absl::StatusOr<std::shared_ptr<Socket>> Adopt(int fd, const Network& network,
                                              IoError* error);

}  // namespace gump::internal

#endif  // API_NET_SOCKET_H_
