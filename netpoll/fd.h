// FD: a file descriptor as api/ uses it. Operations look as if they blocked,
// but only the goroutine parks. Source: Go's internal/poll.FD.
//
// Errors are errnos, or a negative PollError (polldesc.h). The caller keeps the
// FD alive as long as any operation on it runs, even after a close. A close
// makes the operations fail, but some may return later than the close does.
#ifndef NETPOLL_FD_H_
#define NETPOLL_FD_H_

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "netpoll/fd_mutex.h"
#include "netpoll/polldesc.h"
#include "runtime/sys/base.h"

namespace gump::rt {

struct IoResult {
  size_t n = 0;  // bytes; if a write fails, the bytes written before that
  int err = 0;
};

enum class FdKind : uint8_t {
  kStream,    // a connection
  kDatagram,  // and listeners
  kPipe,      // pipes, terminals: no socket calls
  kFile,      // nothing to poll: its calls block, and are declared
};

// Errors that only an FD has.
inline constexpr int kErrNoDeadline = -4;  // kFile: nothing to wait for
inline constexpr int kErrTooManyUsers = -5;

// All operations:
// On: user, m.locks == 0, or a foreign thread.  Parks: yes.
class FD {
 public:
  FD(int fd, FdKind kind);
  // ~FD closes an FD that is still open.
  ~FD();
  FD(const FD&) = delete;
  FD& operator=(const FD&) = delete;

  // init registers the descriptor with the poller. Returns 0, and then the
  // poller owns the descriptor. Otherwise returns the errno, and the caller
  // still owns it.
  [[nodiscard]] int init();

  // read fills at most n bytes. Unless n == 0, 0 bytes without an error means
  // the end.
  [[nodiscard]] IoResult read(void* buf, size_t n);
  // readv is read into several buffers. It may ignore those beyond 1024.
  [[nodiscard]] IoResult readv(const iovec* iov, size_t count);
  // write writes all, or fails. None of these operations sends SIGPIPE: a write
  // with no reader left fails with EPIPE.
  [[nodiscard]] IoResult write(const void* buf, size_t n);
  [[nodiscard]] IoResult writev(const iovec* iov, size_t count);
  // recvmsg and sendmsg transfer one message each; flags are as in recvmsg(2).
  [[nodiscard]] IoResult recvmsg(msghdr* msg, int flags);
  [[nodiscard]] IoResult sendmsg(const msghdr* msg, int flags);
  [[nodiscard]] IoResult pread(void* buf, size_t n, int64_t offset);
  [[nodiscard]] IoResult pwrite(const void* buf, size_t n, int64_t offset);
  // sync is fsync(2). Returns 0 or an error.
  [[nodiscard]] int sync();
  // accept stores a new descriptor, non-blocking and close-on-exec, in *fd.
  [[nodiscard]] int accept(int* fd, sockaddr* addr, socklen_t* len);
  // waitWrite waits until the descriptor is writable, which ends a connect.
  [[nodiscard]] int waitWrite();

  // close makes all operations fail with kErrClosing, and returns when the
  // descriptor's number is free. Returns kErrClosing if it was closed already.
  // For a kFile it does not wait for calls that are in the kernel, because
  // nothing would end them. The number is free when the last of them has
  // returned. Other errors are those of close(2); the FD is closed all the
  // same.
  [[nodiscard]] int close();
  // setDeadline calls pollSetDeadline.
  [[nodiscard]] int setDeadline(int64_t when, PollMode mode);

  // setBlocks says that the descriptor is about to be made blocking, for
  // another user of it. From then on calls wait in the kernel, where no
  // deadline ends them. close waits neither for these calls nor for those of a
  // kFile.
  void setBlocks();

