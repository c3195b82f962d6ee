// The containers, and types that build on channels and locks, under random load
// from goroutines and plain threads at once.
//
// tests/testing/stress.h says how to run it longer, or again.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/rate.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "tests/stress/stress_testing.h"
#include "tests/testing/counted.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Rng;

// Item holds its producer, and how many the producer had pushed before.
struct Item {
  int who;
  int n;
};

// Ledger checks that each item that was put in comes out once.
class Ledger {
 public:
  // It is for `each` items of each producer.
  Ledger(int producers, int each)
      : each_(each),
        left_(producers * each),
        out_(static_cast<size_t>(producers * each)) {}

  void Out(const Item& i) {
    EXPECT_FALSE(out_[static_cast<size_t>(i.who * each_ + i.n)].exchange(true))
        << i.who << ":" << i.n << " came out twice";
    left_--;
  }
  bool AllOut() const { return left_ == 0; }

 private:
  const int each_;
  std::atomic<int> left_;
  std::vector<std::atomic<bool>> out_;
};

class KitStressTest : public testing::TimedStress {
 protected:
  // Calls `work(rng, who)` once in each of n callers, a third of which are
  // plain threads, and returns when all have returned.
  template <class F>
  void All(int n, F work) {
    const uint64_t seed = seed_ + 1000 * ++round_;
    std::vector<std::thread> threads;
    sync::WaitGroup wg;
    for (int who = 0; who < n; who++) {
      auto run = [work, who, seed] {
        Rng rng(seed + static_cast<uint64_t>(who));
        work(rng, who);
      };
      if (who % 3 == 2) {
        threads.push_back(testing::KnownThread(run));
      } else {
        wg.Go(run);
      }
    }
    wg.Wait();
    testing::JoinAll(threads);
  }

  uint64_t round_ = 0;
};
GUMP_INSTANTIATE_GOMAXPROCS(KitStressTest);

TEST_P(KitStressTest, QueueLosesNothingAndKeepsEachProducersOrder) {
  constexpr int kProducers = 3, kConsumers = 3, kEach = 400;
  Run([&] {
    sync::Queue<std::unique_ptr<Item>> q;  // nodes are used again and again
    do {
      Ledger ledger(kProducers, kEach);
      All(kProducers + kConsumers, [&](Rng& rng, int who) {
        if (who < kProducers) {
          for (int n = 0; n < kEach; n++) {
            q.Push(std::make_unique<Item>(Item{who, n}));
            if (rng.OneIn(8)) Pause(rng);
          }
          return;
        }
        std::array<int, kProducers> last;
        last.fill(-1);
        while (!ledger.AllOut()) {
          std::optional<std::unique_ptr<Item>> item = q.Pop();
          if (!item.has_value()) {
            runtime::Gosched();
            continue;
          }
          const Item i = **item;
          EXPECT_GT(i.n, last[static_cast<size_t>(i.who)]);
          last[static_cast<size_t>(i.who)] = i.n;
          ledger.Out(i);
          if (rng.OneIn(8)) Pause(rng);
        }
      });
      EXPECT_TRUE(q.Empty());
    } while (!Over());
  });
}

// A push that has returned is seen by every later pop. So if all callers push
// before they pop, the queue or stack is never found empty.
template <class Container>
void NeverEmptyAfterOwnPush(Container& c, Rng& rng, int who, int each,
                            Ledger& ledger) {
  for (int n = 0; n < each; n++) {
    c.Push(std::make_unique<Item>(Item{who, n}));
    if (rng.OneIn(4)) runtime::Gosched();
    auto item = c.Pop();
    ASSERT_TRUE(item.has_value());
    ledger.Out(**item);
  }
}

TEST_P(KitStressTest, ACallerThatHasPushedFindsAnItem) {
  constexpr int kCallers = 6, kEach = 300;
  Run([&] {
    sync::Queue<std::unique_ptr<Item>> q;
    sync::Stack<std::unique_ptr<Item>> s;
    do {
      Ledger queue(kCallers, kEach), stack(kCallers, kEach);
      All(kCallers, [&](Rng& rng, int who) {
        NeverEmptyAfterOwnPush(q, rng, who, kEach, queue);
        NeverEmptyAfterOwnPush(s, rng, who, kEach, stack);
      });
      EXPECT_TRUE(queue.AllOut());
      EXPECT_TRUE(stack.AllOut());
    } while (!Over());
  });
}

TEST_P(KitStressTest, StackLosesNothing) {
  constexpr int kCallers = 6, kEach = 300;
  Run([&] {
    sync::Stack<std::unique_ptr<Item>> s;
    do {
      Ledger ledger(kCallers, kEach);
      All(kCallers, [&](Rng& rng, int who) {
        for (int n = 0; n < kEach || !ledger.AllOut();) {
          if (n < kEach && rng.OneIn(2)) {
            s.Push(std::make_unique<Item>(Item{who, n++}));
          } else if (auto item = s.Pop()) {
            ledger.Out(**item);
          } else if (n == kEach) {
            runtime::Gosched();
          }
          if (rng.OneIn(16)) Pause(rng);
        }
      });
      EXPECT_TRUE(s.Empty());
    } while (!Over());
  });
}

