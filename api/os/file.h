// The parts that os and exec share.
#ifndef API_OS_FILE_H_
#define API_OS_FILE_H_

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "gump/go.h"
#include "gump/os/file.h"
#include "netpoll/fd.h"
#include "runtime/sys/descriptor.h"

namespace gump::internal {

// OwnedFd owns a descriptor and closes it.
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

// OsFile is the state that the handles of a file share. It is immutable except
// for fd, which guards itself.
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

// SysCall makes a system call, and makes it again if a signal has interrupted
// it. Returns the result, or -errno. It is not inlined: a compiler takes
// errno's address to be constant within a function, and after a park it would
// be that of another thread.
template <class F>
__attribute__((noinline)) long SysCall(F f) {
  long n;
  do {
    n = f();
  } while (n < 0 && errno == EINTR);
  return n < 0 ? -errno : n;
}

// NewFd makes a call that returns a new descriptor, as often as a signal
// interrupts it. Returns a descriptor of 3 or above, or -errno.
template <class F>
long NewFd(const F& make) {
  int fd;
  do {
    fd = rt::newDescriptor(make);
  } while (fd == -EINTR);
  return fd;
}

// BlockingSysCall is SysCall for a call that may block.
template <class F>
long BlockingSysCall(const F& f) {
  return blocking([&] { return SysCall(f); });
}

// PollDeadline converts a deadline to the poller's clock, which is monotonic. t
// is a time of the wall clock, or of the clock of the caller's bubble. The
// result is never early. 0 means no deadline.
int64_t PollDeadline(absl::Time t);

// ErrnoOf returns the errno of a result of SysCall, or 0.
inline int ErrnoOf(long n) { return n < 0 ? static_cast<int>(-n) : 0; }

// AdoptFile makes a File from a descriptor. If `poll` is true, the descriptor
// is given to the poller, if the poller takes it.
os::File AdoptFile(OwnedFd&& fd, std::string name, bool poll);

}  // namespace gump::internal

#endif  // API_OS_FILE_H_
