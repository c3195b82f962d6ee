// A PollDesc that is used again: nothing of its old owner reaches the next.
// Everything here holds for each back end.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "gump/time.h"
#include "netpoll/polldesc.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/time.h"
#include "runtime/sys/os_linux.h"
#include "tests/netpoll/poll_testing.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {
namespace {

using rt::kErrTimeout;
using rt::kPollOk;
using rt::nanotime;
using namespace std::chrono_literals;

using NetpollReuseTest = WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(NetpollReuseTest);

TEST_P(NetpollReuseTest, PendingEdgesDoNotReachTheNextOwner) {
  Run([] {
    for (const Kind kind : kKinds) {
      Ends loud(kind);
      Ends quiet(kind);
      const int number = loud.out.fd();
      // A duplicate keeps the file open, so that it lives on.
      File duplicate(::fcntl(number, F_DUPFD_CLOEXEC, 0));
      rt::PollDesc* old = nullptr;
      {
        Polled p(number);
        old = p.get();
        loud.Signal();  // no thread polls before the descriptor is closed
      }
      ASSERT_EQ(::dup2(quiet.out.fd(), number), number);
      Polled p(number);
      ASSERT_EQ(p.get(), old) << "the one that was freed last";
      loud.Signal();
      Harvest();
      EXPECT_EQ(p->rg.load(rt::acquire), rt::pdNil);
      EXPECT_FALSE(p->hungUp.load(rt::acquire));
      Waiter w(p, kRead);
      ASSERT_TRUE(EventuallyAsleep(p, kRead));
      loud.Signal();
      Harvest();
      EXPECT_TRUE(Asleep(p, kRead));
      quiet.Signal();
      EXPECT_EQ(w.Result(), kPollOk);
    }
  });
}

TEST_P(NetpollReuseTest, NothingOfTheOldOwnerIsLeft) {
  Run([] {
    rt::PollDesc* old = nullptr;
    {
      Ends e;
      Polled p(e.out.fd());
      old = p.get();
      e.Signal();
      e.in.Close();
      Harvest();
      EXPECT_TRUE(Eventually([&] { return p->hungUp.load(rt::acquire); }));
      p.SetDeadline(1, kBoth);
    }
    Ends e;
    Polled p(e.out.fd());
    ASSERT_EQ(p.get(), old);
    EXPECT_EQ(p->rg.load(rt::acquire), rt::pdNil);
    EXPECT_FALSE(p->hungUp.load(rt::acquire));
    EXPECT_EQ(p.Reset(kRead), kPollOk);
    EXPECT_EQ(p.Reset(kWrite), kPollOk);
  });
}

TEST_P(NetpollReuseTest, ADeadlineOfTheOldOwnerIsNotTheNexts) {
  Run([] {
    Ends e;
    rt::PollDesc* old = nullptr;
    int64_t when;
    {
      Polled p(e.out.fd());
      old = p.get();
      when = nanotime() + 10 * kMillisecond;
      p.SetDeadline(when, kBoth);
    }
    Polled p(e.out.fd());
    ASSERT_EQ(p.get(), old) << "the one that was freed last";
    while (nanotime() < when + 10 * kMillisecond) time::Sleep(5ms);
    EXPECT_EQ(p.Reset(kRead), kPollOk);
    EXPECT_EQ(p.Reset(kWrite), kPollOk);
    // And its own deadline counts, however early.
    p.SetDeadline(nanotime() + 5 * kMillisecond, kRead);
    EXPECT_EQ(p.Wait(kRead), kErrTimeout);
  });
}

// A timer left over in a heap (N2). TSan sees what is written and read.
TEST_P(NetpollReuseTest, ATimerMayFireWhileItsPollDescIsOpened) {
  Run([] {
    Ends e;
    for (int i = 0; i < 100; i++) {
      rt::Timer* old = &Polled(e.out.fd())->timer;
      const int64_t when = nanotime() + kMillisecond;
      rt::M* mp = rt::acquirem();
      (void)rt::timerModify(old, when, /*period=*/0);
      rt::releasem(mp);
      while (nanotime() < when) continue;  // a thief runs the timer
      Polled p(e.out.fd());
      ASSERT_EQ(&p->timer, old) << "the one that was freed last";
      EXPECT_EQ(p.Reset(kRead), kPollOk);
    }
  });
}

// More threads than cores report errors for an owner that may have gone.
TEST(NetpollTagTest, LateErrorsDoNotReachTheNextOwner) {
  Ends e;
  std::atomic<rt::PollDesc*> desc = nullptr;
  std::atomic<uint32_t> tag = 0;
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; i++) {
    threads.emplace_back([&] {
      while (!stop) {
        const uint32_t t = tag;
        if (rt::PollDesc* pd = desc) {
          rt::pollSetEventErr(pd, true, t);
          rt::pollSetEventErr(pd, false, t);
        }
      }
    });
  }
  const int64_t end = nanotime() + StressTime().count();
  do {
    // The threads report errors for this owner: `tag` keeps its tag until the
    // next round.
    Polled p(e.out.fd());
    desc = p.get();
    tag = p->tag.load(rt::acquire);
    for (int i = 0; i < 20; i++) {
      p.Close();
      int err;
      // The PollDesc belongs to another owner now.
      rt::PollDesc* next = rt::pollOpen(e.out.fd(), &err);
      ASSERT_EQ(next, desc.load());
      for (int k = 0; k < 10; k++) {
        ASSERT_EQ(rt::pollReset(next, kRead), kPollOk);
      }
      rt::pollUnblock(next);
      rt::pollClose(next);
    }
  } while (nanotime() < end);
  stop = true;
  for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace gump::testing