TEST_P(KitStressTest, ListKeepsOrderAndLosesNothing) {
  using List = sync::List<Item>;
  constexpr int kCallers = 6, kEach = 150;
  Run([&] {
    List l;
    do {
      Ledger ledger(kCallers, kEach);
      All(kCallers, [&](Rng& rng, int who) {
        std::vector<List::Element> mine;
        std::array<int, kCallers> last;
        for (int n = 0; n < kEach;) {
          switch (rng.Below(8)) {
            case 0:
            case 1:
            case 2:  // odd ones at the back: Range sees them in order
              if (n % 2 != 0) {
                mine.push_back(l.PushBack({who, n++}));
              } else {
                mine.push_back(l.PushFront({who, n++}));
              }
              break;
            case 3:
              if (n % 2 == 0 && !mine.empty()) {
                List::Element e = l.InsertAfter(mine.back(), {who, n});
                if (e) n++, mine.push_back(std::move(e));
              }
              break;
            case 4:
            case 5:
              if (!mine.empty()) {
                std::swap(mine[rng.Below(mine.size())], mine.back());
                if (l.Remove(mine.back())) ledger.Out(*mine.back());
                mine.pop_back();
              }
              break;
            case 6:
              if (List::Element e = l.PopFront()) ledger.Out(*e);
              break;
            default:
              last.fill(-1);
              absl::flat_hash_set<int> even;
              l.Range([&](const Item& i) {
                if (i.n % 2 == 0) {
                  EXPECT_TRUE(even.insert(i.who * kEach + i.n).second);
                  return;
                }
                EXPECT_GT(i.n, last[static_cast<size_t>(i.who)]);
                last[static_cast<size_t>(i.who)] = i.n;
                if (rng.OneIn(64)) Pause(rng);
              });
          }
        }
      });
      const size_t left = l.Len();
      size_t seen = 0;
      seen += l.RemoveIf([&](const Item& i) {
        ledger.Out(i);
        return true;
      });
      EXPECT_EQ(left, seen);
      EXPECT_TRUE(ledger.AllOut());
      EXPECT_FALSE(l.Front());
    } while (!Over());
  });
}

TEST_P(KitStressTest, ContainersDestroyTheRemainingItems) {
  using testing::Counted;
  Run([&] {
    do {
      sync::Queue<Counted> q;
      sync::Stack<Counted> s;
      sync::List<Counted> l;
      All(6, [&](Rng& rng, int) {
        for (int i = 0; i < 200; i++) {
          if (rng.OneIn(2)) q.Push(Counted(i));
          if (rng.OneIn(3)) (void)q.Pop();
          if (rng.OneIn(2)) s.Push(Counted(i));
          if (rng.OneIn(3)) (void)s.Pop();
          if (rng.OneIn(2)) l.PushBack(Counted(i));
          if (rng.OneIn(3)) l.PopFront();
        }
      });
    } while (!Over());
  });
  EXPECT_EQ(Counted::objects(), 0);
}

TEST_P(KitStressTest, SemaphoreNeverGivesMoreThanItHas) {
  constexpr int64_t kSize = 5;
  Run([&] {
    do {
      sync::Semaphore s(kSize);
      std::atomic<int64_t> held = 0;
      All(8, [&](Rng& rng, int) {
        for (int i = 0; i < 50; i++) {
          const int64_t n = static_cast<int64_t>(rng.Below(kSize + 1));
          auto [ctx, cancel] = context::WithCancel(context::Background());
          const bool will_cancel = rng.OneIn(3);
          if (will_cancel) go(cancel);
          bool got = false;
          if (rng.OneIn(4)) {
            got = s.TryAcquire(n);
          } else {
            const absl::Status status = s.Acquire(ctx, n);
            got = status.ok();
            EXPECT_TRUE(got || will_cancel);
          }
          if (!got) continue;
          EXPECT_LE(held += n, kSize);
          Pause(rng);
          held -= n;
          s.Release(n);
        }
      });
      EXPECT_TRUE(s.TryAcquire(kSize));
    } while (!Over());
  });
}

