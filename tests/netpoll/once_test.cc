// One-shot waits, through the internal interface: what hooks rely on, and what
// os::Poll does not show.
#include "netpoll/once.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <liburing.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "netpoll/polldesc.h"
#include "runtime/diag/stats.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/time.h"
#include "runtime/sys/os_linux.h"
#include "tests/netpoll/poll_testing.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {
namespace {

using OnceTest = WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(OnceTest);

// WaitFor waits once for one descriptor.
int WaitFor(int fd, int events, int64_t when = rt::kMaxWhen) {
  const pollfd p{fd, static_cast<int16_t>(events), 0};
  return rt::onceWait(&p, 1, when);
}

int EventsNow(int fd, int events) {
  pollfd p{fd, static_cast<int16_t>(events), 0};
  EXPECT_GE(::poll(&p, 1, 0), 0);
  return p.revents;
}

// PollFor is oncePoll for one descriptor, and returns its revents.
int PollFor(int fd, int events) {
  pollfd p{fd, static_cast<int16_t>(events), 0};
  EXPECT_EQ(rt::oncePoll(&p, 1, -1), 1);
  return p.revents;
}

// Waits is a goroutine in oncePoll.
class Waits {
 public:
  Waits(int fd, int events) {
    wg_.Go([this, fd, events] { revents_ = PollFor(fd, events); });
  }
  ~Waits() { wg_.Wait(); }
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;
  int Result() {
    wg_.Wait();
    return revents_;
  }

