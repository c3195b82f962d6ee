// Dialling: one address, several in turn, and two families in parallel.
//
// The parallel dial ("happy eyeballs", RFC 6555): the addresses of the family
// that the resolver put first are the primaries, the others are the fallbacks.
// A goroutine of its own tries each set. The fallbacks start after
// fallback_delay, or as soon as the primaries have failed. The first connection
// wins, and the other attempt is cancelled. If that attempt connects all the
// same, its Conn is dropped with the channel that it was sent to, which closes
// it.
#include "gump/net/dial.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "api/net/address.h"
#include "api/net/socket.h"
#include "api/status_util.h"
#include "gump/chan.h"
#include "gump/defer.h"
#include "gump/go.h"
#include "gump/select.h"
#include "gump/status.h"
#include "gump/time/timer.h"

namespace gump::net {
namespace {

using internal::IoError;
using internal::NetAccess;
using internal::Network;
using internal::OpError;
using internal::Socket;

// A time long past, on the poller's clock.
constexpr int64_t kLongAgo = 1;

// Finish waits until a connect that is under way has ended.
int Finish(Socket* s, const context::Context& ctx) {
  // When the context is done, the function below sets a deadline that is past.
  // The FD outlives that function, because Finish stops it or waits for it.
  auto hurried = make_chan<void>();
  const context::StopFunc stop =
      context::AfterFunc(ctx, [s, hurried]() mutable {
        (void)s->fd.setDeadline(kLongAgo, rt::PollMode::kWrite);
        hurried.Close();
      });
  defer _{[&] {
    if (!stop()) (void)hurried.Recv();
  }};
  for (;;) {
    int err = s->fd.waitWrite();
    if (err != 0) return err;
    int pending = 0;
    err = s->fd.with([&](int fd) {
      socklen_t size = sizeof(pending);
      return getsockopt(fd, SOL_SOCKET, SO_ERROR, &pending, &size) == 0 ? 0
                                                                        : errno;
    });
    if (err != 0) return err;
    switch (pending) {
      case EINPROGRESS:
      case EALREADY:
      case EINTR:
        continue;
      case 0:
      case EISCONN:
        break;
      default:
        return pending;
    }
    // The event may come before the connect has ended. The socket is connected
    // if it has a peer.
    sockaddr_storage sa;
    socklen_t length = sizeof(sa);
    err = s->fd.with([&](int fd) {
      return getpeername(fd, reinterpret_cast<sockaddr*>(&sa), &length) == 0
                 ? 0
                 : errno;
    });
    if (err != ENOTCONN) return err;
  }
}

// Connect starts a connect. Sets *done to true if it has ended already.
int Connect(int fd, const Addr& to, bool* done) {
  *done = true;
  if (connect(fd, to.Sockaddr(), to.Length()) == 0) return 0;
  switch (errno) {
    case EISCONN:
      return 0;
    case EINPROGRESS:
    case EALREADY:
    case EINTR:
      *done = false;
      return 0;
    default:
      return errno;
  }
}

// OfFamily returns `from` as the source of a connection to an address of some
// family. Returns an Addr of length 0 if `from` is of another family. The
// exception is the address of all interfaces, which is the same in both.
Addr OfFamily(const Addr& from, int family) {
  if (from.Sockaddr()->sa_family == family) return from;
  const auto* in6 = reinterpret_cast<const sockaddr_in6*>(from.Sockaddr());
  const auto* in = reinterpret_cast<const sockaddr_in*>(from.Sockaddr());
  if (family == AF_INET && from.Sockaddr()->sa_family == AF_INET6 &&
      IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr)) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = in6->sin6_port;
    return NetAccess::MakeAddr(from.Network(),
                               reinterpret_cast<sockaddr*>(&any), sizeof(any));
  }
  if (family == AF_INET6 && from.Sockaddr()->sa_family == AF_INET &&
      in->sin_addr.s_addr == INADDR_ANY) {
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = in->sin_port;
    return NetAccess::MakeAddr(from.Network(),
                               reinterpret_cast<sockaddr*>(&any), sizeof(any));
  }
  return {};
}

// PeerOf returns the address to which s is connected. It is not always the
// address `to`, which may be "every address of this host".
Addr PeerOf(Socket* s, const Addr& to) {
  sockaddr_storage sa;
  socklen_t length = sizeof(sa);
  auto* generic = reinterpret_cast<sockaddr*>(&sa);
  const int err = s->fd.with([&](int fd) {
    return getpeername(fd, generic, &length) == 0 ? 0 : errno;
  });
  return err == 0 ? NetAccess::MakeAddr(s->network, generic, length)
                  : NetAccess::AsIs(to);  // the peer has gone again
}

