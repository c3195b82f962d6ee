// Hooked calls on sockets.
//
// Each attempt is non-blocking by its flag MSG_DONTWAIT. Nothing about the
// descriptor is changed or remembered. Only if the attempt would block, the
// kernel is asked what the program wants: O_NONBLOCK, SO_RCVTIMEO, SO_SNDTIMEO.
// So descriptors that were made, duplicated or closed elsewhere are treated
// right.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <climits>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "api/hooks/parts.h"
#include "api/hooks/wait.h"
#include "gump/sync/mutex.h"

namespace gump::hooks {
namespace {

// SocketDeadline returns the time at which a call on fd ends that begins now.
// option is SO_RCVTIMEO or SO_SNDTIMEO.
int64_t SocketDeadline(int fd, int option) {
  timeval t{};
  socklen_t size = sizeof(t);
  if (getsockopt(fd, SOL_SOCKET, option, &t, &size) != 0 ||
      (t.tv_sec == 0 && t.tv_usec == 0)) {
    return kNever;
  }
  return TimeFromNow(Nanoseconds(t));
}

// Fail returns the result of a call that fails.
int Fail(int err) {
  errno = err;
  return -1;
}

// Direction is what a call waits for.
struct Direction {
  short events;
  int option;
};
constexpr Direction kReceive{POLLIN, SO_RCVTIMEO};
constexpr Direction kSend{POLLOUT, SO_SNDTIMEO};

// SocketWait is the wait between two attempts of one call.
class SocketWait {
 public:
  SocketWait(int fd, Direction d) : fd_(fd), d_(d) {}

  enum Result : uint8_t { kTryAgain, kFail, kStay };
  // Progress is called when an attempt has moved some bytes.
  void Progress() { tries_ = 0; }
  // Next parks after an attempt that would have blocked. kFail: the call fails,
  // and errno says why. kStay is the answer also after many wake-ups for
  // nothing: poll(2) and the call do not agree (a datagram for a Unix socket
  // whose queue is full).
  Result Next() {
    if (!asked_) {
      asked_ = true;
      if (IsNonBlocking(fd_)) return Fail();
      deadline_ = SocketDeadline(fd_, d_.option);
    }
    if (over_) return Fail();
    if (!Clean() || ++tries_ > kMaxTries) return kStay;
    switch (Await(fd_, d_.events, deadline_)) {
      case Awaited::kImpossible:
        return kStay;
      case Awaited::kClosed:
        errno = EBADF;
        return kFail;
      case Awaited::kTimeout:
        over_ = true;  // one more attempt
        return kTryAgain;
      case Awaited::kAsk:
        return kTryAgain;
    }
    return kStay;
  }

 private:
  static constexpr int kMaxTries = 64;

  Result Fail() {
    errno = EAGAIN;
    return kFail;
  }

