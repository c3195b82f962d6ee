// Plain threads after main has returned. They may do everything except wait for
// goroutines, because goroutines no longer run. A wait that nothing can end is
// reported.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/net.h"
#include "gump/runtime.h"
#include "gump/time.h"
#include "netpoll/ring.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/thread.h"
#include "tests/testing/wall_now.h"

namespace gump {
namespace {

using namespace std::chrono_literals;

// The sleeps below give a thread time to park, which is the harder case. No
// assertion depends on them.
class AfterRunDeathTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

constexpr char kDeadlock[] =
    "^fatal error: all goroutines are asleep - deadlock!\n";

// Check ends the process of a death test if something is not as it should be.
void Check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "%s\n", what);
  std::_Exit(3);
}

int32_t ExtraMs() {
  rt::LockScope l(&rt::sched.lock);
  return rt::sched.nmextra;
}

bool SomebodyIsParked() {
  return runtime::Stack(true).find("[chan receive]:\n") != std::string::npos;
}

// ---- Timers and sockets go on

TEST_F(AfterRunDeathTest, TimersFire) {
  EXPECT_EXIT(
      {
        std::atomic<bool> ran = false;
        time::Timer early;
        gump::Run([&] { early = time::NewTimer(20ms); });
        time::After(1ms).Recv();
        early.C.Recv();
        auto func = time::AfterFunc(1ms, [&] { ran = true; });
        time::After(30ms).Recv();
        Check(!ran, "a goroutine has run");
        gump::Run([&] {
          while (!ran) runtime::Gosched();
        });
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// Talk sends a byte over a new connection to l and reads it at the other end.
// After it, nothing arrives there until the deadline.
void Talk(const net::Listener& l) {
  std::thread dialer([&l] {
    auto c = net::Dial("tcp", l.LocalAddr().String());
    Check(c.ok(), "dial");
    usleep(30'000);  // lets the reader park, but it may also come late
    Check(c->Write("x").ok(), "write");
    char b;
    auto n = c->Read(absl::MakeSpan(&b, 1));
    Check(n.ok() && *n == 0, "the end");
  });
  auto c = l.Accept();
  Check(c.ok(), "accept");
  char b = 0;
  Check(c->Read(absl::MakeSpan(&b, 1)).ok() && b == 'x', "read");
  Check(c->SetDeadline(testing::WallNow() + absl::Milliseconds(20)).ok(),
        "set");
  Check(absl::IsDeadlineExceeded(c->Read(absl::MakeSpan(&b, 1)).status()),
        "deadline");
  Check(c->Close().ok(), "close");
  dialer.join();
}

TEST_F(AfterRunDeathTest, SocketsArePolled) {
  for (const char* procs : {"1", "2", "8"}) {
    EXPECT_EXIT(
        {
          setenv("GOMAXPROCS", procs, 1);
          gump::Run([] {});
          auto l = net::Listen("tcp", "127.0.0.1:0");
          Check(l.ok(), "listen");
          for (int i = 0; i < 3; i++) Talk(*l);
          gump::Run([&] { Talk(*l); });
          Talk(*l);
          std::_Exit(0);
        },
        ::testing::ExitedWithCode(0), "^$");
  }
}

// A thread that reads while main still runs is not forgotten when main ends.
TEST_F(AfterRunDeathTest, SocketsAreStillPolled) {
  EXPECT_EXIT(
      {
        auto ends = *net::Pipe();
        std::thread reader([a = ends.first] {
          char c;
          Check(a.Read(absl::MakeSpan(&c, 1)).ok(), "read");
        });
        gump::Run([] {
          while (runtime::Stack(true).find("[IO wait") == std::string::npos) {
            runtime::Gosched();
          }
        });
        usleep(50'000);
        Check(ends.second.Write("x").ok(), "write");
        reader.join();
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// Asker is a thread of the runtime that checks without end whether there is a
// deadlock.
[[noreturn]] void Asker() {
  rt::becomeSystemThread();
  for (;;) {
    rt::LockScope l(&rt::sched.lock);
    rt::checkdead();
  }
}

// A thread that has just begun to wait looks asleep before the ring knows of
// the wait.
TEST_F(AfterRunDeathTest, ThreadThatBeginsToWaitForTheRingIsNotDead) {
  EXPECT_EXIT(
      {
        gump::Run([] {});
        rt::newSystemM(Asker, "asker");
        const int rounds = rt::ringStart() == 0 ? 30'000 : 0;
        for (int i = 0; i < rounds; i++) {
          char c;
          Check(rt::ringRead(-1, &c, 1, 0) == -EBADF, "read");
        }
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// The check looks at many threads one after the other. Each may sleep when it
// is looked at, although not all sleep at the same time. That is no deadlock.
TEST_F(AfterRunDeathTest, TwoThreadsThatTakeTurnsAreNotDead) {
  EXPECT_EXIT(
      {
        auto never = make_chan<int>();
        auto ping = make_chan<int>(1);
        auto pong = make_chan<int>(1);
        gump::Run([] {});
        (void)runtime::Stack(true);  // this thread is the first that is known
        for (int i = 0; i < 200; i++) {
          std::thread([never] { never.Recv(); }).detach();
        }
        while (ExtraMs() < 201) std::this_thread::yield();
        std::thread([ping, pong] {
          for (;;) {
            ping.Recv();
            pong.Send(1);
          }
        }).detach();
        for (int i = 0; i < 5000; i++) {
          ping.Send(1);
          pong.Recv();
        }
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// ---- Deadlocks are reported

TEST_F(AfterRunDeathTest, ADeadlockIsReportedWhenTheLastTimerHasFired) {
  EXPECT_EXIT(
      {
        gump::Run([] {});
        auto func = time::AfterFunc(30ms, [] {});
        make_chan<int>().Recv();
      },
      ::testing::ExitedWithCode(2), kDeadlock);
}

// The poller sleeps until a time for which no thread waits any more.
TEST_F(AfterRunDeathTest, ADeadlockIsReportedWhenTheLastTimerIsStopped) {
  EXPECT_EXIT(
      {
        gump::Run([] {});
        auto func = time::AfterFunc(1h, [] {});
        std::thread stops([&func] {
          usleep(30'000);
          func.Stop();
          make_chan<int>().Recv();
        });
        make_chan<int>().Recv();
      },
      ::testing::ExitedWithCode(2), kDeadlock);
}

// The poller waits for a socket from which no thread reads any more.
TEST_F(AfterRunDeathTest, ADeadlockIsReportedWhenTheLastReadHasEnded) {
  EXPECT_EXIT(
      {
        gump::Run([] {});
        auto ends = *net::Pipe();
        std::thread closer([a = ends.first] {
          usleep(30'000);
          (void)a.Close();
          make_chan<int>().Recv();
        });
        char c;
        (void)ends.first.Read(absl::MakeSpan(&c, 1));
        make_chan<int>().Recv();
      },
      ::testing::ExitedWithCode(2), kDeadlock);
}

// The goroutine that is to send is left over, and its turn does not come. With
// one P it does not run while main returns.
TEST_F(AfterRunDeathTest, WaitingForAGoroutineIsADeadlock) {
  EXPECT_EXIT(
      {
        auto c = make_chan<int>();
        std::atomic<bool> may_send = false;
        gump::Run([&] {
          runtime::GOMAXPROCS(1);
          go([&, c] {
            while (!may_send) runtime::Gosched();
            c.Send(1);
          });
        });
        may_send = true;
        c.Recv();
      },
      ::testing::ExitedWithCode(2), kDeadlock);
}

TEST_F(AfterRunDeathTest, ThreadsThatAllWaitAreADeadlock) {
  EXPECT_EXIT(
      {
        auto c = make_chan<int>();
        std::thread([c] { c.Recv(); }).detach();
        gump::Run([] {
          while (!SomebodyIsParked()) runtime::Gosched();
        });
        c.Recv();
      },
      ::testing::ExitedWithCode(2), kDeadlock);
}

// The goroutine keeps its P until it enters the runtime, and until then it may
// still do anything.
TEST_F(AfterRunDeathTest, AGoroutineThatComputesIsWaitedFor) {
  EXPECT_EXIT(
      {
        std::atomic<bool> computes = false;
        gump::Run([&] {
          runtime::GOMAXPROCS(2);
          go([&] {
            computes = true;
            const auto end = std::chrono::steady_clock::now() + 300ms;
            while (std::chrono::steady_clock::now() < end) {
            }
            std::fputs("computed\n", stderr);
            runtime::Gosched();
          });
          while (!computes) runtime::Gosched();
        });
        make_chan<int>().Recv();
      },
      ::testing::ExitedWithCode(2),
      "^computed\nfatal error: all goroutines are asleep - deadlock!\n");
}

TEST_F(AfterRunDeathTest, AnotherThreadMayStillSend) {
  EXPECT_EXIT(
      {
        auto c = make_chan<int>();
        gump::Run([] {});
        std::thread t([c] {
          while (!SomebodyIsParked()) std::this_thread::yield();
          c.Send(1);
        });
        c.Recv();
        t.join();
        // The runtime does not know this thread until it sends. Sysmon checks
        // more than once in that time.
        std::thread u([c] {
          usleep(50'000);
          c.Send(7);
        });
        u.detach();
        std::_Exit(*c.Recv());
      },
      ::testing::ExitedWithCode(7), "^$");
}

}  // namespace
}  // namespace gump
