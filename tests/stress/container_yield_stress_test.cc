// The lock-free containers with a switch of threads at every turn. They are
// built with tests/testing/yielding_atomic.h, and without the rest of the
// library. This finds races that last for one instruction.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gump/sync/list.h"
#include "gump/sync/queue.h"
#include "gump/sync/stack.h"
#include "tests/testing/counted.h"
#include "tests/testing/stress.h"

namespace gump {
namespace {

using testing::Counted;
using testing::Rng;

constexpr int kThreads = 6;

template <class F>
void InThreads(uint64_t seed, F work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++) {
    threads.emplace_back([=] {
      Rng rng(seed + static_cast<uint64_t>(i));
      work(rng);
    });
  }
  for (auto& t : threads) t.join();
}

// Every thread puts numbers in and takes some out. The numbers that were put in
// equal those that were taken out or are left, in count and in sum.
template <class Container>
void PutAndTake(Rng& rng) {
  Container c;
  std::atomic<int> count = 0;
  std::atomic<int64_t> sum = 0;
  InThreads(rng.Next(), [&](Rng& r) {
    for (int i = 0; i < 100; i++) {
      c.Push(Counted(i));
      count++;
      sum += i;
      if (r.OneIn(8)) continue;
      std::optional<Counted> v = c.Pop();
      ASSERT_TRUE(v.has_value());
      count--;
      sum -= v->n();
    }
  });
  while (std::optional<Counted> v = c.Pop()) {
    count--;
    sum -= v->n();
  }
  EXPECT_EQ(count, 0);
  EXPECT_EQ(sum, 0);
  EXPECT_EQ(Counted::objects(), 0);
}

TEST(ContainerYieldStressTest, QueueLosesNothing) {
  testing::StressLoop(PutAndTake<sync::Queue<Counted>>);
}

TEST(ContainerYieldStressTest, StackLosesNothing) {
  testing::StressLoop(PutAndTake<sync::Stack<Counted>>);
}

TEST(ContainerYieldStressTest, ListLosesNothing) {
  testing::StressLoop([](Rng& rng) {
    {
      sync::List<Counted> l;
      std::atomic<size_t> left = 0;
      InThreads(rng.Next(), [&](Rng& r) {
        std::optional<sync::List<Counted>::Element> mine;
        for (int i = 0; i < 100; i++) {
          auto e =
              r.OneIn(2) ? l.PushBack(Counted(i)) : l.PushFront(Counted(i));
          left++;
          EXPECT_EQ(e->n(), i);
          if (mine.has_value() && l.Remove(*mine)) left--;
          mine = std::move(e);
          if (r.OneIn(2) && l.PopFront()) left--;
          if (r.OneIn(8)) l.Range([](Counted& c) { EXPECT_TRUE(c.full()); });
        }
      });
      EXPECT_EQ(l.Len(), left);
      EXPECT_EQ(l.RemoveIf([](Counted&) { return true; }), left);
      EXPECT_EQ(Counted::values(), 0);
    }
    EXPECT_EQ(Counted::objects(), 0);
  });
}

// ---- A thread that stops

// OnAccess calls f(n) before the n-th access that this thread makes while the
// OnAccess lives.
class OnAccess {
 public:
  template <class F>
  explicit OnAccess(F f) : hook_([this, f] { f(n_++); }) {
    rt::before_access = &hook_;
  }
  OnAccess(const OnAccess&) = delete;
  ~OnAccess() { rt::before_access = nullptr; }

 private:
  int n_ = 0;
  std::function<void()> hook_;
};

// At one step of Remove, another thread goes through the list, and stops at one
// of its own steps. All pairs of steps are tried.
TEST(ContainerStopTest, ListRemoveDoesNotWaitForOthers) {
  bool reached = true;
  for (int at = 0; reached; at++) {
    reached = false;
    bool stops = true;
    for (int stop = 0; stops; stop++) {
      sync::List<int> l;
      l.PushBack(1);
      auto e = l.PushBack(2);
      l.PushBack(3);
      std::atomic<bool> stopped = false, over = false, go_on = false;
      std::thread other;
      bool held_up = false;
      {
        OnAccess watch([&](int n) {
          if (n == at) {
            reached = true;
            other = std::thread([&] {
              OnAccess until([&](int k) {
                if (k != stop) return;
                stopped = true;
                while (!go_on) std::this_thread::yield();
              });
              l.Range([](int) {});
              over = true;
            });
            while (!stopped && !over) std::this_thread::yield();
          }
          if (n == 10'000) held_up = go_on = true;
        });
        EXPECT_TRUE(l.Remove(e));
      }
      stops = stopped;
      go_on = true;
      if (other.joinable()) other.join();
      ASSERT_FALSE(held_up) << "at access " << at << ", other at " << stop;
      int sum = 0;
      l.Range([&](int v) { sum += v; });
      EXPECT_EQ(sum, 4);
      EXPECT_EQ(l.Len(), 2u);
    }
  }
}

// Elements are taken out at each step of an insertion.
TEST(ContainerStopTest, ListLenIsNeverBelowZero) {
  using Ints = sync::List<int>;
  void (*const inserts[])(Ints&) = {
      [](Ints& l) { l.PushBack(2); }, [](Ints& l) { l.PushFront(2); },
      [](Ints& l) { l.InsertAfter(l.Front(), 2); }};
  for (const auto insert : inserts) {
    bool reached = true;
    for (int at = 0; reached; at++) {
      reached = false;
      Ints l;
      l.PushBack(1);
      {
        OnAccess watch([&](int n) {
          if (n != at) return;
          reached = true;
          while (l.PopFront()) {
          }
          EXPECT_LE(l.Len(), 1u);
        });
        insert(l);
      }
      while (l.PopFront()) {
      }
      EXPECT_EQ(l.Len(), 0u);
    }
  }
}

}  // namespace
}  // namespace gump
