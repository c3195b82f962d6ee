// The poller through PollDesc: which thread polls, and which threads wait.
// Everything here holds for each back end.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "netpoll/polldesc.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "tests/netpoll/netpoll_testing.h"
#include "tests/netpoll/poll_testing.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {
namespace {

using rt::kErrClosing;
using rt::kErrTimeout;
using rt::kPollOk;
using rt::nanotime;
using namespace std::chrono_literals;

using NetpollTest = WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(NetpollTest);

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
