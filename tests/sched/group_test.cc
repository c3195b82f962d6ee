// Groups: how many of their goroutines run, and which goroutines belong to one.
#include "gump/runtime/group.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/runtime/thread.h"
#include "gump/sync.h"
#include "gump/synctest.h"
#include "gump/time.h"
#include "runtime/sched/group.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "tests/sched/crash_testing.h"
#include "tests/sched/group_testing.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using runtime::Group;
using runtime::GroupName;
using runtime::Thread;
using testing::CrashDeathTest;
using testing::Crowd;
using testing::Died;
using testing::Eventually;
using testing::EventuallyIdle;
using testing::PanicText;
using testing::RunWith;
using namespace std::chrono_literals;

using GroupTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(GroupTest);

// In starts f in g, counted by wg.
template <class F>
void In(Group& g, sync::WaitGroup& wg, F f) {
  wg.Add(1);
  go(GoOptions{.group = &g}, [&wg, f]() mutable {
    f();
    wg.Done();
  });
}

// ---- The limit --------------------------------------------------------------

TEST_P(GroupTest, GoroutinesThatYieldNeverExceedTheLimit) {
  Run([] {
    for (int max : {1, 2, 3}) {
      Group g("yield", {.max_procs = max});
      Crowd crowd(max);
      sync::WaitGroup wg;
      for (int i = 0; i < 8; i++) {
        In(g, wg, [&] {
          for (int k = 0; k < 200; k++) {
            crowd.Visit();
            runtime::Gosched();
          }
        });
      }
      wg.Wait();
      EXPECT_EQ(crowd.tooMany(), 0);
      EXPECT_EQ(crowd.visits(), 8 * 200);
    }
  });
}

TEST_P(GroupTest, GoroutinesThatParkNeverExceedTheLimit) {
  Run([] {
    Group g("park", {.max_procs = 1});
    Crowd crowd(1);
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      auto ping = make_chan<int>();
      auto pong = make_chan<int>();
      In(g, wg, [&, ping, pong]() mutable {
        for (int k = 0; k < 200; k++) {
          ping.Send(k);
          crowd.Visit(10);
          pong.Recv();
        }
      });
      In(g, wg, [&, ping, pong]() mutable {
        for (int k = 0; k < 200; k++) {
          EXPECT_EQ(ping.Recv(), k);
          crowd.Visit(10);
          pong.Send(k);
        }
      });
    }
    wg.Wait();
    EXPECT_EQ(crowd.tooMany(), 0);
  });
}

TEST_P(GroupTest, DeclaredCallIsOutsideAndQueuesOnItsReturn) {
  Run([] {
    Group g("calls", {.max_procs = 1});
    Crowd crowd(1);
    std::atomic<int> calls = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      In(g, wg, [&] {
        // All four are in their calls at the same time.
        blocking([&] {
          calls++;
          while (calls < 4) usleep(100);
        });
        crowd.Visit();
        for (int k = 0; k < 50; k++) {
          blocking([] { usleep(10); });
          crowd.Visit();
        }
      });
    }
    wg.Wait();
    EXPECT_EQ(crowd.tooMany(), 0);
  });
}

TEST_P(GroupTest, UndeclaredCallLetsOthersOfTheGroupRun) {
  Run([] {
    Group g("read", {.max_procs = 1});
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    sync::WaitGroup wg;
    std::atomic<bool> reading = false;
    In(g, wg, [&] {
      char c;
      reading = true;
      EXPECT_EQ(read(fds[0], &c, 1), 1);
      EXPECT_EQ(GroupName(), "read");
    });
    In(g, wg, [&] {
      while (!reading) runtime::Gosched();
      EXPECT_EQ(write(fds[1], "x", 1), 1);
    });
    wg.Wait();
    close(fds[0]);
    close(fds[1]);
  });
}

TEST_P(GroupTest, GoroutinesThatComputeTakeTurns) {
  Run([] {
    Group g("compute", {.max_procs = 1});
    std::atomic<int> turns = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      In(g, wg, [&] {
        turns++;
        while (turns < 4) {
        }
      });
    }
    wg.Wait();
  });
}