 private:
  sync::WaitGroup wg_;
  int revents_ = 0;
};

bool EventuallyWaiting(size_t n) { return EventuallyParked("IO wait", n); }

// Closing and Closed are the two parts of a close, as a hook makes them.
void Closing(int fd) {
  (void)rt::runtimeEntry();
  rt::M* mp = rt::acquirem();
  rt::onceClosing(fd);
  rt::releasem(mp);
}
void Closed(int fd, bool gone = true) {
  (void)rt::runtimeEntry();
  rt::M* mp = rt::acquirem();
  rt::onceClosed(fd, gone);
  rt::releasem(mp);
}

// CloseSeen is close(2) as a hook makes it.
void CloseSeen(File* f) {
  const int fd = f->fd();
  Closing(fd);
  f->Close();
  Closed(fd);
}

// High is a duplicate with a number that no other thread takes when it is free.
// (The kernel gives out the lowest free number.)
constexpr int kHigh = 500;
File High(const File& f) {
  return File(::fcntl(f.fd(), F_DUPFD_CLOEXEC, kHigh));
}

// ---- Waits

TEST_P(OnceTest, WaitForAReadyDescriptorReturns) {
  Run([] {
    for (const Kind kind : kKinds) {
      const Ends e(kind);
      e.Signal();
      EXPECT_EQ(WaitFor(e.out.fd(), POLLIN), 0);
      EXPECT_EQ(EventsNow(e.out.fd(), POLLIN), POLLIN);
    }
  });
}

TEST_P(OnceTest, EachWaitMakesANewRegistration) {
  Run([] {
    const Ends e;
    for (int i = 0; i < 100; i++) {
      e.Signal();
      EXPECT_EQ(PollFor(e.out.fd(), POLLIN), POLLIN);
      EXPECT_EQ(WaitFor(e.out.fd(), POLLIN), 0) << "still ready";
      e.Drain();
      EXPECT_EQ(WaitFor(e.out.fd(), POLLIN, rt::nanotime() + 1000),
                rt::kErrTimeout);
    }
  });
}

TEST_P(OnceTest, TimeThatHasPassedIsATimeout) {
  Run([] {
    const Ends e;
    EXPECT_EQ(WaitFor(e.out.fd(), POLLIN, 1), rt::kErrTimeout);
  });
}

TEST_P(OnceTest, ClosedNumberDoesNotPark) {
  Run([] {
    const Ends e;
    EXPECT_EQ(WaitFor(kHigh, POLLIN), 0);
    EXPECT_EQ(EventsNow(kHigh, POLLIN), POLLNVAL);
  });
}

TEST_P(OnceTest, OnlyGoroutinesMayPark) {
  Run([] {
    EXPECT_TRUE(rt::onceMayPark());
    blocking([] { EXPECT_FALSE(rt::onceMayPark()); });
    EXPECT_TRUE(rt::onceMayPark());
    std::vector<std::thread> threads;
    threads.emplace_back([] { EXPECT_FALSE(rt::onceMayPark()); });
    threads.push_back(KnownThread([] { EXPECT_FALSE(rt::onceMayPark()); }));
    JoinAll(threads);
  });
}

// A wait that has timed out leaves its registration armed.
TEST_P(OnceTest, EventOfAWaitThatTimedOutWakesNoOther) {
  Run([] {
    const Ends e;
    EXPECT_EQ(WaitFor(e.out.fd(), POLLIN, 1), rt::kErrTimeout);
    Waits w(e.out.fd(), POLLRDHUP);
    ASSERT_TRUE(EventuallyWaiting(1));
    e.Signal();
    Harvest();
    EXPECT_EQ(CountParked("IO wait"), 1u);
    ASSERT_EQ(::shutdown(e.in.fd(), SHUT_WR), 0);
    EXPECT_EQ(w.Result(), POLLRDHUP);
  });
}

TEST_P(OnceTest, EpollInsideEpollTooDeepBlocksTheThread) {
  Run([] {
    // As many levels as the kernel allows. The inner one is one more.
    const Ends e;
    std::vector<File> levels;
    int inside = e.out.fd();
    for (;;) {
      File level(::epoll_create1(EPOLL_CLOEXEC));
      epoll_event ev{};
      ev.events = EPOLLIN;
      if (::epoll_ctl(level.fd(), EPOLL_CTL_ADD, inside, &ev) != 0) break;
      inside = level.fd();
      levels.push_back(std::move(level));
      ASSERT_LT(levels.size(), 20u);
    }
    EXPECT_EQ(WaitFor(inside, POLLIN, rt::nanotime() + kHour), ELOOP);
    Waits w(inside, POLLIN);
    time::Sleep(absl::Milliseconds(1));
    e.Signal();
    EXPECT_EQ(w.Result(), POLLIN);
  });
}

TEST_P(OnceTest, EpollInsideEpollWaits) {
  Run([] {
    const Ends e;
    const File outer(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event ev{};
    ev.events = EPOLLIN;
    ASSERT_EQ(::epoll_ctl(outer.fd(), EPOLL_CTL_ADD, e.out.fd(), &ev), 0);
    Waits w(outer.fd(), POLLIN);
    ASSERT_TRUE(EventuallyWaiting(1));
    e.Signal();
    EXPECT_EQ(w.Result(), POLLIN);
  });
}

// The kernel marks events that come from an io_uring, and ends a watch of the
// ring's with the first of them.
TEST_P(OnceTest, EventsOfTheProgramsOwnRingWake) {
  io_uring ring;
  if (::io_uring_queue_init(4, &ring, 0) != 0) GTEST_SKIP() << "no io_uring";
  {
    const Ends e(Kind::kEventfd);
    ASSERT_EQ(::io_uring_register_eventfd(&ring, e.out.fd()), 0);
    Run([&] {
      for (int i = 0; i < 20; i++) {
        Waits w(e.out.fd(), POLLIN);
        ASSERT_TRUE(EventuallyWaiting(1));
        ::io_uring_prep_nop(::io_uring_get_sqe(&ring));
        ASSERT_EQ(::io_uring_submit(&ring), 1);
        EXPECT_EQ(w.Result(), POLLIN);
        io_uring_cqe* cqe = nullptr;
        ASSERT_EQ(::io_uring_peek_cqe(&ring, &cqe), 0);
        ::io_uring_cqe_seen(&ring, cqe);
        e.Drain();
      }
    });
  }
  ::io_uring_queue_exit(&ring);
}

TEST_P(OnceTest, HighNumbersWork) {
  Run([] {
    const Ends e;
    const File high(::fcntl(e.out.fd(), F_DUPFD_CLOEXEC, 1000));
    if (high.fd() < 0) GTEST_SKIP() << "RLIMIT_NOFILE";
    Waits w(high.fd(), POLLIN);
    ASSERT_TRUE(EventuallyWaiting(1));
    e.Signal();
    EXPECT_EQ(w.Result(), POLLIN);
  });
}

// A process of its own, because the program cannot go on.
TEST(OnceDeathTest, ProgramThatClosesTheEpollInstanceEnds) {
  EXPECT_EXIT(
      gump::Run([] {
        const Ends e;
        EXPECT_EQ(WaitFor(e.out.fd(), POLLIN, 1), rt::kErrTimeout);
        // It is the first one that was made.
        int inner = -1;
        for (int fd = 99; fd >= 3; fd--) {
          char target[100] = {};
          const std::string link = "/proc/self/fd/" + std::to_string(fd);
          if (::readlink(link.c_str(), target, sizeof(target) - 1) <= 0)
            continue;
          if (std::string(target) == "anon_inode:[eventpoll]") inner = fd;
        }
        ::close(inner);
        (void)PollFor(e.out.fd(), POLLIN);
      }),
      ::testing::ExitedWithCode(2),
      "runtime: epollctl on fd [0-9]+ failed with 9\nfatal error: runtime: "
      "netpoll failed");
}

// ---- Numbers that change hands

TEST_P(OnceTest, CloseWakesTheWaiters) {
  Run([] {
    for (const Kind kind : kKinds) {
      const Ends e(kind);
      File high = High(e.out);
      Waits a(high.fd(), POLLIN);
      Waits b(high.fd(), POLLPRI);
      ASSERT_TRUE(EventuallyWaiting(2));
      CloseSeen(&high);
      EXPECT_EQ(a.Result(), POLLNVAL);
      EXPECT_EQ(b.Result(), POLLNVAL);
    }
  });
}

TEST_P(OnceTest, CloseByAPlainThreadWakesTheWaiters) {
  Run([] {
    const Ends e;
    File high = High(e.out);
    Waits w(high.fd(), POLLIN);
    ASSERT_TRUE(EventuallyWaiting(1));
    std::vector<std::thread> threads;
    threads.emplace_back([&] { CloseSeen(&high); });
    EXPECT_EQ(w.Result(), POLLNVAL);
    JoinAll(threads);
  });
}

TEST_P(OnceTest, Dup2MakesTheWaitersAskAboutTheNewFile) {
  Run([] {
    const Ends old;
    const Ends other;
    other.Signal();
    const int fd = old.out.fd();
    Waits w(fd, POLLIN);
    ASSERT_TRUE(EventuallyWaiting(1));
    ASSERT_EQ(::dup2(other.out.fd(), fd), fd);
    Closed(fd);
    EXPECT_EQ(w.Result(), POLLIN);
  });
}

TEST_P(OnceTest, CloseOfANumberWithoutWaitersDoesNothing) {
  Run([] {
    Closed(-1);
    Closed(1 << 30);
    Ends e;
    CloseSeen(&e.out);
  });
}

// The old file lives on in a duplicate, and so does its registration.
TEST_P(OnceTest, EventOfTheOldFileDoesNotWakeTheNextOwnersWaiter) {
  Run([] {
    Ends old(Kind::kPipe);
    const int fd = old.out.fd();
    const File duplicate(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    EXPECT_EQ(WaitFor(fd, POLLIN, 1), rt::kErrTimeout);
    const Ends next(Kind::kPipe);
    ASSERT_EQ(::dup2(next.out.fd(), fd), fd);
    Waits w(fd, POLLIN);
    ASSERT_TRUE(EventuallyWaiting(1));
    const uint64_t stale = rt::stats.staleEvents.load(rt::relaxed);
    old.Signal();
    Harvest();
    EXPECT_TRUE(Eventually(
        [&] { return rt::stats.staleEvents.load(rt::relaxed) > stale; }));
    EXPECT_EQ(CountParked("IO wait"), 1u);
    next.Signal();
    EXPECT_EQ(w.Result(), POLLIN);
  });
}

TEST_P(OnceTest, ReusedNumberIsRegisteredAnew) {
  Run([] {
    for (int i = 0; i < 100; i++) {
      const Ends e(kKinds[i % 3]);
      const File high = High(e.out);
      ASSERT_EQ(high.fd(), kHigh);
      Waits w(high.fd(), POLLIN);
      ASSERT_TRUE(EventuallyWaiting(1));
      e.Signal();
      EXPECT_EQ(w.Result(), POLLIN);
    }
  });
}

// A hook calls onceClosed after the close. By then another thread may have got
// the number, and wait for it.
TEST_P(OnceTest, ACloseIsNotToldToAWaiterOfTheNumbersNextFile) {
  Run([] {
    const Ends e;
    File high = High(e.in);
    const int fd = high.fd();
    sync::WaitGroup wg;
    int old = -1;
    int next = -1;
    wg.Go([&] { old = WaitFor(fd, POLLIN); });
    EXPECT_TRUE(EventuallyWaiting(1));
    Closing(fd);
    high.Close();
    high = High(e.in);
    ASSERT_EQ(high.fd(), fd);
    wg.Go([&] { next = WaitFor(fd, POLLIN); });
    EXPECT_TRUE(EventuallyWaiting(2));
    Closed(fd);
    wg.Wait();
    EXPECT_EQ(old, rt::kErrClosing);
    EXPECT_EQ(next, 0);
  });
}

TEST_P(OnceTest, AWaiterAsksAgainWhenACloseHasFailed) {
  Run([] {
    const Ends e;
    sync::WaitGroup wg;
    int err = -1;
    wg.Go([&] { err = WaitFor(e.in.fd(), POLLIN); });
    EXPECT_TRUE(EventuallyWaiting(1));
    Closing(e.in.fd());
    Closed(e.in.fd(), /*gone=*/false);
    wg.Wait();
    EXPECT_EQ(err, 0);
  });
}

// ---- Stress

// Readers wait for bytes that writers send over pairs that are closed and made
// again all the time, by hand and as a hook does.
TEST_P(OnceTest, NumbersThatAreClosedAndUsedAgainLoseNoWakeup) {
  Run([] {
    StressLoop([](Rng& rng) {
      constexpr int kPairs = 8;
      sync::WaitGroup wg;
      for (int i = 0; i < kPairs; i++) {
        wg.Go([seed = rng.Next()] {
          Rng own(seed);
          for (int round = 0; round < 10; round++) {
            Ends e(kKinds[own.Below(3)]);
            sync::WaitGroup both;
            both.Go([&] {
              EXPECT_EQ(PollFor(e.out.fd(), POLLIN) & POLLIN, POLLIN);
              e.Drain();
            });
            const uint64_t times = own.Below(3);
            for (uint64_t k = 0; k < times; k++) {
              both.Go([&, ns = int64_t(own.Below(50'000))] {
                (void)WaitFor(e.out.fd(), POLLPRI, rt::nanotime() + ns);
              });
            }
            if (own.OneIn(2)) runtime::Gosched();
            e.Signal();
            both.Wait();
            if (own.OneIn(2)) CloseSeen(&e.out);
          }
        });
      }
      wg.Wait();
    });
  });
}

// The number gets another file, which has hung up, while goroutines begin to
// wait for it.
TEST_P(OnceTest, Dup2WhileManyBeginToWaitWakesAll) {
  Run([] {
    StressLoop([](Rng& rng) {
      const Ends e(kKinds[rng.Below(3)]);
      Ends hung(Kind::kPipe);
      hung.in.Close();
      const int fd = e.out.fd();
      sync::WaitGroup wg;
      for (int i = 0; i < 6; i++) {
        wg.Go([fd, i] {
          EXPECT_EQ(PollFor(fd, i % 2 == 0 ? POLLIN : POLLPRI), POLLHUP);
        });
      }
      const uint64_t yields = rng.Below(4);
      for (uint64_t i = 0; i < yields; i++) runtime::Gosched();
      ASSERT_EQ(::dup2(hung.out.fd(), fd), fd);
      Closed(fd);
      wg.Wait();
    });
  });
}

// Wakes, time-outs and other waiters of the same descriptor, all at a time.
TEST_P(OnceTest, WakeupsAndTimeoutsTogetherLoseNone) {
  Run([] {
    StressLoop([](Rng& rng) {
      const Ends e;
      std::atomic<bool> stop = false;
      sync::WaitGroup others;
      for (int i = 0; i < 3; i++) {
        others.Go([&, seed = rng.Next()] {
          Rng own(seed);
          while (!stop) {
            const int events = own.OneIn(2) ? POLLPRI : POLLRDHUP;
            (void)WaitFor(e.out.fd(), events,
                          rt::nanotime() + int64_t(own.Below(30'000)));
          }
        });
      }
      sync::WaitGroup reader;
      constexpr int kBytes = 50;
      reader.Go([&] {
        char byte;
        for (int n = 0; n < kBytes;) {
          EXPECT_EQ(PollFor(e.out.fd(), POLLIN), POLLIN);
          while (::read(e.out.fd(), &byte, 1) == 1) n++;
        }
      });
      for (int i = 0; i < kBytes; i++) {
        EXPECT_EQ(::write(e.in.fd(), "x", 1), 1);
        if (rng.OneIn(3)) runtime::Gosched();
      }
      reader.Wait();
      stop = true;
      others.Wait();
    });
  });
}

}  // namespace
}  // namespace gump::testing
