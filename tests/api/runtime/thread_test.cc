// Threads that goroutines share: what a user sees of runtime::Thread.
#include "gump/runtime/thread.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/gls.h"
#include "gump/go.h"
#include "gump/net.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync.h"
#include "gump/synctest.h"
#include "gump/time.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using runtime::Thread;

// The names of all threads of the process.
std::multiset<std::string> ThreadNames() {
  std::multiset<std::string> names;
  std::error_code gone;  // a thread may end while we look
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task", gone)) {
    std::ifstream comm(task.path() / "comm");
    std::string name;
    if (std::getline(comm, name)) names.insert(name);
  }
  return names;
}

thread_local int thread_local_value = 0;

// Not inlined, so that no compiler keeps the address over a call of Run.
__attribute__((noinline)) int& ThreadLocalValue() {
  asm volatile("");
  return thread_local_value;
}

std::atomic<int> calls = 0;
void CountCall() { calls++; }

class ThreadTest : public testing::WithGomaxprocs {};
GUMP_INSTANTIATE_GOMAXPROCS(ThreadTest);

TEST_P(ThreadTest, ItsGoroutinesShareOneThreadThatRunsNoOther) {
  Run([] {
    Thread t;
    std::atomic<bool> stop = false;
    std::atomic<pid_t> home = 0;
    std::atomic<int> intruders = 0;
    sync::WaitGroup others, wg;
    for (int i = 0; i < 4; i++) {
      others.Go([&] {
        while (!stop) {
          if (gettid() == home) intruders++;
          runtime::Gosched();
        }
      });
    }
    home = t.Run([] { return gettid(); });
    auto c = make_chan<int>();
    std::atomic<int> strays = 0;
    for (int i = 0; i < 8; i++) {
      wg.Add(1);
      go(GoOptions{.thread = &t}, [&, i] {
        for (int n = 0; n < 100; n++) {
          if (i % 2 == 0) {
            c.Send(n);
          } else {
            c.Recv();
          }
          if (gettid() != home) strays++;
          runtime::Gosched();
          if (gettid() != home) strays++;
          if (n % 10 == 0) blocking([] {});
          if (gettid() != home) strays++;
        }
        wg.Done();
      });
    }
    wg.Wait();
    stop = true;
    others.Wait();
    EXPECT_EQ(strays, 0);
    EXPECT_EQ(intruders, 0);
  });
}

TEST_P(ThreadTest, ThreadLocalsStayThoseOfOneThread) {
  Run([] {
    Thread t;
    t.Run([] { ThreadLocalValue() = 1; });
    sync::WaitGroup wg;
    for (int i = 0; i < 10; i++) {
      wg.Add(1);
      go(GoOptions{.thread = &t}, [&] {
        for (int n = 0; n < 10; n++) {
          ThreadLocalValue()++;
          time::Sleep(absl::Microseconds(10));
        }
        wg.Done();
      });
    }
    wg.Wait();
    EXPECT_EQ(t.Run([] { return ThreadLocalValue(); }), 101);
  });
}

TEST_P(ThreadTest, NameIsThatOfTheKernelsThreadCutTo15Bytes) {
  Run([] {
    Thread t("a name of more bytes");
    EXPECT_EQ(t.Name(), "a name of more ");
    t.Run([] {});
    EXPECT_TRUE(testing::Eventually(
        [] { return ThreadNames().count("a name of more ") == 1; }));
    Thread cut("fourteen bytes\u00e9");
    EXPECT_EQ(cut.Name(), "fourteen bytes") << "a character was cut in two";
    EXPECT_EQ(Thread().Name(), "");
  });
}

TEST_P(ThreadTest, ThreadEndsWhenItsHandlesAndGoroutinesAreGone) {
  Run([] {
    auto release = make_chan<void>();
    std::optional<Thread> t("ends-later");
    go(GoOptions{.thread = &*t}, [release]() mutable { release.Recv(); });
    std::optional<Thread> copy(*t);
    EXPECT_EQ(*copy, *t);
    t.reset();  // does not block
    copy->Run([] {});
    copy.reset();
    runtime::Gosched();
    EXPECT_EQ(ThreadNames().count("ends-later"), 1) << "a goroutine is left";
    release.Close();
    EXPECT_TRUE(testing::Eventually(
        [] { return ThreadNames().count("ends-later") == 0; }));
  });
}

TEST_P(ThreadTest, ThreadsFollowEachOther) {
  Run([] {
    for (int i = 0; i < 200; i++) {
      Thread t("follower");
      EXPECT_EQ(t.Run([i] { return i; }), i);
    }
    EXPECT_TRUE(testing::Eventually(
        [] { return ThreadNames().count("follower") == 0; }));
  });
}

