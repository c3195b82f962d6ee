// os::Poll against poll(2): random descriptors of many kinds, random events,
// and random operations on the other ends. A goroutine waits in os::Poll
// without a limit. After each operation, poll(2) says whether it must wake.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gump/go.h"
#include "gump/os/poll.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "tests/netpoll/fd_testing.h"
#include "tests/netpoll/poll_testing.h"
#include "tests/testing/status.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {
namespace {

using PollDiffTest = WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(PollDiffTest);

enum class Sort {
  kPipeOut,
  kPipeIn,
  kUnixStream,
  kUnixDatagram,
  kTcp,
  kUdp,
  kListener,
  kEventfd,
  kTimerfd,
  kPty,
  kRegular,
  kClosed,
  kNegative,
  kNumSorts,
};

std::pair<File, File> SocketPair(int type) {
  int fd[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd),
            0);
  return {File(fd[0]), File(fd[1])};
}

std::pair<File, File> UdpPair() {
  File a(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  File b(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in addr = Loopback(0);
  socklen_t len = sizeof(addr);
  auto* sa = reinterpret_cast<sockaddr*>(&addr);
  EXPECT_EQ(::bind(a.fd(), sa, len), 0);
  EXPECT_EQ(::getsockname(a.fd(), sa, &len), 0);
  EXPECT_EQ(::connect(b.fd(), sa, len), 0);
  return {std::move(a), std::move(b)};
}

std::pair<File, File> PtyPair() {
  File master(::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  if (master.fd() < 0) return {File(), File()};  // no devpts here
  EXPECT_EQ(::grantpt(master.fd()), 0);
  EXPECT_EQ(::unlockpt(master.fd()), 0);
  char name[100];
  EXPECT_EQ(::ptsname_r(master.fd(), name, sizeof(name)), 0);
  File slave(::open(name, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  termios t;
  EXPECT_EQ(::tcgetattr(slave.fd(), &t), 0);
  ::cfmakeraw(&t);
  EXPECT_EQ(::tcsetattr(slave.fd(), TCSANOW, &t), 0);
  return {std::move(master), std::move(slave)};
}

// Subject is a polled descriptor and what acts on it.
class Subject {
 public:
  Subject(Sort sort, Rng* rng) : sort_(sort) {
    switch (sort) {
      case Sort::kPipeOut: {
        Ends e(Kind::kPipe);
        polled_ = std::move(e.out);
        other_ = std::move(e.in);
        break;
      }
      case Sort::kPipeIn: {
        Ends e(Kind::kPipe);
        polled_ = std::move(e.in);
        other_ = std::move(e.out);
        if (rng->OneIn(2)) FillUpRaw(polled_.fd());
        break;
      }
      case Sort::kUnixStream:
        Take(SocketPair(SOCK_STREAM));
        break;
      case Sort::kUnixDatagram:
        Take(SocketPair(SOCK_DGRAM));
        break;
      case Sort::kTcp:
        Take(RawPair(Over::kTcp));
        if (rng->OneIn(3)) FillUpRaw(polled_.fd());
        break;
      case Sort::kUdp:
        Take(UdpPair());
        break;
      case Sort::kListener:
        polled_ = Listen(&addr_);
        break;
      case Sort::kEventfd: {
        Ends e(Kind::kEventfd);
        polled_ = std::move(e.out);
        other_ = std::move(e.in);
        break;
      }
      case Sort::kTimerfd:
        polled_ =
            File(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
        break;
      case Sort::kPty:
        Take(PtyPair());
        break;
      case Sort::kRegular:
        polled_ = File(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
        break;
      default:
        break;
    }
  }

  int fd() const {
    // No thread takes so high a number.
    return sort_ == Sort::kClosed ? 900 : polled_.fd();
  }

  // Act does something at random, which never makes the polled one less ready.
  void Act(Rng* rng) {
    switch (rng->Below(6)) {
      case 0:
      case 1:
        Feed();
        break;
      case 2:
        if (other_.fd() >= 0) ::shutdown(other_.fd(), SHUT_WR);
        break;
      case 3:
        if (other_.fd() >= 0) ::shutdown(other_.fd(), SHUT_RDWR);
        break;
      case 4:
        DrainOther();
        break;
      default:
        if (rng->OneIn(2)) other_.Close();
        break;
    }
    if (sort_ == Sort::kTcp && rng->OneIn(4) && other_.fd() >= 0) {
      (void)::send(other_.fd(), "u", 1, MSG_OOB | MSG_NOSIGNAL);
    }
  }

  // Feed gives the polled one something to read, if that is possible.
  void Feed() {
    if (sort_ == Sort::kListener) {
      clients_.emplace_back(
          ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      (void)::connect(clients_.back().fd(), reinterpret_cast<sockaddr*>(&addr_),
                      sizeof(addr_));
    } else if (sort_ == Sort::kTimerfd) {
      itimerspec soon{};
      soon.it_value.tv_nsec = 20'000;
      EXPECT_EQ(::timerfd_settime(polled_.fd(), 0, &soon, nullptr), 0);
    } else if (sort_ == Sort::kEventfd) {
      const uint64_t one = 1;
      if (other_.fd() >= 0) (void)!::write(other_.fd(), &one, sizeof(one));
    } else if (sort_ != Sort::kPipeIn && other_.fd() >= 0 &&
               sort_ != Sort::kPipeOut && sort_ != Sort::kPty) {
      (void)::send(other_.fd(), "x", 1, MSG_NOSIGNAL);
    } else if ((sort_ == Sort::kPipeOut || sort_ == Sort::kPty) &&
               other_.fd() >= 0) {
      (void)!::write(other_.fd(), "x", 1);
    }
  }

 private:
  void Take(std::pair<File, File> p) {
    polled_ = std::move(p.first);
    other_ = std::move(p.second);
  }

  // It writes 4096 bytes at a time, and in the end single bytes.
  static void FillUpRaw(int fd) {
    static const char zeros[4096] = {};
    for (const size_t part : {sizeof(zeros), size_t{1}}) {
      while (::write(fd, zeros, part) > 0) {
      }
    }
  }

  void DrainOther() {
    if (sort_ == Sort::kEventfd || other_.fd() < 0) return;
    char buf[4096];
    while (::read(other_.fd(), buf, sizeof(buf)) > 0) {
    }
  }

  const Sort sort_;
  File polled_;
  File other_;
  sockaddr_in addr_{};
  std::vector<File> clients_;
};

int16_t RandomEvents(Rng* rng) {
  constexpr int kEvents[] = {POLLIN,     POLLPRI,    POLLOUT,    POLLRDHUP,
                             POLLRDNORM, POLLRDBAND, POLLWRNORM, POLLWRBAND};
  int events = 0;
  for (const int e : kEvents) {
    const bool often = e == POLLIN || e == POLLRDHUP;
    if (rng->OneIn(often ? 2 : 5)) events |= e;
  }
  return static_cast<int16_t>(events);
}

// IsWithin tells whether all events of a are in b.
bool IsWithin(const std::vector<pollfd>& a, const std::vector<pollfd>& b) {
  for (size_t i = 0; i < a.size(); i++) {
    if ((a[i].revents & ~b[i].revents) != 0) return false;
  }
  return true;
}

int Ask(std::vector<pollfd>* p) { return ::poll(p->data(), p->size(), 0); }

// A round makes an array, lets goroutines poll it, and acts on the descriptors
// until poll(2) says that one is ready.
void Round(Rng* rng) {
  std::vector<std::unique_ptr<Subject>> subjects;
  std::vector<pollfd> array;
  const uint64_t size = 1 + rng->Below(rng->OneIn(4) ? 20 : 4);
  for (uint64_t i = 0; i < size; i++) {
    // Those that are ready at once are rarer.
    auto sort =
        static_cast<Sort>(rng->Below(static_cast<uint64_t>(Sort::kNumSorts)));
    if (sort == Sort::kClosed && !rng->OneIn(8)) sort = Sort::kUnixStream;
    subjects.push_back(std::make_unique<Subject>(sort, rng));
    array.push_back({subjects.back()->fd(), RandomEvents(rng), 0});
    if (rng->OneIn(8)) {
      array.push_back(
          {array[rng->Below(array.size())].fd, RandomEvents(rng), 0});
    }
  }
  const Ends last(Kind::kEventfd);  // ends a round in which nothing is ready
  array.push_back({last.out.fd(), POLLIN, 0});

  std::vector<pollfd> now = array;
  const int at_once = Ask(&now);
  std::vector<pollfd> looked = array;
  EXPECT_EQ(Ready(os::Poll(absl::MakeSpan(looked), absl::ZeroDuration())),
            at_once);

  const size_t pollers = 1 + rng->Below(3);
  std::vector<std::vector<pollfd>> results(pollers, array);
  std::atomic<size_t> done = 0;
  sync::WaitGroup wg;
  for (std::vector<pollfd>& mine : results) {
    wg.Go([&mine, &done] {
      const int n =
          Ready(os::Poll(absl::MakeSpan(mine), absl::InfiniteDuration()));
      int counted = 0;
      for (const pollfd& p : mine) counted += p.revents != 0;
      EXPECT_EQ(n, counted);
      EXPECT_GT(n, 0);
      done++;
    });
  }
  for (int act = 0; Ask(&now) == 0; act++) {
    if (rng->OneIn(2)) runtime::Gosched();
    if (act == 12) {
      last.Signal();
    } else {
      subjects[rng->Below(subjects.size())]->Act(rng);
    }
  }
  // poll(2) says that one is ready, so all must return.
  wg.Wait();
  EXPECT_EQ(done, pollers);
  for (const std::vector<pollfd>& mine : results) {
    // TCP may report more a little later.
    EXPECT_TRUE(Eventually([&] {
      (void)Ask(&now);
      return IsWithin(mine, now);
    }));
  }
}

TEST_P(PollDiffTest, RandomDescriptorsWakeWhenPollSaysSo) {
  Run([] { StressLoop([](Rng& rng) { Round(&rng); }, 0.5); });
}

}  // namespace
}  // namespace gump::testing
