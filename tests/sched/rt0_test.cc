// Run owes two things to its caller: to return, and to leave the thread as it
// was.
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stw.h"
#include "runtime/sys/tls.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using SchedRunTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(SchedRunTest);

// Main may return on another thread. Then the thread of Run must not be the one
// that waits in the kernel for another goroutine.
TEST_P(SchedRunTest, ReturnsWhileAnotherIsInASystemCall) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  auto read_done = std::make_shared<std::atomic<int>>(0);
  for (int round = 0; round < 20; round++) {
    Run([&] {
      auto c = make_chan<int>();
      go([c, fd = fds[0], read_done]() mutable {
        c.Send(1);
        blocking([&] {
          char x;
          return read(fd, &x, 1);
        });
        (*read_done)++;
      });
      c.Recv();
      runtime::Gosched();
    });
  }
  char all[20] = {};
  ASSERT_EQ(write(fds[1], all, sizeof(all)), 20);
  Run([&] {  // they go on in a later Run
    EXPECT_TRUE(testing::Eventually([&] { return *read_done == 20; }));
  });
  close(fds[0]);
  close(fds[1]);
}

TEST_P(SchedRunTest, InACatchBlockKeepsTheException) {
  try {
    throw std::runtime_error("outer");
  } catch (const std::runtime_error&) {
    errno = 77;
    Run([] {
      EXPECT_EQ(std::current_exception(), nullptr);
      sync::WaitGroup wg;
      for (int i = 0; i < 10; i++) {
        wg.Go([] {
          try {
            throw 1;
          } catch (int) {
            runtime::Gosched();
          }
        });
      }
      wg.Wait();
      errno = 5;
    });
    EXPECT_EQ(errno, 77);
    ASSERT_NE(std::current_exception(), nullptr);
    try {
      throw;
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "outer");
    }
  }
}

// A goroutine that computes when main returns keeps its P, and does not enter
// the runtime.
TEST_P(SchedRunTest, WorldStopsBesideHogsAfterRun) {
  struct State {
    std::atomic<bool> stop = false;
    std::atomic<int> computing = 0;
  };
  const auto s = std::make_shared<State>();
  const int procs = GetParam();
  Run([&] {
    for (int i = 0; i < procs; i++) {
      go([s] {
        s->computing++;
        while (!s->stop) {
        }
        s->computing--;
      });
    }
    while (s->computing < procs) runtime::Gosched();
  });
  EXPECT_EQ(runtime::GOMAXPROCS(procs + 1), procs);
  EXPECT_EQ(runtime::GOMAXPROCS(procs), procs + 1);
  EXPECT_NE(runtime::Stack(true).find("created by"), std::string::npos);
  s->stop = true;
  EXPECT_TRUE(testing::Eventually([&] { return s->computing == 0; }));
}

// The goroutine has no P when main returns, and gets none. So it must not yet
// hold the semaphore with which it is about to stop the world.
TEST_P(SchedRunTest, WorldStopsBesideSleepersThatWakeAfterRun) {
  struct State {
    std::atomic<bool> wake = false;
    std::atomic<int> asleep = 0;
    std::atomic<int> awake = 0;
    std::atomic<int> ended = 0;
  };
  const auto s = std::make_shared<State>();
  const int procs = GetParam();
  Run([&] {
    for (int i = 0; i < procs; i++) {
      go([s] {
        s->asleep++;
        while (!s->wake) usleep(1000);  // in no declared call
        s->awake++;
        runtime::GC();
        s->ended++;
      });
    }
    while (s->asleep < procs) runtime::Gosched();
  });
  s->wake = true;
  const auto all_awake = [&] {
    (void)runtime::Stack(true);
    return s->awake == procs;
  };
  EXPECT_TRUE(testing::Eventually(all_awake));
  for (int i = 0; i < 20; i++) {  // while they are on their way into GC
    (void)runtime::Stack(true);
    usleep(100);
  }
  Run([&] {
    EXPECT_TRUE(testing::Eventually([&] { return s->ended == procs; }));
  });
}

// In the queue for stopping the world, a goroutine is ahead of the plain
// thread. The end of main leaves the goroutine over.
TEST(SchedRunEndTest, PlainThreadsStopTheWorldBesideGoroutinesThatWaitToDoSo) {
  static std::atomic<bool> held;
  static std::atomic<bool> release;
  held = false;
  release = false;
  // The first P that is visited stays in `visit` until it is released, and
  // forEachP waits for it. The main thread is not held.
  const auto visit = [](rt::P* pp) {
    const rt::M* mp = rt::getg()->m;
    if (mp == &rt::m0 || mp->p != pp || held.exchange(true)) return;
    while (!release) {
    }
  };
  const auto parked = [](const std::atomic<rt::G*>& g) {
    return g != nullptr && rt::readgstatus(g) == rt::kGwaiting;
  };
  std::atomic<int> left = 1;
  std::atomic<rt::G*> first = nullptr;
  std::atomic<rt::G*> second = nullptr;
  std::thread visitor;
  std::thread stopper;
  const int before = runtime::GOMAXPROCS(3);
  gump::Run([&] {
    for (int i = 0; i < 3; i++) {
      // They end as soon as a P is held. The goroutines in the ring of that P
      // have to be stolen, and the other Ps must have time for that.
      go([] {
        while (!held) runtime::Gosched();
      });
    }
    visitor = std::thread([&] {
      // One forEachP may hold no P, if all are idle or the main thread visits
      // them. So it is repeated.
      while (!held) rt::forEachP(rt::WaitReason::kFlushProcCaches, visit);
    });
    EXPECT_TRUE(testing::Eventually([] { return held.load(); }));
    go([&] {
      first = rt::getg();
      (void)runtime::Stack(true);
      left--;
    });
    EXPECT_TRUE(testing::Eventually([&] { return parked(first); }));
    stopper = std::thread([&] {
      second = rt::runtimeEntry();
      (void)runtime::Stack(true);
    });
    EXPECT_TRUE(testing::Eventually([&] { return parked(second); }));
  });
  release = true;
  visitor.join();
  stopper.join();
  gump::Run(
      [&] { EXPECT_TRUE(testing::Eventually([&] { return left == 0; })); });
  runtime::GOMAXPROCS(before);
}

TEST_P(SchedRunTest, MemoryIsGivenBackAfterRun) {
  Run([] {});
  const uint64_t cycles = debug::ReadSchedStats().reclaim_cycles;
  runtime::GC();
  EXPECT_EQ(debug::ReadSchedStats().reclaim_cycles, cycles + 1);
}

TEST(SchedRunDeathTest, TheFirstUseOfTheLibraryKeepsErrno) {
  auto use = [] {
    errno = 77;
    runtime::NumCPU();
    _exit(errno == 77 ? 0 : 1);
  };
  EXPECT_EXIT(use(), ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace gump
