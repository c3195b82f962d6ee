// The system calls of an FD: as a plain call, or as a declared call.
#ifndef NETPOLL_FD_CALLS_H_
#define NETPOLL_FD_CALLS_H_

#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "gump/internal/linkname.h"
#include "netpoll/fd.h"
#include "runtime/sys/base.h"

namespace gump::rt {

// The most that one system call moves, as in Go, because some kernels take no
// more.
inline constexpr size_t kMaxRW = size_t{1} << 30;

// SysResult is the result of a system call. If n < 0, err is the errno.
struct SysResult {
  ssize_t n;
  int err;
};

// lacksCall returns true for the errors of a newer call, or of its newer flag,
// where there is none. An old kernel says ENOSYS or EOPNOTSUPP. An old seccomp
// profile says EPERM of every call that it does not know.
inline bool lacksCall(int err) {
  return err == ENOSYS || err == EOPNOTSUPP || err == EPERM;
}

// tryCall makes a system call. It is not inlined into a function that parks
// between two calls, because compilers take the address of errno to be the same
// in the whole function.
template <class Call>
GUMP_NOINLINE SysResult tryCall(const Call& call) {
  const ssize_t n = call();
  return {n, n < 0 ? errno : 0};
}

// blockingCall makes a system call that may block, as a declared call.
template <class Call>
SysResult blockingCall(const Call& call) {
  entersyscall();
  const SysResult s = tryCall(call);
  exitsyscall();
  return s;
}

// uninterrupted repeats a call that returns -errno as long as it returns
// -EINTR.
template <class Call>
IoResult uninterrupted(const Call& call) {
  int64_t n;
  do {
    n = call();
  } while (n == -EINTR);
  if (n < 0) return {0, static_cast<int>(-n)};
  return {static_cast<size_t>(n), 0};
}

}  // namespace gump::rt

#endif  // NETPOLL_FD_CALLS_H_