TEST_P(ThreadTest, UnusedThreadEndsToo) {
  Run([] {
    { Thread t("unused"); }
    EXPECT_TRUE(
        testing::Eventually([] { return ThreadNames().count("unused") == 0; }));
  });
}

TEST_P(ThreadTest, RunMovesTheCallerAndBringsItBack) {
  Run([] {
    Thread t;
    static gls<int> value{0};
    const uint64_t id = runtime::Goid();
    *value = 7;
    const pid_t there = t.Run([&] {
      EXPECT_EQ(runtime::Goid(), id);
      EXPECT_EQ(*value, 7);
      *value = 8;
      return gettid();
    });
    EXPECT_EQ(*value, 8);
    for (int i = 0; i < 100; i++) {
      EXPECT_NE(gettid(), there) << "on a Thread to which it does not belong";
      EXPECT_EQ(t.Run([] { return gettid(); }), there);
    }
  });
}

TEST_P(ThreadTest, RunGivesResultsOfAllKinds) {
  Run([] {
    Thread t;
    int target = 0;
    EXPECT_EQ(&t.Run([&]() -> int& { return target; }), &target);
    EXPECT_EQ(*t.Run([] { return std::make_unique<int>(3); }), 3);
    calls = 0;
    t.Run(CountCall);
    t.Run([&] { target = 1; });
    EXPECT_EQ(target, 1);
    std::thread plain([&] {
      EXPECT_EQ(&t.Run([&]() -> int& { return target; }), &target);
      EXPECT_EQ(*t.Run([] { return std::make_unique<int>(3); }), 3);
      t.Run([&] { target = 2; });
      EXPECT_EQ(target, 2);
      t.Run(CountCall);
    });
    blocking([&] { plain.join(); });
    EXPECT_EQ(calls, 2);
  });
}

TEST_P(ThreadTest, ExceptionOfRunsFunctionPassesThrough) {
  Run([] {
    Thread t;
    const auto thrower = [] { throw std::runtime_error("from there"); };
    for (int i = 0; i < 20; i++) {
      const pid_t there = t.Run([] { return gettid(); });
      try {
        t.Run(thrower);
        ADD_FAILURE() << "nothing came";
      } catch (const std::runtime_error& e) {
        EXPECT_STREQ(e.what(), "from there");
        EXPECT_NE(gettid(), there);
      }
    }
    std::thread plain(
        [&] { EXPECT_THROW(t.Run(thrower), std::runtime_error); });
    blocking([&] { plain.join(); });
  });
}

TEST_P(ThreadTest, RunOnTheThreadItselfOnlyCalls) {
  Run([] {
    Thread t;
    t.Run([&] {
      const pid_t there = gettid();
      EXPECT_EQ(t.Run([] { return gettid(); }), there);
      EXPECT_EQ(gettid(), there);
    });
  });
}

TEST_P(ThreadTest, RunFromAnotherThreadComesBackToIt) {
  Run([] {
    Thread a, b;
    a.Run([&] {
      const pid_t on_a = gettid();
      for (int i = 0; i < 50; i++) {
        EXPECT_NE(b.Run([] { return gettid(); }), on_a);
        EXPECT_EQ(gettid(), on_a);
      }
      b.Run([&] { EXPECT_EQ(a.Run([] { return gettid(); }), on_a); });
    });
  });
}

TEST_P(ThreadTest, LockedGoroutineVisitsAndReturnsToItsThread) {
  Run([] {
    Thread t;
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([&] {
        runtime::LockOSThread();
        const pid_t mine = gettid();
        for (int n = 0; n < 50; n++) {
          EXPECT_NE(t.Run([] { return gettid(); }), mine);
          EXPECT_EQ(gettid(), mine);
          runtime::Gosched();
          EXPECT_EQ(gettid(), mine);
        }
        runtime::UnlockOSThread();
      });
    }
    wg.Wait();
  });
}

TEST_P(ThreadTest, LockOSThreadOnAThreadChangesNothing) {
  Run([] {
    Thread t;
    const pid_t there = t.Run([] { return gettid(); });
    sync::WaitGroup wg;
    for (int i = 0; i < 3; i++) {
      wg.Add(1);
      go(GoOptions{.thread = &t}, [&, i] {
        for (int n = 0; n < i; n++) runtime::LockOSThread();
        runtime::Gosched();
        EXPECT_EQ(gettid(), there);
        for (int n = 0; n < 3; n++) runtime::UnlockOSThread();
        runtime::Gosched();
        EXPECT_EQ(gettid(), there);
        runtime::LockOSThread();
        wg.Done();  // ends while locked, and the thread goes on
      });
    }
    wg.Wait();
    EXPECT_EQ(t.Run([] { return gettid(); }), there);
  });
}

