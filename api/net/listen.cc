// Sockets that listen at an address.
#include "api/net/listen.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "api/net/address.h"
#include "gump/context.h"
#include "gump/status.h"

namespace gump::internal {

namespace {

// Bound makes a socket that is bound to addr.
absl::StatusOr<std::shared_ptr<Socket>> Bound(const Network& network,
                                              const net::Addr& addr,
                                              const net::ListenOptions& options,
                                              IoError* error) {
  Network n = network;
  const int family = addr.Sockaddr()->sa_family;
  // "::" with an IP version in the network's name is for that version alone. A
  // specific address always is.
  int err;
  const int fd = NewSocket(n, family, &err);
  const auto fail = [&](const char* call) {
    *error = {errno, call};
    if (fd >= 0) close(fd);
    return absl::UnknownError("");
  };
  if (fd < 0) {
    errno = err;
    return fail("socket");
  }
  const int on = 1;
  if (network.family == "tcp") {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  }
  if (options.reuse_port &&
      setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0) {
    return fail("setsockopt");
  }
  if (bind(fd, addr.Sockaddr(), addr.Length()) != 0) return fail("bind");
  SetStreamOptions(fd, network.family);
  // The kernel limits the backlog to net.core.somaxconn.
  const int backlog = options.backlog > 0 ? options.backlog : 65535;
  if (network.stream() && listen(fd, backlog) != 0) return fail("listen");
  return Adopt(fd, network, error);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Socket>> ListenAt(
    std::string_view network, std::string_view address,
    const net::ListenOptions& options, bool stream) {
  absl::StatusOr<Network> n = ParseNetwork(network);
  if (!n.ok()) return Prefixed("listen", network, "", n.status());
  absl::StatusOr<std::vector<net::Addr>> addrs =
      Resolve(context::Background(), *n, address, /*passive=*/true);
  if (const int err = Errno(addrs.status()); err != 0) {
    return OpError("listen", network, "", address, {err, "bind"});
  }
  if (!addrs.ok()) {
    return Prefixed("listen", network, "", addrs.status());
  }
  if (n->stream() != stream) {
    return Prefixed("listen", network, address,
                    absl::InvalidArgumentError(
                        Cat("address ", address, ": unexpected address type")));
  }
  // If a name has several addresses, take one of version 4, as Go does.
  const auto v4 = std::find_if(
      addrs->begin(), addrs->end(),
      [](const net::Addr& a) { return a.Sockaddr()->sa_family == AF_INET; });
  const net::Addr& at = v4 != addrs->end() ? *v4 : addrs->front();
  IoError error;
  absl::StatusOr<std::shared_ptr<Socket>> s = Bound(*n, at, options, &error);
  if (!s.ok()) return OpError("listen", network, "", at.String(), error);
  // Only a listener unlinks its path, as in Go.
  if (stream && n->unix_domain() && !address.empty() && !IsAbstract(address)) {
    (*s)->unlink_path = std::string(address);
  }
  return s;
}

}  // namespace gump::internal
