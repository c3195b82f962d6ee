#include "gump/sync/map.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::Map;
using MapTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(MapTest);

TEST(MapBasicsTest, EachFunctionDoesAsItsNameSays) {
  Map<std::string, int> m;
  EXPECT_EQ(m.Load("a"), std::nullopt);
  m.Store("a", 1);
  EXPECT_EQ(m.Load("a"), 1);
  EXPECT_EQ(m.LoadOrStore("a", 2), std::pair(1, true));
  EXPECT_EQ(m.LoadOrStore("b", 2), std::pair(2, false));
  EXPECT_EQ(m.Swap("b", 3), 2);
  EXPECT_EQ(m.Swap("c", 4), std::nullopt);
  EXPECT_FALSE(m.CompareAndSwap("c", 5, 6));
  EXPECT_TRUE(m.CompareAndSwap("c", 4, 6));
  EXPECT_FALSE(m.CompareAndSwap("nobody", 4, 6));
  EXPECT_EQ(m.Load("c"), 6);
  EXPECT_FALSE(m.CompareAndDelete("c", 4));
  EXPECT_TRUE(m.CompareAndDelete("c", 6));
  EXPECT_FALSE(m.CompareAndDelete("c", 6));
  EXPECT_EQ(m.LoadAndDelete("b"), 3);
  EXPECT_EQ(m.LoadAndDelete("b"), std::nullopt);
  m.Delete("a");
  m.Delete("a");
  EXPECT_EQ(m.Load("a"), std::nullopt);
}

TEST(MapBasicsTest, ClearRemovesEverything) {
  Map<int, int> m;
  m.Clear();
  for (int i = 0; i < 1000; i++) m.Store(i, i);
  m.Clear();
  int seen = 0;
  m.Range([&](int, int) { seen++; });
  EXPECT_EQ(seen, 0);
  m.Store(1, 1);
  EXPECT_EQ(m.Load(1), 1);
}

TEST(MapBasicsTest, RangeStopsWhenToldTo) {
  Map<int, int> m;
  for (int i = 0; i < 1000; i++) m.Store(i, i);
  int seen = 0;
  m.Range([&](int, int) { return ++seen < 10; });
  EXPECT_EQ(seen, 10);
}

TEST(MapBasicsTest, MoveOnlyValuesGoInAndOut) {
  Map<int, std::unique_ptr<int>> m;
  m.Store(1, std::make_unique<int>(7));
  EXPECT_EQ(*m.Swap(1, std::make_unique<int>(8)).value(), 7);
  EXPECT_EQ(*m.LoadAndDelete(1).value(), 8);
}

TEST(MapBasicsTest, HashAndEqualityMayBeTheUsers) {
  struct Mod10 {
    size_t operator()(int n) const { return static_cast<size_t>(n % 10); }
  };
  struct SameMod10 {
    bool operator()(int a, int b) const { return a % 10 == b % 10; }
  };
  Map<int, int, Mod10, SameMod10> m;
  m.Store(3, 1);
  EXPECT_EQ(m.Load(13), 1);
}

TEST(MapBasicsTest, DestructorsOfOldValuesMayUseTheMap) {
  static Map<int, std::shared_ptr<struct UsesMap>>* map;
  struct Uses {
    ~Uses() { map->Delete(-1); }
  };
  Map<int, std::shared_ptr<struct UsesMap>> m;
  map = &m;
  auto value = [] {
    return std::shared_ptr<struct UsesMap>(
        nullptr, [u = std::make_shared<Uses>()](struct UsesMap*) {});
  };
  for (int i = 0; i < 200; i++) m.Store(i, value());
  for (int i = 0; i < 50; i++) m.Store(i, value());
  for (int i = 50; i < 100; i++) m.Delete(i);
  m.CompareAndSwap(100, m.Load(100).value(), value());
  m.Clear();
}

