// The claims of the tests of Go's sync package and of its semaphores, under
// their names, in our words. Left out: what is about Go's collector, its copy
// checker, or allocation counts of interfaces.
#include "gump/sync.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "gump/chan.h"
#include "gump/defer.h"
#include "gump/go.h"
#include "gump/internal/linkname.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::Cond;
using sync::Map;
using sync::Mutex;
using sync::Once;
using sync::Pool;
using sync::RWMutex;
using sync::WaitGroup;
using testing::Eventually;

using SyncTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(SyncTest);

// ---- runtime/sema_test.go ---------------------------------------------------

// One round: true if the releaser gave its processor to the waiter at once.
bool Handoff() {
  rt::Atomic<uint32_t> sema;
  std::atomic<int> first = 0;  // 1: the waiter was first, 2: the releaser
  std::atomic<bool> waiting = false;
  std::atomic<bool> stop = false;
  WaitGroup wg;
  // Busy Ps keep the releaser from being moved, which would look like a win.
  for (int i = 0; i < runtime::GOMAXPROCS(0); i++) {
    wg.Go([&] {
      while (!stop) runtime::Gosched();
    });
  }
  wg.Go([&] {
    waiting = true;
    rt::semacquire(&sema, /*lifo=*/false, rt::SemaReason::kSemacquire);
    int none = 0;
    first.compare_exchange_strong(none, 1);
    stop = true;
  });
  while (!waiting) runtime::Gosched();
  for (int i = 0; i < 10; i++) runtime::Gosched();  // it parks
  rt::semrelease(&sema, /*handoff=*/true);
  int none = 0;
  first.compare_exchange_strong(none, 2);
  wg.Wait();
  return first == 1;
}

TEST_P(SyncTest, TestSemaHandoff) {
  Run([] {
    int ok = 0;
    constexpr int kRounds = 200;
    for (int i = 0; i < kRounds; i++) ok += Handoff() ? 1 : 0;
    EXPECT_GE(ok, kRounds * 2 / 3);
  });
}

// ---- mutex_test.go ----------------------------------------------------------

