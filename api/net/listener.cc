// Listeners.
#include "gump/net/listener.h"

#include <memory>
#include <utility>

#include "api/net/listen.h"
#include "api/net/socket.h"
#include "netpoll/fd.h"

namespace gump::net {

using internal::Check;
using internal::FdOf;
using internal::Hold;
using internal::IoError;
using internal::NetAccess;
using internal::Network;
using internal::SetDeadlineOf;
using internal::Socket;
using internal::SocketError;

absl::StatusOr<Conn> Listener::Accept() const {
  Socket* s = Check(socket_);
  sockaddr_storage sa;
  auto* generic = reinterpret_cast<sockaddr*>(&sa);
  socklen_t length = sizeof(sa);
  int fd = -1;
  const int err = s->fd.accept(&fd, generic, &length);
  if (err != 0) return SocketError("accept", *s, {err, "accept4"});
  // A connection inherits the options of a listener of ours. The options of a
  // borrowed listener are not ours to set.
  if (s->borrowed) internal::SetStreamOptions(fd, s->network);
  IoError error;
  Network network;
  network.family = s->network;
  absl::StatusOr<std::shared_ptr<Socket>> made =
      internal::Adopt(fd, network, &error);
  if (!made.ok()) return SocketError("accept", *s, error);
  (*made)->remote = NetAccess::MakeAddr(s->network, generic, length);
  return NetAccess::Make<Conn>(*std::move(made));
}

absl::Status Listener::Close() const { return Hold(socket_)->Close(); }
absl::Status Listener::SetDeadline(absl::Time t) const {
  return SetDeadlineOf(Hold(socket_).get(), t, rt::PollMode::kRead);
}
Addr Listener::LocalAddr() const { return Check(socket_)->local; }
int Listener::Fd() const { return FdOf(socket_); }

absl::StatusOr<Listener> Listen(std::string_view network,
                                std::string_view address,
                                ListenOptions options) {
  absl::StatusOr<std::shared_ptr<Socket>> s =
      internal::ListenAt(network, address, options, /*stream=*/true);
  if (!s.ok()) return s.status();
  return NetAccess::Make<Listener>(*std::move(s));
}

absl::StatusOr<Listener> FileListener(int fd) {
  auto s = internal::Duplicate(fd);
  if (!s.ok()) return s.status();
  (*s)->borrowed = true;
  return NetAccess::Make<Listener>(*std::move(s));
}

}  // namespace gump::net
