// The claims of the tests of Go's sync package about WaitGroup, Once, Pool and
// Map, under their names, in our words. Tests of Go's collector and of the
// allocations of interfaces are left out. The locks are in sync_lock_test.cc.
#include "gump/sync.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "gump/chan.h"
#include "gump/defer.h"
#include "gump/go.h"
#include "gump/internal/linkname_sync.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::Map;
using sync::Once;
using sync::Pool;
using sync::WaitGroup;

using SyncTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(SyncTest);

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

// ---- pool_test.go -----------------------------------------------------------

TEST_P(SyncTest, TestPool) {
  Run([] {
    Pool<std::string> p;
    EXPECT_EQ(p.Get(), nullptr);
    // On one P, because no other P finds the item that a P keeps for itself.
    rt::procPin();
    p.Put(std::make_unique<std::string>("a"));
    p.Put(std::make_unique<std::string>("b"));
    std::set<std::string> got{*p.Get(), *p.Get()};
    rt::procUnpin();
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
