// The loops around non-blocking system calls.
//
// A read of a TCP connection that returns less than was asked for has emptied
// the socket. So the next read waits at once, without a system call that would
// say EAGAIN. This loses nothing. pollReset ran before the short read, so
// PollDesc::rg holds every edge since then. Data that the read did not return
// has made such an edge, and pollWait finds it. There are two exceptions:
//  - The last edge: after a FIN or an error no other may come.
//  - Urgent data: a read stops short at it, though there is more.
// In both cases the event sets hungUp, and read asks the kernel. Other streams
// may stop short for reasons of their own, as Unix sockets do behind a message
// with descriptors, so their reads always ask.
//
// SIGPIPE. A write with no reader left is an error like others, and must not
// end the process. Nor may a library change the process's SIGPIPE handling.
// Sockets have MSG_NOSIGNAL; all other files have RWF_NOSIGNAL, since Linux
// 6.18. On older kernels, a write to a pipe first blocks the signal for its
// thread, and afterwards removes the signal if it has come. This is enough,
// because the kernel sends the signal only to that thread. With these two more
// system calls a write takes some two and a half times as long. So each FD uses
// RWF_NOSIGNAL until that fails once.
#include "netpoll/fd.h"

#include <netinet/in.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <ctime>

#include "gump/internal/linkname.h"
#include "netpoll/fd_calls.h"
#include "runtime/diag/debugvars.h"
#include "runtime/diag/panic.h"
#include "runtime/sys/base.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/wait/chan.h"