// Attempt makes a connection to one address.
absl::StatusOr<Conn> Attempt(const context::Context& ctx,
                             const Network& network, const Addr& to,
                             const std::optional<Addr>& from) {
  const std::string source = from ? from->String() : "";
  const auto fail = [&](IoError e) {
    return OpError("dial", network.name, source, to.String(), e);
  };
  if (!ctx.Err().ok()) {
    return internal::Prefixed("dial", network.name, to.String(),
                              internal::ContextError(ctx));
  }
  int err;
  const int family = to.Sockaddr()->sa_family;
  const int fd = internal::NewSocket(network, family, &err);
  if (fd < 0) return fail({err, "socket"});
  if (from) {
    const Addr at = OfFamily(*from, family);
    if (bind(fd, at.Sockaddr(), at.Length()) != 0) {
      err = errno;
      close(fd);
      return fail({err, "bind"});
    }
  }
  // Connect before the poller knows the socket. The poller would see a socket
  // that is not connected as hung up.
  bool done;
  err = Connect(fd, to, &done);
  if (err != 0) {
    close(fd);
    return fail({err, "connect"});
  }
  internal::SetStreamOptions(fd, network.family);
  IoError error;
  absl::StatusOr<std::shared_ptr<Socket>> s =
      internal::Adopt(fd, network, &error);
  if (!s.ok()) return fail(error);
  if (!done) err = Finish(s->get(), ctx);
  if (err == rt::kErrTimeout && !ctx.Err().ok()) {
    return internal::Prefixed("dial", network.name, to.String(),
                              internal::ContextError(ctx));
  }
  if (err != 0) return fail({err, "connect"});
  (*s)->remote = PeerOf(s->get(), to);
  // The context may have set its past deadline after all was done.
  (void)(*s)->fd.setDeadline(0, rt::PollMode::kBoth);
  return NetAccess::Make<Conn>(*std::move(s));
}

// SelfConnected detects a socket that is connected to itself. That can happen
// in a connect to a port of this host from which the kernel takes the source
// port.
bool SelfConnected(const Network& network, const absl::StatusOr<Conn>& c) {
  return network.family == "tcp" && c.ok() && c->LocalAddr() == c->RemoteAddr();
}

absl::StatusOr<Conn> DialOne(const context::Context& ctx,
                             const Network& network, const Addr& to,
                             const std::optional<Addr>& from) {
  absl::StatusOr<Conn> c = Attempt(ctx, network, to, from);
  // As in Go: try twice more after an error that passes, if the kernel chose
  // the port.
  const bool chosen = !from || from->Port() == 0;
  for (int i = 0; i < 2 && chosen; i++) {
    const bool again =
        SelfConnected(network, c) || Errno(c.status()) == EADDRNOTAVAIL;
    if (!again) break;
    c = Attempt(ctx, network, to, from);
  }
  return c;
}

// DialSerial tries one address after the other and returns the first error. It
// divides the remaining time among them, with at least 2 s for each.
absl::StatusOr<Conn> DialSerial(const context::Context& ctx,
                                const Network& network,
                                const std::vector<Addr>& addrs,
                                const std::optional<Addr>& from) {
  absl::Status first;
  for (size_t i = 0; i < addrs.size(); i++) {
    context::Context limited = ctx;
    context::CancelFunc cancel;
    if (const absl::Duration left =
            internal::ContextTimeLeft(internal::ContextAccess::ref(ctx).get());
        left < absl::InfiniteDuration() && addrs.size() > 1) {
      const absl::Duration share = left / (addrs.size() - i);
      std::tie(limited, cancel) =
          context::WithTimeout(ctx, std::max(share, absl::Seconds(2)));
    }
    absl::StatusOr<Conn> c = DialOne(limited, network, addrs[i], from);
    cancel();
    if (c.ok()) return c;
    if (first.ok()) first = c.status();
    if (!ctx.Err().ok()) break;
  }
  return first;
}

