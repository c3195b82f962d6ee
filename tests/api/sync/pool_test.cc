#include "gump/sync/pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "runtime/sched/reclaim.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::Pool;
using PoolTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(PoolTest);

// The only cycles are those that the tests ask for.
const bool no_forced_cycles = [] {
  rt::forcegcperiod.store(std::numeric_limits<int64_t>::max(), rt::relaxed);
  return true;
}();

// Item counts the items that are alive.
struct Item {
  explicit Item(int number) : n(number) { alive++; }
  Item(const Item&) = delete;
  ~Item() {
    alive--;
    n = -1;
  }
  int n;
  int users = 0;  // plain on purpose: an item has one owner
  static std::atomic<int> alive;
};
std::atomic<int> Item::alive = 0;

std::unique_ptr<Item> MakeItem(int n) { return std::make_unique<Item>(n); }

// A goroutine may be moved from one P to another at any time, and the second
// cannot use the item that the first has at hand. So the exact result of Get is
// known with one P only (SolePoolTest).
int MayBeElsewhere() { return runtime::GOMAXPROCS(0) - 1; }

TEST(SolePoolTest, GetReturnsAPutItemOrNull) {
  testing::RunWith(1, [] {
    Pool<Item> pool;
    EXPECT_EQ(pool.Get(), nullptr);
    pool.Put(nullptr);
    EXPECT_EQ(pool.Get(), nullptr);
    pool.Put(MakeItem(1));
    std::unique_ptr<Item> got = pool.Get();
    ASSERT_NE(got, nullptr);
    EXPECT_EQ(got->n, 1);
    EXPECT_EQ(pool.Get(), nullptr);
  });
  EXPECT_EQ(Item::alive, 0);
}

TEST(SolePoolTest, GetMakesANewOneWhenThereIsNone) {
  testing::RunWith(1, [] {
    int made = 0;
    Pool<Item> pool{[&] { return MakeItem(++made); }};
    EXPECT_EQ(pool.Get()->n, 1);
    pool.Put(MakeItem(77));
    EXPECT_EQ(pool.Get()->n, 77);
    EXPECT_EQ(pool.Get()->n, 2);
  });
  EXPECT_EQ(Item::alive, 0);
}

TEST_P(PoolTest, HoldsAnyNumberAndGivesEachOutOnce) {
  Run([] {
    Pool<Item> pool;
    constexpr int kItems = 1000;
    for (int i = 0; i < kItems; i++) pool.Put(MakeItem(i));
    std::vector<bool> seen(kItems);
    int found = 0;
    while (auto item = pool.Get()) {
      found++;
      ASSERT_FALSE(seen[static_cast<size_t>(item->n)]);
      seen[static_cast<size_t>(item->n)] = true;
    }
    EXPECT_GE(found, kItems - MayBeElsewhere());
  });
  EXPECT_EQ(Item::alive, 0);
}

TEST_P(PoolTest, DestroysTheItemsThatAreLeft) {
  Run([] {
    Pool<Item> pool;
    for (int i = 0; i < 100; i++) pool.Put(MakeItem(i));
    runtime::GC();
    for (int i = 0; i < 100; i++) pool.Put(MakeItem(i));
    EXPECT_EQ(Item::alive, 200);
  });
  EXPECT_EQ(Item::alive, 0);
}

TEST_P(PoolTest, AnUnusedItemSurvivesOneCycleAndNotTwo) {
  Run([] {
    Pool<Item> pool;
    for (int i = 0; i < 100; i++) pool.Put(MakeItem(i));
    runtime::GC();
    EXPECT_EQ(Item::alive, 100);
    runtime::GC();
    EXPECT_EQ(Item::alive, 0);
    EXPECT_EQ(pool.Get(), nullptr);
  });
}

// A goroutine ages the pools when main ends, and has no P any more when it
// wants to release a lock.
TEST(PoolEndTest, PlainThreadsDestroyPoolsWhileAnUnfinishedRoundWaits) {
  constexpr int kPools = 2000;
  std::vector<std::unique_ptr<Pool<int>>> pools;
  static std::atomic<bool> ages;
  static std::atomic<bool> over;
  ages = false;
  over = false;
  gump::Run([&] {
    for (int i = 0; i < kPools; i++) {
      pools.push_back(std::make_unique<Pool<int>>());
      pools.back()->Put(std::make_unique<int>(i));
    }
    go([] {
      while (!over) {
        ages = true;
        runtime::GC();
      }
      ages = false;
    });
    EXPECT_TRUE(testing::Eventually([] { return ages.load(); }));
  });
  std::thread destroys([&pools] { pools.clear(); });
  (void)runtime::Stack(true);  // takes the P of the goroutine that ages them
  destroys.join();
  over = true;
  gump::Run(
      [] { EXPECT_TRUE(testing::Eventually([] { return !ages.load(); })); });
}

// The thread that held the lock of the registry is not there in a child, and
// exit destroys static pools. The exit ends, if need be with the fatal error
// about goroutines.
TEST(PoolForkTest, AChildMayDestroyAPool) {
  if (rt::kSanitizerBuild) {
    GTEST_SKIP() << "its malloc's locks are as another thread left them";
  }
  constexpr int kPools = 5000;
  std::vector<std::unique_ptr<Pool<int>>> pools;
  for (int i = 0; i < kPools; i++) {
    pools.push_back(std::make_unique<Pool<int>>());
    pools.back()->Put(std::make_unique<int>(i));
  }
  std::atomic<bool> over = false;
  std::thread ages([&] {
    while (!over) runtime::GC();
  });
  for (int i = 0; i < 10; i++) {
    const pid_t child = fork();
    if (child == 0) {
      ::close(STDERR_FILENO);
      pools.back().reset();
      ::_exit(0);
    }
    int status = 0;
    const bool ended = testing::Eventually(
        [&] { return ::waitpid(child, &status, WNOHANG) == child; });
    EXPECT_TRUE(ended);
    if (!ended) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      break;
    }
    EXPECT_TRUE(WIFEXITED(status)) << status;
  }
  over = true;
  ages.join();
}

