// The poller through PollDesc: edges, deadlines, closing, and which thread
// polls. Everything here holds for each back end. backend_test.cc tests the
// promises of a back end.
#include "runtime/sched/netpoll.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "netpoll/polldesc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "tests/netpoll/poll_testing.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/scratch.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {
namespace {

using rt::kErrClosing;
using rt::kErrNotPollable;
using rt::kErrTimeout;
using rt::kPollOk;
using rt::nanotime;
using rt::PollMode;
using namespace std::chrono_literals;

// Fill writes to fd until it takes no more, and returns the number of bytes.
size_t Fill(int fd) {
  static const char zeros[4096] = {};
  size_t n = 0;
  for (size_t part : {sizeof(zeros), size_t{1}}) {
    for (ssize_t k; (k = ::write(fd, zeros, part)) > 0;) {
      n += static_cast<size_t>(k);
    }
  }
  return n;
}

// Take reads n bytes from fd.
void Take(int fd, size_t n) {
  char buf[4096];
  while (n > 0) {
    const ssize_t k = ::read(fd, buf, std::min(n, sizeof(buf)));
    ASSERT_GT(k, 0);
    n -= static_cast<size_t>(k);
  }
}

// EventuallyNoted tells whether an edge is noted while no goroutine waits. It
// is needed after a Harvest, because an M that took the edge earlier may not
// have reported it yet.
bool EventuallyNoted(const Polled& p, PollMode mode) {
  const auto& word = mode == kRead ? p->rg : p->wg;
  return Eventually([&] { return word.load(rt::acquire) == rt::pdReady; });
}

// WaitUntilReady asks the descriptor before each wait, as an FD does. A wait
// may be ended by an edge from long before.
void WaitUntilReady(const Polled& p, PollMode mode) {
  pollfd asked{p->fd, static_cast<int16_t>(mode == kRead ? POLLIN : POLLOUT),
               0};
  for (;;) {
    ASSERT_EQ(p.Reset(mode), kPollOk);
    if (::poll(&asked, 1, 0) > 0) return;
    ASSERT_EQ(p.Wait(mode), kPollOk);
  }
}

// Reader is a goroutine that waits until there is something to read, however
// often it is woken before.
class Reader {
 public:
  explicit Reader(const Polled& p) {
    wg_.Go([this, &p] {
      WaitUntilReady(p, kRead);
      done_ = true;
    });
  }
  ~Reader() { wg_.Wait(); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  bool done() const { return done_; }

 private:
  sync::WaitGroup wg_;
  std::atomic<bool> done_ = false;
};

// Full is a PollDesc whose descriptor takes no more data. Its first edge, which
// says that it can be written, has come and gone.
struct Full {
  explicit Full(Kind kind = Kind::kSocketpair) : ends(kind), p(ends.in.fd()) {
    Harvest();
    EXPECT_TRUE(EventuallyNoted(p, kWrite));
    size = Fill(ends.in.fd());
    EXPECT_EQ(p.Reset(kWrite), kPollOk);
  }
  Ends ends;
  Polled p;
  size_t size;
};

using NetpollTest = WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(NetpollTest);

// ---- Edges

TEST_P(NetpollTest, AnEdgeBeforeTheWaitIsRemembered) {
  Run([] {
    for (const Kind kind : kKinds) {
      Ends e(kind);
      Polled p(e.out.fd());
      ASSERT_EQ(p.Reset(kRead), kPollOk);
      e.Signal();
      Harvest();
      EXPECT_TRUE(EventuallyNoted(p, kRead));
      EXPECT_EQ(p.Wait(kRead), kPollOk);
      EXPECT_EQ(p->rg.load(rt::acquire), rt::pdNil) << "consumed";
    }
  });
}

TEST_P(NetpollTest, AWaitSleepsUntilTheEdge) {
  Run([] {
    for (const Kind kind : kKinds) {
      Ends e(kind);
      Polled p(e.out.fd());
      for (int i = 0; i < 10; i++) {
        {
          const Reader r(p);
          ASSERT_TRUE(EventuallyAsleep(p, kRead));
          EXPECT_FALSE(r.done());
          e.Signal();
        }
        e.Drain();
      }
    }
  });
}

TEST_P(NetpollTest, AResetForgetsReadiness) {
  Run([] {
    Ends e;
    Polled p(e.out.fd());
    e.Signal();
    Harvest();
    EXPECT_TRUE(EventuallyNoted(p, kRead));
    ASSERT_EQ(p.Reset(kRead), kPollOk);
    Waiter w(p, kRead);
    EXPECT_TRUE(EventuallyAsleep(p, kRead)) << "the edge is gone";
    e.Signal();
    EXPECT_EQ(w.Result(), kPollOk);
  });
}

TEST_P(NetpollTest, AWriterSleepsUntilThereIsRoom) {
  Run([] {
    for (const Kind kind : {Kind::kSocketpair, Kind::kPipe}) {
      Full f(kind);
      Waiter w(f.p, kWrite);
      ASSERT_TRUE(EventuallyAsleep(f.p, kWrite));
      Take(f.ends.out.fd(), f.size);
      EXPECT_EQ(w.Result(), kPollOk);
    }
  });
}

TEST_P(NetpollTest, EachDirectionHasItsOwnSleeper) {
  Run([] {
    for (const bool readFirst : {true, false}) {
      Full f;
      Waiter reader(f.p, kRead);
      Waiter writer(f.p, kWrite);
      ASSERT_TRUE(EventuallyAsleep(f.p, kRead));
      ASSERT_TRUE(EventuallyAsleep(f.p, kWrite));
      const auto give = [&] { ASSERT_EQ(::write(f.ends.out.fd(), "x", 1), 1); };
      const auto take = [&] { Take(f.ends.out.fd(), f.size); };
      if (readFirst) {
        // (The event of this byte does not wake the writer, because the socket
        // is still full.)
        give();
        EXPECT_EQ(reader.Result(), kPollOk);
        EXPECT_TRUE(Asleep(f.p, kWrite));
        take();
        EXPECT_EQ(writer.Result(), kPollOk);
      } else {
        take();
        EXPECT_EQ(writer.Result(), kPollOk);
        EXPECT_TRUE(Asleep(f.p, kRead));
        give();
        EXPECT_EQ(reader.Result(), kPollOk);
      }
    }
  });
}

TEST_P(NetpollTest, ManyDescriptorsAreServedAtOnce) {
  Run([] {
    constexpr int kMany = 300;  // more than one poll takes
    struct One {
      Ends e{Kind::kEventfd};
      Polled p{e.out.fd()};
      std::unique_ptr<Waiter> w;
    };
    std::vector<std::unique_ptr<One>> all;
    for (int i = 0; i < kMany; i++) all.push_back(std::make_unique<One>());
    for (auto& o : all) o->w = std::make_unique<Waiter>(o->p, kRead);
    ASSERT_TRUE(EventuallyParked("IO wait", kMany));
    for (auto& o : all) o->e.Signal();
    for (auto& o : all) EXPECT_EQ(o->w->Result(), kPollOk);
    // The thread that readied the last waiter counts down afterwards.
    EXPECT_TRUE(Eventually([] { return !rt::netpollAnyWaiters(); }));
  });
}

TEST_P(NetpollTest, PingPong) {
  Run([] {
    constexpr int kRounds = rt::kSanitizerBuild ? 300 : 3000;
    Ends e;
    const auto side = [&](int fd, bool first) {
      Polled p(fd);
      char c;
      for (int i = 0; i < kRounds; i++) {
        if (first) {
          ASSERT_EQ(::write(fd, "x", 1), 1);
        }
        ASSERT_EQ(p.Reset(kRead), kPollOk);
        while (::read(fd, &c, 1) != 1) {
          ASSERT_EQ(p.Wait(kRead), kPollOk);
        }
        if (!first) {
          ASSERT_EQ(::write(fd, "x", 1), 1);
        }
      }
    };
    sync::WaitGroup wg;
    wg.Go([&] { side(e.out.fd(), true); });
    wg.Go([&] { side(e.in.fd(), false); });
    wg.Wait();
  });
}

// ---- Deadlines

TEST_P(NetpollTest, DeadlinesInThePastEndWaits) {
  Run([] {
    for (const int64_t when :
         {nanotime() - 1, int64_t{1}, int64_t{-1}, int64_t{-kHour},
          std::numeric_limits<int64_t>::min()}) {
      Full f;
      Waiter reader(f.p, kRead);
      Waiter writer(f.p, kWrite);
      ASSERT_TRUE(EventuallyAsleep(f.p, kRead));
      ASSERT_TRUE(EventuallyAsleep(f.p, kWrite));
      f.p.SetDeadline(when, kRead);
      EXPECT_EQ(reader.Result(), kErrTimeout);
      EXPECT_TRUE(Asleep(f.p, kWrite)) << "it has another deadline";
      f.p.SetDeadline(when, kWrite);
      EXPECT_EQ(writer.Result(), kErrTimeout);
    }
  });
}

TEST_P(NetpollTest, APassedDeadlineFailsEvenIfThereIsData) {
  Run([] {
    Ends e;
    Polled p(e.out.fd());
    e.Signal();
    Harvest();
    EXPECT_TRUE(EventuallyNoted(p, kRead));
    p.SetDeadline(1, kRead);
    EXPECT_EQ(p.Reset(kRead), kErrTimeout);
    EXPECT_EQ(p.Wait(kRead), kErrTimeout);
    EXPECT_EQ(p.Reset(kWrite), kPollOk);
    p.SetDeadline(1, kBoth);
    EXPECT_EQ(p.Reset(kWrite), kErrTimeout);
    p.SetDeadline(0, kRead);
    EXPECT_EQ(p.Reset(kRead), kPollOk) << "cleared";
    EXPECT_EQ(p.Reset(kWrite), kErrTimeout) << "not cleared";
    p.SetDeadline(nanotime() + kHour, kBoth);
    EXPECT_EQ(p.Reset(kRead), kPollOk);
    EXPECT_EQ(p.Reset(kWrite), kPollOk);
    e.Signal();
    EXPECT_EQ(p.Wait(kRead), kPollOk) << "usable again";
  });
}

TEST_P(NetpollTest, DeadlinesEndWaitsInTime) {
  Run([] {
    for (const PollMode mode : {kRead, kWrite, kBoth}) {
      Full f;
      const int64_t when = nanotime() + 10 * kMillisecond;
      f.p.SetDeadline(when, mode);
      if (mode != kWrite) {
        EXPECT_EQ(f.p.Wait(kRead), kErrTimeout);
      }
      if (mode != kRead) {
        EXPECT_EQ(f.p.Wait(kWrite), kErrTimeout);
      }
      EXPECT_GE(nanotime(), when);
      if (mode != kBoth) {
        EXPECT_EQ(f.p.Reset(mode == kRead ? kWrite : kRead), kPollOk);
      }
    }
  });
}

TEST_P(NetpollTest, EachDirectionHasItsOwnDeadline) {
  Run([] {
    for (const bool readFirst : {true, false}) {
      Full f;
      Waiter reader(f.p, kRead);
      Waiter writer(f.p, kWrite);
      const int64_t now = nanotime();
      const int64_t first = now + 5 * kMillisecond;
      const int64_t second = now + 25 * kMillisecond;
      f.p.SetDeadline(readFirst ? first : second, kRead);
      f.p.SetDeadline(readFirst ? second : first, kWrite);
      EXPECT_EQ((readFirst ? reader : writer).Result(), kErrTimeout);
      EXPECT_GE(nanotime(), first);
      EXPECT_EQ((readFirst ? writer : reader).Result(), kErrTimeout);
      EXPECT_GE(nanotime(), second);
    }
  });
}

TEST_P(NetpollTest, OneDeadlineForBothEndsBoth) {
  Run([] {
    Full f;
    Waiter reader(f.p, kRead);
    Waiter writer(f.p, kWrite);
    ASSERT_TRUE(EventuallyAsleep(f.p, kRead));
    ASSERT_TRUE(EventuallyAsleep(f.p, kWrite));
    f.p.SetDeadline(nanotime() + 5 * kMillisecond, kBoth);
    EXPECT_EQ(reader.Result(), kErrTimeout);
    EXPECT_EQ(writer.Result(), kErrTimeout);
  });
}

TEST_P(NetpollTest, ADeadlineMayBeMovedEarlierMeanwhile) {
  Run([] {
    Ends e;
    Polled p(e.out.fd());
    p.SetDeadline(nanotime() + kHour, kBoth);
    Waiter w(p, kRead);
    ASSERT_TRUE(EventuallyAsleep(p, kRead));
    p.SetDeadline(nanotime() + 5 * kMillisecond, kRead);
    EXPECT_EQ(w.Result(), kErrTimeout);
    EXPECT_EQ(p.Reset(kWrite), kPollOk);
  });
}

TEST_P(NetpollTest, ADeadlineMayBeMovedLaterOrClearedMeanwhile) {
  Run([] {
    for (const int64_t later : {int64_t{0}, kHour}) {
      Ends e;
      Polled p(e.out.fd());
      Waiter w(p, kRead);
      ASSERT_TRUE(EventuallyAsleep(p, kRead));
      // Move the deadline long before it passes. If the machine pauses for
      // longer than that, try again.
      int64_t when = 0;
      do {
        when = nanotime() + 200 * kMillisecond;
        p.SetDeadline(when, kRead);
        p.SetDeadline(later == 0 ? 0 : nanotime() + later, kRead);
      } while (nanotime() > when);  // the machine was away: that proves nothing
      while (nanotime() < when + 20 * kMillisecond) time::Sleep(5ms);
      EXPECT_TRUE(Asleep(p, kRead));
      e.Signal();
      EXPECT_EQ(w.Result(), kPollOk);
    }
  });
}

TEST_P(NetpollTest, ALaterDeadlineEndsTheWaitAsWell) {
  Run([] {
    Ends e;
    Polled p(e.out.fd());
    Waiter w(p, kRead);
    // The timer stays armed for the first time, and is armed again when it
    // fires.
    const int64_t when = nanotime() + 240 * kMillisecond;
    p.SetDeadline(when - 40 * kMillisecond, kRead);
    p.SetDeadline(when, kRead);
    const bool in_time = nanotime() < when - 40 * kMillisecond;
    EXPECT_EQ(w.Result(), kErrTimeout);
    EXPECT_TRUE(nanotime() >= when || !in_time);
  });
}

TEST_P(NetpollTest, EdgesAndDeadlinesMayComeAtTheSameInstant) {
  Run([] {
    StressLoop([](Rng& rng) {
      Ends e;
      Polled p(e.out.fd());
      for (int i = 0; i < 50; i++) {
        p.SetDeadline(0, kRead);
        ASSERT_EQ(p.Reset(kRead), kPollOk);
        Waiter w(p, kRead);
        p.SetDeadline(nanotime() + static_cast<int64_t>(rng.Below(100'000)),
                      kRead);
        const int64_t pause =
            nanotime() + static_cast<int64_t>(rng.Below(100'000));
        while (nanotime() < pause) runtime::Gosched();
        if (rng.OneIn(4)) p.SetDeadline(0, kRead);
        e.Signal();
        const int r = w.Result();
        EXPECT_TRUE(r == kPollOk || r == kErrTimeout) << r;
        e.Drain();
      }
    });
  });
}

// ---- Closing

TEST_P(NetpollTest, ClosingWakesReaderAndWriter) {
  Run([] {
    for (int i = 0; i < 20; i++) {
      Full f;
      Waiter reader(f.p, kRead);
      Waiter writer(f.p, kWrite);
      ASSERT_TRUE(EventuallyAsleep(f.p, kRead));
      ASSERT_TRUE(EventuallyAsleep(f.p, kWrite));
      const int64_t start = nanotime();
      f.p.Unblock();
      EXPECT_EQ(reader.Result(), kErrClosing);
      EXPECT_EQ(writer.Result(), kErrClosing);
      EXPECT_LT(nanotime() - start, 5'000 * kMillisecond);
      EXPECT_EQ(f.p.Reset(kRead), kErrClosing);
      EXPECT_EQ(f.p.Wait(kWrite), kErrClosing);
      // A deadline that is set after the close has no effect.
      f.p.SetDeadline(nanotime() + kMillisecond, kBoth);
      EXPECT_EQ(f.p.Wait(kRead), kErrClosing);
    }
  });
}

TEST_P(NetpollTest, ClosingWakesWaitersThatAreAboutToSleep) {
  Run([] {
    StressLoop([](Rng& rng) {
      Full f;
      Waiter reader(f.p, kRead);
      Waiter writer(f.p, kWrite);
      const int64_t pause =
          nanotime() + static_cast<int64_t>(rng.Below(20'000));
      while (nanotime() < pause) runtime::Gosched();
      f.p.Unblock();
      EXPECT_EQ(reader.Result(), kErrClosing);
      EXPECT_EQ(writer.Result(), kErrClosing);
    });
  });
}

// ---- Hanging up

TEST_P(NetpollTest, TheEndOfTheOtherSideWakesReaders) {
  Run([] {
    for (const bool half : {true, false}) {
      Full f;
      Waiter reader(f.p, kRead);
      ASSERT_TRUE(EventuallyAsleep(f.p, kRead));
      EXPECT_FALSE(f.p->hungUp.load(rt::acquire));
      if (half) {
        Waiter writer(f.p, kWrite);
        ASSERT_TRUE(EventuallyAsleep(f.p, kWrite));
        ASSERT_EQ(::shutdown(f.ends.out.fd(), SHUT_WR), 0);
        EXPECT_EQ(reader.Result(), kPollOk);
        EXPECT_TRUE(Asleep(f.p, kWrite)) << "that direction goes on";
        Take(f.ends.out.fd(), f.size);
        EXPECT_EQ(writer.Result(), kPollOk);
      } else {
        Waiter writer(f.p, kWrite);
        ASSERT_TRUE(EventuallyAsleep(f.p, kWrite));
        f.ends.out.Close();
        EXPECT_EQ(reader.Result(), kPollOk);
        EXPECT_EQ(writer.Result(), kPollOk);
      }
      EXPECT_TRUE(f.p->hungUp.load(rt::acquire));
    }
  });
}

TEST_P(NetpollTest, PipesHangUp) {
  Run([] {
    Ends e(Kind::kPipe);
    Polled p(e.out.fd());
    Waiter reader(p, kRead);
    ASSERT_TRUE(EventuallyAsleep(p, kRead));
    e.in.Close();
    EXPECT_EQ(reader.Result(), kPollOk);
    EXPECT_TRUE(p->hungUp.load(rt::acquire));
  });
}

TEST_P(NetpollTest, AnErrorAloneIsNotReadiness) {
  Run([] {
    Full f(Kind::kPipe);
    Waiter writer(f.p, kWrite);
    ASSERT_TRUE(EventuallyAsleep(f.p, kWrite));
    f.ends.out.Close();  // the pipe is full: EPOLLERR and nothing else
    EXPECT_EQ(writer.Result(), kPollOk) << "the write will say what is wrong";
    EXPECT_EQ(f.p.Reset(kRead), kErrNotPollable);
    EXPECT_EQ(f.p.Wait(kRead), kErrNotPollable);
    EXPECT_EQ(f.p.Reset(kWrite), kPollOk);
  });
}

// ---- Which descriptors

TEST_P(NetpollTest, RegularFilesAndBadDescriptorsAreRefused) {
  Run([] {
    File file(ScratchFd());
    ASSERT_GE(file.fd(), 0);
    int err = 0;
    EXPECT_EQ(rt::pollOpen(file.fd(), &err), nullptr);
    EXPECT_EQ(err, EPERM);
    EXPECT_EQ(rt::pollOpen(1 << 24, &err), nullptr);  // no process has so many
    EXPECT_EQ(err, EBADF);
    // The PollDesc of a refused descriptor is used again.
    Ends e;
    Polled p(e.out.fd());
    EXPECT_EQ(p.Reset(kRead), kPollOk);
  });
}

TEST_P(NetpollTest, DescriptorZeroIsLikeOthers) {
  Run([] {
    File saved(::fcntl(0, F_DUPFD_CLOEXEC, 3));
    {
      Ends e;
      ASSERT_EQ(::dup2(e.out.fd(), 0), 0);
      Polled p(0);
      Waiter w(p, kRead);
      ASSERT_TRUE(EventuallyAsleep(p, kRead));
      e.Signal();
      EXPECT_EQ(w.Result(), kPollOk);
    }
    if (saved.fd() >= 0) {
      ASSERT_EQ(::dup2(saved.fd(), 0), 0);
    } else {
      ::close(0);
    }
  });
}

// ---- The thread that polls

TEST_P(NetpollTest, BreaksLoseNoEdges) {
  Run([] {
    Ends e;
    Polled p(e.out.fd());
    std::atomic<bool> stop = false;
    std::thread breaker = KnownThread([&] {
      while (!stop) rt::netpollBreak();
    });
    for (int i = 0; i < 200; i++) {
      {
        const Reader r(p);
        if (i % 2 == 0) {
          ASSERT_TRUE(EventuallyAsleep(p, kRead));
        }
        e.Signal();
      }
      e.Drain();
    }
    stop = true;
    blocking([&] { breaker.join(); });
  });
}

TEST_P(NetpollTest, ANewTimerBreaksThePoll) {
  Run([] {
    Ends e;
    Polled p(e.out.fd());
    Waiter w(p, kRead);
    ASSERT_TRUE(EventuallyAsleep(p, kRead));
    for (int i = 0; i < 20; i++) {
      // A thread without a P sets a timer when the last M sleeps in the poller.
      auto rang = make_chan<void>(1);
      std::thread t = KnownThread([&] {
        // The timer must go off even if no M is seen in the poller, so do not
        // wait for one for ever.
        for (int k = 0; k < 1000 && rt::sched.lastpoll.load(rt::relaxed) != 0;
             k++) {
          std::this_thread::yield();
        }
        time::AfterFunc(1ms, [rang] { rang.Send(); });
      });
      rang.Recv();
      blocking([&] { t.join(); });
    }
    EXPECT_TRUE(Asleep(p, kRead));
    e.Signal();
  });
}

TEST_P(NetpollTest, SleepersAndDescriptorsShareThePoll) {
  Run([] {
    constexpr int kRounds = rt::kSanitizerBuild ? 50 : 300;
    std::atomic<bool> stop = false;
    sync::WaitGroup sleepers;
    for (int i = 0; i < 4; i++) {
      sleepers.Go([&, i] {
        while (!stop) time::Sleep(std::chrono::microseconds(50 * (i + 1)));
      });
    }
    Ends e;
    Polled p(e.out.fd());
    for (int i = 0; i < kRounds; i++) {
      ASSERT_EQ(p.Reset(kRead), kPollOk);
      Waiter w(p, kRead);
      time::Sleep(100us);
      e.Signal();
      EXPECT_EQ(w.Result(), kPollOk);
      e.Drain();
    }
    stop = true;
    sleepers.Wait();
  });
}

TEST_P(NetpollTest, DescriptorsAreServedBesideGoroutinesThatCompute) {
  Run([] {
    std::atomic<bool> stop = false;
    sync::WaitGroup hogs;
    for (int i = 0; i < GetParam(); i++) {
      hogs.Go([&] {
        while (!stop) {
        }
      });
    }
    Ends e;
    Polled p(e.out.fd());
    for (int i = 0; i < 3; i++) {
      {
        const Reader r(p);
        ASSERT_TRUE(EventuallyAsleep(p, kRead));
        e.Signal();
      }
      e.Drain();
    }
    stop = true;
    hogs.Wait();
  });
}

TEST_P(NetpollTest, ALockedGoroutineLeavesThePollToOthers) {
  Run([] {
    Ends e;
    Polled p(e.out.fd());
    for (int i = 0; i < 5; i++) {
      auto done = make_chan<void>();
      go([&, done] {
        runtime::LockOSThread();
        WaitUntilReady(p, kRead);
        done.Close();
      });
      // A plain thread, because a goroutine would keep another M awake, which
      // could poll.
      std::thread t([&] {
        while (!Asleep(p, kRead)) std::this_thread::yield();
        e.Signal();
      });
      done.Recv();
      blocking([&] { t.join(); });
      e.Drain();
    }
  });
}

TEST_P(NetpollTest, ThreadsWaitWhileNoGoroutineRuns) {
  Run([] {
    Full f;
    for (int i = 0; i < 20; i++) {
      auto done = make_chan<void>(2);
      std::thread reader = KnownThread([&, done] {
        WaitUntilReady(f.p, kRead);
        done.Send();
      });
      std::thread writer = KnownThread([&, done] {
        WaitUntilReady(f.p, kWrite);
        done.Send();
      });
      std::thread other([&] {
        while (!Asleep(f.p, kRead) || !Asleep(f.p, kWrite)) {
          std::this_thread::yield();
        }
        EXPECT_EQ(::write(f.ends.out.fd(), "x", 1), 1);
        Take(f.ends.out.fd(), f.size);
      });
      done.Recv();
      done.Recv();
      blocking([&] {
        reader.join();
        writer.join();
        other.join();
      });
      Take(f.ends.in.fd(), 1);
      f.size = Fill(f.ends.in.fd());
    }
  });
}

TEST_P(NetpollTest, ThreadsAreWokenByDeadlinesAndClose) {
  Run([] {
    for (const bool close : {true, false}) {
      Ends e;
      Polled p(e.out.fd());
      auto done = make_chan<int>(1);
      std::thread reader = KnownThread([&, done] { done.Send(p.Wait(kRead)); });
      if (close) {
        std::thread closer([&] {
          while (!Asleep(p, kRead)) std::this_thread::yield();
          p.Unblock();
        });
        EXPECT_EQ(done.Recv(), kErrClosing);
        blocking([&] { closer.join(); });
      } else {
        p.SetDeadline(nanotime() + 5 * kMillisecond, kRead);
        EXPECT_EQ(done.Recv(), kErrTimeout);
      }
      blocking([&] { reader.join(); });
    }
  });
}

TEST_P(NetpollTest, GomaxprocsMayChangeMeanwhile) {
  Run([] {
    Ends e;
    Polled p(e.out.fd());
    for (int i = 0; i < 40; i++) {
      ASSERT_EQ(p.Reset(kRead), kPollOk);
      Waiter w(p, kRead);
      runtime::GOMAXPROCS(1 + i % 8);
      e.Signal();
      EXPECT_EQ(w.Result(), kPollOk);
      e.Drain();
    }
  });
}

TEST_P(NetpollTest, ADumpSaysIOWait) {
  Run([] {
    Ends e;
    Polled p(e.out.fd());
    Waiter w(p, kRead);
    ASSERT_TRUE(EventuallyParked("IO wait", 1));
    EXPECT_TRUE(rt::netpollAnyWaiters());
    e.Signal();
    EXPECT_EQ(w.Result(), kPollOk);
    EXPECT_TRUE(EventuallyParked("IO wait", 0));
    // The thread that readied it counts down afterwards.
    EXPECT_TRUE(Eventually([] { return !rt::netpollAnyWaiters(); }));
  });
}

}  // namespace
}  // namespace gump::testing
