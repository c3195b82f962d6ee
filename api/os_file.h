// What os and exec share.
#ifndef API_OS_FILE_H_
#define API_OS_FILE_H_

#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "gump/go.h"
#include "gump/os.h"
#include "netpoll/fd.h"

namespace gump::internal {

// OwnedFd closes a descriptor.
class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) noexcept : fd_(fd) {}
  OwnedFd(OwnedFd&& o) noexcept : fd_(o.Release()) {}
  OwnedFd& operator=(OwnedFd&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~OwnedFd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const noexcept { return fd_; }
  int Release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// OsFile is what the handles of a file share. Immutable but for fd, which
// guards itself.
struct OsFile {
  OsFile(int sysfd, rt::FdKind kind, std::string file_name)
      : fd(sysfd, kind), name(std::move(file_name)) {}

  rt::FD fd;
  const std::string name;
  bool append = false;    // opened with O_APPEND
  bool pollable = false;  // its description is non-blocking
};

struct OsFileAccess {
  static os::File Make(std::shared_ptr<OsFile> file) {
    os::File f;
    f.file_ = std::move(file);
    return f;
  }
  static OsFile* get(const os::File& f) { return f.file_.get(); }
};

// SysCall makes a system call, again if a signal has ended it: what it returns,
// or -errno. Not inlined: a compiler takes errno's address to be constant
// within a function, and around a park that would be another thread's.
template <class F>
__attribute__((noinline)) long SysCall(F f) {
  long n;
  do {
    n = f();
  } while (n < 0 && errno == EINTR);
  return n < 0 ? -errno : n;
}

// BlockingSysCall is SysCall for a call that may block.
template <class F>
long BlockingSysCall(const F& f) {
  return blocking([&] { return SysCall(f); });
}

// ErrnoOf is the errno of what SysCall has returned, or 0.
inline int ErrnoOf(long n) { return n < 0 ? static_cast<int>(-n) : 0; }

// AdoptFile makes a File of a descriptor, which is given to the poller if
// `poll` says so and it can be.
os::File AdoptFile(OwnedFd&& fd, std::string name, bool poll);

}  // namespace gump::internal

#endif  // API_OS_FILE_H_