TEST(SolePoolTest, VictimsAreTakenBeforeANewOneIsMade) {
  testing::RunWith(1, [] {
    Pool<Item> pool;
    for (int i = 0; i < 20; i++) pool.Put(MakeItem(i));
    runtime::GC();
    for (int i = 0; i < 20; i++) EXPECT_NE(pool.Get(), nullptr);
    EXPECT_EQ(pool.Get(), nullptr);
  });
  EXPECT_EQ(Item::alive, 0);
}

TEST_P(PoolTest, ItemsOfOtherPsAreFound) {
  Run([] {
    Pool<Item> pool;
    sync::WaitGroup wg;
    for (int g = 0; g < 8; g++) {
      wg.Go([&] {
        for (int i = 0; i < 50; i++) pool.Put(MakeItem(i));
      });
    }
    wg.Wait();
    // All items except those in the fast slots of the other Ps.
    int found = 0;
    while (pool.Get() != nullptr) found++;
    EXPECT_GE(found, 400 - MayBeElsewhere());
  });
  EXPECT_EQ(Item::alive, 0);
}

TEST_P(PoolTest, SurvivesChangesOfGomaxprocs) {
  Run([] {
    Pool<Item> pool;
    const int before = runtime::GOMAXPROCS(0);
    for (int n : {1, 8, 3, 64, 2}) {
      runtime::GOMAXPROCS(n);
      sync::WaitGroup wg;
      for (int g = 0; g < 16; g++) {
        wg.Go([&] {
          for (int i = 0; i < 20; i++) {
            pool.Put(MakeItem(i));
            runtime::Gosched();
            std::unique_ptr<Item> item = pool.Get();
          }
        });
      }
      wg.Wait();
    }
    runtime::GOMAXPROCS(before);
  });
  EXPECT_EQ(Item::alive, 0);
}

TEST_P(PoolTest, AnItemHasOneOwner) {
  Run([] {
    Pool<Item> pool{[] { return MakeItem(0); }};
    sync::WaitGroup wg;
    auto work = [&] {
      for (int i = 0; i < 500; i++) {
        auto a = pool.Get();
        auto b = pool.Get();
        EXPECT_EQ(a->users++, 0);
        EXPECT_EQ(b->users++, 0);
        if (i % 8 == 0) runtime::Gosched();
        a->users--;
        b->users--;
        pool.Put(std::move(a));
        pool.Put(std::move(b));
      }
    };
    for (int g = 0; g < 8; g++) wg.Go(work);
    std::thread t = testing::KnownThread(work);
    std::thread u = testing::KnownThread(work);
    wg.Go([] {
      for (int i = 0; i < 20; i++) {
        runtime::GC();
        runtime::Gosched();
      }
    });
    wg.Wait();
    blocking([&] {
      t.join();
      u.join();
    });
  });
  EXPECT_EQ(Item::alive, 0);
}

TEST_P(PoolTest, PlainThreadsAndGoroutinesShare) {
  Run([] {
    Pool<Item> pool;
    std::thread([&] {
      pool.Put(MakeItem(1));
      pool.Put(MakeItem(2));
    }).join();
    EXPECT_NE(pool.Get(), nullptr);
    for (int i = 0; i < 9; i++) pool.Put(MakeItem(i));
    std::thread([&] { EXPECT_NE(pool.Get(), nullptr); }).join();
    runtime::GC();
    std::thread([&] { EXPECT_NE(pool.Get(), nullptr); }).join();
    std::thread([&] { pool.Put(MakeItem(3)); }).join();
    runtime::GC();
    runtime::GC();
    EXPECT_EQ(Item::alive, 0);
  });
}

TEST_P(PoolTest, DestructorsMayUsePoolsAndDestroyThem) {
  Run([] {
    struct Owner {
      Pool<Item> inner;
      ~Owner() { inner.Put(MakeItem(1)); }
    };
    Pool<Owner> pool;
    for (int i = 0; i < 20; i++) {
      auto owner = std::make_unique<Owner>();
      owner->inner.Put(MakeItem(2));
      pool.Put(std::move(owner));
    }
    runtime::GC();
    runtime::GC();
  });
  EXPECT_EQ(Item::alive, 0);
}

TEST_P(PoolTest, PoolsMayComeAndGoDuringCycles) {
  Run([] {
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    wg.Go([&] {
      while (!stop) {
        runtime::GC();
        runtime::Gosched();
      }
    });
    for (int g = 0; g < 4; g++) {
      wg.Go([&] {
        for (int i = 0; i < 200; i++) {
          Pool<Item> pool;
          pool.Put(MakeItem(i));
          pool.Put(MakeItem(i));
          runtime::Gosched();
          pool.Put(MakeItem(i));
        }
        stop = true;
      });
    }
    wg.Wait();
  });
  EXPECT_EQ(Item::alive, 0);
}

}  // namespace
}  // namespace gump