TEST_P(GroupTest, OthersRunBesideAGroupThatComputes) {
  if (GetParam() == 1) GTEST_SKIP() << "the group and the others take turns";
  Run([] {
    Group g("compute", {.max_procs = GetParam() - 1});
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    for (int i = 0; i < 20; i++) {
      In(g, wg, [&] {
        while (!stop) {
        }
      });
    }
    // Each of these would wait for a P behind the 20.
    for (int i = 0; i < 100; i++) time::Sleep(100us);
    EXPECT_LE(g.Running(), GetParam() - 1);
    stop = true;
    wg.Wait();
  });
}

TEST_P(GroupTest, GroupWithoutALimitCountsOnly) {
  Run([] {
    Group g("all");
    Crowd crowd(GetParam());
    sync::WaitGroup wg;
    for (int i = 0; i < 8; i++) {
      In(g, wg, [&] {
        for (int k = 0; k < 100; k++) {
          crowd.Visit();
          runtime::Gosched();
        }
      });
    }
    wg.Wait();
    EXPECT_EQ(crowd.tooMany(), 0);
    EXPECT_TRUE(Eventually([&] { return g.Running() + g.Runnable() == 0; }));
  });
}

TEST_P(GroupTest, LockedGoroutinesTakeTurns) {
  Run([] {
    Group g("locked", {.max_procs = 1});
    Crowd crowd(1);
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      In(g, wg, [&, i] {
        runtime::LockOSThread();
        for (int k = 0; k < 50; k++) {
          crowd.Visit();
          if (k % 3 == 0) runtime::Gosched();
          if (k % 3 == 1) time::Sleep(10us);
          if (k % 3 == 2) blocking([] { usleep(10); });
        }
        if (i % 2 == 0) runtime::UnlockOSThread();  // else its thread ends
      });
    }
    wg.Wait();
    EXPECT_EQ(crowd.tooMany(), 0);
  });
}

TEST_P(GroupTest, StopOfTheWorldKeepsTheLimit) {
  Run([] {
    Group g("stop", {.max_procs = 1});
    Crowd crowd(1);
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      In(g, wg, [&] {
        while (!stop) {
          crowd.Visit();
          for (int k = 0; k < 100; k++) rt::procyield(10);
        }
      });
    }
    for (int i = 0; i < 20; i++) {
      (void)runtime::Stack(true);
      runtime::GOMAXPROCS(1 + i % 4);
      runtime::GC();
    }
    stop = true;
    wg.Wait();
    EXPECT_EQ(crowd.tooMany(), 0);
  });
}

TEST_P(GroupTest, TwoGroupsHaveTheirOwnLimits) {
  Run([] {
    Group a("a", {.max_procs = 1});
    Group b("b", {.max_procs = 2});
    Crowd in_a(1);
    Crowd in_b(2);
    auto c = make_chan<int>();
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      In(a, wg, [&] {
        for (int k = 0; k < 100; k++) {
          c.Send(k);
          in_a.Visit(10);
        }
      });
      In(b, wg, [&] {
        for (int k = 0; k < 100; k++) {
          c.Recv();
          in_b.Visit(10);
        }
      });
    }
    wg.Wait();
    EXPECT_EQ(in_a.tooMany() + in_b.tooMany(), 0);
  });
}

TEST_P(GroupTest, ChildOfForkMayDropTheLastHandle) {
  Run([] {
    std::optional<Group> g(std::in_place, "child");
    const pid_t pid = fork();
    if (pid == 0) {
      g.reset();
      _exit(0);
    }
    int status = -1;
    blocking([&] { waitpid(pid, &status, 0); });
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  });
}

// ---- SetMaxProcs ------------------------------------------------------------

TEST_P(GroupTest, RaisingTheLimitStartsThoseThatWait) {
  if (GetParam() == 1) return;
  Run([] {
    Group g("raise", {.max_procs = 1});
    std::atomic<int> inside = 0;
    std::atomic<bool> both = false;
    sync::WaitGroup wg;
    for (int i = 0; i < 2; i++) {
      In(g, wg, [&] {
        // With room for one, they would take turns, and never see both run.
        inside++;
        while (!both) {
          if (g.Running() == 2) both = true;
        }
      });
    }
    while (inside == 0) runtime::Gosched();
    g.SetMaxProcs(2);
    wg.Wait();
  });
}

