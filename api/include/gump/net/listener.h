// A net::Listener accepts connections at an address.
//
//   absl::StatusOr<net::Listener> l = net::Listen("tcp", ":7");
//   if (!l.ok()) return l.status();
//   for (;;) {
//     absl::StatusOr<net::Conn> c = l->Accept();
//     if (!c.ok()) return c.status();
//     go([conn = *c] { Echo(conn); });
//   }
//
// A Listener is a cheap handle: a copy is the same listener. It is closed by
// Close, or when its last handle is destroyed. gump/net.h says how networks and
// addresses are written, and describes the errors.
//
// Requires: the handle is not default-constructed. Using such a handle panics,
// as gump/net.h says.
//
// All functions may be called from goroutines and from plain threads, several
// at a time. A function parks only if its comment says so.
#ifndef GUMP_NET_LISTENER_H_
#define GUMP_NET_LISTENER_H_

#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gump/net/addr.h"
#include "gump/net/conn.h"

#pragma GCC visibility push(default)

namespace gump::internal {
struct NetAccess;
struct Socket;
}  // namespace gump::internal

namespace gump::net {

// Listener is the handle described above.
class Listener {
 public:
  Listener() = default;  // nil
  // Returns false for nil. Handles are equal if they are of the same socket.
  explicit operator bool() const { return socket_ != nullptr; }
  friend bool operator==(const Listener&, const Listener&) = default;

  // Accept returns the next connection. Parks until there is one. It also
  // returns temporary errors, such as EMFILE. A loop that calls Accept should
  // pause after such an error.
  absl::StatusOr<Conn> Accept() const;
  // Close is as that of Conn. It also removes the path of a unix socket.
  absl::Status Close() const;
  // SetDeadline makes Accept fail with "i/o timeout" after t. InfiniteFuture()
  // means no deadline.
  absl::Status SetDeadline(absl::Time t) const;
  // LocalAddr returns the address at which the socket listens. If port 0 was
  // asked for, it has the port that the kernel chose. It is known also after
  // Close.
  Addr LocalAddr() const;
  // Fd returns the descriptor, as that of Conn does.
  int Fd() const;

 private:
  friend struct ::gump::internal::NetAccess;
  std::shared_ptr<internal::Socket> socket_;
};

// ListenOptions holds the options of Listen and ListenPacket.
struct ListenOptions {
  // Lets several sockets listen at one address. The kernel spreads the incoming
  // connections or datagrams among them.
  bool reuse_port = false;
  // The number of connections that may wait for Accept. 0 means as many as the
  // kernel allows.
  int backlog = 0;
};

// Listen opens a socket for incoming connections ("tcp…", "unix"). It sets
// SO_REUSEADDR. ":port" accepts IPv6 and IPv4, as far as the system has them.
// Errors read "listen tcp 127.0.0.1:80: bind: address already in use". Parks
// while a name is looked up.
absl::StatusOr<Listener> Listen(std::string_view network,
                                std::string_view address,
                                ListenOptions options = {});

// FileListener makes a Listener of a listening socket, such as one from
// systemd. As FileConn does, it duplicates the descriptor and makes the socket
// non-blocking. The Listener sets NoDelay and keep-alive on the connections
// that it accepts. The Listener's Close does not remove the path of a unix
// socket. Does not park.
absl::StatusOr<Listener> FileListener(int fd);

}  // namespace gump::net

#pragma GCC visibility pop

#endif  // GUMP_NET_LISTENER_H_
