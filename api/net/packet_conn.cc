// Datagram sockets.
#include "gump/net/packet_conn.h"

#include <sys/socket.h>

#include <memory>
#include <utility>

#include "api/net/address.h"
#include "api/net/listen.h"
#include "api/net/socket.h"
#include "api/status_util.h"
#include "netpoll/fd.h"

namespace gump::net {

using internal::Check;
using internal::FdOf;
using internal::Hold;
using internal::NetAccess;
using internal::OpError;
using internal::SetBuffer;
using internal::SetDeadlineOf;
using internal::Socket;
using internal::SocketError;

absl::StatusOr<PacketConn> ListenPacket(std::string_view network,
                                        std::string_view address,
                                        ListenOptions options) {
  absl::StatusOr<std::shared_ptr<Socket>> s =
      internal::ListenAt(network, address, options, /*stream=*/false);
  if (!s.ok()) return s.status();
  return NetAccess::Make<PacketConn>(*std::move(s));
}

absl::StatusOr<PacketConn::Packet> PacketConn::ReadFrom(
    absl::Span<char> buf) const {
  Socket* s = Check(socket_);
  sockaddr_storage sa;
  iovec piece{buf.data(), buf.size()};
  msghdr m{};
  m.msg_name = &sa;
  m.msg_namelen = sizeof(sa);
  m.msg_iov = &piece;
  m.msg_iovlen = 1;
  const rt::IoResult r = s->fd.recvmsg(&m, 0);
  if (r.err != 0) return SocketError("read", *s, {r.err, "recvfrom"});
  Packet p;
  p.n = r.n;
  p.truncated = (m.msg_flags & MSG_TRUNC) != 0;
  if (m.msg_namelen != 0) {
    p.from = NetAccess::MakeAddr(s->network, reinterpret_cast<sockaddr*>(&sa),
                                 m.msg_namelen);
  }
  return p;
}

absl::StatusOr<size_t> PacketConn::WriteTo(std::string_view data,
                                           const Addr& to) const {
  Socket* s = Check(socket_);
  if (to.Length() == 0) {
    return internal::Prefixed("write", s->network, s->local.String(),
                              absl::InvalidArgumentError("missing address"));
  }
  sockaddr_storage sa;
  socklen_t length;
  const absl::Status fits =
      internal::ForFamily(to, s->local.Sockaddr()->sa_family, &sa, &length);
  if (!fits.ok()) {
    return internal::Annotate(
        internal::OpText("write", s->network, s->local.String(), to.String()),
        fits);
  }
  iovec piece{const_cast<char*>(data.data()), data.size()};
  msghdr m{};
  m.msg_name = &sa;
  m.msg_namelen = length;
  m.msg_iov = &piece;
  m.msg_iovlen = 1;
  const rt::IoResult r = s->fd.sendmsg(&m, 0);
  if (r.err != 0) {
    return OpError("write", s->network, s->local.String(), to.String(),
                   {r.err, "sendto"}, r.n);
  }
  return r.n;
}

absl::Status PacketConn::Close() const { return Hold(socket_)->Close(); }
absl::Status PacketConn::SetDeadline(absl::Time t) const {
  return SetDeadlineOf(Hold(socket_).get(), t, rt::PollMode::kBoth);
}
absl::Status PacketConn::SetReadDeadline(absl::Time t) const {
  return SetDeadlineOf(Hold(socket_).get(), t, rt::PollMode::kRead);
}
absl::Status PacketConn::SetWriteDeadline(absl::Time t) const {
  return SetDeadlineOf(Hold(socket_).get(), t, rt::PollMode::kWrite);
}
absl::Status PacketConn::SetReadBuffer(int bytes) const {
  return SetBuffer(Check(socket_), SO_RCVBUF, bytes);
}
absl::Status PacketConn::SetWriteBuffer(int bytes) const {
  return SetBuffer(Check(socket_), SO_SNDBUF, bytes);
}
Addr PacketConn::LocalAddr() const { return Check(socket_)->local; }
int PacketConn::Fd() const { return FdOf(socket_); }

}  // namespace gump::net
