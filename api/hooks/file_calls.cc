// Hooked calls on descriptors of any kind: read, write and their relatives.
//
// A socket is treated as in socket_calls.cc. A regular file is read without
// waiting if its pages are in memory; otherwise another thread reads it. At a
// pipe, a terminal, an eventfd and the like, the goroutine waits until poll(2)
// says that there is something, and then makes the call. If a rival was faster,
// the thread waits.
#include <fcntl.h>
#include <sys/stat.h>

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
    if (Await(fd, events, kNever) == Awaited::kImpossible) break;
  }
  return guard.Return(Stay(call));
}

// ReadFile reads from a regular file at `at`, or at its position if that is -1.
// call is what the program has called.
template <class Call>
ssize_t ReadFile(int fd, const iovec* v, int n, off_t at, Call call) {
  const ErrnoGuard guard;
  const ssize_t r = preadv2(fd, v, n, at, RWF_NOWAIT);
  if (r >= 0) return guard.Return(r);
  if (!WouldBlock(errno) && errno != EOPNOTSUPP && errno != ENOSYS &&
      errno != EINVAL) {
    return -1;
  }
  return guard.Return(Clean() ? Lend(call) : Stay(call));
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
  return guard.Return(ReadFile(fd, &v, 1, -1, call));
}

ssize_t ReadV(int fd, const iovec* v, int n) {
  const auto call = [=] { return Libc().readv(fd, v, n); };
  const Way way = WayHere();
  if (way == Way::kDirect) return call();
  if (way == Way::kStay || n <= 0) return Stay(call);
  const ErrnoGuard guard;
  msghdr m{};
  m.msg_iov = const_cast<iovec*>(v);
  m.msg_iovlen = static_cast<size_t>(n);
  const ssize_t r = RecvMsgSocket(fd, &m, 0);
  if (r >= 0 || errno != ENOTSOCK) return guard.Return(r);
  if (!IsRegular(fd)) return guard.Return(WhenReady(fd, POLLIN, call));
  return guard.Return(ReadFile(fd, v, n, -1, call));
}

ssize_t PRead(int fd, void* buf, size_t n, off_t at) {
  const auto call = [=] { return Libc().pread(fd, buf, n, at); };
  const Way way = WayHere();
  if (way == Way::kDirect) return call();
  if (way == Way::kStay || at < 0 || !IsRegular(fd)) return Stay(call);
  const iovec v{buf, n};
  return ReadFile(fd, &v, 1, at, call);
}

ssize_t Write(int fd, const void* buf, size_t n) {
  const auto call = [=] { return Libc().write(fd, buf, n); };
  const Way way = WayHere();
  if (way == Way::kDirect) return call();
  if (way == Way::kStay || n == 0) return Stay(call);
  const ErrnoGuard guard;
  const ssize_t r = SendSocket(fd, buf, n, 0);
  if (r >= 0 || errno != ENOTSOCK) return guard.Return(r);
  return guard.Return(WhenReady(fd, POLLOUT, call));
}

ssize_t WriteV(int fd, const iovec* v, int n) {
  const auto call = [=] { return Libc().writev(fd, v, n); };
  const Way way = WayHere();
  if (way == Way::kDirect) return call();
  if (way == Way::kStay || n <= 0) return Stay(call);
  const ErrnoGuard guard;
  msghdr m{};
  m.msg_iov = const_cast<iovec*>(v);
  m.msg_iovlen = static_cast<size_t>(n);
  const ssize_t r = SendMsgSocket(fd, &m, 0);
  if (r >= 0 || errno != ENOTSOCK) return guard.Return(r);
  return guard.Return(WhenReady(fd, POLLOUT, call));
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