// DialParallel is described above.
absl::StatusOr<Conn> DialParallel(const context::Context& parent,
                                  const Network& network,
                                  const std::vector<Addr>& primaries,
                                  const std::vector<Addr>& fallbacks,
                                  const std::optional<Addr>& from,
                                  absl::Duration delay) {
  struct Outcome {
    bool primary = false;
    absl::StatusOr<Conn> conn = Conn();
    std::exception_ptr thrown = nullptr;  // usually: no memory
  };
  auto [ctx, cancel] = context::WithCancel(parent);
  defer _{cancel};
  auto outcomes = make_chan<Outcome>(2);
  const auto start = [&, ctx = ctx](bool primary) {
    go([outcomes, ctx, network, addrs = primary ? primaries : fallbacks, from,
        primary]() mutable {
      Outcome o{primary};
      try {
        o.conn = DialSerial(ctx, network, addrs, from);
      } catch (const std::exception&) {  // for the caller, as net.h says
        o.thrown = std::current_exception();
      }
      outcomes.Send(std::move(o));
    });
  };
  start(true);
  int running = 1;
  const time::Timer timer = time::NewTimer(delay);
  defer __{[&] { (void)timer.Stop(); }};
  recv_chan<absl::Time> due = timer.C;
  absl::Status first;
  while (running > 0 || due != nullptr) {
    Outcome o;
    if (select(Recv(outcomes, &o), Recv(due)) == 0) {
      running--;
      if (o.thrown != nullptr) std::rethrow_exception(o.thrown);
      if (o.conn.ok()) return std::move(o.conn);
      if (o.primary || first.ok()) first = o.conn.status();
      if (due == nullptr) continue;
    }
    due = nullptr;  // the delay is over, or the primaries have failed
    start(false);
    running++;
  }
  return first;
}

}  // namespace

absl::StatusOr<Conn> DialContext(const context::Context& parent,
                                 std::string_view network,
                                 std::string_view address,
                                 const DialOptions& options) {
  const auto fail = [&](const absl::Status& s) {
    return internal::Prefixed("dial", network, "", s);
  };
  const auto unresolved = [&](const absl::Status& s, const char* call) {
    const int err = Errno(s);
    if (err == 0) return fail(s);
    return OpError("dial", network, options.local_address, address,
                   {err, call});
  };
  absl::StatusOr<Network> n = internal::ParseNetwork(network);
  if (!n.ok()) return fail(n.status());
  context::Context ctx = parent;
  context::CancelFunc cancel;
  // Zero means no timeout, as in Go.
  if (options.timeout != absl::InfiniteDuration() &&
      options.timeout != absl::ZeroDuration()) {
    std::tie(ctx, cancel) = context::WithTimeout(parent, options.timeout);
  }
  defer _{cancel};
  absl::StatusOr<std::vector<Addr>> addrs =
      internal::Resolve(ctx, *n, address, /*passive=*/false);
  if (!addrs.ok()) return unresolved(addrs.status(), "connect");
  std::optional<Addr> from;
  if (!options.local_address.empty()) {
    absl::StatusOr<std::vector<Addr>> local =
        internal::Resolve(ctx, *n, options.local_address, /*passive=*/true);
    if (!local.ok()) return unresolved(local.status(), "bind");
    from = local->front();
    std::erase_if(*addrs, [&](const Addr& a) {
      return OfFamily(*from, a.Sockaddr()->sa_family).Length() == 0;
    });
    if (addrs->empty()) {
      return fail(absl::InvalidArgumentError(internal::Cat(
          "address ", address, ": mismatched local address type")));
    }
  }
  const int family = addrs->front().Sockaddr()->sa_family;
  const auto other = std::stable_partition(
      addrs->begin(), addrs->end(),
      [&](const Addr& a) { return a.Sockaddr()->sa_family == family; });
  const std::vector<Addr> fallbacks(other, addrs->end());
  if (n->family != "tcp" || fallbacks.empty() ||
      options.fallback_delay < absl::ZeroDuration()) {
    return DialSerial(ctx, *n, *addrs, from);
  }
  addrs->erase(other, addrs->end());
  return DialParallel(ctx, *n, *addrs, fallbacks, from, options.fallback_delay);
}

absl::StatusOr<Conn> Dial(std::string_view network, std::string_view address,
                          const DialOptions& options) {
  return DialContext(context::Background(), network, address, options);
}

absl::StatusOr<Conn> DialTimeout(std::string_view network,
                                 std::string_view address,
                                 internal::DurationArg timeout) {
  DialOptions options;
  options.timeout = timeout.duration();
  return Dial(network, address, options);
}

}  // namespace gump::net
