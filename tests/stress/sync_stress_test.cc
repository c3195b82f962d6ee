// Locks, counters and containers under random load from goroutines and plain
// threads at once. tests/testing/stress.h says how to run it longer, or again.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <thread>
#include <utility>
#include <vector>

#include "gump/go.h"
#include "gump/internal/linkname_sync.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/sys/sanitizer.h"
#include "tests/stress/stress_testing.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::Cond;
using sync::Mutex;
using sync::WaitGroup;
using testing::Rng;

class SyncStressTest : public testing::TimedStress {
 protected:
  // Calls work(rng, round) in `goroutines` goroutines and `threads` plain
  // threads until the time is over. Each caller numbers its rounds.
  template <class F>
  void Hammer(int goroutines, int threads, F work) {
    auto loop = [this, work](int who) {
      Rng rng(seed_ + static_cast<uint64_t>(who));
      for (int round = 0; !Over(); round++) work(rng, round);
    };
    std::vector<std::thread> plain;
    for (int i = 0; i < threads; i++) {
      plain.push_back(testing::KnownThread([=] { loop(1000 + i); }));
    }
    WaitGroup wg;
    for (int i = 0; i < goroutines; i++) wg.Go([&, i] { loop(i); });
    wg.Wait();
    testing::JoinAll(plain);
  }
};
GUMP_INSTANTIATE_GOMAXPROCS(SyncStressTest);

TEST_P(SyncStressTest, MutexCountsExactly) {
  Run([&] {
    Mutex mu;
    int64_t counter = 0;
    std::atomic<int64_t> expected = 0;
    Hammer(8, 2, [&](Rng& rng, int) {
      const uint64_t n = rng.Below(64);
      for (uint64_t i = 0; i < n; i++) {
        if (rng.Below(4) == 0) {
          if (!mu.TryLock()) continue;
        } else {
          mu.Lock();
        }
        counter++;
        expected.fetch_add(1, std::memory_order_relaxed);
        Pause(rng);
        mu.Unlock();
      }
      Pause(rng);
    });
    EXPECT_EQ(counter, expected);
  });
}

TEST_P(SyncStressTest, RWMutexKeepsItsPromises) {
  Run([&] {
    sync::RWMutex mu;
    int64_t value = 0;
    std::atomic<int> readers = 0;
    std::atomic<int64_t> writes = 0;
    Hammer(8, 2, [&](Rng& rng, int) {
      switch (rng.Below(6)) {
        case 0:
          if (!mu.TryLock()) break;
          value++;
          writes++;
          mu.Unlock();
          break;
        case 1: {
          std::unique_lock hold(mu);
          EXPECT_EQ(readers, 0);
          value++;
          writes++;
          Pause(rng);
          break;
        }
        case 2:
          if (!mu.TryRLock()) break;
          mu.RUnlock();
          break;
        default: {
          std::shared_lock hold(mu);
          readers++;
          const int64_t before = value;
          Pause(rng);
          EXPECT_EQ(value, before);
          readers--;
        }
      }
    });
    EXPECT_EQ(value, writes);
  });
}

// A queue of limited size, with two conditions over one lock.
TEST_P(SyncStressTest, CondLosesNothing) {
  Run([&] {
    Mutex mu;
    Cond not_empty{mu}, not_full{mu};
    std::vector<int> queue;
    constexpr size_t kLimit = 3;
    std::atomic<int64_t> put = 0, taken = 0;
    // Each caller puts one and takes one, so no caller waits at the end.
    Hammer(8, 2, [&](Rng& rng, int round) {
      {
        std::scoped_lock hold(mu);
        if (queue.size() >= kLimit) return;
        queue.push_back(round);
        put++;
        not_empty.Signal();
      }
      Pause(rng);
      {
        std::scoped_lock hold(mu);
        not_empty.Wait([&] { return !queue.empty(); });
        queue.pop_back();
        taken++;
        rng.Below(8) == 0 ? not_full.Broadcast() : not_full.Signal();
      }
    });
    EXPECT_EQ(put, taken);
    EXPECT_TRUE(queue.empty());
  });
}

// In the next five tests the waiter destroys the object the moment it is awake,
// while the waker is still on its way out.
constexpr int kDestroyRounds = rt::kSanitizerBuild ? 2'500 : 25'000;

TEST_P(SyncStressTest, OnceRunsOneFunctionAndShowsItsEffectsToAll) {
  struct Turn {
    sync::Once once;
    int runs = 0;  // plain: Do gives the edge
    uint64_t winner = 0;
  };
  Run([&] {
    std::atomic<int64_t> turns_taken = 0;
    std::atomic<int64_t> thrown = 0;
    std::atomic<int64_t> caught = 0;
    for (uint64_t round = 0; !Over(); round++) {
      std::vector<Turn> turns(32);
      auto pass = [&](uint64_t who) {
        Rng rng(seed_ + 100 * round + who);
        for (Turn& t : turns) {
          Pause(rng);
          try {
            t.once.Do([&] {
              t.runs++;
              Pause(rng);
              t.winner = who;
              turns_taken++;
              if (!rng.OneIn(8)) return;
              thrown++;
              panic("counts as done");
            });
          } catch (const PanicError&) {
            caught++;
            EXPECT_EQ(t.winner, who) << "another's exception";
          }
          EXPECT_EQ(t.runs, 1);
          EXPECT_NE(t.winner, 0u);
        }
      };
      std::thread plain = testing::KnownThread([&] { pass(1); });
      WaitGroup wg;
      for (uint64_t who = 2; who < 8; who++) wg.Go([&, who] { pass(who); });
      wg.Wait();
      blocking([&] { plain.join(); });
      EXPECT_EQ(turns_taken.exchange(0), static_cast<int64_t>(turns.size()));
    }
    EXPECT_EQ(thrown, caught);
  });
}