  // with calls f(int fd), which returns 0 or an errno, on the open descriptor.
  template <class F>
  [[nodiscard]] int with(F&& f) {
    const int err = enter();
    if (err != 0) return err;
    const Leave leave(this);  // f may throw, or end the goroutine
    return call(f, fd_);
  }
  // withRead and withWrite call f(int fd) until it returns true, each time
  // after the descriptor became ready again. Unlike that of `with`, this f must
  // not throw, because the direction would stay locked.
  template <class F>
  [[nodiscard]] int withRead(F&& f) {
    return withReady(PollMode::kRead, static_cast<F&&>(f));
  }
  template <class F>
  [[nodiscard]] int withWrite(F&& f) {
    return withReady(PollMode::kWrite, static_cast<F&&>(f));
  }
  // sysfd is the number. A caller that uses it must keep the FD open.
  int sysfd() const { return fd_; }

 private:
  int enter();
  void leave();
  class Leave {
   public:
    explicit Leave(FD* fd) : fd_(fd) {}
    ~Leave() { fd_->leave(); }
    Leave(const Leave&) = delete;
    Leave& operator=(const Leave&) = delete;

   private:
    FD* const fd_;
  };
  int destroy();
  // prepare clears a direction's readiness before a system call; wait waits
  // after EAGAIN.
  int prepare(PollMode mode);
  int wait(PollMode mode);
  int lockFor(PollMode mode);
  void unlockFor(PollMode mode);
  // locked locks and prepares a direction, and returns the result of body(). If
  // the direction cannot be locked or prepared, it returns that error.
  template <class Body>
  IoResult locked(PollMode mode, const Body& body) {
    IoResult r;
    r.err = lockFor(mode);
    if (r.err != 0) return r;
    if (mode == PollMode::kRead) drained_ = false;  // under its lock
    r.err = prepare(mode);
    if (r.err == 0) r = body();
    unlockFor(mode);
    return r;
  }
  // call is f(fd), not inlined. f may use errno, and compilers take its address
  // to be the same before and after a park.
  template <class F>
  GUMP_NOINLINE static auto call(F& f, int fd) {
    return f(fd);
  }
  ssize_t writeQuietly(const iovec* iov, int count);
  // fileWay tells how the calls on a kFile wait. The first call that asks finds
  // out.
  enum class FileWay : uint8_t { kUnknown, kKernel, kCached, kRing };
  FileWay fileWay();
  // supportsNowait tells whether the kernel knows beforehand which calls on
  // this kFile would wait.
  bool supportsNowait();
  // cachedRead is preadv2 with RWF_NOWAIT, fileRead is pread and fileWrite is
  // pwrite, each on a kFile; offset -1 means at the position. fileSync is fsync
  // on any kind. They return -errno.
  int64_t cachedRead(void* buf, size_t n, int64_t offset);
  int64_t fileRead(void* buf, size_t n, int64_t offset);
  int64_t fileWrite(const void* buf, size_t n, int64_t offset);
  int64_t fileSync();
  template <class Call>
  IoResult transfer(PollMode mode, Call call);
  template <class F>
  int withReady(PollMode mode, F&& f) {
    const IoResult r = locked(mode, [&] {
      int err = 0;
      while (err == 0 && !call(f, fd_)) err = wait(mode);
      return IoResult{0, err};
    });
    return r.err;
  }

  FdMutex mu_;
  const int fd_;
  const FdKind kind_;
  // The last read took all there was, and no edge has been consumed since. So
  // the next read waits without asking the kernel. Under the read lock.
  bool drained_ = false;
  bool masksSigpipe_;        // RWF_NOSIGNAL does not work; under the write lock
  bool shortIsAll_ = false;  // a short read means that there is no more (TCP)
  bool open_ = false;
  Atomic<FileWay> fileWay_;
  Atomic<bool> blocks_;
  PollDesc* pd_ = nullptr;
  // Posted when the descriptor has been closed, or by setBlocks. At most one
  // close waits for it. The first post ends that wait.
  Atomic<uint32_t> csema_;
};

}  // namespace gump::rt

#endif  // NETPOLL_FD_H_
