#include "gump/sync/list.h"

#include <gtest/gtest.h>

#include <atomic>
#include <iterator>
#include <list>
#include <stdexcept>
#include <utility>
#include <vector>

#include "gump/go.h"
#include "gump/sync/waitgroup.h"
#include "tests/testing/counted.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::List;
using testing::Counted;
using ListTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(ListTest);

std::vector<int> Contents(List<int>& l) {
  std::vector<int> all;
  l.Range([&](int v) { all.push_back(v); });
  return all;
}

TEST(ListModelTest, BehavesAsAList) {
  testing::Rng rng(1);
  List<int> l;
  std::list<int> model;
  std::vector<std::pair<List<int>::Element, std::list<int>::iterator>> all;
  for (int step = 0; step < 20000; step++) {
    const uint64_t what = rng.Below(all.size() > 100 ? 9 : 6);
    if (what < 2) {
      all.emplace_back(l.PushBack(step), model.insert(model.end(), step));
    } else if (what < 4) {
      all.emplace_back(l.PushFront(step), model.insert(model.begin(), step));
    } else if (!all.empty()) {
      const size_t k = rng.Below(all.size());
      const auto [e, it] = all[k];
      if (what == 4) {
        auto added = l.InsertAfter(e, step);
        ASSERT_TRUE(added);
        all.emplace_back(std::move(added), model.insert(std::next(it), step));
      } else {
        EXPECT_EQ(*e, *it);
        EXPECT_TRUE(l.Remove(e));
        EXPECT_FALSE(l.Remove(e));
        EXPECT_FALSE(l.InsertAfter(e, step));
        EXPECT_EQ(*e, *it);  // it lives as long as its handle
        model.erase(it);
        std::swap(all[k], all.back());
        all.pop_back();
      }
    }
    EXPECT_EQ(l.Len(), model.size());
    if (step % 100 == 0) {
      EXPECT_EQ(Contents(l), std::vector<int>(model.begin(), model.end()));
    }
  }
  for (int v : model) EXPECT_EQ(*l.PopFront(), v);
  EXPECT_FALSE(l.PopFront());
  EXPECT_FALSE(l.Front());
}

TEST(ListModelTest, RangeSeesTheRestWhenTheCurrentIsRemoved) {
  List<int> l;
  for (int i = 0; i < 10; i++) l.PushBack(i);
  std::vector<int> seen;
  l.Range([&](int v) {
    seen.push_back(v);
    if (v == 3) l.RemoveIf([](int n) { return n >= 2 && n <= 5; });
    return v < 8;
  });
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2, 3, 6, 7, 8}));
  EXPECT_EQ(Contents(l), (std::vector<int>{0, 1, 6, 7, 8, 9}));
  l.PushBack(10);
  EXPECT_EQ(l.RemoveIf([](int n) { return n % 2 == 0; }), 4u);
  EXPECT_EQ(Contents(l), (std::vector<int>{1, 7, 9}));
}

TEST(ListModelTest, PushBackMayFollowARemoveOfTheLast) {
  List<int> l;
  auto one = l.PushBack(1);
  auto two = l.PushBack(2);
  l.Remove(two);
  l.PushBack(3);
  EXPECT_EQ(Contents(l), (std::vector<int>{1, 3}));
  l.Remove(one);
  l.PopFront();
  EXPECT_EQ(l.Len(), 0u);
  l.PushBack(4);
  EXPECT_EQ(*l.Front(), 4);
}

TEST(ListModelTest, DestroysEveryElementOnceAndAtOnce) {
  {
    List<Counted> l;
    for (int i = 0; i < 100; i++) l.PushBack(Counted(i));
    l.RemoveIf([](const Counted& c) { return c.n() % 2 == 0; });
    EXPECT_EQ(Counted::values(), 50);
    {
      auto first = l.PopFront();
      EXPECT_EQ(first->n(), 1);
      EXPECT_EQ(Counted::values(), 50);
    }
    EXPECT_EQ(Counted::values(), 49);
  }
  EXPECT_EQ(Counted::objects(), 0);
}

struct MoveOnce {
  explicit MoveOnce(int n) : left(n) {}
  MoveOnce(MoveOnce&& o) : left(o.left - 1) {  // NOLINT: throws
    if (left == 0) throw std::runtime_error("out of moves");
  }
  int left;
};

TEST(ListModelTest, AThrowingMoveLeavesTheListAsItWas) {
  List<MoveOnce> l;
  for (int i = 0; i < 100; i++) {
    EXPECT_THROW(l.PushBack(MoveOnce(2)), std::runtime_error);
  }
  EXPECT_EQ(l.Len(), 0u);
  l.PushBack(MoveOnce(100));
  EXPECT_TRUE(l.Front());
}

TEST_P(ListTest, EveryElementIsRemovedExactlyOnce) {
  Run([] {
    constexpr int kWorkers = 6, kElements = 300;
    for (int round = 0; round < 10; round++) {
      List<int> l;
      for (int i = 0; i < kElements; i++) l.PushBack(i);
      std::atomic<size_t> removed = 0;
      sync::WaitGroup wg;
      for (int w = 0; w < kWorkers; w++) {
        wg.Go([&, w] {
          if (w % 2 == 0) {
            removed += l.RemoveIf([&](int) { return true; });
          } else {
            while (l.PopFront()) removed++;
          }
        });
      }
      wg.Wait();
      EXPECT_EQ(removed, size_t{kElements});
      EXPECT_EQ(l.Len(), 0u);
      EXPECT_FALSE(l.Front());
    }
  });
}

TEST_P(ListTest, WorksAsAQueueBetweenThreadsAndGoroutines) {
  Run([] {
    constexpr int kEach = 1000;
    List<int> l;
    std::atomic<int> popped = 0;
    std::atomic<int64_t> sum = 0;
    const auto push = [&l] {
      for (int i = 1; i <= kEach; i++) l.PushBack(i);
    };
    const auto pop = [&] {
      while (popped < 4 * kEach) {
        if (List<int>::Element e = l.PopFront()) {
          sum += *e;
          popped++;
        } else {
          runtime::Gosched();
        }
      }
    };
    testing::OnBothSides(push, pop);
    EXPECT_EQ(sum, int64_t{4} * kEach * (kEach + 1) / 2);
  });
}

}  // namespace
}  // namespace gump