TEST_P(GroupTest, LoweringTheLimitStopsThoseThatAreTooMany) {
  Run([] {
    Group g("lower", {.max_procs = 4});
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      In(g, wg, [&] {
        while (!stop) {
        }
      });
    }
    EXPECT_TRUE(Eventually([&] { return g.Running() + g.Runnable() == 4; }));
    g.SetMaxProcs(1);
    EXPECT_TRUE(Eventually([&] { return g.Running() <= 1; }));
    for (int i = 0; i < 3; i++) {
      EXPECT_LE(g.Running(), 1);
      runtime::Gosched();  // with one P it takes a slice of each
    }
    stop = true;
    wg.Wait();
  });
}

TEST_P(GroupTest, GoroutineCanLowerItsOwnLimit) {
  Run([] {
    Group g("own", {.max_procs = 8});
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      In(g, wg, [&] {
        g.SetMaxProcs(1);
        runtime::Gosched();
        EXPECT_TRUE(Eventually([&] { return g.Running() == 1; }));
      });
    }
    wg.Wait();
  });
}

TEST(GroupPlainTest, NegativeLimitPanics) {
  EXPECT_EQ(PanicText([] { Group g("batch", {.max_procs = -1}); }),
            "runtime: max_procs of group \"batch\" is -1, less than 0");
  Group g("batch");
  EXPECT_EQ(PanicText([&] { g.SetMaxProcs(-7); }),
            "runtime: max_procs of group \"batch\" is -7, less than 0");
}

// ---- Threads ----------------------------------------------------------------

TEST(GroupPlainTest, ThreadAndGroupTogetherPanic) {
  Thread t;
  Group g("both");
  const char* const text = "runtime: goroutine of both a Thread and a group";
  EXPECT_EQ(PanicText([&] { go({.thread = &t, .group = &g}, [] {}); }), text);
  RunWith(2, [&] {
    EXPECT_EQ(PanicText([&] { go({.thread = &t, .group = &g}, [] {}); }), text);
  });
}

TEST_P(GroupTest, GoroutineThatAMemberStartsOnAThreadIsInNoGroup) {
  Run([] {
    Thread t;
    Group g("maker", {.max_procs = 1});
    auto names = make_chan<std::string>();
    go(GoOptions{.group = &g}, [&t, names]() mutable {
      go(GoOptions{.thread = &t}, [names]() mutable {
        names.Send(std::string(GroupName()));
        // And so are those that it starts.
        go([names]() mutable { names.Send(std::string(GroupName())); });
      });
    });
    EXPECT_EQ(names.Recv(), "");
    EXPECT_EQ(names.Recv(), "");
  });
}

TEST_P(GroupTest, GoroutineOnAThreadCanStartAMember) {
  Run([] {
    Thread t;
    Group g("member", {.max_procs = 1});
    auto names = make_chan<std::string>();
    t.Run([&] {
      go(GoOptions{.group = &g},
         [names]() mutable { names.Send(std::string(GroupName())); });
    });
    EXPECT_EQ(names.Recv(), "member");
  });
}

TEST_P(GroupTest, MemberIsOutsideWhileItVisitsAThread) {
  Run([] {
    Thread a, b;
    Group g("visitor", {.max_procs = 1});
    sync::WaitGroup wg;
    auto names = make_chan<std::string>();
    In(g, wg, [&] {
      EXPECT_EQ(g.Running(), 1);
      a.Run([&] {
        EXPECT_EQ(GroupName(), "");
        EXPECT_EQ(g.Running(), 0);
        b.Run([&] { EXPECT_EQ(GroupName(), ""); });
        EXPECT_EQ(GroupName(), "") << "back on a, and not yet in the group";
        go([names]() mutable { names.Send(std::string(GroupName())); });
        time::AfterFunc(
            1us, [names]() mutable { names.Send(std::string(GroupName())); });
        EXPECT_EQ(names.Recv(), "");
        EXPECT_EQ(names.Recv(), "");
      });
      EXPECT_EQ(GroupName(), "visitor");
      EXPECT_EQ(g.Running(), 1);
      EXPECT_EQ(g.Runnable(), 0);
    });
    wg.Wait();
  });
}

