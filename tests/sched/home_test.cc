// Homes: how the scheduler runs threads that goroutines share, and what ends a
// program that misuses one.
#include "runtime/sched/home.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/os.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sched/preempt.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/sema.h"
#include "tests/sched/crash_testing.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using runtime::Thread;
using testing::Eventually;

rt::Home* HomeOfCaller() { return rt::getg()->m->home; }

class HomeTest : public testing::WithGomaxprocs {};
GUMP_INSTANTIATE_GOMAXPROCS(HomeTest);

TEST_P(HomeTest, TokenStandsForTheHomeAndNothingElseIsLocked) {
  Run([] {
    Thread t;
    rt::Home* h = t.Run([] {
      rt::Home* home = HomeOfCaller();
      EXPECT_EQ(rt::getg()->m->lockedg, &home->token);
      EXPECT_EQ(rt::getg()->lockedm, home->m);
      EXPECT_TRUE(rt::getg()->special);
      return home;
    });
    EXPECT_EQ(HomeOfCaller(), nullptr);
    EXPECT_EQ(rt::getg()->lockedm, nullptr);
    EXPECT_FALSE(rt::getg()->special && rt::getg()->bubble == nullptr &&
                 !rt::getg()->foreign)
        << "the caller pays for its visit for good";
    EXPECT_TRUE(Eventually([&] {
      const uint32_t s = h->state.load(rt::acquire);
      return s == rt::kHomeAsleep || s == rt::kHomePolling;
    }));
    EXPECT_FALSE(h->m->idle) << "an idle home is no idle M";
  });
}

// The home is woken by timers, and nothing else happens. So the place in the
// poller comes to it, whichever M is there at first.
TEST_P(HomeTest, IdleHomeBlocksInThePoller) {
  Run([] {
    Thread t;
    rt::Home* h = t.Run([] { return HomeOfCaller(); });
    std::atomic<bool> polled = false;
    sync::WaitGroup wg;
    wg.Add(1);
    go(GoOptions{.thread = &t}, [&] {
      while (!polled) time::Sleep(absl::Milliseconds(2));
      wg.Done();
    });
    blocking([&] {
      while (h->state.load(rt::acquire) != rt::kHomePolling) usleep(100);
      polled = true;
    });
    wg.Wait();
  });
}

TEST_P(HomeTest, GoroutinePreemptedInPlaceGivesTheTokenBack) {
  Run([] {
    Thread t;
    for (int i = 0; i < 3; i++) {
      std::atomic<bool> stop = false;
      std::atomic<bool> begun = false;
      sync::WaitGroup wg;
      wg.Add(1);
      const int64_t before =
          static_cast<int64_t>(debug::ReadSchedStats().preemptions);
      go(GoOptions{.thread = &t}, [&] {
        begun = true;
        while (!stop) (void)getppid();
        rt::Home* h = HomeOfCaller();
        EXPECT_EQ(rt::getg()->m->lockedg, &h->token);
        EXPECT_EQ(rt::getg()->lockedm, h->m);
        wg.Done();
      });
      ASSERT_TRUE(Eventually([&] { return begun.load(); }));
      // Each stop of the world takes the P of the goroutine that computes.
      ASSERT_TRUE(Eventually([&] {
        (void)runtime::Stack(true);
        return static_cast<int64_t>(debug::ReadSchedStats().preemptions) >
               before;
      }));
      stop = true;
      wg.Wait();
    }
    EXPECT_EQ(t.Run([] { return 1; }), 1);
  });
}

TEST_P(HomeTest, GoroutineBackFromACallWithoutAPGivesTheTokenBack) {
  Run([] {
    Thread t;
    std::atomic<bool> stop = false;
    sync::WaitGroup hogs, wg;
    for (int i = 0; i < 2 * runtime::GOMAXPROCS(0); i++) {
      hogs.Go([&] {
        while (!stop) (void)getppid();
      });
    }
    for (int i = 0; i < 3; i++) {
      wg.Add(1);
      go(GoOptions{.thread = &t}, [&] {
        for (int n = 0; n < 3; n++) {
          blocking([] { usleep(1000); });
          rt::Home* h = HomeOfCaller();
          if (h == nullptr) return ADD_FAILURE() << "came back elsewhere";
          EXPECT_EQ(rt::getg()->m->lockedg, &h->token);
          runtime::Gosched();
        }
        wg.Done();
      });
    }
    wg.Wait();
    stop = true;
    hogs.Wait();
  });
}

