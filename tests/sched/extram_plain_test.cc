// Plain threads beside goroutines: what they may call, which Ms they are lent,
// and how dumps show them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

class PlainThreadTest : public testing::WithGomaxprocs {};
GUMP_INSTANTIATE_GOMAXPROCS(PlainThreadTest);

TEST_P(PlainThreadTest, PlainThreadUsesEverything) {
  Run([] {
    std::atomic<bool> ok = false;
    std::thread t([&ok] {
      auto c = make_chan<int>();
      auto d = make_chan<int>();
      go([=] {
        for (int i = 0; i < 100; i++) d.Send(*c.Recv() + 1);
      });
      for (int i = 0; i < 100; i++) {
        c.Send(i);
        EXPECT_EQ(d.Recv(), i + 1);
        runtime::Gosched();
      }
      sync::Mutex mu;
      sync::WaitGroup wg;
      int n = 0;
      for (int i = 0; i < 10; i++) {
        wg.Go([&] {
          mu.Lock();
          n++;
          mu.Unlock();
        });
      }
      wg.Wait();
      EXPECT_EQ(n, 10);
      EXPECT_NE(runtime::Goid(), 0u);
      runtime::LockOSThread();
      runtime::UnlockOSThread();
      blocking([] {});
      EXPECT_FALSE(runtime::Stack(true).empty());
      debug::FreeOSMemory();
      runtime::GC();
      ok = true;
    });
    blocking([&t] { t.join(); });
    EXPECT_TRUE(ok);
  });
}

TEST_P(PlainThreadTest, PlainThreadChangesGomaxprocs) {
  Run([n = GetParam()] {
    std::thread t([n] {
      for (int i = 1; i < 20; i++) runtime::GOMAXPROCS(1 + i % 8);
      runtime::GOMAXPROCS(n);
    });
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([] {
        for (int k = 0; k < 100; k++) runtime::Gosched();
      });
    }
    wg.Wait();
    blocking([&t] { t.join(); });
    EXPECT_EQ(runtime::GOMAXPROCS(0), n);
  });
}

int64_t ExtraMs() {
  rt::LockScope l(&rt::sched.lock);
  return rt::sched.nmextraAll;
}

TEST_P(PlainThreadTest, PseudoMsOfEndedThreadsAreUsedAgain) {
  Run([] {
    constexpr int kAtOnce = 8;
    constexpr int kRounds = 250;
    const int64_t before = ExtraMs();
    auto c = make_chan<int>(kAtOnce);
    int sum = 0;
    for (int round = 0; round < kRounds; round++) {
      std::vector<std::thread> threads;
      for (int i = 0; i < kAtOnce; i++) {
        threads.emplace_back([c] { c.Send(1); });
      }
      for (int i = 0; i < kAtOnce; i++) sum += *c.Recv();
      testing::JoinAll(threads);
    }
    EXPECT_EQ(sum, kAtOnce * kRounds);
    EXPECT_LE(ExtraMs(), before + kAtOnce);
  });
}

TEST_P(PlainThreadTest, CellsOfEndedGoroutinesAreUsedAgain) {
  Run([] {
    std::thread t([] {
      auto c = make_chan<int>();
      auto spawn = [&c](int n) {
        for (int i = 0; i < n; i++) {
          go([c] { c.Send(1); });
          c.Recv();
        }
      };
      spawn(1000);
      const uint64_t before = rt::gcountAll();
      spawn(2000);
      // A P may keep some for itself, and one may be on its way to the list.
      EXPECT_LT(rt::gcountAll(), before + 16 * rt::kCellBatch);
    });
    blocking([&t] { t.join(); });
  });
}

TEST_P(PlainThreadTest, ThreadsThatWaitAreInDumps) {
  Run([] {
    auto c = make_chan<int>();
    std::atomic<pid_t> tid = 0;
    std::thread t([&] {
      tid = gettid();
      for (int i = 0; i < 2; i++) EXPECT_EQ(c.Recv(), i);
    });
    auto parked = [&] {
      return runtime::Stack(true).find(
                 "[chan receive]:\n\tplain thread " + std::to_string(tid) +
                 "; stack unavailable\n") != std::string::npos;
    };
    for (int i = 0; i < 2; i++) {  // twice: the pseudo-G stays the thread's
      EXPECT_TRUE(testing::Eventually(parked));
      c.Send(i);
    }
    blocking([&t] { t.join(); });
    EXPECT_FALSE(parked());
  });
}

