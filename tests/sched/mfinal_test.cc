// The finalizer goroutine and its cycles, as a program sees them.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/sched/reclaim.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

class SchedTest : public testing::WithGomaxprocs {};
GUMP_INSTANTIATE_GOMAXPROCS(SchedTest);

TEST_P(SchedTest, FinalizersRunInOrderAndMayBlock) {
  Run([] {
    std::vector<int> order;
    auto done = make_chan<void>();
    for (int i = 0; i < 100; i++) {
      runtime::SetFinalizer([&order, i, done] {
        runtime::Gosched();
        order.push_back(i);
        if (i == 99) done.Send();
      });
    }
    done.Recv();
    ASSERT_EQ(order.size(), 100u);
    for (int i = 0; i < 100; i++) EXPECT_EQ(order[static_cast<size_t>(i)], i);
    EXPECT_TRUE(testing::Eventually([] {
      return runtime::NumGoroutine() == 1;
    })) << "the finalizer goroutine is not counted";
  });
}

TEST_P(SchedTest, FinalizersOfManyGoroutinesAllRun) {
  Run([] {
    std::atomic<int> ran = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < 20; i++) {
      wg.Go([&ran] {
        for (int k = 0; k < 100; k++) {
          runtime::SetFinalizer([&ran] { ran++; });
          if (k % 10 == 0) runtime::Gosched();
        }
      });
    }
    wg.Wait();
    EXPECT_TRUE(testing::Eventually([&] { return ran == 2000; }));
  });
}

// Only a thread that looks for work readies the finalizer goroutine. It has to
// be woken if all are idle, and a goroutine that computes has to make room.
TEST_P(SchedTest, FinalizersOfPlainThreadsRunWhileAllAreIdle) {
  Run([] {
    std::atomic<bool> all = true;
    auto done = make_chan<void>();
    std::thread thread([&] {
      for (int i = 0; i < 200 && all; i++) {
        std::atomic<bool> ran = false;
        runtime::SetFinalizer([&ran] { ran = true; });
        all = testing::Eventually([&ran] { return ran.load(); });
      }
      done.Send();
    });
    done.Recv();
    blocking([&thread] { thread.join(); });
    EXPECT_TRUE(all);
  });
}

TEST_P(SchedTest, FinalizersRunBesideHogs) {
  Run([n = GetParam()] {
    std::atomic<int> ran = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < n + 1; i++) {
      wg.Go([&] {
        for (int k = 0; k < 3; k++) {
          const int had = ran;
          runtime::SetFinalizer([&ran] { ran++; });
          while (ran <= had) {
          }
        }
      });
    }
    wg.Wait();
    EXPECT_TRUE(testing::Eventually([&] { return ran == 3 * (n + 1); }));
  });
}

TEST_P(SchedTest, FinalizersBetweenRunsRunInTheNext) {
  Run([] {
    std::atomic<bool> ran = false;
    runtime::SetFinalizer([&ran] { ran = true; });
    EXPECT_TRUE(testing::Eventually([&ran] { return ran.load(); }));
  });
  std::atomic<bool> ran = false;
  runtime::SetFinalizer([&ran] { ran = true; });
  Run([&] { EXPECT_TRUE(testing::Eventually([&ran] { return ran.load(); })); });
}

TEST_P(SchedTest, CyclesComeByThemselves) {
  const int64_t period = rt::forcegcperiod.xchg(1'000'000, rt::relaxed);
  EXPECT_EQ(period, std::chrono::nanoseconds(std::chrono::minutes(2)).count());
  Run([] {
    struct Item {
      explicit Item(std::atomic<bool>* d) : deleted(d) {}
      ~Item() { *deleted = true; }
      std::atomic<bool>* deleted;
    };
    std::atomic<bool> deleted = false;
    sync::Pool<Item> pool;
    pool.Put(std::make_unique<Item>(&deleted));
    EXPECT_TRUE(testing::Eventually([&] { return deleted.load(); }));
  });
  rt::forcegcperiod.store(period, rt::relaxed);
}

TEST_P(SchedTest, GCMayBeCalledAnywhere) {
  Run([] {
    sync::WaitGroup wg;
    for (int i = 0; i < 8; i++) {
      wg.Go([] {
        for (int k = 0; k < 20; k++) runtime::GC();
      });
    }
    wg.Wait();
  });
}

}  // namespace
}  // namespace gump
