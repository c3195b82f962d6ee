// The poller through PollDesc: edges, deadlines and closing. Everything here
// holds for each back end. netpoll_thread_test.cc tests which thread polls, and
// backend_test.cc the promises of a back end.
#include "runtime/sched/netpoll.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "netpoll/polldesc.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "tests/netpoll/netpoll_testing.h"
#include "tests/netpoll/poll_testing.h"
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

}  // namespace
}  // namespace gump::testing
