// The runtime without Run. It starts at its first use, even in a static
// constructor. It works from plain threads and to the very end of the process,
// so static destructors may use it, too.
//
// The order below is the order of a process: a static object comes first and
// goes last. The tests in between must not depend on each other's order. But a
// process has had a Run called in it or not, so a test that needs a fresh
// process is a death test.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "gump/chan.h"
#include "gump/gls.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

void Must(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "failed: %s\n", what);
  std::_Exit(1);
}

// Everything uses a bit of everything. Returns true if all of it worked.
bool Everything() {
  auto c = make_chan<int>();
  auto d = make_chan<int>(4);
  sync::WaitGroup wg;
  sync::Mutex mu;
  int n = 0;
  for (int i = 0; i < 10; i++) {
    wg.Go([&, c, d] {
      d.Send(*c.Recv() + 1);
      mu.Lock();
      n++;
      mu.Unlock();
    });
  }
  int sum = 0;
  for (int i = 0; i < 10; i++) {
    c.Send(i);
    sum += *d.Recv();
  }
  wg.Wait();
  runtime::Gosched();
  return n == 10 && sum == 55 && runtime::NumGoroutine() >= 1;
}

// A static object that starts a service, and stops it at the end.
class Service {
 public:
  Service() {
    go([this] {
      while (auto v = in_.Recv()) out_.Send(*v * 2);
      out_.Close();
    });
    Must(Ask(21) == 42, "static constructor");
    Must(Everything(), "everything in a static constructor");
  }
  ~Service() {
    // This is after main, but no Run has ended, so goroutines go on.
    Must(Ask(4) == 8, "static destructor");
    Must(Everything(), "everything in a static destructor");
    in_.Close();
    Must(!out_.Recv().has_value(), "the service has ended");
  }
  int Ask(int n) {
    in_.Send(n);
    return *out_.Recv();
  }

 private:
  chan<int> in_ = make_chan<int>();
  chan<int> out_ = make_chan<int>();
};
Service service;

TEST(LibraryModeTest, StaticServiceAnswersMain) {
  EXPECT_EQ(service.Ask(3), 6);
}

TEST(LibraryModeTest, MainThreadUsesEverythingWithoutRun) {
  EXPECT_TRUE(Everything());
  EXPECT_NE(runtime::Goid(), 0u);
  EXPECT_FALSE(runtime::Stack(true).empty());
}

TEST(LibraryModeTest, PlainThreadsUseEverythingWithoutRun) {
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; i++) {
    threads.emplace_back([&good] { good += Everything() ? 1 : 0; });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(good, 8);
}

TEST(LibraryModeTest, GomaxprocsChangesWithoutRun) {
  for (int n : {1, 8, 2, 1, 4}) {
    runtime::GOMAXPROCS(n);
    EXPECT_EQ(runtime::GOMAXPROCS(0), n);
    EXPECT_TRUE(Everything());
  }
}

TEST(LibraryModeTest, LastThreadMayLeaveGoroutinesParked) {
  // No Run is in progress, so no deadlock is reported.
  auto c = make_chan<int>();
  std::thread([c] { go([c] { c.Send(1); }); }).join();
  EXPECT_EQ(c.Recv(), 1);
}

TEST(LibraryModeTest, LocalsOfAThreadAreDestroyedWithIt) {
  static std::atomic<int> destroyed = 0;
  struct Value {
    ~Value() { destroyed += used; }
    int used = 0;
  };
  static gls<Value> value;
  for (int i = 1; i <= 5; i++) {
    std::thread([] { value->used = 1; }).join();
    EXPECT_EQ(destroyed, i);
  }
}

TEST(LibraryModeTest, ThreadLocalDestructorMayUseTheRuntime) {
  static std::atomic<int> good = 0;
  struct Late {
    ~Late() { good += Everything() ? 1 : 0; }
  };
  for (int i = 1; i <= 3; i++) {
    std::thread([] {
      thread_local Late late;
      (void)&late;
    }).join();
    EXPECT_EQ(good, i);
  }
}

class LibraryModeDeathTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

TEST_F(LibraryModeDeathTest, RunMayFollowAndEnd) {
  // exit would run the static destructor, which finds the scheduler stopped,
  // because main has returned. So the process leaves without it.
  EXPECT_EXIT(
      {
        Must(Everything(), "before");
        int r = gump::Run([] {
          Must(Everything(), "within");
          return service.Ask(5);
        });
        std::_Exit(r);
      },
      ::testing::ExitedWithCode(10), "^$");
}

TEST_F(LibraryModeDeathTest, AfterRunGoIsAcceptedButNothingIsScheduled) {
  EXPECT_EXIT(
      {
        static std::atomic<int> ran = 0;
        gump::Run([] {});
        go([] { ran++; });
        auto c = make_chan<int>(1);
        Must(c.TrySend(1), "a send that need not wait");
        Must(c.Recv() == 1, "a receive that need not wait");
        Must(c.TryRecv().kind == RecvResult<int>::kEmpty, "an empty channel");
        c.Close();
        Must(!c.Recv().has_value(), "a closed channel");
        sync::Mutex mu;
        mu.Lock();
        mu.Unlock();
        (void)runtime::Stack(true);
        runtime::GOMAXPROCS(3);
        runtime::Gosched();
        debug::FreeOSMemory();
        Must(ran == 0, "nothing runs");
        gump::Run([] { testing::Eventually([] { return ran == 1; }); });
        Must(ran == 1, "it goes on in the next Run");
        std::_Exit(7);
      },
      ::testing::ExitedWithCode(7), "^$");
}

TEST_F(LibraryModeDeathTest, GracePeriodEndsAcrossTheEndOfMain) {
  // The grace period waits for every P to pass through the scheduler, while
  // main ends and every P goes idle.
  EXPECT_EXIT(
      {
        for (int i = 0; i < 200; i++) {
          std::thread freer;
          gump::Run([&freer, i] {
            runtime::GOMAXPROCS(1 + i % 8);
            std::atomic<bool> started = false;
            for (int k = 0; k < 8; k++) {
              go([] {
                for (int n = 0; n < 50; n++) runtime::Gosched();
              });
            }
            freer = std::thread([&started] {
              (void)runtime::Stack(false);
              started = true;
              for (int n = 0; n < 10; n++) debug::FreeOSMemory();
            });
            testing::Eventually([&] { return started.load(); });
          });
          freer.join();
        }
        std::_Exit(7);
      },
      ::testing::ExitedWithCode(7), "^$");
}

}  // namespace
}  // namespace gump
