// Connections, and the functions that make one of a descriptor.
#include "gump/net/conn.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "api/net/socket.h"
#include "api/os/file.h"
#include "netpoll/fd.h"
#include "runtime/sys/descriptor.h"

namespace gump::net {

using internal::Check;
using internal::FdOf;
using internal::Hold;
using internal::IoError;
using internal::LocalError;
using internal::NetAccess;
using internal::Network;
using internal::OpError;
using internal::SetBuffer;
using internal::SetDeadlineOf;
using internal::Socket;
using internal::SocketError;
using internal::TrySetOption;

namespace {

absl::Status SetOption(Socket* s, int level, int option, int value) {
  const int err = TrySetOption(s, level, option, value);
  if (err == 0) return absl::OkStatus();
  return SocketError("set", *s, {err, "setsockopt"});
}

absl::Status Shutdown(Socket* s, int how) {
  const int err =
      s->fd.with([&](int fd) { return shutdown(fd, how) == 0 ? 0 : errno; });
  if (err == 0) return absl::OkStatus();
  return SocketError("close", *s, {err, "shutdown"});
}

absl::StatusOr<size_t> Transferred(const Socket& s, std::string_view op,
                                   const rt::IoResult& r, const char* call) {
  if (r.err == 0) [[likely]] {
    return r.n;
  }
  return SocketError(op, s, {r.err, call}, r.n);
}

}  // namespace

absl::StatusOr<size_t> Conn::Read(absl::Span<char> buf) const {
  Socket* s = Check(socket_);
  return Transferred(*s, "read", s->fd.read(buf.data(), buf.size()), "read");
}

absl::StatusOr<size_t> Conn::Write(std::string_view data) const {
  Socket* s = Check(socket_);
  return Transferred(*s, "write", s->fd.write(data.data(), data.size()),
                     "write");
}

absl::StatusOr<size_t> Conn::Readv(absl::Span<const iovec> pieces) const {
  Socket* s = Check(socket_);
  return Transferred(*s, "read", s->fd.readv(pieces.data(), pieces.size()),
                     "readv");
}

absl::StatusOr<size_t> Conn::Writev(absl::Span<const iovec> pieces) const {
  Socket* s = Check(socket_);
  return Transferred(*s, "write", s->fd.writev(pieces.data(), pieces.size()),
                     "writev");
}

absl::Status Conn::Close() const { return Hold(socket_)->Close(); }
absl::Status Conn::CloseRead() const {
  return Shutdown(Hold(socket_).get(), SHUT_RD);
}
absl::Status Conn::CloseWrite() const {
  return Shutdown(Hold(socket_).get(), SHUT_WR);
}

absl::Status Conn::SetDeadline(absl::Time t) const {
  return SetDeadlineOf(Hold(socket_).get(), t, rt::PollMode::kBoth);
}
absl::Status Conn::SetReadDeadline(absl::Time t) const {
  return SetDeadlineOf(Hold(socket_).get(), t, rt::PollMode::kRead);
}
absl::Status Conn::SetWriteDeadline(absl::Time t) const {
  return SetDeadlineOf(Hold(socket_).get(), t, rt::PollMode::kWrite);
}

absl::Status Conn::SetNoDelay(bool on) const {
  return SetOption(Check(socket_), IPPROTO_TCP, TCP_NODELAY, on ? 1 : 0);
}

absl::Status Conn::SetKeepAlive(bool on,
                                gump::internal::DurationArg period) const {
  Socket* s = Check(socket_);
  absl::Status status = SetOption(s, SOL_SOCKET, SO_KEEPALIVE, on ? 1 : 0);
  if (!on || !status.ok()) return status;
  // The period is set in whole seconds, rounded up.
  const auto seconds = static_cast<int>(std::clamp<int64_t>(
      absl::ToInt64Seconds(period.duration() + absl::Nanoseconds(999'999'999)),
      1, 32767));
  status = SetOption(s, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  if (!status.ok()) return status;
  return SetOption(s, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
}

absl::Status Conn::SetLinger(int seconds) const {
  Socket* s = Check(socket_);
  const linger l{seconds >= 0 ? 1 : 0, seconds >= 0 ? seconds : 0};
  const int err = s->fd.with([&](int fd) {
    return setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)) == 0 ? 0
                                                                     : errno;
  });
  if (err == 0) return absl::OkStatus();
  return SocketError("set", *s, {err, "setsockopt"});
}

absl::Status Conn::SetReadBuffer(int bytes) const {
  return SetBuffer(Check(socket_), SO_RCVBUF, bytes);
}
absl::Status Conn::SetWriteBuffer(int bytes) const {
  return SetBuffer(Check(socket_), SO_SNDBUF, bytes);
}

Addr Conn::LocalAddr() const { return Check(socket_)->local; }
Addr Conn::RemoteAddr() const { return Check(socket_)->remote; }

int Conn::Fd() const { return FdOf(socket_); }

absl::Status Conn::Control(void (*f)(void*, int), void* arg) const {
  Socket* s = Check(socket_);
  const int err = s->fd.with([&](int fd) {
    f(arg, fd);
    return 0;
  });
  return err == 0 ? absl::OkStatus() : LocalError("raw-control", *s, {err});
}

absl::StatusOr<std::pair<Conn, Conn>> Pipe() {
  int fds[2];
  const int made = rt::newDescriptorPair(fds, [&] {
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                      fds);
  });
  if (made < 0) return OpError("dial", "pipe", "", "", {-made, "socketpair"});
  Network network;
  network.family = "unix";
  IoError error;
  internal::OwnedFd second(fds[1]);
  auto a = internal::Adopt(fds[0], network, &error);
  auto b = a.ok() ? internal::Adopt(second.Release(), network, &error) : a;
  if (!b.ok()) return OpError("dial", "pipe", "", "", error);
  return std::pair(NetAccess::Make<Conn>(*std::move(a)),
                   NetAccess::Make<Conn>(*std::move(b)));
}

absl::StatusOr<Conn> FileConn(int fd) {
  auto s = internal::Duplicate(fd);
  if (!s.ok()) return s.status();
  internal::SetStreamOptions((*s)->fd.sysfd(), (*s)->network);
  return NetAccess::Make<Conn>(*std::move(s));
}

}  // namespace gump::net