TEST_P(HomeTest, GoroutineAsleepInAnUndeclaredCallLosesOnlyTheP) {
  Run([] {
    Thread t;
    sync::WaitGroup wg;
    for (int i = 0; i < 3; i++) {
      wg.Add(1);
      go(GoOptions{.thread = &t}, [&] {
        const pid_t there = gettid();
        usleep(30'000);
        runtime::Gosched();
        EXPECT_EQ(gettid(), there);
        EXPECT_EQ(rt::getg()->m->lockedg, &HomeOfCaller()->token);
        wg.Done();
      });
    }
    // Others go on meanwhile, whatever GOMAXPROCS is.
    for (int i = 0; i < 5; i++) time::Sleep(absl::Milliseconds(1));
    wg.Wait();
  });
}

TEST_P(HomeTest, ManyThreadsExchangeValues) {
  Run([] {
    constexpr int kThreads = 6;
    std::vector<Thread> threads;
    for (int i = 0; i < kThreads; i++) threads.emplace_back();
    std::vector<chan<int>> ring;
    for (int i = 0; i <= kThreads; i++) ring.push_back(make_chan<int>());
    sync::WaitGroup wg;
    for (int i = 0; i < kThreads; i++) {
      const auto n = static_cast<size_t>(i);
      wg.Add(1);
      go(GoOptions{.thread = &threads[n]}, [&, n] {
        int v;
        while (ring[n].Recv(v)) ring[n + 1].Send(v + 1);
        ring[n + 1].Close();
        wg.Done();
      });
    }
    for (int i = 0; i < 200; i++) {
      ring[0].Send(i);
      EXPECT_EQ(*ring[kThreads].Recv(), i + kThreads);
    }
    ring[0].Close();
    wg.Wait();
  });
}

TEST_P(HomeTest, ItsGoroutineMayStopTheWorld) {
  Run([] {
    Thread t;
    const int procs = runtime::GOMAXPROCS(0);
    t.Run([&] {
      const pid_t there = gettid();
      for (int n : {1, 3, procs}) {
        runtime::GOMAXPROCS(n);
        EXPECT_EQ(gettid(), there);
        EXPECT_NE(runtime::Stack(true).find("on thread"), std::string::npos);
      }
      runtime::GC();
      EXPECT_EQ(gettid(), there);
    });
  });
}

TEST_P(HomeTest, TrimmingIdleThreadsLeavesHomesAlone) {
  Run([] {
    Thread t;
    const pid_t there = t.Run([] { return gettid(); });
    runtime::GC();  // ends idle threads
    runtime::GC();
    EXPECT_EQ(t.Run([] { return gettid(); }), there);
  });
}

// IntoPoller brings the home h of t into the poller, where it stays while
// another goroutine waits for a descriptor. The place follows the home's
// timers.
void IntoPoller(Thread& t, const rt::Home* h) {
  const auto polls = [h] {
    return h->state.load(rt::acquire) == rt::kHomePolling;
  };
  while (!polls()) {
    std::atomic<bool> over = false;
    go(GoOptions{.thread = &t}, [&] {
      time::Sleep(absl::Milliseconds(2));
      over = true;
    });
    while (!over) usleep(100);
    for (int i = 0; i < 100 && !polls(); i++) usleep(100);
  }
}

// Main waits for a descriptor, and the home polls, when the home's last handle
// goes. Its thread ends, and another one must poll, or main waits for good.
TEST_P(HomeTest, HomeThatEndsInThePollerLeavesItToAnotherThread) {
  Run([] {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    auto f = os::NewFile(fds[0], "pair");
    ASSERT_TRUE(f.ok());
    auto t = std::make_unique<Thread>();
    rt::Home* h = t->Run([] { return HomeOfCaller(); });
    // The first thread leaves the runtime when it ends. The second one never
    // enters it.
    std::thread last([t = std::move(t), h]() mutable {
      IntoPoller(*t, h);
      t.reset();
    });
    std::thread writer([&last, h, fd = fds[1]] {
      last.join();
      while (h->state.load(rt::acquire) != rt::kHomeRunning ||
             rt::readgstatus(&h->token) != rt::kGwaiting) {
        usleep(100);
      }
      (void)!write(fd, "x", 1);
    });
    char c = 0;
    EXPECT_TRUE(f->Read(absl::MakeSpan(&c, 1)).ok());
    EXPECT_EQ(c, 'x');
    blocking([&] { writer.join(); });
    close(fds[1]);
  });
}

// The world belongs to main. A goroutine of a home waits for it first, and then
// the thread of the home is asleep in a call.
TEST_P(HomeTest, WorldPassesByAGoroutineWithAThreadInACall) {
  Run([] {
    rt::Atomic<uint32_t> world(1);
    rt::M* mp = rt::semacquirePinned(&world, /*lifo=*/false,
                                     rt::SemaReason::kSemacquire);
    Thread t;
    std::atomic<bool> over = false;
    std::atomic<bool> in_call = false;
    std::atomic<int> got = 0;
    sync::WaitGroup wg;
    const auto take = [&] {
      rt::semreleasePinned(rt::semacquirePinned(&world, /*lifo=*/false,
                                                rt::SemaReason::kSemacquire),
                           &world);
      got++;
    };
    const auto waiters = [&] {
      return rt::semroot(&world)->nwait.load(rt::acquire);
    };
    rt::releasem(mp);
    wg.Add(2);
    go(GoOptions{.thread = &t}, [&] {
      take();
      wg.Done();
    });
    while (waiters() < 1) runtime::Gosched();
    go(GoOptions{.thread = &t}, [&] {
      in_call = true;
      while (!over) usleep(100);
      wg.Done();
    });
    while (!in_call) runtime::Gosched();
    wg.Go(take);
    while (waiters() < 2) runtime::Gosched();
    rt::semreleasePinned(rt::acquirem(), &world);
    EXPECT_TRUE(Eventually([&] { return got == 1; }));
    over = true;
    wg.Wait();
    EXPECT_EQ(got, 2);
  });
}

TEST_P(HomeTest, ChildOfForkMayEndWhileItsParentHasAThread) {
  Run([] {
    Thread t;
    t.Run([] {});
    const pid_t pid = fork();
    if (pid == 0) {
      { Thread copy(t); }  // drops a handle, which does nothing here
      _exit(0);
    }
    int status = -1;
    blocking([&] { waitpid(pid, &status, 0); });
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    t.Run([] {});
  });
}

class HomeDeathTest : public testing::CrashDeathTest {};

TEST_F(HomeDeathTest, DeadlockOfItsGoroutinesIsFound) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        Thread t("stuck");
                        auto c = make_chan<int>();
                        go(GoOptions{.thread = &t},
                           [c]() mutable { c.Recv(); });
                        c.Recv();
                      }),
              testing::Died(),
              "all goroutines are asleep - deadlock!(.|\n)*"
              "chan receive, on thread \"stuck\"");
}

