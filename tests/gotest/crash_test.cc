// The claims of Go's runtime/crash_test.go and crash_unix_test.go, of
// semasleep_test.go and of TestEINTR, under its names, in our words. Those that
// sched/crash_test, sched/proc_dead_test and sched/traceback_test show already
// are not repeated; docs/reliability.md has the list.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gump/chan.h"
#include "gump/exec.h"
#include "gump/go.h"
#include "gump/net.h"
#include "gump/os.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/signal.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sys/sanitizer.h"
#include "tests/api/net/net_testing.h"
#include "tests/sched/crash_testing.h"
#include "tests/testing/parked.h"
#include "tests/testing/signal_storm.h"
#include "tests/testing/status.h"
#include "tests/testing/wall_now.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::WaitGroup;
using testing::CrashDeathTest;
using testing::Died;
using testing::Eventually;
using testing::Ready;
using GoCrashTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(GoCrashTest);

class GoCrashDeathTest : public CrashDeathTest {};

constexpr char kAsleep[] =
    "^fatal error: all goroutines are asleep - deadlock!";

// ---- crash_test.go

TEST_F(GoCrashDeathTest, TestSimpleDeadlock) {
  EXPECT_EXIT(RunWith({}, [] { select(); }), Died(), kAsleep);
}

TEST_F(GoCrashDeathTest, TestLockedDeadlock) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        runtime::LockOSThread();
                        select();
                      }),
              Died(), kAsleep);
}

// Two threads sleep for their locked goroutines, and count as idle.
TEST_F(GoCrashDeathTest, TestLockedDeadlock2) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        go([] {
                          runtime::LockOSThread();
                          select();
                        });
                        time::Sleep(absl::Milliseconds(1));
                        runtime::LockOSThread();
                        select();
                      }),
              Died(), kAsleep);
}

constexpr char kNoGoroutines[] =
    "^fatal error: no goroutines \\(main called runtime.Goexit\\) - deadlock!";

TEST_F(GoCrashDeathTest, TestGoexitDeadlock) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        for (int i = 0; i < 2; i++) {
                          go([] {
                            for (int n = 0; n < 10; n++) runtime::Gosched();
                          });
                        }
                        runtime::Goexit();
                      }),
              Died(), kNoGoroutines);
}

TEST_F(GoCrashDeathTest, TestGoexitCrash) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        go([] { time::Sleep(absl::Milliseconds(1)); });
                        runtime::SetFinalizer([] {});
                        runtime::GC();
                        runtime::Goexit();
                      }),
              Died(), kNoGoroutines);
}

// Ten threads are allowed, and a hundred goroutines want one each.
TEST_F(GoCrashDeathTest, TestThreadExhaustion) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        debug::SetMaxThreads(10);
                        WaitGroup wg;
                        for (int i = 0; i < 100; i++) {
                          wg.Go([] {
                            runtime::LockOSThread();
                            select();
                          });
                        }
                        wg.Wait();
                      }),
              Died(),
              "^runtime: program exceeds 10-thread limit\n"
              "fatal error: thread exhaustion\n");
}

TEST_F(GoCrashDeathTest, TestGoNil) {
  EXPECT_EXIT(RunWith({}, [] { go(static_cast<void (*)()>(nullptr)); }), Died(),
              "^fatal error: go of nil func value\n");
}

TEST_F(GoCrashDeathTest, TestMainGoroutineID) {
  EXPECT_EXIT(RunWith({}, [] { panic("test"); }), Died(),
              "^panic: test\n\ngoroutine 1 \\[running\\]:\n");
}

// Goroutines of the runtime's own, for finalizers and timers, are in no dump of
// the program's.
TEST_F(GoCrashDeathTest, TestNoHelperGoroutines) {
  EXPECT_EXIT(RunWith({{"GOTRACEBACK", "all"}},
                      [] {
                        std::atomic<bool> ran = false;
                        runtime::SetFinalizer([&] { ran = true; });
                        (void)time::AfterFunc(absl::Hours(1), [] {});
                        runtime::GC();
                        if (!Eventually([&] { return ran.load(); })) {
                          std::exit(3);
                        }
                        const std::string all = runtime::Stack(true);
                        if (all.find("\ngoroutine ") != std::string::npos) {
                          std::exit(4);
                        }
                        panic("oops");
                      }),
              Died(), "^panic: oops\n\ngoroutine 1 \\[running\\]:\n");
}