// If those that wait for the thread kept a slot, no writer would get one.
TEST_P(GroupTest, MembersRunWhileAVisitorBlocksTheThread) {
  Run([] {
    Thread t;
    Group g("blocked", {.max_procs = 1});
    sync::WaitGroup wg;
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    for (int i = 0; i < 4; i++) {
      In(g, wg, [&] {
        t.Run([&] {
          char byte;
          blocking([&] { EXPECT_EQ(read(fds[0], &byte, 1), 1); });
        });
      });
    }
    for (int i = 0; i < 4; i++) {
      In(g, wg, [&] {
        runtime::Gosched();
        EXPECT_EQ(write(fds[1], "x", 1), 1);
      });
    }
    wg.Wait();
    close(fds[0]);
    close(fds[1]);
  });
}

TEST_P(GroupTest, MembersThatVisitThreadsNeverExceedTheLimit) {
  Run([] {
    for (int max : {1, 2}) {
      Thread threads[2];
      Group g("visitors", {.max_procs = max});
      Crowd crowd(max);
      Crowd there[2] = {Crowd(1), Crowd(1)};
      sync::WaitGroup wg;
      for (int i = 0; i < 8; i++) {
        In(g, wg, [&, i] {
          const bool locked = i % 4 == 3;
          if (locked) runtime::LockOSThread();
          for (int k = 0; k < 100; k++) {
            crowd.Visit();
            threads[k % 2].Run([&] {
              there[k % 2].Visit();
              if (k % 3 == 0) runtime::Gosched();
              if (k % 3 == 1) time::Sleep(10us);
              if (k % 3 == 2) blocking([] { usleep(10); });
            });
            crowd.Visit();
            EXPECT_EQ(GroupName(), "visitors");
            if (k % 4 == 0) runtime::Gosched();
          }
          if (locked) runtime::UnlockOSThread();
        });
      }
      wg.Wait();
      EXPECT_EQ(crowd.tooMany(), 0);
      EXPECT_EQ(there[0].tooMany() + there[1].tooMany(), 0);
      EXPECT_TRUE(
          Eventually([&] { return g.Running() == 0 && g.Runnable() == 0; }));
    }
  });
}

TEST_P(GroupTest, GoexitOfAVisitorGivesTheGroupRoom) {
  Run([] {
    Thread t;
    Group g("goexit", {.max_procs = 1});
    sync::WaitGroup wg;
    wg.Add(1);
    go(GoOptions{.group = &g}, [&] {
      defer _{[&] {
        EXPECT_EQ(GroupName(), "goexit");
        wg.Done();
      }};
      t.Run([] { runtime::Goexit(); });
    });
    wg.Wait();
    In(g, wg, [] { EXPECT_EQ(GroupName(), "goexit"); });
    wg.Wait();
    EXPECT_TRUE(Eventually([&] { return g.Running() == 0; }));
  });
}

TEST_P(GroupTest, GroupLivesWhileItsLastMemberVisitsAThread) {
  Run([] {
    Thread t;
    auto names = make_chan<std::string>();
    auto release = make_chan<int>();
    {
      Group g("alive", {.max_procs = 1});
      go(GoOptions{.group = &g}, [&t, release, names]() mutable {
        t.Run([&] {
          names.Send("there");
          release.Recv();
        });
        names.Send(std::string(GroupName()));
      });
      EXPECT_EQ(names.Recv(), "there");
    }
    // Its cell must not be used for these.
    for (int i = 0; i < 10; i++) Group other("other", {.max_procs = 1});
    release.Send(1);
    EXPECT_EQ(names.Recv(), "alive");
  });
}

// ---- Members ----------------------------------------------------------------

TEST_P(GroupTest, ChildrenAndTimersAreOfTheGroup) {
  Run([] {
    Group g("parent", {.max_procs = 1});
    auto names = make_chan<std::string>(4);
    go(GoOptions{.group = &g}, [names]() mutable {
      go([names]() mutable {
        go([names]() mutable { names.Send(std::string(GroupName())); });
      });
      time::AfterFunc(
          1us, [names]() mutable { names.Send(std::string(GroupName())); });
    });
    EXPECT_EQ(names.Recv(), "parent");
    EXPECT_EQ(names.Recv(), "parent");
    EXPECT_EQ(GroupName(), "");
  });
}