TEST_F(HomeDeathTest, DeadlockBesideAStoppedTimerIsFound) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        Thread t;
                        auto timer = time::AfterFunc(absl::Hours(1), [] {});
                        t.Run([&] {
                          time::Sleep(absl::Milliseconds(1));
                          timer.Stop();
                          make_chan<int>().Recv();
                        });
                      }),
              testing::Died(), "all goroutines are asleep - deadlock!");
}

TEST_F(HomeDeathTest, IdleThreadDoesNotHideADeadlock) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        Thread t;
                        t.Run([] {});
                        make_chan<int>().Recv();
                      }),
              testing::Died(), "all goroutines are asleep - deadlock!");
}

TEST_F(HomeDeathTest, GoexitInRunOfAPlainThreadIsFatal) {
  EXPECT_EXIT(
      RunWith({},
              [] {
                Thread t;
                std::thread plain([&] { t.Run([] { runtime::Goexit(); }); });
                blocking([&] { plain.join(); });
              }),
      testing::Died(),
      "fatal error: runtime.Goexit called on a thread that is not a "
      "goroutine");
}

TEST_F(HomeDeathTest, RunInsideBlockingIsFatal) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        Thread t;
                        blocking([&] { t.Run([] {}); });
                      }),
              testing::Died(),
              "fatal error: goroutine parks inside gump::blocking");
}

TEST_F(HomeDeathTest, ThreadInAChildOfForkIsFatal) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        const pid_t pid = fork();
                        if (pid == 0) {
                          Thread t;
                          _exit(3);
                        }
                        int status = 0;
                        waitpid(pid, &status, 0);
                        std::_Exit(WEXITSTATUS(status));
                      }),
              testing::Died(), "use of goroutines in a child of fork");
}

TEST_F(HomeDeathTest, ExceptionOfItsGoroutineEndsTheProcess) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        Thread t("thrower");
                        go(GoOptions{.thread = &t},
                           [] { panic("on a Thread"); });
                        make_chan<int>().Recv();
                      }),
              testing::Died(),
              "panic: on a Thread\n\ngoroutine [0-9]+ .*on thread "
              "\"thrower\"");
}

TEST_F(HomeDeathTest, NilFunctionIsFatal) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        Thread t;
                        t.Run(std::function<void()>());
                      }),
              testing::Died(), "fatal error: go of nil func value");
}

}  // namespace
}  // namespace gump