TEST_P(PlainThreadTest, ThreadsThatRunAreNotInDumps) {
  Run([] {
    auto c = make_chan<int>();
    std::atomic<bool> woken = false;
    std::atomic<bool> may_end = false;
    std::atomic<uint64_t> goid = 0;
    std::thread t([&] {
      goid = runtime::Goid();
      c.Recv();
      woken = true;
      while (!may_end) {
      }
    });
    EXPECT_TRUE(testing::EventuallyParked("chan receive", 1));
    c.Send(0);
    EXPECT_TRUE(testing::Eventually([&] { return woken.load(); }));
    EXPECT_EQ(
        runtime::Stack(true).find("goroutine " + std::to_string(goid) + " ["),
        std::string::npos);
    may_end = true;
    blocking([&t] { t.join(); });
  });
}

// A thread that starts many goroutines would otherwise compete for the lock
// with every M that looks for work. We count a spinner, so wakep needs no lock.
TEST_P(PlainThreadTest,
       ThreadStartsGoroutinesWhileAnotherHoldsTheSchedulersLock) {
  if (rt::severalNodes()) GTEST_SKIP() << "it chooses a node under the lock";
  Run([] {
    constexpr int kGoroutines = 10;
    sync::WaitGroup wg;
    wg.Add(kGoroutines);
    std::atomic<bool> warm = false;
    std::atomic<bool> locked = false;
    std::atomic<bool> started = false;
    std::thread t([&] {
      sync::WaitGroup first;  // the thread gets its M, and cells
      for (int i = 0; i < 2 * kGoroutines; i++) first.Go([] {});
      first.Wait();
      warm = true;
      while (!locked) std::this_thread::yield();
      for (int i = 0; i < kGoroutines; i++) go([&wg] { wg.Done(); });
      started = true;
    });
    blocking([&] {
      while (!warm) std::this_thread::yield();
    });
    {
      rt::M* mp = rt::acquirem();
      rt::sched.nmspinning.add(1, rt::seq_cst);
      {
        rt::LockScope l(&rt::sched.lock);
        locked = true;
        while (!started) std::this_thread::yield();
      }
      rt::uncountSpinner("test: negative nmspinning");
      rt::wakepAnywhere();
      rt::releasem(mp);
    }
    wg.Wait();
    blocking([&t] { t.join(); });
  });
}

// While the goroutine runs, no second M has been woken to look for more work.
TEST_P(PlainThreadTest, GoroutineForAnIdleRuntimeWakesOneM) {
  Run([] {
    constexpr int kPosts = 100;
    int alone = 0;
    const auto busy = [] {
      return runtime::GOMAXPROCS(0) - rt::sched.npidle.load(rt::seq_cst);
    };
    sync::WaitGroup posted;
    posted.Add(1);
    std::thread poster([&] {
      for (int i = 0; i < kPosts; i++) {
        while (busy() != 0) std::this_thread::yield();
        std::atomic<bool> runs = false;
        std::atomic<bool> seen = false;
        sync::WaitGroup wg;
        wg.Go([&] {
          runs = true;
          while (!seen) {
          }
        });
        while (!runs) std::this_thread::yield();
        alone += busy() == 1 ? 1 : 0;
        seen = true;
        wg.Wait();
      }
      posted.Done();
    });
    posted.Wait();
    poster.join();
    // Now and then another M runs work of the runtime itself.
    EXPECT_GT(alone, kPosts / 2);
  });
}

// A thread without a P sends wakes through the global queue. It does so just
// while the goroutine's thread is looking for work for the last time before it
// sleeps.
TEST_P(PlainThreadTest, WakesAreNotLostWhileTheLastSpinnerGoesToSleep) {
  Run([] {
    constexpr int kRounds = rt::kSanitizerBuild ? 5000 : 20000;
    auto c = make_chan<int>();
    auto d = make_chan<int>(1);
    std::thread t([=] {
      for (int i = 0; i < kRounds; i++) {
        c.Send(i);
        for (int k = i % 64; k > 0; k--) rt::procyield(1);
        while (d.TryRecv().kind == RecvResult<int>::kEmpty) {
        }
      }
    });
    for (int i = 0; i < kRounds; i++) {
      EXPECT_EQ(c.Recv(), i);
      d.Send(i);
    }
    blocking([&t] { t.join(); });
  });
}

}  // namespace
}  // namespace gump