  const int fd_;
  const Direction d_;
  bool asked_ = false;
  bool over_ = false;
  int tries_ = 0;
  int64_t deadline_ = kNever;
};

// ReceiveOnce makes attempts until one does not block. attempt and block make
// the call without and with waiting in the kernel.
template <class Attempt, class Block>
ssize_t ReceiveOnce(int fd, bool dontWait, Attempt attempt, Block block) {
  const ErrnoGuard guard;
  SocketWait wait(fd, kReceive);
  for (;;) {
    const ssize_t r = attempt();
    if (r >= 0 || !WouldBlock(errno) || dontWait) return guard.Return(r);
    switch (wait.Next()) {
      case SocketWait::kTryAgain:
        break;
      case SocketWait::kFail:
        return -1;
      case SocketWait::kStay:
        return guard.Return(Stay(block));
    }
  }
}

// InPieces is a call that goes on until n bytes are moved: attempt(done) and
// block(done) move what follows `done` bytes. If something has been moved, an
// error is left for the next call. An attempt would take it away, so broken(fd)
// asks for it first.
template <class Broken, class Attempt, class Block>
ssize_t InPieces(int fd, Direction d, size_t n, bool dontWait, Broken broken,
                 Attempt attempt, Block block) {
  const ErrnoGuard guard;
  SocketWait wait(fd, d);
  size_t done = 0;
  const auto sum = [&](ssize_t r) {
    if (r > 0) done += static_cast<size_t>(r);
    return guard.Return(r < 0 && done == 0 ? r : static_cast<ssize_t>(done));
  };
  for (;;) {
    if (done > 0 && broken(fd)) return sum(0);
    const ssize_t r = attempt(done);
    const bool some = r > 0 && static_cast<size_t>(r) < n - done;
    if (dontWait || (!some && (r >= 0 || !WouldBlock(errno)))) return sum(r);
    if (some) {
      done += static_cast<size_t>(r);
      wait.Progress();
    }
    switch (wait.Next()) {
      case SocketWait::kTryAgain:
        break;
      case SocketWait::kFail:
        return sum(-1);
      case SocketWait::kStay:
        return sum(Stay([&] { return block(done); }));
    }
  }
}

// HasOnlyError returns true if the socket has an error and nothing to read.
bool HasOnlyError(int fd) {
  pollfd p{fd, POLLIN, 0};
  int bytes = 0;
  return LookAt(&p, 1) > 0 && (p.revents & POLLERR) != 0 &&
         ioctl(fd, FIONREAD, &bytes) == 0 && bytes == 0;
}

// IsBroken returns true if nothing can be sent any more.
bool IsBroken(int fd) {
  pollfd p{fd, POLLOUT, 0};
  return LookAt(&p, 1) > 0 && (p.revents & (POLLERR | POLLHUP)) != 0;
}

// IsStream tells whether fd is a socket that carries a stream of bytes.
bool IsStream(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
         type == SOCK_STREAM;
}

// Calls with these flags do not wait, on most kinds of socket.
constexpr int kNeverWait = MSG_OOB | MSG_ERRQUEUE;

// ---- Receiving --------------------------------------------------------------

ssize_t RecvFrom(int fd, void* buf, size_t n, int flags, sockaddr* from,
                 socklen_t* size) {
  const auto call = [=](size_t done, int more) {
    // The first piece has the address.
    return Libc().recvfrom(fd, static_cast<char*>(buf) + done, n - done,
                           flags | more, done == 0 ? from : nullptr,
                           done == 0 ? size : nullptr);
  };
  const Way way = WayHere();
  if (way == Way::kDirect) return call(0, 0);
  const bool all = (flags & MSG_WAITALL) != 0 && (flags & MSG_DONTWAIT) == 0;
  if (way == Way::kStay || (flags & kNeverWait) != 0 ||
      (all && ((flags & MSG_PEEK) != 0 || n == 0))) {
    return Stay([=] { return call(0, 0); });
  }
  if (all && IsStream(fd)) {
    return InPieces(
        fd, kReceive, n, /*dontWait=*/false, HasOnlyError,
        [=](size_t done) { return call(done, MSG_DONTWAIT); },
        [=](size_t done) { return call(done, 0); });
  }
  return ReceiveOnce(
      fd, (flags & MSG_DONTWAIT) != 0, [=] { return call(0, MSG_DONTWAIT); },
      [=] { return call(0, 0); });
}

ssize_t RecvMsg(int fd, msghdr* m, int flags) {
  const Way way = WayHere();
  if (way == Way::kDirect) return Libc().recvmsg(fd, m, flags);
  const auto block = [=] { return Libc().recvmsg(fd, m, flags); };
  const bool all = (flags & MSG_WAITALL) != 0 && (flags & MSG_DONTWAIT) == 0;
  if (way == Way::kStay || all || (flags & kNeverWait) != 0) {
    return Stay(block);
  }
  // An attempt that fails changes nothing in *m.
  return ReceiveOnce(
      fd, (flags & MSG_DONTWAIT) != 0,
      [=] { return Libc().recvmsg(fd, m, flags | MSG_DONTWAIT); }, block);
}

// ---- Sending ----------------------------------------------------------------

// A blocking call on a stream goes on until all is sent. (As in the kernel,
// there is no SIGPIPE after a partial count.)
// More are the flags of a piece after `done` bytes.
int More(size_t done) { return done == 0 ? 0 : MSG_NOSIGNAL; }

ssize_t SendTo(int fd, const void* buf, size_t n, int flags, const sockaddr* to,
               socklen_t size) {
  const auto call = [=](size_t done, int more) {
    return Libc().sendto(fd, static_cast<const char*>(buf) + done, n - done,
                         flags | more | More(done), to, size);
  };
  const Way way = WayHere();
  if (way == Way::kDirect) return call(0, 0);
  if (way == Way::kStay || (flags & MSG_FASTOPEN) != 0) {
    return Stay([=] { return call(0, 0); });
  }
  return InPieces(
      fd, kSend, n, (flags & MSG_DONTWAIT) != 0, IsBroken,
      [=](size_t done) { return call(done, MSG_DONTWAIT); },
      [=](size_t done) { return call(done, 0); });
}

// Rest is what is left of a message after some bytes have been sent.
class Rest {
 public:
  explicit Rest(const msghdr& m) : whole_(m) {}

