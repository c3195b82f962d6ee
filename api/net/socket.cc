// Sockets: their creation, their errors, and what the handles of net share.
#include "api/net/socket.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "api/os/file.h"
#include "api/status_util.h"
#include "gump/panic.h"
#include "gump/status.h"
#include "runtime/sys/descriptor.h"

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
  const int fd = rt::newDescriptor(
      [&] { return socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  *err = -fd;
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
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, rt::kFirstDescriptor);
  if (copy < 0) return fail("dup");
  const int flags = fcntl(copy, F_GETFL);
  if (flags < 0 || fcntl(copy, F_SETFL, flags | O_NONBLOCK) != 0) {
    const int err = errno;
    close(copy);
    errno = err;
    return fail("fcntl");
  }
  IoError error;
  auto s = Adopt(copy, network, &error);
  if (!s.ok()) return OpError("file", "file+net", "", "", error);
  (*s)->remote = NameOf(copy, network.family, getpeername);
  return s;
}

// ---- What handles share -----------------------------------------------------

int TrySetOption(Socket* s, int level, int option, int value) {
  return s->fd.with([&](int fd) {
    return setsockopt(fd, level, option, &value, sizeof(value)) == 0 ? 0
                                                                     : errno;
  });
}

absl::Status SetBuffer(Socket* s, int option, int bytes) {
  const int err = TrySetOption(s, SOL_SOCKET, option, bytes);
  if (err == 0) return absl::OkStatus();
  return LocalError("set", *s, {err, "setsockopt"});
}

absl::Status SetDeadlineOf(Socket* s, absl::Time t, rt::PollMode mode) {
  const int err = s->fd.setDeadline(PollDeadline(t), mode);
  return err == 0 ? absl::OkStatus() : LocalError("set", *s, {err, nullptr});
}

int FdOf(const std::shared_ptr<Socket>& socket) {
  int number = -1;
  (void)Check(socket)->fd.with([&](int fd) {
    number = fd;
    return 0;
  });
  return number;
}

}  // namespace gump::internal