// Every waiter is cancelled at about the time when it is granted. The weight
// that it may have had is there again, once.
TEST_P(KitStressTest, SemaphoreGetsTheWeightOfCancelledWaitersBack) {
  constexpr int64_t kSize = 6;
  constexpr int kWaiters = 4;
  Run([&] {
    Rng rng(seed_);
    do {
      sync::Semaphore s(kSize);
      s.Acquire(kSize);
      std::atomic<int64_t> held = 0;
      std::atomic<bool> begin = false;
      std::vector<context::CancelFunc> cancels;
      sync::WaitGroup wg;
      for (int i = 0; i < kWaiters; i++) {
        auto [ctx, cancel] = context::WithCancel(context::Background());
        cancels.push_back(cancel);
        const auto n = static_cast<int64_t>(1 + rng.Below(kSize));
        wg.Go([&, c = ctx, n] {
          if (!s.Acquire(c, n).ok()) return;
          EXPECT_LE(held += n, kSize);
          held -= n;
          s.Release(n);
        });
      }
      const auto later = [&](auto f) {
        wg.Go([&begin, f, pauses = rng.Below(8), seed = rng.Next()] {
          Rng own(seed);
          while (!begin) runtime::Gosched();
          for (uint64_t i = 0; i < pauses; i++) Pause(own);
          f();
        });
      };
      for (const context::CancelFunc& cancel : cancels) later(cancel);
      later([&] { s.Release(kSize); });
      for (uint64_t i = rng.Below(8); i > 0; i--) runtime::Gosched();
      begin = true;
      wg.Wait();
      ASSERT_TRUE(s.TryAcquire(kSize)) << "lost";
      ASSERT_FALSE(s.TryAcquire(1)) << "doubled";
    } while (!Over());
  });
}

TEST_P(KitStressTest, SingleFlightRunsOneCallPerKey) {
  constexpr int kKeys = 3;
  Run([&] {
    sync::SingleFlight<int, int> flight;
    std::array<std::atomic<int>, kKeys> inside{};
    do {
      All(8, [&](Rng& rng, int) {
        for (int i = 0; i < 50; i++) {
          const int key = static_cast<int>(rng.Below(kKeys));
          auto& in = inside[static_cast<size_t>(key)];
          const bool fail = rng.OneIn(4);
          const auto call = [&in, key, fail] {
            EXPECT_EQ(++in, 1);
            runtime::Gosched();
            in--;
            if (fail) throw key;
            return key;
          };
          try {
            if (rng.OneIn(3)) {
              EXPECT_EQ(flight.DoChan(key, call).Recv()->value(), key);
            } else {
              EXPECT_EQ(flight.Do(key, call).value, key);
            }
          } catch (const int&) {
            // The value is not read. ThreadSanitizer does not see how libstdc++
            // counts the references to an exception. It would report a race of
            // the read with the destruction by the last owner.
          }
        }
      });
    } while (!Over());
  });
}

TEST_P(KitStressTest, ErrGroupHonoursItsLimit) {
  Run([&] {
    Rng rng(seed_);
    do {
      auto [group, ctx] = sync::ErrGroup::WithContext(context::Background());
      const int limit = 1 + static_cast<int>(rng.Below(4));
      const int bad = static_cast<int>(rng.Below(150));
      group.SetLimit(limit);
      std::atomic<int> active = 0, ran = 0;
      int started = 0;
      for (int i = 0; i < 100; i++) {
        const auto f = [&, &c = ctx, i] {
          EXPECT_LE(++active, limit);
          runtime::Gosched();
          ran++;
          active--;
          if (i == bad) return absl::DataLossError("bad");
          return c.Err();  // a consequence of the bad one
        };
        if (rng.OneIn(2)) {
          if (group.TryGo(f)) started++;
        } else {
          group.Go(f);
          started++;
        }
      }
      const absl::Status status = group.Wait();
      EXPECT_EQ(ran, started);
      EXPECT_TRUE(status.ok() || status == absl::DataLossError("bad"));
      EXPECT_EQ(ctx.Err().code(), absl::StatusCode::kCancelled);
    } while (!Over());
  });
}

TEST_P(KitStressTest, LimiterNeverGivesMoreThanItsRate) {
  Run([&] {
    const auto start = std::chrono::steady_clock::now();
    rate::Limiter l(20'000, 50);
    std::atomic<int64_t> allowed = 0;
    auto [ctx, cancel] = context::WithCancel(context::Background());
    do {
      All(6, [&, &c = ctx](Rng& rng, int) {
        for (int i = 0; i < 20; i++) {
          const int n = 1 + static_cast<int>(rng.Below(3));
          switch (rng.Below(3)) {
            case 0:
              if (l.AllowN(n)) allowed += n;
              break;
            case 1:
              l.ReserveN(n).Cancel();
              break;
            default:
              EXPECT_TRUE(l.WaitN(c, n).ok());
              allowed += n;
          }
          Pause(rng);
        }
      });
    } while (!Over());
    cancel();
    // A reservation whose time had come cannot be cancelled, so fewer are
    // allowed. The limiter's clock is this one. The slack is for rounding.
    const std::chrono::duration<double> time =
        std::chrono::steady_clock::now() - start;
    EXPECT_LE(static_cast<double>(allowed), 51 + 20'000 * time.count());
  });
}

}  // namespace
}  // namespace gump
