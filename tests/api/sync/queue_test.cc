#include "gump/sync/queue.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gump/go.h"
#include "gump/sync/waitgroup.h"
#include "tests/testing/counted.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::Queue;
using testing::Counted;
using QueueTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(QueueTest);

TEST(QueueModelTest, ElementsLeaveInTheOrderOfArrival) {
  Queue<int> q;
  EXPECT_TRUE(q.Empty());
  EXPECT_EQ(q.Pop(), std::nullopt);
  int next = 0, expected = 0;
  // Grows over several segments, shrinks, and uses nodes again.
  for (int round = 0; round < 50; round++) {
    for (int i = 0; i < 3 * round; i++) q.Push(next++);
    for (int i = 0; i < 2 * round; i++) EXPECT_EQ(q.Pop(), expected++);
    EXPECT_EQ(q.Empty(), next == expected);
  }
  int v = -1;
  while (q.Pop(v)) EXPECT_EQ(v, expected++);
  EXPECT_EQ(expected, next);
  EXPECT_TRUE(q.Empty());
}

TEST(QueueModelTest, FailedPopLeavesTheVariableAlone) {
  Queue<std::string> q;
  std::string s = "as it was";
  EXPECT_FALSE(q.Pop(s));
  EXPECT_EQ(s, "as it was");
}

TEST(QueueModelTest, TakesMoveOnlyAndOverAlignedElements) {
  struct alignas(64) Wide {
    std::unique_ptr<int> p;
  };
  Queue<Wide> q;
  for (int i = 0; i < 100; i++) q.Push({std::make_unique<int>(i)});
  for (int i = 0; i < 100; i++) {
    std::optional<Wide> w = q.Pop();
    ASSERT_TRUE(w.has_value());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(&*w) % 64, 0u);
    EXPECT_EQ(*w->p, i);
  }
}

TEST(QueueModelTest, DestroysEveryElementOnce) {
  {
    Queue<Counted> q;
    for (int i = 0; i < 100; i++) q.Push(Counted(i));
    for (int i = 0; i < 40; i++) EXPECT_EQ(q.Pop()->n(), i);
    EXPECT_EQ(Counted::values(), 60);
    EXPECT_EQ(Counted::objects(), 60);
  }
  EXPECT_EQ(Counted::objects(), 0);
}

TEST_P(QueueTest, OrderOfEachProducerIsKept) {
  Run([] {
    constexpr int kProducers = 4, kEach = 5000;
    Queue<std::pair<int, int>> q;
    sync::WaitGroup producers;
    for (int p = 0; p < kProducers; p++) {
      producers.Go([&q, p] {
        for (int i = 0; i < kEach; i++) q.Push({p, i});
      });
    }
    std::array<int, kProducers> next{};
    for (int n = 0; n < kProducers * kEach;) {
      auto v = q.Pop();
      if (!v.has_value()) {
        runtime::Gosched();
        continue;
      }
      EXPECT_EQ(v->second, next[static_cast<size_t>(v->first)]++);
      n++;
    }
    producers.Wait();
    EXPECT_TRUE(q.Empty());
  });
}

TEST_P(QueueTest, MixesWithPlainThreads) {
  Run([] {
    constexpr int kEach = 2000;
    Queue<int> q;
    std::atomic<int> popped = 0;
    std::atomic<int64_t> sum = 0;
    const auto push = [&q] {
      for (int i = 1; i <= kEach; i++) q.Push(i);
    };
    const auto pop = [&] {
      while (popped < 4 * kEach) {
        std::optional<int> v = q.Pop();
        if (!v.has_value()) {
          runtime::Gosched();
          continue;
        }
        sum += *v;
        popped++;
      }
    };
    testing::OnBothSides(push, pop);
    EXPECT_EQ(popped, 4 * kEach);
    EXPECT_EQ(sum, int64_t{4} * kEach * (kEach + 1) / 2);
  });
}

}  // namespace
}  // namespace gump
