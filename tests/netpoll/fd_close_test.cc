// FD: operations that end by a deadline, by closing or by signals.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "netpoll/fd.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "tests/netpoll/fd_testing.h"
#include "tests/netpoll/poll_testing.h"
#include "tests/testing/identity.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/scratch.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {
namespace {

using rt::FD;
using rt::FdKind;
using rt::IoResult;
using rt::kErrClosing;
using rt::kErrTimeout;
using rt::nanotime;
using namespace std::chrono_literals;

using FDCloseTest = WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(FDCloseTest);

// ---- Deadlines

TEST_P(FDCloseTest, DeadlinesEndReadsAndWrites) {
  Run([] {
    for (const Over over : kStreams) {
      Pair p(over);
      char buf[64];
      for (int i = 0; i < 3; i++) {
        // In the later rounds this read follows a short read.
        const int64_t when = nanotime() + 5 * kMillisecond;
        ASSERT_EQ(p.a->setDeadline(when, kRead), 0);
        EXPECT_EQ(p.a->read(buf, sizeof(buf)), Error(kErrTimeout));
        EXPECT_GE(nanotime(), when);
        EXPECT_EQ(p.b->write("x", 1), Bytes(1));
        EXPECT_EQ(p.a->read(buf, sizeof(buf)), Error(kErrTimeout)) << "still";
        ASSERT_EQ(p.a->setDeadline(0, kRead), 0);
        EXPECT_EQ(p.a->read(buf, sizeof(buf)), Bytes(1));
      }
      std::string much(32 << 20, 'x');
      IoResult r;
      sync::WaitGroup wg;
      wg.Go([&] { r = p.a->write(much.data(), much.size()); });
      EXPECT_TRUE(EventuallyParked("IO wait", 1));
      ASSERT_EQ(p.a->setDeadline(nanotime() + 5 * kMillisecond, kWrite), 0);
      wg.Wait();
      EXPECT_EQ(r.err, kErrTimeout);
      EXPECT_GT(r.n, 0u) << "some went out";
      EXPECT_LT(r.n, much.size());
      EXPECT_EQ(p.a->write(much.data(), 1), Error(kErrTimeout));
      ASSERT_EQ(p.a->setDeadline(0, kBoth), 0);
      ASSERT_EQ(CloseWrite(p.a.get()), 0);
      size_t n = 0;
      std::vector<char> in(100'000);
      for (IoResult k; (k = p.b->read(in.data(), in.size())).n > 0;) n += k.n;
      EXPECT_EQ(n, r.n) << "as many as it said";
    }
  });
}

TEST_P(FDCloseTest, AVectoredWriteThatTimesOutSaysHowFarItCame) {
  Run([] {
    Pair p;
    std::string part(100'000, 'x');
    std::vector<iovec> iov(300, iovec{part.data(), part.size()});
    IoResult r;
    sync::WaitGroup wg;
    wg.Go([&] { r = p.a->writev(iov.data(), iov.size()); });
    EXPECT_TRUE(EventuallyParked("IO wait", 1));
    ASSERT_EQ(p.a->setDeadline(nanotime() + 5 * kMillisecond, kWrite), 0);
    wg.Wait();
    EXPECT_EQ(r.err, kErrTimeout);
    EXPECT_GT(r.n, 0u);
    EXPECT_EQ(p.a->close(), 0);
    size_t n = 0;
    std::vector<char> in(100'000);
    for (IoResult k; (k = p.b->read(in.data(), in.size())).n > 0;) n += k.n;
    EXPECT_EQ(n, r.n);
  });
}

// ---- Closing

TEST_P(FDCloseTest, CloseEndsAllReadsAndWrites) {
  Run([] {
    for (const bool byThread : {true, false}) {
      for (const Over over : kStreams) {
        Pair p(over);
        FillUp(p.a.get());
        const int number = p.a->sysfd();
        const auto self = Identity(number);
        std::atomic<int> ended = 0;
        std::string much(8 << 20, 'x');
        const auto read = [&] {
          char buf[8];
          EXPECT_EQ(p.a->read(buf, sizeof(buf)), Error(kErrClosing));
          ended++;
        };
        const auto write = [&] {
          EXPECT_EQ(p.a->write(much.data(), much.size()).err, kErrClosing);
          ended++;
        };
        // Of each two, one sleeps in the poller and one for the lock.
        sync::WaitGroup wg;
        for (int i = 0; i < 2; i++) {
          wg.Go(read);
          wg.Go(write);
        }
        ASSERT_TRUE(EventuallyParked("IO wait", 2));
        ASSERT_TRUE(EventuallyParked("semacquire", 2));
        const int64_t start = nanotime();
        const auto close = [&] {
          EXPECT_EQ(p.a->close(), 0);
          EXPECT_NE(Identity(number), self) << "when close returns";
        };
        if (byThread) {
          std::thread t = KnownThread(close);
          blocking([&] { t.join(); });
        } else {
          close();
        }
        wg.Wait();
        EXPECT_LT(nanotime() - start, 5'000 * kMillisecond);
        EXPECT_EQ(ended, 4);
        char c = 0;
        EXPECT_EQ(p.a->read(&c, 1), Error(kErrClosing));
        EXPECT_EQ(p.a->write(&c, 1), Error(kErrClosing));
        EXPECT_EQ(p.a->setDeadline(0, kBoth), kErrClosing);
        EXPECT_EQ(p.a->with([](int) { return 0; }), kErrClosing);
        EXPECT_EQ(p.a->withRead([](int) { return true; }), kErrClosing);
        EXPECT_EQ(p.a->withWrite([](int) { return true; }), kErrClosing);
        EXPECT_EQ(p.a->waitWrite(), kErrClosing);
        EXPECT_EQ(p.a->close(), kErrClosing) << "twice";
      }
    }
  });
}

TEST_P(FDCloseTest, CloseWaitsForUsersOfTheDescriptor) {
  Run([] {
    Pair p;
    const int number = p.a->sysfd();
    const auto self = Identity(number);
    auto inside = make_chan<void>();
    auto leave = make_chan<void>();
    std::atomic<bool> closed = false;
    sync::WaitGroup wg;
    wg.Go([&] {
      EXPECT_EQ(p.a->with([&](int fd) {
        inside.Close();
        leave.Recv();
        EXPECT_EQ(Identity(fd), self);
        EXPECT_FALSE(closed);
        return 0;
      }),
                0);
    });
    inside.Recv();
    wg.Go([&] {
      EXPECT_EQ(p.a->close(), 0);
      closed = true;
      EXPECT_NE(Identity(number), self);
    });
    EXPECT_TRUE(EventuallyParked("semacquire", 1));
    EXPECT_EQ(Identity(number), self);
    leave.Close();
    wg.Wait();
  });
}

TEST_P(FDCloseTest, TheNumberIsFreeAtOnce) {
  Run([] {
    for (int i = 0; i < 200; i++) {
      Pair p;
      Ends e;
      const int number = p.a->sysfd();
      const auto self = Identity(number);
      sync::WaitGroup wg;
      wg.Go([&] {
        char c;
        EXPECT_EQ(p.a->read(&c, 1), Error(kErrClosing));
      });
      if (i % 2 == 0) {
        EXPECT_TRUE(EventuallyParked("IO wait", 1));
      }
      EXPECT_EQ(p.a->close(), 0);
      // The number is not ours any more, though the reader may still be on its
      // way out.
      File mine(::fcntl(e.out.fd(), F_DUPFD_CLOEXEC, number));
      if (mine.fd() != number) {  // the runtime has taken it
        EXPECT_NE(Identity(number), self);
        wg.Wait();
        continue;
      }
      const auto next_self = Identity(number);
      auto next = Open(std::move(mine), FdKind::kStream);
      EXPECT_EQ(::write(e.in.fd(), "x", 1), 1);
      char c;
      EXPECT_EQ(next->read(&c, 1), Bytes(1));
      wg.Wait();
      EXPECT_EQ(Identity(number), next_self);
    }
  });
}

TEST_P(FDCloseTest, TheDestructorCloses) {
  Run([] {
    int number;
    std::pair<dev_t, ino_t> self;
    {
      Pair p;
      number = p.a->sysfd();
      self = Identity(number);
      EXPECT_NE(self.second, 0u);
    }
    EXPECT_NE(Identity(number), self);
    // A descriptor that was never registered stays the caller's.
    Ends e;
    { FD fd(e.out.fd(), FdKind::kStream); }
    EXPECT_NE(Identity(e.out.fd()).second, 0u);
    // And so does one that was refused.
    File file(ScratchFd());
    ASSERT_GE(file.fd(), 0);
    {
      FD fd(file.fd(), FdKind::kStream);
      EXPECT_EQ(fd.init(), EPERM);
    }
    EXPECT_NE(Identity(file.fd()).second, 0u);
  });
}

TEST_P(FDCloseTest, ClosersRaceWithEverything) {
  Run([] {
    StressLoop([](Rng& rng) {
      Pair p(rng.OneIn(2) ? Over::kTcp : Over::kUnix);
      const int number = p.a->sysfd();
      const auto self = Identity(number);
      std::atomic<int> closes = 0;
      sync::WaitGroup wg;
      for (int i = 0; i < 8; i++) {
        wg.Go([&, i, seed = rng.Next()] {
          Rng own(seed);
          char buf[1000] = {};
          for (;;) {
            int err = 0;
            switch (i % 4) {
              case 0:
                err = p.a->read(buf, own.Below(sizeof(buf))).err;
                break;
              case 1:
                err = p.a->write(buf, own.Below(sizeof(buf))).err;
                break;
              case 2:
                err = p.a->setDeadline(
                    own.OneIn(2)
                        ? 0
                        : nanotime() + static_cast<int64_t>(own.Below(50'000)),
                    own.OneIn(2) ? kRead : kBoth);
                runtime::Gosched();
                break;
              default:
                if (own.OneIn(20)) {
                  if (p.a->close() == 0) {
                    closes++;
                    EXPECT_NE(Identity(number), self);
                  }
                  return;
                }
                runtime::Gosched();
                break;
            }
            if (err == kErrClosing) return;
            EXPECT_TRUE(err == 0 || err == kErrTimeout) << err;
          }
        });
      }
      wg.Go([&] {
        // The peer feeds and drains, until the end.
        char buf[1000];
        while (p.b->read(buf, sizeof(buf)).n > 0) {
          if (p.b->write(buf, 500).err != 0) return;
        }
      });
      wg.Wait();
      EXPECT_EQ(closes, 1);
    });
  });
}

// ---- Signals, and descriptor 0

TEST_P(FDCloseTest, SignalsAreNotSeen) {
  struct sigaction act {};
  struct sigaction old {};
  act.sa_handler = [](int) {};
  act.sa_flags = SA_ONSTACK;  // and no SA_RESTART
  ASSERT_EQ(::sigaction(SIGALRM, &act, &old), 0);
  Run([] {
    constexpr size_t kTotal = size_t{rt::kSanitizerBuild ? 1 : 16} << 20;
    Pair p(Over::kTcp);
    Ends e(Kind::kPipe);
    // The kernel interrupts calls on a blocking pipe.
    ASSERT_EQ(::fcntl(e.out.fd(), F_SETFL, 0), 0);
    ASSERT_EQ(::fcntl(e.in.fd(), F_SETFL, 0), 0);
    auto out = Open(std::move(e.out), FdKind::kFile);
    auto in = Open(std::move(e.in), FdKind::kFile);
    // Only from here on, because the test's own calls do see signals.
    itimerval often{};
    often.it_interval.tv_usec = often.it_value.tv_usec =
        rt::kSanitizerBuild ? 2000 : 200;
    ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
    sync::WaitGroup wg;
    wg.Go([&] {
      SendStream(p.a.get(), 1, kTotal, 100'000);
      EXPECT_EQ(CloseWrite(p.a.get()), 0);
    });
    wg.Go([&] { EXPECT_EQ(ReceiveStream(p.b.get(), 1, 100'000), kTotal); });
    wg.Go([&] {
      for (int i = 0; i < 20; i++) {
        EXPECT_EQ(in->write("x", 1), Bytes(1));
        time::Sleep(2ms);
      }
      EXPECT_EQ(in->close(), 0);
    });
    char c;
    for (int i = 0; i < 20; i++) EXPECT_EQ(out->read(&c, 1), Bytes(1));
    EXPECT_EQ(out->read(&c, 1), Bytes(0));
    wg.Wait();
    const itimerval never{};
    ASSERT_EQ(::setitimer(ITIMER_REAL, &never, nullptr), 0);
  });
  ASSERT_EQ(::sigaction(SIGALRM, &old, nullptr), 0);
}

TEST_P(FDCloseTest, DescriptorZeroIsUsable) {
  Run([] {
    File saved(::fcntl(0, F_DUPFD_CLOEXEC, 3));
    {
      auto [x, y] = RawPair(Over::kTcp);
      ASSERT_EQ(::dup2(x.fd(), 0), 0);
      x.Close();
      const auto self = Identity(0);
      auto zero = Open(File(0), FdKind::kStream);
      auto b = Open(std::move(y), FdKind::kStream);
      sync::WaitGroup wg;
      wg.Go([&] {
        char c;
        EXPECT_EQ(zero->read(&c, 1), Bytes(1));
        EXPECT_EQ(zero->write(&c, 1), Bytes(1));
      });
      EXPECT_EQ(b->write("x", 1), Bytes(1));
      char c;
      EXPECT_EQ(b->read(&c, 1), Bytes(1));
      wg.Wait();
      EXPECT_EQ(zero->close(), 0);
      EXPECT_NE(Identity(0), self);
    }
    if (saved.fd() >= 0) {
      ASSERT_EQ(::dup2(saved.fd(), 0), 0);
    }
  });
}

}  // namespace
}  // namespace gump::testing