TEST_P(ThreadTest, GoexitInRunEndsTheCaller) {
  Run([] {
    Thread t;
    sync::WaitGroup wg;
    std::atomic<int> destructors = 0;
    std::atomic<bool> after = false;
    const pid_t there = t.Run([] { return gettid(); });
    wg.Add(1);
    go([&] {
      defer _{[&] {
        EXPECT_NE(gettid(), there);
        destructors++;
        wg.Done();
      }};
      t.Run([&] {
        defer inner{[&] {
          EXPECT_EQ(gettid(), there);
          destructors++;
        }};
        runtime::Goexit();
      });
      after = true;
    });
    wg.Wait();
    EXPECT_EQ(destructors, 2);
    EXPECT_FALSE(after);
    EXPECT_EQ(t.Run([] { return gettid(); }), there) << "the thread goes on";
  });
}

TEST_P(ThreadTest, GoexitOfItsGoroutineLeavesTheThread) {
  Run([] {
    Thread t;
    const pid_t there = t.Run([] { return gettid(); });
    sync::WaitGroup wg;
    wg.Add(1);
    go(GoOptions{.thread = &t}, [&] {
      defer _{[&] { wg.Done(); }};
      runtime::Goexit();
    });
    wg.Wait();
    EXPECT_EQ(t.Run([] { return gettid(); }), there);
  });
}

TEST_P(ThreadTest, RunMayDropTheLastHandle) {
  Run([] {
    auto t = std::make_unique<Thread>("dropped");
    Thread* handle = t.get();
    handle->Run([&] { t.reset(); });
    EXPECT_TRUE(testing::Eventually(
        [] { return ThreadNames().count("dropped") == 0; }));
  });
}

TEST_P(ThreadTest, TimersAndSocketsWakeItsGoroutines) {
  Run([] {
    Thread t;
    auto pipe = net::Pipe();
    ASSERT_TRUE(pipe.ok());
    auto [a, b] = *std::move(pipe);
    sync::WaitGroup wg;
    wg.Add(2);
    go(GoOptions{.thread = &t}, [&, a = a]() mutable {
      char byte;
      for (int i = 0; i < 100; i++) {
        auto n = a.Read({&byte, 1});
        if (!n.ok() || *n != 1) return ADD_FAILURE() << n.status();
        if (i % 10 == 0) time::Sleep(absl::Microseconds(100));
        EXPECT_TRUE(a.Write({&byte, 1}).ok());
      }
      wg.Done();
    });
    go([&, b = b]() mutable {
      char byte = 'x';
      for (int i = 0; i < 100; i++) {
        EXPECT_TRUE(b.Write({&byte, 1}).ok());
        auto n = b.Read({&byte, 1});
        if (!n.ok() || *n != 1) return ADD_FAILURE() << n.status();
        if (i % 10 == 5) time::Sleep(absl::Microseconds(100));
      }
      wg.Done();
    });
    wg.Wait();
  });
}

TEST_P(ThreadTest, SelectAndTimeoutsWork) {
  Run([] {
    Thread t;
    t.Run([] {
      auto c = make_chan<int>();
      EXPECT_EQ(select(Recv(c, [](int) {}),
                       Recv(time::After(absl::Milliseconds(1)), [] {})),
                1);
      go([c]() mutable { c.Send(4); });
      EXPECT_EQ(*c.Recv(), 4);
    });
  });
}

TEST_P(ThreadTest, YieldingGoroutinesOfItAndOthersAllRun) {
  Run([] {
    Thread t;
    std::atomic<int> turn = 0;  // of which side it is
    sync::WaitGroup wg;
    wg.Add(1);
    go(GoOptions{.thread = &t}, [&] {
      for (int i = 0; i < 100; i++) {
        while (turn != 0) runtime::Gosched();
        turn = 1;
      }
      wg.Done();
    });
    for (int i = 0; i < 100; i++) {
      while (turn != 1) runtime::Gosched();
      turn = 0;
    }
    wg.Wait();
  });
}