// With one goroutine, a Map does the same as a std::map.
TEST(MapBasicsTest, BehavesAsAMap) {
  std::mt19937 rng(7);
  Map<int, int> m;
  std::map<int, int> model;
  for (int i = 0; i < 100'000; i++) {
    const int k = static_cast<int>(rng() % 300);
    const int v = static_cast<int>(rng() % 4);
    auto it = model.find(k);
    const std::optional<int> now =
        it == model.end() ? std::nullopt : std::optional(it->second);
    switch (rng() % 7) {
      case 0:
        ASSERT_EQ(m.Load(k), now);
        break;
      case 1:
        m.Store(k, v);
        model[k] = v;
        break;
      case 2:
        ASSERT_EQ(m.LoadOrStore(k, v),
                  std::pair(now.value_or(v), now.has_value()));
        model.try_emplace(k, v);
        break;
      case 3:
        ASSERT_EQ(m.LoadAndDelete(k), now);
        model.erase(k);
        break;
      case 4:
        ASSERT_EQ(m.Swap(k, v), now);
        model[k] = v;
        break;
      case 5:
        ASSERT_EQ(m.CompareAndSwap(k, v, v + 1), now == v);
        if (now == v) model[k] = v + 1;
        break;
      case 6:
        ASSERT_EQ(m.CompareAndDelete(k, v), now == v);
        if (now == v) model.erase(k);
        break;
    }
  }
  std::map<int, int> contents;
  m.Range([&](int k, int v) { EXPECT_TRUE(contents.emplace(k, v).second); });
  EXPECT_EQ(contents, model);
}

TEST_P(MapTest, LoadOrStoreHasOneWinner) {
  Run([] {
    Map<int, int> m;
    std::atomic<int> stored = 0;
    sync::WaitGroup wg;
    for (int g = 0; g < 8; g++) {
      wg.Go([&, g] {
        for (int k = 0; k < 500; k++) {
          auto [value, loaded] = m.LoadOrStore(k, g);
          if (!loaded) {
            EXPECT_EQ(value, g);
            stored++;
          }
        }
      });
    }
    wg.Wait();
    EXPECT_EQ(stored, 500);
  });
}

TEST_P(MapTest, CompareAndSwapCountsExactly) {
  Run([] {
    Map<int, int> m;
    m.Store(0, 0);
    auto work = [&] {
      for (int i = 0; i < 1000; i++) {
        for (;;) {
          const int old = m.Load(0).value();
          if (m.CompareAndSwap(0, old, old + 1)) break;
        }
      }
    };
    sync::WaitGroup wg;
    for (int g = 0; g < 4; g++) wg.Go(work);
    std::thread t = testing::KnownThread(work);
    wg.Wait();
    blocking([&] { t.join(); });
    EXPECT_EQ(m.Load(0), 5000);
  });
}

TEST_P(MapTest, RangeVisitsEveryStayingKeyOnceWhileOthersComeAndGo) {
  Run([] {
    Map<int, int> m;
    for (int i = 0; i < 1000; i++) m.Store(i, i);
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    for (int g = 0; g < 3; g++) {
      wg.Go([&, g] {
        for (int i = 0; !stop; i++) {
          const int k = 1000 + g * 1000 + i % 1000;
          m.Store(k, k);
          m.Delete(k);
          m.Store(i % 1000, i % 1000);  // an old one, the same value
          runtime::Gosched();
        }
      });
    }
    for (int round = 0; round < 20; round++) {
      std::set<int> seen;
      m.Range([&](int k, int v) {
        EXPECT_EQ(k, v);
        EXPECT_TRUE(seen.insert(k).second);
      });
      for (int i = 0; i < 1000; i++) EXPECT_EQ(seen.count(i), 1u);
      runtime::Gosched();
    }
    stop = true;
    wg.Wait();
  });
}

TEST_P(MapTest, RangeMayCallAnythingOfTheMap) {
  Run([] {
    Map<int, int> m;
    for (int i = 0; i < 100; i++) m.Store(i, 0);
    m.Range([&](int k, int) {
      m.Delete(k);
      m.Store(k + 1000, 1);
      m.Range([&](int inner, int) { return m.Load(inner).has_value(); });
      if (k == 50) m.Clear();
      return k < 1000;
    });
  });
}

}  // namespace
}  // namespace gump