namespace gump::rt {
namespace {

constexpr int kRwfNoSignal = 0x100;  // RWF_NOSIGNAL, not in all headers

constexpr size_t kMaxIovecs = IOV_MAX < 1024 ? IOV_MAX : 1024;  // as in Go

int lockError(FdMutex::Lock l) {
  switch (l) {
    case FdMutex::Lock::kOk:
      return 0;
    case FdMutex::Lock::kClosed:
      return kErrClosing;
    case FdMutex::Lock::kOverflow:
      return kErrTooManyUsers;
  }
  __builtin_unreachable();
}

// withoutSigpipe makes a call that writes `all` bytes and may send SIGPIPE to
// this thread. That happens if the call fails with EPIPE, or if a blocking pipe
// loses its readers in the middle. The signal does not arrive.
template <class Call>
ssize_t withoutSigpipe(size_t all, Call call) {
  sigset_t sigpipe;
  sigemptyset(&sigpipe);
  sigaddset(&sigpipe, SIGPIPE);
  sigset_t old;
  pthread_sigmask(SIG_BLOCK, &sigpipe, &old);
  const bool blocked = sigismember(&old, SIGPIPE) == 1;
  bool pending = false;  // the signal was pending before this call
  if (blocked) {
    sigset_t now;
    pending = sigpending(&now) == 0 && sigismember(&now, SIGPIPE) == 1;
  }
  const ssize_t n = call();
  const int err = errno;
  if (!pending && (n < 0 ? err == EPIPE : static_cast<size_t>(n) < all)) {
    const timespec now{};
    while (sigtimedwait(&sigpipe, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  if (!blocked) pthread_sigmask(SIG_UNBLOCK, &sigpipe, nullptr);
  errno = err;
  return n;
}

bool isTcp(int fd) {
  int protocol = 0;
  socklen_t len = sizeof(protocol);
  return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) == 0 &&
         protocol == IPPROTO_TCP;
}

}  // namespace

// A sanitizer sees that a write happens before a read only for calls that it
// knows, so a sanitizer build does not use pwritev2.
FD::FD(int fd, FdKind kind)
    : fd_(fd), kind_(kind), masksSigpipe_(kSanitizerBuild) {}

FD::~FD() {
  if (open_) (void)close();
}

int FD::init() {
  if (kind_ != FdKind::kFile) {
    int err;
    pd_ = pollOpen(fd_, &err);
    if (pd_ == nullptr) return err;
    // The ring does not report urgent data separately (netpoll_uring.cc).
    shortIsAll_ = kind_ == FdKind::kStream &&
                  debug.netpoll != NetpollChoice::kUring && isTcp(fd_);
  }
  open_ = true;
  return 0;
}

int FD::enter() {
  pollPreempt();
  return lockError(mu_.incref());
}
void FD::leave() {
  if (mu_.decref()) (void)destroy();
}
int FD::lockFor(PollMode mode) {
  pollPreempt();
  return lockError(mu_.rwlock(mode));
}
void FD::unlockFor(PollMode mode) {
  if (mu_.rwunlock(mode)) (void)destroy();
}

int FD::prepare(PollMode mode) {
  return pd_ == nullptr ? 0 : pollReset(pd_, mode);
}
int FD::wait(PollMode mode) {
  return pd_ == nullptr ? EAGAIN : pollWait(pd_, mode);
}

// destroy runs when the last user has left and no other can enter. Returns the
// errno of close(2), which has closed the descriptor in any case.
int FD::destroy() {
  const auto closeIt = [this] { return ::close(fd_); };
  if (pd_ != nullptr) pollClose(pd_);
  // Closing a file may write the rest of its data, and wait for that.
  const SysResult s = pd_ != nullptr ? tryCall(closeIt) : blockingCall(closeIt);
  semrelease(&csema_, /*handoff=*/false);
  return s.err == EINTR ? 0 : s.err;
}

int FD::close() {
  const int err = lockError(mu_.close());
  if (err != 0) return err;
  open_ = false;  // written only by the one closer
  if (pd_ != nullptr) pollUnblock(pd_);
  if (mu_.decref()) return destroy();
  if (pd_ != nullptr)
    semacquire(&csema_, /*lifo=*/false, SemaReason::kSemacquire);
  return 0;
}

void FD::setBlocks() {
  blocks_.store(true, relaxed);  // see transfer
  // A close need not wait, and a close that already waits must go on.
  semrelease(&csema_, /*handoff=*/false);
}

int FD::setDeadline(int64_t when, PollMode mode) {
  const int err = enter();
  if (err != 0) return err;
  if (pd_ != nullptr) pollSetDeadline(pd_, when, mode);
  leave();
  return pd_ == nullptr ? kErrNoDeadline : 0;
}

// transfer makes one call that moves bytes, and waits as long as that returns
// EAGAIN. The caller holds the lock for the direction.
template <class Call>
IoResult FD::transfer(PollMode mode, Call call) {
  for (;;) {
    // Relaxed: an undeclared call that blocks is also noticed, only later.
    const bool blocks = pd_ == nullptr || blocks_.load(relaxed);
    const SysResult s = blocks ? blockingCall(call) : tryCall(call);
    if (s.n >= 0) return {static_cast<size_t>(s.n), 0};
    if (s.err == EINTR) continue;
    if (s.err != EAGAIN) return {0, s.err};
    const int err = wait(mode);
    if (err != 0) return {0, err};
  }
}

IoResult FD::read(void* buf, size_t n) {
  // This does not use `locked`, which calls prepare at once. The wait for an
  // edge must come before prepare, because prepare forgets the edge.
  IoResult r;
  r.err = lockFor(PollMode::kRead);
  if (r.err != 0) return r;
  if (n != 0) {
    n = std::min(n, kMaxRW);
    // seq_cst: an event stores hungUp, then rg. We stored rg in prepare, and
    // now load hungUp.
    if (drained_ && !pd_->hungUp.load(seq_cst)) r.err = wait(PollMode::kRead);
    drained_ = false;
    if (r.err == 0) r.err = prepare(PollMode::kRead);
    if (r.err == 0 && kind_ == FdKind::kFile) {
      r = uninterrupted([&] { return fileRead(buf, n, /*offset=*/-1); });
    } else if (r.err == 0) {
      const bool socket =
          kind_ == FdKind::kStream || kind_ == FdKind::kDatagram;
      r = transfer(PollMode::kRead, [&] {
        return socket ? ::recv(fd_, buf, n, 0) : ::read(fd_, buf, n);
      });
      drained_ = shortIsAll_ && r.err == 0 && r.n != 0 && r.n < n;
    }
  }
  unlockFor(PollMode::kRead);
  return r;
}

IoResult FD::readv(const iovec* iov, size_t count) {
  // Skip empty iovecs at the front. If the kernel got only these, its 0 would
  // look like the end of the file.
  while (count > 0 && iov->iov_len == 0) iov++, count--;
  const int k = static_cast<int>(std::min(count, kMaxIovecs));
  return locked(PollMode::kRead, [&] {
    return transfer(PollMode::kRead, [&] { return ::readv(fd_, iov, k); });
  });
}

// writeQuietly is writev(2) without SIGPIPE, for files that are not sockets.
// The caller holds the write lock.
ssize_t FD::writeQuietly(const iovec* iov, int count) {
  if (!masksSigpipe_) {
    const ssize_t n = ::pwritev2(fd_, iov, count, /*offset=*/-1, kRwfNoSignal);
    if (n >= 0 || !lacksCall(errno)) return n;
    // The kernel may be old, a seccomp filter may deny the call, or the device
    // may take no flags. If the error is about this write instead, the call
    // below returns it as well.
    masksSigpipe_ = true;
  }
  size_t all = 0;
  for (int i = 0; i < count; i++) all += iov[i].iov_len;
  return withoutSigpipe(all, [=, this] {
    return count == 1 ? ::write(fd_, iov->iov_base, iov->iov_len)
                      : ::writev(fd_, iov, count);
  });
}

IoResult FD::write(const void* buf, size_t n) {
  const bool socket = kind_ == FdKind::kStream || kind_ == FdKind::kDatagram;
  return locked(PollMode::kWrite, [&] {
    IoResult done;
    auto* p = static_cast<char*>(const_cast<void*>(buf));
    // Make one call even for n == 0, because that is a message on a datagram
    // socket.
    while (done.err == 0) {
      const size_t part = std::min(n - done.n, kMaxRW);
      const IoResult r =
          kind_ == FdKind::kFile
              ? uninterrupted(
                    [&] { return fileWrite(p + done.n, part, /*offset=*/-1); })
              : transfer(PollMode::kWrite, [&] {
                  if (socket)
                    return ::send(fd_, p + done.n, part, MSG_NOSIGNAL);
                  const iovec one{p + done.n, part};
                  return writeQuietly(&one, 1);
                });
      done.n += r.n;
      done.err = r.err;
      if (done.n == n || r.err != 0) break;
      if (r.n == 0) done.err = EIO;  // a device that takes nothing
    }
    return done;
  });
}

IoResult FD::writev(const iovec* iov, size_t count) {
  const bool socket = kind_ == FdKind::kStream || kind_ == FdKind::kDatagram;
  return locked(PollMode::kWrite, [&] {
    IoResult done;
    size_t first = 0;   // index in iov of the first not written
    size_t offset = 0;  // into iov[first]
    while (done.err == 0) {
      while (first < count && offset == iov[first].iov_len) {
        first++;
        offset = 0;
      }
      if (first == count) break;
      iovec part[kMaxIovecs];
      size_t k = 0;
      size_t bytes = 0;
      for (size_t i = first; i < count && k < std::size(part); i++) {
        const size_t skip = i == first ? offset : 0;
        const size_t len = std::min(iov[i].iov_len - skip, kMaxRW - bytes);
        part[k++] = {static_cast<char*>(iov[i].iov_base) + skip, len};
        bytes += len;
        if (bytes == kMaxRW) break;
      }
      const IoResult r = transfer(PollMode::kWrite, [&] {
        if (!socket) return writeQuietly(part, static_cast<int>(k));
        msghdr m{};
        m.msg_iov = part;
        m.msg_iovlen = k;
        return ::sendmsg(fd_, &m, MSG_NOSIGNAL);
      });
      done.n += r.n;
      done.err = r.err;
      if (r.err == 0 && r.n == 0 && bytes != 0) done.err = EIO;
      for (size_t left = r.n; left != 0;) {
        const size_t here = std::min(left, iov[first].iov_len - offset);
        offset += here;
        left -= here;
        if (left != 0) {
          first++;
          offset = 0;
        }
      }
    }
    return done;
  });
}

IoResult FD::recvmsg(msghdr* msg, int flags) {
  return locked(PollMode::kRead, [&] {
    return transfer(PollMode::kRead,
                    [&] { return ::recvmsg(fd_, msg, flags); });
  });
}

IoResult FD::sendmsg(const msghdr* msg, int flags) {
  return locked(PollMode::kWrite, [&] {
    return transfer(PollMode::kWrite,
                    [&] { return ::sendmsg(fd_, msg, flags | MSG_NOSIGNAL); });
  });
}

int FD::accept(int* fd, sockaddr* addr, socklen_t* len) {
  const IoResult r = locked(PollMode::kRead, [&] {
    int err = 0;
    while (err == 0) {
      const socklen_t room = *len;
      *fd = newDescriptor([&] {
        return ::accept4(fd_, addr, len, SOCK_NONBLOCK | SOCK_CLOEXEC);
      });
      if (*fd >= 0) break;
      *len = room;
      if (*fd == -EAGAIN) {
        err = wait(PollMode::kRead);
      } else if (*fd != -EINTR && *fd != -ECONNABORTED) {
        // (ECONNABORTED: this peer has gone, but there may be others.)
        err = -*fd;
      }
    }
    return IoResult{0, err};
  });
  return r.err;
}

int FD::waitWrite() {
  int err = lockFor(PollMode::kWrite);
  if (err != 0) return err;
  err = wait(PollMode::kWrite);
  unlockFor(PollMode::kWrite);
  return err;
}

}  // namespace gump::rt