  size_t size() const { return SizeOf(whole_.msg_iov, whole_.msg_iovlen); }

  // After returns the message without its first `done` bytes. Control data go
  // with the first piece only.
  const msghdr* After(size_t done) {
    if (done == 0) return &whole_;
    rest_ = whole_;
    rest_.msg_control = nullptr;
    rest_.msg_controllen = 0;
    parts_ = Without(whole_.msg_iov, whole_.msg_iovlen, done);
    rest_.msg_iov = parts_.data();
    rest_.msg_iovlen = parts_.size();
    return &rest_;
  }

 private:
  const msghdr& whole_;
  msghdr rest_{};
  std::vector<iovec> parts_;
};

ssize_t SendMsg(int fd, const msghdr* m, int flags) {
  const Way way = WayHere();
  if (way == Way::kDirect) return Libc().sendmsg(fd, m, flags);
  if (way == Way::kStay || m == nullptr || (flags & MSG_FASTOPEN) != 0 ||
      m->msg_iovlen > IOV_MAX) {
    return Stay([=] { return Libc().sendmsg(fd, m, flags); });
  }
  Rest rest(*m);
  return InPieces(
      fd, kSend, rest.size(), (flags & MSG_DONTWAIT) != 0, IsBroken,
      [&](size_t done) {
        return Libc().sendmsg(fd, rest.After(done),
                              flags | MSG_DONTWAIT | More(done));
      },
      [&](size_t done) {
        return Libc().sendmsg(fd, rest.After(done), flags | More(done));
      });
}

// ---- Connecting -------------------------------------------------------------

// ConnectsSlowly tells whether a connect of fd waits for another host, and can
// be made to wait elsewhere.
bool ConnectsSlowly(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  return IsStream(fd) &&
         getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
         (domain == AF_INET || domain == AF_INET6 || domain == AF_VSOCK);
}

// StartConnect makes the call without waiting. connect has no flag of its own,
// so the socket is made non-blocking for the length of the call. This is the
// one place where that shows. The socket is not connected yet, so other threads
// rarely use it.
int StartConnect(int fd, const sockaddr* to, socklen_t size) {
  const int flags = Libc().fcntl(fd, F_GETFL, 0);
  if (flags < 0 || Libc().fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return -1;
  }
  const int r = Libc().connect(fd, to, size);
  const int err = errno;
  (void)Libc().fcntl(fd, F_SETFL, flags);
  errno = err;
  return r;
}

// A connect that is under way is called again when the socket is ready. The
// kernel then gives the result, and counts the socket as connected.
int Connect(int fd, const sockaddr* to, socklen_t size) {
  const Way way = WayHere();
  if (way == Way::kDirect) return Libc().connect(fd, to, size);
  const auto block = [=] { return Libc().connect(fd, to, size); };
  const ErrnoGuard guard;
  if (way == Way::kStay || !ConnectsSlowly(fd) || IsNonBlocking(fd) ||
      !Clean()) {
    return guard.Return(Stay(block));
  }
  const int64_t deadline = SocketDeadline(fd, SO_SNDTIMEO);
  for (bool over = false;;) {
    const int r = StartConnect(fd, to, size);
    if (r == 0 || (errno != EINPROGRESS && errno != EALREADY)) {
      return guard.Return(r);
    }
    if (over) {
      errno = EINPROGRESS;  // as Linux
      return -1;
    }
    const Awaited got = Await(fd, POLLOUT, deadline);
    if (got == Awaited::kImpossible) return guard.Return(Stay(block));
    if (got == Awaited::kClosed) return Fail(EBADF);
    over = got == Awaited::kTimeout;
  }
}

// ---- Accepting --------------------------------------------------------------

// accept has no flag for one call either, and O_NONBLOCK would show in all
// processes that share the listener. So a goroutine waits until there is a
// connection, and then accepts it. One at a time does this for a descriptor. If
// another thread or process is faster, the thread stays in accept until the
// next connection.
//
// Gates has an entry for each descriptor at which a goroutine accepts.
struct Gate {
  sync::Mutex mu;
  int users = 0;  // under Gates::mu
};
struct Gates {
  sync::Mutex mu;
  std::map<int, std::unique_ptr<Gate>> all;
};
Gates& AllGates() {
  static auto* const gates = new Gates;
  return *gates;
}

// Turn is a goroutine's turn to accept at fd. It waits for that until
// `deadline`.
class Turn {
 public:
  Turn(int fd, int64_t deadline) : fd_(fd) {
    {
      const std::scoped_lock hold(AllGates().mu);
      std::unique_ptr<Gate>& g = AllGates().all[fd];
      if (g == nullptr) g = std::make_unique<Gate>();
      gate_ = g.get();
      gate_->users++;
    }
    if (deadline == kNever) {
      gate_->mu.Lock();
      held_ = true;
    } else {
      held_ =
          gate_->mu.TryLockFor(absl::Nanoseconds(deadline - TimeFromNow(0)));
    }
  }
  ~Turn() {
    if (held_) gate_->mu.Unlock();
    const std::scoped_lock hold(AllGates().mu);
    if (--gate_->users == 0) AllGates().all.erase(fd_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool held() const { return held_; }

 private:
  const int fd_;
  Gate* gate_;
  bool held_ = false;
};

// Listens tells whether fd is a socket at which connections arrive. At others,
// accept fails at once.
bool Listens(int fd) {
  int listens = 0;
  socklen_t size = sizeof(listens);
  return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 &&
         listens != 0;
}

template <class Call>
int AcceptWhenReady(int fd, Call call) {
  const Way way = WayHere();
  if (way == Way::kDirect) return call();
  const ErrnoGuard guard;
  if (way == Way::kStay || !Listens(fd) || IsNonBlocking(fd) || !Clean()) {
    return guard.Return(Stay(call));
  }
  const int64_t deadline = SocketDeadline(fd, SO_RCVTIMEO);
  const Turn turn(fd, deadline);
  while (turn.held()) {
    pollfd p{fd, POLLIN, 0};
    if (LookAt(&p, 1) != 0) return guard.Return(Stay(call));
    const Awaited got = Await(fd, POLLIN, deadline);
    if (got == Awaited::kImpossible) return guard.Return(Stay(call));
    if (got == Awaited::kClosed) return Fail(EBADF);
    if (got == Awaited::kTimeout) break;
  }
  return Fail(EAGAIN);
}

int Accept(int fd, sockaddr* from, socklen_t* size) {
  return AcceptWhenReady(fd, [=] { return Libc().accept(fd, from, size); });
}

int Accept4(int fd, sockaddr* from, socklen_t* size, int flags) {
  return AcceptWhenReady(fd,
                         [=] { return Libc().accept4(fd, from, size, flags); });
}

}  // namespace

ssize_t RecvSocket(int fd, void* buf, size_t n, int flags) {
  return RecvFrom(fd, buf, n, flags, nullptr, nullptr);
}
ssize_t RecvMsgSocket(int fd, msghdr* m, int flags) {
  return RecvMsg(fd, m, flags);
}
ssize_t SendSocket(int fd, const void* buf, size_t n, int flags) {
  return SendTo(fd, buf, n, flags, nullptr, 0);
}
ssize_t SendMsgSocket(int fd, const msghdr* m, int flags) {
  return SendMsg(fd, m, flags);
}

void AddSocketCalls(Table* t) {
  t->recv = RecvSocket;
  t->recvfrom = RecvFrom;
  t->recvmsg = RecvMsg;
  t->send = SendSocket;
  t->sendto = SendTo;
  t->sendmsg = SendMsg;
  t->connect = Connect;
  t->accept = Accept;
  t->accept4 = Accept4;
}

}  // namespace gump::hooks
