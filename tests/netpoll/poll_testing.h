// Helpers for tests of the poller: descriptors of several kinds, PollDescs that
// clean up, and a way to make a thread poll. The tests that use most of them
// are in their namespace.
#ifndef TESTS_NETPOLL_POLL_TESTING_H_
#define TESTS_NETPOLL_POLL_TESTING_H_

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "gump/sync.h"
#include "netpoll/polldesc.h"
#include "netpoll/ring.h"
#include "runtime/sys/os_linux.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {

inline constexpr rt::PollMode kRead = rt::PollMode::kRead;
inline constexpr rt::PollMode kWrite = rt::PollMode::kWrite;
inline constexpr rt::PollMode kBoth = rt::PollMode::kBoth;

inline constexpr int64_t kMillisecond = 1'000'000;
inline constexpr int64_t kHour = int64_t{3600} * 1'000'000'000;

// File closes a descriptor.
class File {
 public:
  explicit File(int fd = -1) : fd_(fd) {}
  File(File&& f) noexcept : fd_(std::exchange(f.fd_, -1)) {}
  File& operator=(File&& f) noexcept {
    std::swap(fd_, f.fd_);
    return *this;
  }
  ~File() { Close(); }
  void Close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int Release() { return std::exchange(fd_, -1); }
  int fd() const { return fd_; }

 private:
  int fd_;
};

enum class Kind { kSocketpair, kPipe, kEventfd };
inline constexpr Kind kKinds[] = {Kind::kSocketpair, Kind::kPipe,
                                  Kind::kEventfd};

// Ends is two connected ends, both non-blocking. Data that is written to `in`
// is read from `out`.
struct Ends {
  explicit Ends(Kind kind = Kind::kSocketpair) {
    int fd[2] = {-1, -1};
    switch (kind) {
      case Kind::kSocketpair:
        EXPECT_EQ(
            ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                         fd),
            0);
        break;
      case Kind::kPipe:
        EXPECT_EQ(::pipe2(fd, O_NONBLOCK | O_CLOEXEC), 0);
        break;
      case Kind::kEventfd:
        fd[0] = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        fd[1] = ::fcntl(fd[0], F_DUPFD_CLOEXEC, 0);
        break;
    }
    EXPECT_GE(fd[0], 0);
    EXPECT_GE(fd[1], 0);
    out = File(fd[0]);
    in = File(fd[1]);
  }

  // Signal makes `out` readable; Drain takes all there is.
  void Signal() const {
    const uint64_t one = 1;
    EXPECT_EQ(::write(in.fd(), &one, sizeof(one)), ssize_t{sizeof(one)});
  }
  void Drain() const {
    char buf[4096];
    while (::read(out.fd(), buf, sizeof(buf)) > 0) {
    }
  }

  File out;
  File in;
};

// Polled is a PollDesc for fd. The caller keeps fd.
class Polled {
 public:
  explicit Polled(int fd) {
    int err = -1;
    pd_ = rt::pollOpen(fd, &err);
    EXPECT_NE(pd_, nullptr) << err;
    EXPECT_EQ(err, 0);
  }
  ~Polled() { Close(); }
  Polled(const Polled&) = delete;
  Polled& operator=(const Polled&) = delete;

  void Close() {
    if (pd_ == nullptr) return;
    if (!unblocked_) Unblock();
    rt::pollClose(std::exchange(pd_, nullptr));
  }
  void Unblock() {
    unblocked_ = true;
    rt::pollUnblock(pd_);
  }
  int Reset(rt::PollMode mode) const { return rt::pollReset(pd_, mode); }
  int Wait(rt::PollMode mode) const { return rt::pollWait(pd_, mode); }
  void SetDeadline(int64_t when, rt::PollMode mode) const {
    rt::pollSetDeadline(pd_, when, mode);
  }
  rt::PollDesc* get() const { return pd_; }
  rt::PollDesc* operator->() const { return pd_; }

 private:
  rt::PollDesc* pd_ = nullptr;
  bool unblocked_ = false;
};

// Asleep tells whether a goroutine or a thread sleeps in a direction.
inline bool Asleep(const Polled& p, rt::PollMode mode) {
  const auto& word = mode == kRead ? p->rg : p->wg;
  return word.load(rt::acquire) > rt::pdWait;
}
inline bool EventuallyAsleep(const Polled& p, rt::PollMode mode) {
  return Eventually([&] { return Asleep(p, mode); });
}

// Waiter is a goroutine in pollWait.
class Waiter {
 public:
  Waiter(const Polled& p, rt::PollMode mode) {
    wg_.Go([this, &p, mode] {
      result_ = p.Wait(mode);
      done_.store(true);
    });
  }
  ~Waiter() { wg_.Wait(); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  bool done() const { return done_; }
  // Result waits until pollWait has returned. It parks, without a deadline. If
  // it yielded instead, only sysmon would poll, each 10 ms.
  int Result() {
    wg_.Wait();
    return result_;
  }

 private:
  sync::WaitGroup wg_;
  int result_ = 1;
  std::atomic<bool> done_ = false;
};

// Harvest returns after a poll that has seen all events from before the call.
// It must be called from a goroutine.
inline void Harvest() {
  Ends e(Kind::kEventfd);
  Polled p(e.out.fd());
  // Register, wait, then signal: the event is behind all others in the queue.
  Waiter w(p, kRead);
  ASSERT_TRUE(EventuallyAsleep(p, kRead));
  e.Signal();
  EXPECT_EQ(w.Result(), rt::kPollOk);
}

// RingIsThere tells whether the kernel has an io_uring that we can use.
inline bool RingIsThere() {
  const int err = rt::ringStart();
  const bool refused = err == ENOSYS || err == EPERM || err == EINVAL;
  EXPECT_TRUE(err == 0 || refused) << err;
  return err == 0;
}

// Refuse makes a system call fail with err in the whole process.
inline void Refuse(long nr, int err) {
  const sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(nr), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(err)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog prog = {4, const_cast<sock_filter*>(program)};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC,
                &prog) != 0) {
    std::fprintf(stderr, "no seccomp here\n");
    std::exit(0);
  }
}

}  // namespace gump::testing

#endif  // TESTS_NETPOLL_POLL_TESTING_H_