// BlockFinalizer has a finalizer block, and returns when it is parked.
void BlockFinalizer() {
  runtime::SetFinalizer([] { make_chan<int>().Send(1); });
  Eventually([] {
    return runtime::Stack(true).find("[chan send]") != std::string::npos;
  });
}

// A finalizer that blocks is in every dump, with the function of the runtime
// that called it.
TEST_F(GoCrashDeathTest, TestFinalizerOrCleanupDeadlock) {
  const std::string finalizer =
      "goroutine [0-9]+ \\[chan send\\]:\n.*"
      "gump::rt::runFinalizers\\(\\.\\.\\.\\)\n";
  EXPECT_EXIT(RunWith({},
                      [] {
                        BlockFinalizer();
                        select();
                      }),
              Died(), std::string(kAsleep) + ".*" + finalizer);
  EXPECT_EXIT(RunWith({{"GOTRACEBACK", "all"}},
                      [] {
                        BlockFinalizer();
                        panic("oops");
                      }),
              Died(), "oops.*" + finalizer);
  EXPECT_EXIT(RunWith({},
                      [] {
                        BlockFinalizer();
                        std::fputs(runtime::Stack(true).c_str(), stderr);
                        std::exit(2);
                      }),
              Died(), finalizer);
}

// A finalizer that blocks is a goroutine that is asleep, and one that has ended
// is none.
TEST_F(GoCrashDeathTest, TestGoexitDeadlock_FinalizersCount) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        BlockFinalizer();
                        runtime::Goexit();
                      }),
              Died(), kAsleep);
  EXPECT_EXIT(RunWith({},
                      [] {
                        std::atomic<bool> ended = false;
                        runtime::SetFinalizer([&] { ended = true; });
                        Eventually([&] { return ended.load(); });
                        runtime::Goexit();
                      }),
              Died(), kNoGoroutines);
}

// A dial to a closed port is no deadlock, neither before Run nor in a main that
// is locked and alone.
TEST_F(GoCrashDeathTest, TestNetpollDeadlock) {
  const auto dial_nothing = [] {
    const net::Listener l = Ready(net::Listen("tcp", "127.0.0.1:0"));
    const std::string address = l.LocalAddr().String();
    l.Close().IgnoreError();
    if (net::Dial("tcp", address).ok()) std::exit(3);
  };
  EXPECT_EXIT(
      {
        dial_nothing();
        RunWith({}, [&] {
          runtime::LockOSThread();
          dial_nothing();
        });
      },
      ::testing::ExitedWithCode(0), "^$");
}

// A session leaves the poller with as many waiters as it found: none. If it had
// counted one too few, the waiter at the end would not be noticed.
TEST_P(GoCrashTest, TestNetpollWaiters) {
  Run([] {
    {
      const testing::Pair p;
      WaitGroup wg;
      wg.Go([&] {
        for (int i = 0; i < 10; i++) {
          time::Sleep(absl::Milliseconds(1));
          EXPECT_EQ(Ready(p.a.Write("0")), 1u);
        }
        EXPECT_TRUE(p.a.Close().ok());
      });
      EXPECT_EQ(testing::ReadAll(p.b), "0000000000");
      wg.Wait();
      EXPECT_TRUE(p.b.Close().ok());
    }
    EXPECT_TRUE(Eventually([] { return !rt::netpollAnyWaiters(); }));
    const testing::Pair p;
    WaitGroup wg;
    wg.Go([&] { EXPECT_EQ(testing::ReadAll(p.b), ""); });
    ASSERT_TRUE(testing::EventuallyParked("IO wait", 1));
    EXPECT_TRUE(Eventually([] { return rt::netpollAnyWaiters(); }));
    EXPECT_TRUE(p.a.Close().ok());
    wg.Wait();
    EXPECT_TRUE(Eventually([] { return !rt::netpollAnyWaiters(); }));
  });
}

// ---- crash_unix_test.go