TEST_P(GroupTest, AfterFuncIsOfTheGroupOfItsMakerAndNotOfItsCanceller) {
  Run([] {
    Group maker("maker", {.max_procs = 1});
    Group canceller("canceller", {.max_procs = 1});
    auto names = make_chan<std::string>(4);
    auto [ctx, cancel] = context::WithCancel(context::Background());
    auto registered = make_chan<int>();
    const auto report = [names]() mutable {
      names.Send(std::string(GroupName()));
    };
    go(GoOptions{.group = &maker}, [ctx = ctx, report, registered]() mutable {
      context::AfterFunc(ctx, report);
      registered.Send(1);
    });
    registered.Recv();
    auto [ctx2, cancel2] = context::WithCancel(context::Background());
    context::AfterFunc(ctx2, report);
    go(GoOptions{.group = &canceller}, [c = cancel] { c(); });
    EXPECT_EQ(names.Recv(), "maker");
    go(GoOptions{.group = &canceller}, [c = cancel2] { c(); });
    EXPECT_EQ(names.Recv(), "");
  });
}

TEST_P(GroupTest, GoCanNameAnotherGroup) {
  Run([] {
    Group a("a", {.max_procs = 1});
    Group b("b", {.max_procs = 1});
    auto names = make_chan<std::string>();
    go(GoOptions{.group = &a}, [=]() mutable {
      go(GoOptions{.group = &b},
         [names]() mutable { names.Send(std::string(GroupName())); });
    });
    EXPECT_EQ(names.Recv(), "b");
  });
}

TEST_P(GroupTest, GroupLivesUntilItsGoroutinesHaveEnded) {
  Run([] {
    auto names = make_chan<std::string>();
    auto release = make_chan<int>();
    const std::string name(100, 'x');
    {
      Group g(name, {.max_procs = 1});
      Group copy = g;
      EXPECT_EQ(copy.Name(), name);
      go(GoOptions{.group = &copy}, [=]() mutable {
        release.Recv();
        names.Send(std::string(GroupName()));
      });
    }
    // Its cell must not be used for these.
    for (int i = 0; i < 10; i++) Group other("other", {.max_procs = 1});
    release.Send(1);
    EXPECT_EQ(names.Recv(), name);
  });
}

TEST(GroupPlainTest, PlainThreadIsInNoGroup) {
  Group g("batch", {.max_procs = 1});
  EXPECT_EQ(GroupName(), "");
  std::thread([] { EXPECT_EQ(GroupName(), ""); }).join();
}

TEST(GroupPlainTest, ManyGroupsOneAfterTheOtherUseFewCells) {
  RunWith(2, [] {
    for (int i = 0; i < 1000; i++) {
      Group g("short", {.max_procs = 1});
      sync::WaitGroup wg;
      In(g, wg, [] {});
      wg.Wait();
    }
  });
}

TEST_P(GroupTest, ManyGoroutinesOfAFullGroupAllRun) {
  Run([] {
    Group g("many", {.max_procs = 1});
    Crowd crowd(1);
    std::atomic<int> ran = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < 3000; i++) {
      In(g, wg, [&] {
        crowd.Visit(1);
        ran++;
      });
    }
    wg.Wait();
    EXPECT_EQ(ran, 3000);
    EXPECT_EQ(crowd.tooMany(), 0);
  });
}

TEST_P(GroupTest, GroupWorksInsideABubble) {
  Run([] {
    synctest::Run([] {
      Group g("bubble", {.max_procs = 1});
      Crowd crowd(1);
      const absl::Time begin = synctest::Now();
      sync::WaitGroup wg;
      for (int i = 0; i < 4; i++) {
        In(g, wg, [&] {
          for (int k = 0; k < 20; k++) {
            crowd.Visit();
            time::Sleep(1h);
            runtime::Gosched();
          }
        });
      }
      wg.Wait();
      EXPECT_EQ(synctest::Now() - begin, absl::Hours(20));
      EXPECT_EQ(crowd.tooMany(), 0);
    });
  });
}

TEST_P(GroupTest, GoroutineOfAGroupCanMakeABubble) {
  Run([] {
    Group g("root", {.max_procs = 1});
    sync::WaitGroup wg;
    In(g, wg, [] {
      synctest::Run([] {
        EXPECT_EQ(GroupName(), "root");
        time::Sleep(1h);
      });
      EXPECT_EQ(GroupName(), "root");
    });
    wg.Wait();
    EXPECT_TRUE(Eventually([&] { return g.Running() + g.Runnable() == 0; }));
  });
}

