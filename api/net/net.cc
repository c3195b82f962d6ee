// Sockets: their creation, and the functions of their handles.
#include "gump/net.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "api/net/socket.h"
#include "api/os/file.h"
#include "api/status_util.h"
#include "gump/panic.h"
#include "gump/status.h"
#include "runtime/sched/time.h"
#include "runtime/sys/os_linux.h"

namespace gump::internal {

// ---- Errors -----------------------------------------------------------------

std::string OpText(std::string_view op, std::string_view network,
                   std::string_view source, std::string_view addr) {
  std::string text(op);
  if (!network.empty()) text += Cat(" ", network);
  if (!source.empty()) text += Cat(" ", source);
  if (!addr.empty()) text += Cat(source.empty() ? " " : "->", addr);
  return text;
}

absl::Status OpError(std::string_view op, std::string_view network,
                     std::string_view source, std::string_view addr, IoError e,
                     size_t bytes) {
  std::string what = OpText(op, network, source, addr);
  if (e.err > 0 && e.call != nullptr) what += Cat(": ", e.call);
  return ErrorStatus(what, e.err, kNetClosed, bytes);
}

absl::Status Prefixed(std::string_view op, std::string_view network,
                      std::string_view addr, const absl::Status& status) {
  return Annotate(OpText(op, network, "", addr), status);
}

absl::Status ContextError(const context::Context& ctx) {
  return absl::IsDeadlineExceeded(ctx.Err())
             ? absl::DeadlineExceededError("i/o timeout")
             : absl::CancelledError("operation was canceled");
}

// ---- Sockets ----------------------------------------------------------------

namespace {

net::Addr NameOf(int fd, const std::string& network,
                 decltype(getsockname)* get) {
  sockaddr_storage sa;
  socklen_t length = sizeof(sa);
  auto* generic = reinterpret_cast<sockaddr*>(&sa);
  if (get(fd, generic, &length) != 0) return {};
  return NetAccess::MakeAddr(network, generic, length);
}

Socket* Check(const std::shared_ptr<Socket>& s) {
  if (s == nullptr) {
    panic("invalid memory address or nil pointer dereference");
  }
  return s.get();
}

// Hold is Check for a call that wakes other goroutines. They may drop the
// handle on which the call was made.
std::shared_ptr<Socket> Hold(const std::shared_ptr<Socket>& s) {
  (void)Check(s);
  return s;
}

// TrySetOption sets a socket option to an int. Returns 0 or an errno.
int TrySetOption(Socket* s, int level, int option, int value) {
  return s->fd.with([&](int fd) {
    return setsockopt(fd, level, option, &value, sizeof(value)) == 0 ? 0
                                                                     : errno;
  });
}

absl::Status SetOption(Socket* s, int level, int option, int value) {
  const int err = TrySetOption(s, level, option, value);
  if (err == 0) return absl::OkStatus();
  return SocketError("set", *s, {err, "setsockopt"});
}

absl::Status SetBuffer(Socket* s, int option, int bytes) {
  const int err = TrySetOption(s, SOL_SOCKET, option, bytes);
  if (err == 0) return absl::OkStatus();
  return LocalError("set", *s, {err, "setsockopt"});
}

// SetDeadlineOf converts t: absl::Time is wall clock time, and the poller's
// clock is monotonic.
absl::Status SetDeadlineOf(Socket* s, absl::Time t, rt::PollMode mode) {
  int64_t when = 0;
  if (t != absl::InfiniteFuture()) {
    const int64_t left =
        absl::ToInt64Nanoseconds(t - absl::FromUnixNanos(rt::walltime()));
    const int64_t now = rt::nanotime();
    when = std::max<int64_t>(rt::timeAfter(now, left), 1);
  }
  const int err = s->fd.setDeadline(when, mode);
  return err == 0 ? absl::OkStatus() : LocalError("set", *s, {err, nullptr});
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

absl::Status SocketError(std::string_view op, const Socket& s, IoError e,
                         size_t bytes) {
  return OpError(op, s.network, s.local.String(), s.remote.String(), e, bytes);
}

absl::Status LocalError(std::string_view op, const Socket& s, IoError e) {
  return OpError(op, s.network, "", s.local.String(), e);
}

Socket::~Socket() = default;

absl::Status Socket::Close() {
  // Unlink before closing. Once the socket is closed, another program may
  // listen at this path.
  if (!unlink_path.empty()) {
    unlink_once.Do([&] { ::unlink(unlink_path.c_str()); });
  }
  const int err = fd.close();
  return err == 0 ? absl::OkStatus() : SocketError("close", *this, {err});
}

int NewSocket(const Network& network, int family, int* err) {
  const int type = network.stream() ? SOCK_STREAM : SOCK_DGRAM;
  const int fd = socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  *err = errno;
  if (fd < 0) return fd;
  const int on = 1;
  if (family == AF_INET6) {
    // Set as the caller asked. The default of the system may be either.
    const int only = network.version == 6 ? 1 : 0;
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
  }
  if (network.family == "udp") {
    setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on));
  }
  return fd;
}

void SetStreamOptions(int fd, std::string_view family) {
  if (family != "tcp") return;
  const auto set = [fd](int level, int option, int value) {
    setsockopt(fd, level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 15);
  set(IPPROTO_TCP, TCP_KEEPCNT, 9);
}

absl::StatusOr<std::shared_ptr<Socket>> Adopt(int fd, const Network& network,
                                              IoError* error) {
  OwnedFd owned(fd);
  auto s = std::make_shared<Socket>(fd, network);
  s->local = NameOf(fd, s->network, getsockname);
  const int err = s->fd.init();
  if (err == 0) {
    (void)owned.Release();
    return s;
  }
  *error = {err, "epoll_ctl"};
  return absl::UnavailableError("poller");
}

}  // namespace gump::internal

namespace gump::net {

using internal::Check;
using internal::Hold;
using internal::IoError;
using internal::LocalError;
using internal::NetAccess;
using internal::Network;
using internal::OpError;
using internal::Socket;
using internal::SocketError;

// ---- Conn -------------------------------------------------------------------

absl::StatusOr<size_t> Conn::Read(absl::Span<char> buf) const {
  Socket* s = Check(socket_);
  return internal::Transferred(*s, "read", s->fd.read(buf.data(), buf.size()),
                               "read");
}

absl::StatusOr<size_t> Conn::Write(std::string_view data) const {
  Socket* s = Check(socket_);
  return internal::Transferred(*s, "write",
                               s->fd.write(data.data(), data.size()), "write");
}

absl::StatusOr<size_t> Conn::Readv(absl::Span<const iovec> pieces) const {
  Socket* s = Check(socket_);
  return internal::Transferred(
      *s, "read", s->fd.readv(pieces.data(), pieces.size()), "readv");
}

absl::StatusOr<size_t> Conn::Writev(absl::Span<const iovec> pieces) const {
  Socket* s = Check(socket_);
  return internal::Transferred(
      *s, "write", s->fd.writev(pieces.data(), pieces.size()), "writev");
}

absl::Status Conn::Close() const { return Hold(socket_)->Close(); }
absl::Status Conn::CloseRead() const {
  return internal::Shutdown(Hold(socket_).get(), SHUT_RD);
}
absl::Status Conn::CloseWrite() const {
  return internal::Shutdown(Hold(socket_).get(), SHUT_WR);
}

absl::Status Conn::SetDeadline(absl::Time t) const {
  return internal::SetDeadlineOf(Hold(socket_).get(), t, rt::PollMode::kBoth);
}
absl::Status Conn::SetReadDeadline(absl::Time t) const {
  return internal::SetDeadlineOf(Hold(socket_).get(), t, rt::PollMode::kRead);
}
absl::Status Conn::SetWriteDeadline(absl::Time t) const {
  return internal::SetDeadlineOf(Hold(socket_).get(), t, rt::PollMode::kWrite);
}

absl::Status Conn::SetNoDelay(bool on) const {
  return internal::SetOption(Check(socket_), IPPROTO_TCP, TCP_NODELAY,
                             on ? 1 : 0);
}

absl::Status Conn::SetKeepAlive(bool on,
                                gump::internal::DurationArg period) const {
  Socket* s = Check(socket_);
  absl::Status status =
      internal::SetOption(s, SOL_SOCKET, SO_KEEPALIVE, on ? 1 : 0);
  if (!on || !status.ok()) return status;
  // The period is set in whole seconds, rounded up.
  const auto seconds = static_cast<int>(std::clamp<int64_t>(
      absl::ToInt64Seconds(period.duration() + absl::Nanoseconds(999'999'999)),
      1, 32767));
  status = internal::SetOption(s, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  if (!status.ok()) return status;
  return internal::SetOption(s, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
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
  return internal::SetBuffer(Check(socket_), SO_RCVBUF, bytes);
}
absl::Status Conn::SetWriteBuffer(int bytes) const {
  return internal::SetBuffer(Check(socket_), SO_SNDBUF, bytes);
}

Addr Conn::LocalAddr() const { return Check(socket_)->local; }
Addr Conn::RemoteAddr() const { return Check(socket_)->remote; }

namespace {
int FdOf(const std::shared_ptr<Socket>& socket) {
  int number = -1;
  (void)Check(socket)->fd.with([&](int fd) {
    number = fd;
    return 0;
  });
  return number;
}
}  // namespace

int Conn::Fd() const { return FdOf(socket_); }

absl::Status Conn::Control(void (*f)(void*, int), void* arg) const {
  Socket* s = Check(socket_);
  const int err = s->fd.with([&](int fd) {
    f(arg, fd);
    return 0;
  });
  return err == 0 ? absl::OkStatus() : LocalError("raw-control", *s, {err});
}

// ---- Listener ---------------------------------------------------------------

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
  return internal::SetDeadlineOf(Hold(socket_).get(), t, rt::PollMode::kRead);
}
Addr Listener::LocalAddr() const { return Check(socket_)->local; }
int Listener::Fd() const { return FdOf(socket_); }

namespace {

// Bound makes a socket that is bound to addr.
absl::StatusOr<std::shared_ptr<Socket>> Bound(const Network& network,
                                              const Addr& addr,
                                              const ListenOptions& options,
                                              IoError* error) {
  Network n = network;
  const int family = addr.Sockaddr()->sa_family;
  // "::" with an IP version in the network's name is for that version alone. A
  // specific address always is.
  int err;
  const int fd = internal::NewSocket(n, family, &err);
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
  internal::SetStreamOptions(fd, network.family);
  // The kernel limits the backlog to net.core.somaxconn.
  const int backlog = options.backlog > 0 ? options.backlog : 65535;
  if (network.stream() && listen(fd, backlog) != 0) return fail("listen");
  return internal::Adopt(fd, network, error);
}

absl::StatusOr<std::shared_ptr<Socket>> ListenAt(std::string_view network,
                                                 std::string_view address,
                                                 const ListenOptions& options,
                                                 bool stream) {
  absl::StatusOr<Network> n = internal::ParseNetwork(network);
  if (!n.ok()) return internal::Prefixed("listen", network, "", n.status());
  absl::StatusOr<std::vector<Addr>> addrs =
      internal::Resolve(context::Background(), *n, address, /*passive=*/true);
  if (const int err = Errno(addrs.status()); err != 0) {
    return OpError("listen", network, "", address, {err, "bind"});
  }
  if (!addrs.ok()) {
    return internal::Prefixed("listen", network, "", addrs.status());
  }
  if (n->stream() != stream) {
    return internal::Prefixed(
        "listen", network, address,
        absl::InvalidArgumentError(
            internal::Cat("address ", address, ": unexpected address type")));
  }
  // If a name has several addresses, take one of version 4, as Go does.
  const auto v4 = std::find_if(addrs->begin(), addrs->end(), [](const Addr& a) {
    return a.Sockaddr()->sa_family == AF_INET;
  });
  const Addr& at = v4 != addrs->end() ? *v4 : addrs->front();
  IoError error;
  absl::StatusOr<std::shared_ptr<Socket>> s = Bound(*n, at, options, &error);
  if (!s.ok()) return OpError("listen", network, "", at.String(), error);
  // Only a listener unlinks its path, as in Go.
  if (stream && n->unix_domain() && !address.empty() &&
      !internal::IsAbstract(address)) {
    (*s)->unlink_path = std::string(address);
  }
  return s;
}

}  // namespace

absl::StatusOr<Listener> Listen(std::string_view network,
                                std::string_view address,
                                ListenOptions options) {
  absl::StatusOr<std::shared_ptr<Socket>> s =
      ListenAt(network, address, options, /*stream=*/true);
  if (!s.ok()) return s.status();
  return NetAccess::Make<Listener>(*std::move(s));
}

absl::StatusOr<PacketConn> ListenPacket(std::string_view network,
                                        std::string_view address,
                                        ListenOptions options) {
  absl::StatusOr<std::shared_ptr<Socket>> s =
      ListenAt(network, address, options, /*stream=*/false);
  if (!s.ok()) return s.status();
  return NetAccess::Make<PacketConn>(*std::move(s));
}

// ---- PacketConn -------------------------------------------------------------

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
  return internal::SetDeadlineOf(Hold(socket_).get(), t, rt::PollMode::kBoth);
}
absl::Status PacketConn::SetReadDeadline(absl::Time t) const {
  return internal::SetDeadlineOf(Hold(socket_).get(), t, rt::PollMode::kRead);
}
absl::Status PacketConn::SetWriteDeadline(absl::Time t) const {
  return internal::SetDeadlineOf(Hold(socket_).get(), t, rt::PollMode::kWrite);
}
absl::Status PacketConn::SetReadBuffer(int bytes) const {
  return internal::SetBuffer(Check(socket_), SO_RCVBUF, bytes);
}
absl::Status PacketConn::SetWriteBuffer(int bytes) const {
  return internal::SetBuffer(Check(socket_), SO_SNDBUF, bytes);
}
Addr PacketConn::LocalAddr() const { return Check(socket_)->local; }
int PacketConn::Fd() const { return FdOf(socket_); }

// ---- Descriptors of others --------------------------------------------------

absl::StatusOr<std::pair<Conn, Conn>> Pipe() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) !=
      0) {
    return OpError("dial", "pipe", "", "", {errno, "socketpair"});
  }
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

