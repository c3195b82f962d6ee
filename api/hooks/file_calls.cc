// Hooked calls on descriptors of any kind: read, write and their relatives.
//
// A socket is treated as in socket_calls.cc. A regular file is read without
// waiting if its pages are in memory; otherwise another thread reads it. At a
// pipe, a terminal, an eventfd and the like, the goroutine waits until poll(2)
// says that there is something, and then makes the call. If a rival was faster,
// the thread waits.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <climits>
#include <vector>

#include "api/hooks/parts.h"
#include "api/hooks/wait.h"

namespace gump::hooks {
namespace {

bool IsRegular(int fd) {
  struct stat st;
  return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

// WhenReady makes the call when fd is ready for it.
template <class Call>
ssize_t WhenReady(int fd, short events, Call call) {
  const ErrnoGuard guard;
  if (IsNonBlocking(fd)) return guard.Return(call());
  for (;;) {
    pollfd p{fd, events, 0};
    if (LookAt(&p, 1) != 0 || !Clean()) break;
    const Awaited got = Await(fd, events, kNever);
    if (got == Awaited::kImpossible) break;
    if (got == Awaited::kClosed) {
      errno = EBADF;
      return -1;
    }
  }
  return guard.Return(Stay(call));
}

// ReadFile reads from a regular file at `at`, or at its position if that is -1.
// A file is read short only at its end. So if a part of it is in memory,
// another thread reads the rest.
ssize_t ReadFile(int fd, const iovec* v, int n, off_t at) {
  const ErrnoGuard guard;
  const auto parts = static_cast<size_t>(n);
  ssize_t r = preadv2(fd, v, n, at, RWF_NOWAIT);
  if (r == 0 || r == static_cast<ssize_t>(SizeOf(v, parts))) {
    return guard.Return(r);
  }
  if (r < 0 && !WouldBlock(errno) && errno != EOPNOTSUPP && errno != ENOSYS &&
      errno != EINVAL) {
    return -1;
  }
  r = std::max<ssize_t>(r, 0);
  const std::vector<iovec> rest = Without(v, parts, static_cast<size_t>(r));
  const auto call = [&] {
    const int left = static_cast<int>(rest.size());
    return at < 0 ? Libc().readv(fd, rest.data(), left)
                  : preadv(fd, rest.data(), left, at + r);
  };
  const ssize_t more = Clean() ? Lend(call) : Stay(call);
  if (more < 0) return r > 0 ? guard.Return(r) : -1;
  return guard.Return(r + more);
}

bool IsPipe(int fd) {
  struct stat st;
  return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

// WriteOther writes n bytes to what is no socket. A pipe that is ready takes
// PIPE_BUF bytes at once. For more than that, another thread waits.
template <class Call>
ssize_t WriteOther(int fd, size_t n, Call call) {
  const ErrnoGuard guard;
  if (n > PIPE_BUF && IsPipe(fd) && !IsNonBlocking(fd) && Clean()) {
    return guard.Return(Lend(call));
  }
  return guard.Return(WhenReady(fd, POLLOUT, call));
}

// IsOrdinary returns false for lists that the kernel refuses, or that are
// empty.
bool IsOrdinary(const iovec* v, int n) {
  return n > 0 && n <= IOV_MAX && SizeOf(v, static_cast<size_t>(n)) > 0;
}

ssize_t Read(int fd, void* buf, size_t n) {
  const auto call = [=] { return Libc().read(fd, buf, n); };
  const Way way = WayHere();
  if (way == Way::kDirect) return call();
  if (way == Way::kStay || n == 0) return Stay(call);
  const ErrnoGuard guard;
  const ssize_t r = RecvSocket(fd, buf, n, 0);
  if (r >= 0 || errno != ENOTSOCK) return guard.Return(r);
  if (!IsRegular(fd)) return guard.Return(WhenReady(fd, POLLIN, call));
  const iovec v{buf, n};
  return guard.Return(ReadFile(fd, &v, 1, -1));
}

ssize_t ReadV(int fd, const iovec* v, int n) {
  const auto call = [=] { return Libc().readv(fd, v, n); };
  const Way way = WayHere();
  if (way == Way::kDirect) return call();
  if (way == Way::kStay || !IsOrdinary(v, n)) return Stay(call);
  const ErrnoGuard guard;
  msghdr m = MessageOf(v, static_cast<size_t>(n));
  const ssize_t r = RecvMsgSocket(fd, &m, 0);
  if (r >= 0 || errno != ENOTSOCK) return guard.Return(r);
  if (!IsRegular(fd)) return guard.Return(WhenReady(fd, POLLIN, call));
  return guard.Return(ReadFile(fd, v, n, -1));
}

ssize_t PRead(int fd, void* buf, size_t n, off_t at) {
  const auto call = [=] { return Libc().pread(fd, buf, n, at); };
  const Way way = WayHere();
  if (way == Way::kDirect) return call();
  if (way == Way::kStay || at < 0 || !IsRegular(fd)) return Stay(call);
  const iovec v{buf, n};
  return ReadFile(fd, &v, 1, at);
}

ssize_t Write(int fd, const void* buf, size_t n) {
  const auto call = [=] { return Libc().write(fd, buf, n); };
  const Way way = WayHere();
  if (way == Way::kDirect) return call();
  if (way == Way::kStay || n == 0) return Stay(call);
  const ErrnoGuard guard;
  const ssize_t r = SendSocket(fd, buf, n, 0);
  if (r >= 0 || errno != ENOTSOCK) return guard.Return(r);
  return guard.Return(WriteOther(fd, n, call));
}

ssize_t WriteV(int fd, const iovec* v, int n) {
  const auto call = [=] { return Libc().writev(fd, v, n); };
  const Way way = WayHere();
  if (way == Way::kDirect) return call();
  if (way == Way::kStay || !IsOrdinary(v, n)) return Stay(call);
  const ErrnoGuard guard;
  msghdr m = MessageOf(v, static_cast<size_t>(n));
  const ssize_t r = SendMsgSocket(fd, &m, 0);
  if (r >= 0 || errno != ENOTSOCK) return guard.Return(r);
  return guard.Return(WriteOther(fd, SizeOf(v, static_cast<size_t>(n)), call));
}

}  // namespace

void AddFileCalls(Table* t) {
  t->read = Read;
  t->readv = ReadV;
  t->pread = PRead;
  t->write = Write;
  t->writev = WriteV;
}

}  // namespace gump::hooks