TEST_P(SyncStressTest, WaitGroupMayGoWithTheWaiter) {
  Run([&] {
    for (int i = 0; i < kDestroyRounds; i++) {
      WaitGroup wg;  // on this stack: the next round's is at the same place
      wg.Add(2);
      go([&] { wg.Done(); });
      go([&] { wg.Done(); });
      wg.Wait();
    }
  });
}

TEST_P(SyncStressTest, MutexMayGoWithTheLastToLock) {
  Run([&] {
    for (int i = 0; i < kDestroyRounds; i++) {
      Mutex mu;
      bool done = false;
      mu.Lock();
      go([&] {
        mu.Lock();
        done = true;
        mu.Unlock();
      });
      runtime::Gosched();
      mu.Unlock();
      for (;;) {
        mu.Lock();
        const bool seen = done;
        mu.Unlock();
        if (seen) break;
        runtime::Gosched();
      }
    }
  });
}

TEST_P(SyncStressTest, CondMayGoWithTheWaiter) {
  Run([&] {
    Mutex mu;
    for (int i = 0; i < kDestroyRounds; i++) {
      Cond c{mu};
      bool flag = false;
      go([&, i] {
        std::scoped_lock hold(mu);
        flag = true;
        i % 2 == 0 ? c.Signal() : c.Broadcast();
      });
      mu.Lock();
      c.Wait([&] { return flag; });
      mu.Unlock();
    }
  });
}

TEST_P(SyncStressTest, SemaphoreMayGoWithTheWaiter) {
  Run([&] {
    for (int i = 0; i < kDestroyRounds; i++) {
      rt::Atomic<uint32_t> sema;
      go([&, i] { rt::semrelease(&sema, /*handoff=*/i % 2 == 0); });
      rt::semacquire(&sema, /*lifo=*/false, rt::SemaReason::kSemacquire);
    }
  });
}

TEST_P(SyncStressTest, WaitGroupMayGoWhileAThreadIsStillInDone) {
  Run([&] {
    std::atomic<WaitGroup*> slot = nullptr;
    std::atomic<bool> stop = false;
    std::thread t = testing::KnownThread([&] {
      while (!stop) {
        if (WaitGroup* wg = slot.exchange(nullptr)) wg->Done();
      }
    });
    while (!Over()) {
      auto wg = std::make_unique<WaitGroup>();
      wg->Add(1);
      slot = wg.get();
      wg->Wait();
    }
    stop = true;
    blocking([&] { t.join(); });
  });
}

TEST_P(SyncStressTest, PoolItemsHaveOneOwnerAcrossCycles) {
  struct Item {
    int users = 0;
  };
  Run([&] {
    std::vector<std::unique_ptr<sync::Pool<Item>>> pools;
    for (int i = 0; i < 3; i++) {
      pools.push_back(std::make_unique<sync::Pool<Item>>(
          [] { return std::make_unique<Item>(); }));
    }
    Hammer(8, 2, [&](Rng& rng, int round) {
      sync::Pool<Item>& pool = *pools[rng.Below(pools.size())];
      std::vector<std::unique_ptr<Item>> mine;
      const uint64_t n = rng.Below(40);
      for (uint64_t i = 0; i < n; i++) {
        mine.push_back(pool.Get());
        EXPECT_EQ(mine.back()->users++, 0);
      }
      Pause(rng);
      for (auto& item : mine) {
        item->users--;
        pool.Put(std::move(item));
      }
      if (round % 64 == 0) runtime::GC();
    });
  });
}

TEST_P(SyncStressTest, MapKeepsEveryKeysHistoryInOrder) {
  Run([&] {
    sync::Map<int, int64_t> m;
    std::atomic<int64_t> added = 0;
    std::atomic<int64_t> removed = 0;
    Hammer(6, 2, [&](Rng& rng, int) {
      const int k = static_cast<int>(rng.Below(50));
      switch (rng.Below(4)) {
        case 0:
          if (!m.LoadOrStore(k, 1).second) added += 1;
          break;
        case 1: {
          const std::optional<int64_t> old = m.Load(k);
          if (old && m.CompareAndSwap(k, *old, *old + 1)) added += 1;
          break;
        }
        case 2:
          if (auto old = m.LoadAndDelete(k)) removed += *old;
          break;
        case 3: {
          int64_t seen = 0;
          m.Range([&](int, int64_t v) { seen += v > 0 ? 1 : 1000; });
          EXPECT_LE(seen, 50);
          break;
        }
      }
    });
    int64_t left = 0;
    m.Range([&](int, int64_t v) { left += v; });
    EXPECT_EQ(left + removed, added);
  });
}

}  // namespace
}  // namespace gump