// ---- The end of main --------------------------------------------------------

TEST(GroupPlainTest, GoroutinesThatMainLeavesBehindGoOnInTheNextRun) {
  std::atomic<int> ended = 0;
  std::optional<Group> g;
  RunWith(2, [&] {
    g.emplace("left", runtime::GroupOptions{.max_procs = 1});
    std::atomic<int> begun = 0;
    for (int i = 0; i < 4; i++) {
      go(GoOptions{.group = &*g}, [&ended, &begun] {
        begun++;
        const auto until = std::chrono::steady_clock::now() + 30ms;
        while (std::chrono::steady_clock::now() < until) {
        }
        runtime::Gosched();
        ended++;
      });
    }
    while (begun < 2) runtime::Gosched();  // one was preempted in place
    while (begun < 4) runtime::Gosched();
  });
  RunWith(2, [&] { EXPECT_TRUE(Eventually([&] { return ended == 4; })); });
}

// ---- Dumps ------------------------------------------------------------------

TEST(GroupPlainTest, DumpShowsTheGroupAndThatItIsFull) {
  RunWith(2, [] {
    Group g("batch", {.max_procs = 1});
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    for (int i = 0; i < 2; i++) {
      In(g, wg, [&] {
        while (!stop) {
        }
      });
    }
    EXPECT_TRUE(EventuallyIdle([&] {
      return runtime::Stack(true).find("[runnable, group \"batch\" full]") !=
             std::string::npos;
    }));
    stop = true;
    wg.Wait();
    auto c = make_chan<int>();
    In(g, wg, [c]() mutable { c.Recv(); });
    EXPECT_TRUE(Eventually([&] {
      return runtime::Stack(true).find("[chan receive, group \"batch\"]") !=
             std::string::npos;
    }));
    c.Close();
    wg.Wait();
  });
}

TEST_P(GroupTest, MemberThatCallsGCInALoopLetsTheNextOneRun) {
  Run([] {
    constexpr int kCycles = 200;
    Group g("cycles", {.max_procs = 1});
    sync::WaitGroup wg;
    std::atomic<bool> stop = false;
    std::atomic<int> turns = 0;
    In(g, wg, [&] {
      while (!stop) {
        turns++;
        runtime::Gosched();
      }
    });
    In(g, wg, [&] {
      while (turns == 0) runtime::Gosched();
      const int before = turns;
      for (int i = 0; i < kCycles; i++) runtime::GC();
      EXPECT_GT(turns - before, kCycles / 2);
      stop = true;
    });
    wg.Wait();
  });
}

using GroupDeathTest = CrashDeathTest;

TEST_F(GroupDeathTest, DeadlockIsReportedAndShowsTheGroup) {
  EXPECT_EXIT(CrashDeathTest::RunWith({},
                                      [] {
                                        Group g("tenant", {.max_procs = 1});
                                        sync::WaitGroup wg;
                                        for (int i = 0; i < 3; i++) {
                                          In(g, wg, [] { chan<int>().Recv(); });
                                        }
                                        wg.Wait();
                                      }),
              Died(),
              "^fatal error: all goroutines are asleep - deadlock!.*"
              "\\[chan receive \\(nil chan\\), group \"tenant\"\\]:");
}

TEST_F(GroupDeathTest, SchedDetailShowsGroups) {
  EXPECT_EXIT(CrashDeathTest::RunWith(
                  {{"GODEBUG", "scheddetail=1"}, {"GOMAXPROCS", "2"}},
                  [] {
                    Group g("batch", {.max_procs = 1});
                    std::atomic<bool> held = false;
                    for (int i = 0; i < 2; i++) {
                      go(GoOptions{.group = &g}, [&held] {
                        // A goroutine that is preempted gives its place to the
                        // other one, and for a while neither of them runs.
                        (void)rt::acquirem();
                        // The store is there because a loop without effects is
                        // undefined behaviour. clang removes it.
                        for (;;) held = true;
                      });
                    }
                    (void)EventuallyIdle(
                        [&] { return held && rt::groupsQueued() == 1; });
                    // The report of a panic begins with a trace.
                    panic("enough");
                  }),
              Died(),
              "group \"batch\": maxprocs=1 running=1 released=0 queued=1\n");
}

}  // namespace
}  // namespace gump