namespace {

// Duplicate makes a Socket from a duplicate of fd.
absl::StatusOr<std::shared_ptr<Socket>> Duplicate(int fd) {
  sockaddr_storage sa;
  socklen_t length = sizeof(sa);
  int type = 0;
  socklen_t size = sizeof(type);
  const auto fail = [](const char* call) {
    return OpError("file", "file+net", "", "", {errno, call});
  };
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) {
    return fail("getsockopt");
  }
  auto* generic = reinterpret_cast<sockaddr*>(&sa);
  if (getsockname(fd, generic, &length) != 0) return fail("getsockname");
  const bool stream = type == SOCK_STREAM;
  Network network;
  network.family = sa.ss_family == AF_UNIX ? (stream ? "unix" : "unixgram")
                                           : (stream ? "tcp" : "udp");
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return fail("dup");
  const int flags = fcntl(copy, F_GETFL);
  if (flags < 0 || fcntl(copy, F_SETFL, flags | O_NONBLOCK) != 0) {
    const int err = errno;
    close(copy);
    errno = err;
    return fail("fcntl");
  }
  IoError error;
  auto s = internal::Adopt(copy, network, &error);
  if (!s.ok()) return OpError("file", "file+net", "", "", error);
  (*s)->remote = internal::NameOf(copy, network.family, getpeername);
  return s;
}

}  // namespace

absl::StatusOr<Conn> FileConn(int fd) {
  auto s = Duplicate(fd);
  if (!s.ok()) return s.status();
  internal::SetStreamOptions((*s)->fd.sysfd(), (*s)->network);
  return NetAccess::Make<Conn>(*std::move(s));
}

absl::StatusOr<Listener> FileListener(int fd) {
  auto s = Duplicate(fd);
  if (!s.ok()) return s.status();
  (*s)->borrowed = true;
  return NetAccess::Make<Listener>(*std::move(s));
}

}  // namespace gump::net