TEST_P(SyncTest, TestSemaphore) {
  Run([] {
    rt::Atomic<uint32_t> sema(1);
    WaitGroup wg;
    int n = 0;
    for (int i = 0; i < 10; i++) {
      wg.Go([&] {
        for (int j = 0; j < 1000; j++) {
          rt::semacquire(&sema, /*lifo=*/false, rt::SemaReason::kSemacquire);
          n++;
          rt::semrelease(&sema, /*handoff=*/false);
        }
      });
    }
    wg.Wait();
    EXPECT_EQ(n, 10'000);
  });
}

TEST_P(SyncTest, TestMutex) {
  Run([] {
    Mutex m;
    m.Lock();
    EXPECT_FALSE(m.TryLock());
    m.Unlock();
    EXPECT_TRUE(m.TryLock());
    m.Unlock();
    WaitGroup wg;
    for (int i = 0; i < 10; i++) {
      wg.Go([&] {
        for (int j = 0; j < 1000; j++) {
          if (j % 3 == 0) {
            if (m.TryLock()) m.Unlock();
            continue;
          }
          m.Lock();
          m.Unlock();
        }
      });
    }
    wg.Wait();
  });
}

TEST_P(SyncTest, TestMutexFairness) {
  Run([] {
    Mutex mu;
    std::atomic<bool> stop = false;
    auto hold = [&] {
      const auto end =
          std::chrono::steady_clock::now() + std::chrono::microseconds(100);
      while (std::chrono::steady_clock::now() < end) runtime::Gosched();
    };
    WaitGroup wg;
    wg.Go([&] {
      while (!stop) {
        mu.Lock();
        hold();
        mu.Unlock();
      }
    });
    wg.Go([&] {
      for (int i = 0; i < 10; i++) {
        hold();
        mu.Lock();
        mu.Unlock();
      }
      stop = true;
    });
    EXPECT_TRUE(Eventually([&] { return stop.load(); }));
    wg.Wait();
  });
}

// ---- rwmutex_test.go --------------------------------------------------------

TEST_P(SyncTest, TestParallelReaders) {
  Run([] {
    for (int readers : {1, 3, 4, 10}) {
      RWMutex m;
      auto locked = make_chan<void>();
      auto unlock = make_chan<void>();
      auto done = make_chan<void>();
      for (int i = 0; i < readers; i++) {
        go([&] {
          m.RLock();
          locked.Send();
          unlock.Recv();
          m.RUnlock();
          done.Send();
        });
      }
      for (int i = 0; i < readers; i++) locked.Recv();
      for (int i = 0; i < readers; i++) unlock.Send();
      for (int i = 0; i < readers; i++) done.Recv();
    }
  });
}

// Readers add 1, writers 10'000: neither ever sees the other's.
void HammerRWMutex(int readers, int rounds) {
  std::atomic<int> activity = 0;
  RWMutex m;
  WaitGroup wg;
  auto writer = [&] {
    for (int i = 0; i < rounds; i++) {
      m.Lock();
      EXPECT_EQ(activity += 10'000, 10'000);
      for (int j = 0; j < 100; j++) rt::compilerFence();
      activity -= 10'000;
      m.Unlock();
    }
  };
  auto reader = [&] {
    for (int i = 0; i < rounds; i++) {
      m.RLock();
      const int n = ++activity;
      EXPECT_TRUE(n >= 1 && n < 10'000) << n;
      for (int j = 0; j < 100; j++) rt::compilerFence();
      activity--;
      m.RUnlock();
    }
  };
  wg.Go(writer);
  for (int i = 0; i < readers / 2; i++) wg.Go(reader);
  wg.Go(writer);
  for (int i = readers / 2; i < readers; i++) wg.Go(reader);
  wg.Wait();
  EXPECT_EQ(activity, 0);
}

TEST_P(SyncTest, TestRWMutex) {
  Run([] {
    RWMutex m;
    m.Lock();
    EXPECT_FALSE(m.TryLock());
    EXPECT_FALSE(m.TryRLock());
    m.Unlock();
    EXPECT_TRUE(m.TryLock());
    m.Unlock();
    EXPECT_TRUE(m.TryRLock());
    EXPECT_TRUE(m.TryRLock());
    EXPECT_FALSE(m.TryLock());
    m.RUnlock();
    m.RUnlock();
    for (int readers : {1, 3, 10}) HammerRWMutex(readers, 1000);
  });
}

TEST_P(SyncTest, TestRLocker) {
  Run([] {
    RWMutex wl;
    sync::Locker rl = wl.RLocker();
    auto wlocked = make_chan<bool>(1);
    auto rlocked = make_chan<bool>(1);
    constexpr int kRounds = 10;
    go([&] {
      for (int i = 0; i < kRounds; i++) {
        rl.Lock();
        rl.Lock();
        rlocked.Send(true);
        wl.Lock();
        wlocked.Send(true);
      }
    });
    for (int i = 0; i < kRounds; i++) {
      rlocked.Recv();
      rl.Unlock();
      EXPECT_FALSE(wlocked.TryRecv().value.has_value());
      rl.Unlock();
      wlocked.Recv();
      EXPECT_FALSE(rlocked.TryRecv().value.has_value());
      wl.Unlock();
    }
  });
}

// ---- waitgroup_test.go ------------------------------------------------------

TEST_P(SyncTest, TestWaitGroup) {
  Run([] {
    WaitGroup first, second;
    for (int round = 0; round < 8; round++) {
      constexpr int kN = 16;
      first.Add(kN);
      second.Add(kN);
      auto exited = make_chan<bool>(kN);
      for (int i = 0; i < kN; i++) {
        go([&] {
          first.Done();
          second.Wait();
          exited.Send(true);
        });
      }
      first.Wait();
      for (int i = 0; i < kN; i++) {
        EXPECT_FALSE(exited.TryRecv().value.has_value());
        second.Done();
      }
      for (int i = 0; i < kN; i++) exited.Recv();
    }
  });
}

TEST_P(SyncTest, TestWaitGroupMisuse) {
  Run([] {
    std::string text;
    WaitGroup wg;
    try {
      wg.Add(1);
      wg.Done();
      wg.Done();
    } catch (const PanicError& e) {
      text = e.what();
    }
    EXPECT_EQ(text, "sync: negative WaitGroup counter");
  });
}

// Add and Done from several sides: no false misuse report.
TEST_P(SyncTest, TestWaitGroupRace) {
  Run([] {
    for (int i = 0; i < 1000; i++) {
      WaitGroup wg;
      std::atomic<int> n = 0;
      wg.Add(1);
      go([&] {
        n++;
        wg.Done();
      });
      wg.Add(1);
      go([&] {
        n++;
        wg.Done();
      });
      wg.Wait();
      ASSERT_EQ(n, 2);
    }
  });
}

TEST_P(SyncTest, TestWaitGroupGo) {
  Run([] {
    WaitGroup wg;
    int i = 0;
    wg.Go([&] { i++; });
    wg.Wait();
    EXPECT_EQ(i, 1);
  });
}

// ---- once_test.go, oncefunc_test.go -----------------------------------------

TEST_P(SyncTest, TestOnce) {
  Run([] {
    Once once;
    std::atomic<int> o = 0;
    auto done = make_chan<bool>();
    for (int i = 0; i < 10; i++) {
      go([&] {
        once.Do([&] { o++; });
        EXPECT_EQ(o, 1) << "once failed inside run";
        done.Send(true);
      });
    }
    for (int i = 0; i < 10; i++) done.Recv();
    EXPECT_EQ(o, 1);
  });
}

TEST_P(SyncTest, TestOncePanic) {
  Run([] {
    Once once;
    EXPECT_THROW(once.Do([] { panic("failed"); }), PanicError);
    once.Do([] { ADD_FAILURE() << "Once.Do called twice"; });
  });
}

TEST_P(SyncTest, TestOnceFuncPanic) {
  Run([] {
    int calls = 0;
    auto f = sync::OnceFunc([&] {
      calls++;
      panic("x");
    });
    for (int i = 0; i < 2; i++) {
      try {
        f();
        ADD_FAILURE() << "want panic x";
      } catch (const PanicError& e) {
        EXPECT_STREQ(e.what(), "x");
      }
    }
    EXPECT_EQ(calls, 1);
  });
}

TEST_P(SyncTest, TestOnceFuncGoexit) {
  Run([] {
    int calls = 0;
    auto f = sync::OnceFunc([&] {
      calls++;
      runtime::Goexit();
    });
    for (int i = 0; i < 2; i++) {
      WaitGroup wg;
      wg.Go([&] {
        defer _{[&] { EXPECT_LE(calls, 1); }};
        try {
          f();
        } catch (const PanicError&) {  // the second time
        }
      });
      wg.Wait();
    }
    EXPECT_EQ(calls, 1);
  });
}

// ---- cond_test.go -----------------------------------------------------------

TEST_P(SyncTest, TestCondSignal) {
  Run([] {
    Mutex m;
    Cond c{m};
    constexpr int kN = 2;
    auto running = make_chan<bool>(kN);
    auto awake = make_chan<bool>(kN);
    for (int i = 0; i < kN; i++) {
      go([&] {
        m.Lock();
        running.Send(true);
        c.Wait();
        awake.Send(true);
        m.Unlock();
      });
    }
    for (int i = 0; i < kN; i++) running.Recv();
    for (int n = kN; n > 0; n--) {
      EXPECT_FALSE(awake.TryRecv().value.has_value()) << "not asleep";
      m.Lock();
      c.Signal();
      m.Unlock();
      awake.Recv();
      EXPECT_FALSE(awake.TryRecv().value.has_value()) << "too many awake";
    }
    c.Signal();
  });
}

TEST_P(SyncTest, TestCondSignalGenerations) {
  Run([] {
    Mutex m;
    Cond c{m};
    constexpr int kN = 100;
    auto running = make_chan<bool>(kN);
    auto awake = make_chan<int>(kN);
    for (int i = 0; i < kN; i++) {
      go([&, i] {
        m.Lock();
        running.Send(true);
        c.Wait();
        awake.Send(i);
        m.Unlock();
      });
      if (i > 0) {
        EXPECT_EQ(awake.Recv(), i - 1);
      }
      running.Recv();
      m.Lock();
      c.Signal();
      m.Unlock();
    }
    EXPECT_EQ(awake.Recv(), kN - 1);
  });
}

TEST_P(SyncTest, TestCondBroadcast) {
  Run([] {
    Mutex m;
    Cond c{m};
    constexpr int kN = 50;
    auto running = make_chan<int>(kN);
    auto awake = make_chan<int>(kN);
    bool exit = false;
    WaitGroup wg;
    for (int i = 0; i < kN; i++) {
      wg.Go([&, i] {
        m.Lock();
        while (!exit) {
          running.Send(i);
          c.Wait();
          awake.Send(i);
        }
        m.Unlock();
      });
    }
    for (int i = 0; i < kN; i++) {
      for (int j = 0; j < kN; j++) running.Recv();  // all ready to run
      if (i == kN - 1) {
        m.Lock();
        exit = true;
        m.Unlock();
      }
      EXPECT_FALSE(awake.TryRecv().value.has_value()) << "not asleep";
      m.Lock();
      c.Broadcast();
      m.Unlock();
      std::set<int> seen;
      for (int j = 0; j < kN; j++) {
        EXPECT_TRUE(seen.insert(awake.Recv().value()).second) << "woke twice";
      }
    }
    EXPECT_FALSE(running.TryRecv().value.has_value()) << "did not exit";
    wg.Wait();
  });
}

TEST_P(SyncTest, TestRace) {
  Run([] {
    Mutex m;
    Cond c{m};
    int x = 0;
    WaitGroup wg;
    wg.Go([&] {
      std::scoped_lock hold(m);
      x = 1;
      c.Wait();
      EXPECT_EQ(x, 2);
      x = 3;
      c.Signal();
    });
    wg.Go([&] {
      for (;;) {
        std::scoped_lock hold(m);
        if (x == 1) {
          x = 2;
          c.Signal();
          break;
        }
        runtime::Gosched();
      }
    });
    wg.Go([&] {
      for (;;) {
        std::scoped_lock hold(m);
        if (x == 2) {
          c.Wait();
          EXPECT_EQ(x, 3);
          break;
        }
        if (x == 3) break;
        runtime::Gosched();
      }
    });
    wg.Wait();
  });
}

// A Signal goes to who waits already, not to one that begins to wait after.
TEST_P(SyncTest, TestCondSignalStealing) {
  Run([] {
    for (int round = 0; round < 200; round++) {
      Mutex m;
      Cond cond{m};
      auto ch = make_chan<void>();
      WaitGroup wg;
      wg.Go([&] {
        m.Lock();
        ch.Send();
        cond.Wait();
        m.Unlock();
        ch.Send();
      });
      ch.Recv();
      m.Lock();
      m.Unlock();
      // The waiter is in the list, or on its way there without the lock.
      bool done = false;
      wg.Go([&] {
        m.Lock();
        while (!done) cond.Wait();
        m.Unlock();
      });
      cond.Signal();
      ch.Recv();  // it was the first that was woken
      m.Lock();
      done = true;
      m.Unlock();
      cond.Broadcast();
      wg.Wait();
    }
  });
}

// ---- pool_test.go -----------------------------------------------------------

TEST_P(SyncTest, TestPool) {
  Run([] {
    Pool<std::string> p;
    EXPECT_EQ(p.Get(), nullptr);
    p.Put(std::make_unique<std::string>("a"));
    p.Put(std::make_unique<std::string>("b"));
    // Two items, in any order: we may have moved in between.
    std::set<std::string> got{*p.Get(), *p.Get()};
    EXPECT_EQ(got, (std::set<std::string>{"a", "b"}));
    EXPECT_EQ(p.Get(), nullptr);
    // Survives one cycle among the victims.
    for (int i = 0; i < 100; i++) p.Put(std::make_unique<std::string>("c"));
    runtime::GC();
    EXPECT_EQ(*p.Get(), "c");
    runtime::GC();
    EXPECT_EQ(p.Get(), nullptr);
  });
}

TEST_P(SyncTest, TestPoolStress) {
  Run([] {
    Pool<int> p;
    WaitGroup wg;
    for (int i = 0; i < 10; i++) {
      wg.Go([&] {
        auto v = std::make_unique<int>(0);
        for (int j = 0; j < 5000; j++) {
          if (v == nullptr) v = std::make_unique<int>(0);
          p.Put(std::move(v));
          v = p.Get();
          EXPECT_TRUE(v == nullptr || *v == 0);
          if (j % 64 == 0) runtime::Gosched();
        }
      });
    }
    wg.Wait();
  });
}

// ---- map_test.go ------------------------------------------------------------

TEST_P(SyncTest, TestConcurrentRange) {
  Run([] {
    constexpr int64_t kSize = 1 << 8;
    Map<int64_t, int64_t> m;
    for (int64_t n = 1; n <= kSize; n++) m.Store(n, n);
    std::atomic<bool> done = false;
    WaitGroup wg;
    for (int64_t g = 8; g > 0; g--) {
      wg.Go([&, g] {
        for (int64_t i = 0; !done; i++) {
          for (int64_t n = 1; n < kSize; n++) {
            if (n % g == 0) {
              m.Store(n, n * i * g);
            } else {
              EXPECT_TRUE(m.Load(n).has_value());
            }
          }
          runtime::Gosched();
        }
      });
    }
    for (int i = 0; i < 20; i++) {
      std::set<int64_t> seen;
      m.Range([&](int64_t k, int64_t v) {
        EXPECT_EQ(v % k, 0) << "stored only multiples";
        EXPECT_TRUE(seen.insert(k).second) << "visited twice";
        return true;
      });
      EXPECT_EQ(seen.size(), static_cast<size_t>(kSize));
      runtime::Gosched();
    }
    done = true;
    wg.Wait();
  });
}

TEST_P(SyncTest, TestMapRangeNestedCall) {
  Run([] {
    Map<int, std::string> m;
    for (int i = 0; i < 3; i++) m.Store(i, std::string(1, char('a' + i)));
    m.Range([&](int key, const std::string&) {
      m.Range([&](int inner, const std::string& value) {
        EXPECT_EQ(m.Load(inner), value) << "a key that Range offers is there";
        EXPECT_FALSE(m.LoadOrStore(42, "dummy").second);
        m.Store(42, "sync.Map");
        EXPECT_EQ(m.LoadAndDelete(42), "sync.Map");
      });
      m.Delete(key);
    });
    int length = 0;
    m.Range([&](int, const std::string&) { length++; });
    EXPECT_EQ(length, 0);
  });
}

TEST_P(SyncTest, TestCompareAndSwap_NonExistingKey) {
  Run([] {
    Map<int, int> m;
    EXPECT_FALSE(m.CompareAndSwap(1, 0, 42));
    EXPECT_EQ(m.Load(1), std::nullopt);
  });
}

TEST_P(SyncTest, TestConcurrentClear) {
  Run([] {
    Map<int, int> m;
    WaitGroup wg;
    for (int i = 0; i < 10; i++) {
      wg.Go([&, i] { m.Store(i, i); });
      wg.Go([&, i] { EXPECT_EQ(m.Load(i).value_or(i), i); });
      wg.Go([&] { m.Clear(); });
    }
    wg.Wait();
    m.Clear();
    m.Range([](int k, int) { ADD_FAILURE() << k << " is still there"; });
  });
}

}  // namespace
}  // namespace gump