TEST_P(GoCrashTest, TestSignalIgnoreSIGTRAP) {
  Run([] {
    signal::Ignore({SIGTRAP});
    raise(SIGTRAP);
    signal::Reset({SIGTRAP});
  });
}

// The test signals its process group while goroutines start children. Before
// exec a child runs in the memory of this process, so none of the program's
// signal handlers may run in it. The test makes a process group of its own, so
// that its signals reach no other process.
TEST_F(GoCrashDeathTest, TestSignalDuringExec) {
  EXPECT_EXIT(
      {
        setpgid(0, 0);
        RunWith({}, [] {
          constexpr int kChildren = 10;
          auto c = make_chan<int>(kChildren);
          signal::Notify(c, {SIGWINCH});
          WaitGroup wg;
          for (int i = 0; i < kChildren; i++) {
            time::Sleep(absl::Microseconds(100));
            wg.Go([] {
              if (!exec::Cmd("true").Run().ok()) std::exit(3);
            });
            kill(0, SIGWINCH);
          }
          wg.Wait();
          signal::Stop(c);
        });
      },
      ::testing::ExitedWithCode(0), "^$");
}

// ---- semasleep_test.go

// Signals cut each sleep of a thread short. The timer fires all the same, and
// not early.
TEST_P(GoCrashTest, TestSpuriousWakeupsNeverHangSemasleep) {
  Run([] {
    const testing::SignalStorm storm;
    const absl::Time start = testing::WallNow();
    EXPECT_TRUE(time::After(absl::Milliseconds(100)).Recv().has_value());
    EXPECT_GE(testing::WallNow() - start, absl::Milliseconds(100));
  });
}

// ---- crash_cgo_test.go

// Calls end with EINTR when sig arrives.
void Interrupt(int sig) {
  struct sigaction action = {};
  sigaction(sig, nullptr, &action);
  if (action.sa_handler == SIG_DFL) {
    action.sa_handler = [](int) {};
    action.sa_flags = SA_ONSTACK;
  }
  action.sa_flags &= ~SA_RESTART;
  if (sigaction(sig, &action, nullptr) != 0) std::exit(3);
}

// A goroutine computes, so that it is preempted, while others are sent
// SIGWINCH.
void SendSomeSignals() {
  std::atomic<bool> stop = false;
  WaitGroup wg;
  wg.Go([&] {
    volatile double x = 1;
    while (!stop) x = x + x / 3;
  });
  for (int i = 0; i < 10; i++) {
    kill(getpid(), SIGWINCH);
    time::Sleep(absl::Microseconds(100));
  }
  stop = true;
  wg.Wait();
}

void SetBlocking(int fd) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

constexpr size_t kHalf = 1 << 20;

// Carry sends two halves from w to r, with signals before each.
template <class W, class R>
void Carry(WaitGroup& wg, W w, R r) {
  SetBlocking(w.Fd());
  SetBlocking(r.Fd());
  wg.Go([=] {
    SendSomeSignals();
    if (!w.Write(std::string(2 * kHalf, 'x')).ok()) std::exit(4);
    if (!w.Close().ok()) std::exit(5);
  });
  wg.Go([=] {
    std::string buf(1 << 16, '\0');
    for (size_t at = 0; at < 2 * kHalf;) {
      if (at == 0) SendSomeSignals();
      const auto n = r.Read(absl::MakeSpan(buf.data(), buf.size()));
      if (!n.ok() || *n == 0) std::exit(6);
      at += *n;
    }
    if (!r.Close().ok()) std::exit(7);
  });
}

TEST_F(GoCrashDeathTest, TestEINTR) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        for (int sig : {SIGURG, SIGWINCH, SIGCHLD})
                          Interrupt(sig);
                        WaitGroup wg;
                        auto [r, w] = Ready(os::Pipe());
                        Carry(wg, w, r);
                        const testing::Pair p;
                        Carry(wg, p.a, p.b);
                        wg.Go([] {
                          exec::Cmd cmd("cat");
                          const os::File in = Ready(cmd.StdinPipe());
                          if (!cmd.Start().ok()) std::exit(8);
                          go([in] {
                            SendSomeSignals();
                            in.Close().IgnoreError();
                          });
                          if (!cmd.Wait().ok()) std::exit(9);
                        });
                        wg.Wait();
                      }),
              ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace gump