TEST_P(ThreadTest, ComputingGoroutineHoldsUpOnlyItsOwnThread) {
  Run([] {
    Thread t;
    std::atomic<bool> stop = false;
    std::atomic<bool> begun = false;
    std::atomic<bool> shared = false;
    sync::WaitGroup wg;
    wg.Add(2);
    go(GoOptions{.thread = &t}, [&] {
      begun = true;
      // ThreadSanitizer delivers signals when the program calls libc.
      while (!stop) (void)getppid();
      wg.Done();
    });
    go(GoOptions{.thread = &t}, [&] {
      shared = true;
      wg.Done();
    });
    ASSERT_TRUE(testing::Eventually([&] { return begun.load(); }));
    for (int i = 0; i < 20; i++) time::Sleep(absl::Microseconds(200));
    EXPECT_FALSE(shared) << "ran although the thread was taken";
    stop = true;
    wg.Wait();
    EXPECT_TRUE(shared);
  });
}

TEST_P(ThreadTest, BubbleReachesItsGoroutinesOnAThread) {
  Run([] {
    Thread t;
    synctest::Run([&] {
      const absl::Time begin = synctest::Now();
      auto c = make_chan<int>();
      go(GoOptions{.thread = &t}, [c]() mutable {
        time::Sleep(absl::Hours(1));
        c.Send(1);
      });
      EXPECT_EQ(*c.Recv(), 1);
      EXPECT_EQ(synctest::Now() - begin, absl::Hours(1));
      t.Run([&] { time::Sleep(absl::Hours(1)); });
      EXPECT_EQ(synctest::Now() - begin, absl::Hours(2));
      synctest::Wait();
    });
    t.Run([] {
      synctest::Run([] {
        const absl::Time begin = synctest::Now();
        time::Sleep(absl::Hours(1));
        EXPECT_EQ(synctest::Now() - begin, absl::Hours(1));
      });
      time::Sleep(absl::Microseconds(1));  // by the usual clock again
    });
  });
}

TEST_P(ThreadTest, ItsGoroutinesGoOnWhileGomaxprocsChanges) {
  Run([] {
    Thread a, b;
    std::atomic<bool> stop = false;
    std::atomic<int> rounds = 0;
    auto c = make_chan<int>();
    sync::WaitGroup wg;
    wg.Add(2);
    go(GoOptions{.thread = &a}, [&] {
      while (!stop) {
        c.Send(1);
        rounds++;
      }
      c.Close();
      wg.Done();
    });
    go(GoOptions{.thread = &b}, [&] {
      while (c.Recv()) runtime::Gosched();
      wg.Done();
    });
    for (int i = 0; i < 40; i++) {
      const int seen = rounds;
      runtime::GOMAXPROCS(1 + i % 4);
      EXPECT_TRUE(testing::Eventually([&] { return rounds > seen; }));
    }
    stop = true;
    wg.Wait();
  });
}

TEST_P(ThreadTest, StackNamesTheThreadOfAGoroutine) {
  Run([] {
    Thread t("painter");
    auto c = make_chan<void>();
    sync::WaitGroup wg;
    wg.Add(1);
    go(GoOptions{.name = "idler", .thread = &t}, [&] {
      c.Recv();
      wg.Done();
    });
    EXPECT_TRUE(testing::Eventually([] {
      return runtime::Stack(true).find(
                 "[chan receive, on thread \"painter\"] {name: idler}:") !=
             std::string::npos;
    }));
    const std::string own = t.Run([] { return runtime::Stack(false); });
    EXPECT_NE(own.find("[running, on thread \"painter\"]:"), std::string::npos)
        << own;
    EXPECT_EQ(runtime::Stack(false).find("on thread"), std::string::npos);
    c.Close();
    wg.Wait();
  });
}

TEST_P(ThreadTest, MainReturnsBesideALiveThreadThatALaterRunContinues) {
  std::optional<Thread> t;
  auto c = make_chan<int>();
  auto d = make_chan<int>(1);
  Run([&] {
    t.emplace("survivor");
    go(GoOptions{.thread = &*t}, [c, d]() mutable { d.Send(*c.Recv()); });
    t->Run([] {});
  });
  std::thread sender([&] { c.Send(5); });  // runs the goroutine only later
  Run([&] { EXPECT_EQ(*d.Recv(), 5); });
  sender.join();
  t.reset();  // without a Run
  EXPECT_TRUE(
      testing::Eventually([] { return ThreadNames().count("survivor") == 0; }));
}

TEST(ThreadLibraryTest, PlainThreadsMayUseItWithoutRun) {
  Thread t;
  const pid_t there = t.Run([] { return gettid(); });
  EXPECT_NE(there, gettid());
  auto c = make_chan<int>();
  go(GoOptions{.thread = &t}, [c]() mutable { c.Send(gettid()); });
  EXPECT_EQ(*c.Recv(), there);
}

}  // namespace
}  // namespace gump
