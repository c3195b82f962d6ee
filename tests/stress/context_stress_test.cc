// Trees of contexts under random load from goroutines and plain threads at
// once. tests/testing/stress.h says how to run it longer, or again.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/mutex.h"
#include "gump/sync/waitgroup.h"
#include "tests/testing/counted.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using context::CancelFunc;
using context::Context;
using context::StopFunc;
using testing::Counted;
using testing::Eventually;
using testing::Rng;
using Closed = RecvResult<void>;

const context::Key<Counted> kCounted;

using ContextStressTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(ContextStressTest);

// Slots holds things that many callers copy and replace.
template <class T>
class Slots {
 public:
  T Get(Rng& rng) {
    std::scoped_lock hold(mu_);
    return things_[rng.Below(things_.size())];
  }
  // The old thing is destroyed without the lock.
  void Put(Rng& rng, T thing) {
    std::scoped_lock hold(mu_);
    std::swap(things_[rng.Below(things_.size())], thing);
  }
  template <class F>
  void Each(F f) {
    for (T& thing : things_) f(thing);
  }

 private:
  sync::Mutex mu_;
  std::array<T, 16> things_;
};

// Forest is one round: everything below one root.
class Forest {
 public:
  using Made = std::pair<Context, CancelFunc>;

  Forest() : root_(context::WithCancel(context::Background())) {
    nodes_.Each([this](Made& m) { m = context::WithCancel(root_.first); });
  }

  void Work(Rng& rng) {
    switch (rng.Below(8)) {
      case 0:
      case 1:
        return nodes_.Put(rng, Child(rng, nodes_.Get(rng).first));
      case 2:
        return nodes_.Put(rng, Child(rng, root_.first));
      case 3:
        return nodes_.Get(rng).second();
      case 4:
        return Register(rng);
      case 5:
        if (stops_.Get(rng)()) stopped_++;
        return;
      case 6:
        return dones_.Put(rng, nodes_.Get(rng).first.Done());
      case 7:
        return Look(nodes_.Get(rng).first);
    }
  }

  // End cancels the root, before or after everything else is given up. Then all
  // contexts that are left have been told, and are gone.
  void End(Rng& rng) {
    if (rng.OneIn(2)) nodes_.Each([](Made& m) { m = {}; });
    if (rng.OneIn(2)) stops_.Each([](StopFunc& f) { f = {}; });
    root_.second();
    nodes_.Each([](Made& m) {
      EXPECT_TRUE(m.first == context::Background() || !m.first.Err().ok());
      m = {};
    });
    dones_.Each([](recv_chan<void>& c) {
      EXPECT_TRUE(!c || c.TryRecv().kind == Closed::kClosed);
    });
    stops_.Each([](StopFunc& f) {
      EXPECT_FALSE(f());
      f = {};
    });
    EXPECT_TRUE(Eventually([&] { return ran_ + stopped_ == registered_; }))
        << ran_ << " ran, " << stopped_ << " stopped of " << registered_;
    EXPECT_TRUE(Eventually([] { return Counted::values() == 0; }))
        << Counted::values() << " leaked";
  }

 private:
  // Each holds a counted value, so that a context that is left over is noticed.
  Made Child(Rng& rng, const Context& of) {
    const Context parent = WithValue(of, kCounted, Counted(0));
    if (rng.OneIn(2)) return context::WithCancel(parent);
    return context::WithTimeout(parent,
                                std::chrono::microseconds(rng.Below(300)));
  }

  void Register(Rng& rng) {
    registered_++;
    StopFunc stop = context::AfterFunc(nodes_.Get(rng).first,
                                       [this, value = Counted(0)] { ran_++; });
    if (rng.OneIn(2)) stops_.Put(rng, std::move(stop));
  }

  // The answers of a context agree, however it changes meanwhile.
  static void Look(const Context& c) {
    const bool closed = c.Done().TryRecv().kind == Closed::kClosed;
    const absl::Status err = c.Err();
    EXPECT_TRUE(!closed || !err.ok());
    if (err.ok()) return;
    EXPECT_EQ(c.Done().TryRecv().kind, Closed::kClosed);
    EXPECT_EQ(context::Cause(c), err);
    EXPECT_EQ(c.Err(), err);
  }

  Made root_;
  Slots<Made> nodes_;
  Slots<StopFunc> stops_;
  Slots<recv_chan<void>> dones_;
  std::atomic<int> registered_ = 0;
  std::atomic<int> ran_ = 0;
  std::atomic<int> stopped_ = 0;
};

TEST_P(ContextStressTest, AllContextsAreToldAndNothingIsLeft) {
  Run([] {
    testing::StressLoop([](Rng& rng) {
      Forest forest;
      auto work = [&forest, seed = rng.Next()](uint64_t who) {
        Rng mine(seed + who);
        for (int i = 0; i < 300; i++) {
          forest.Work(mine);
          if (mine.OneIn(16)) runtime::Gosched();
        }
      };
      std::thread plain = testing::KnownThread([&] { work(100); });
      sync::WaitGroup wg;
      for (uint64_t i = 0; i < 6; i++) wg.Go([&, i] { work(i); });
      wg.Wait();
      blocking([&] { plain.join(); });
      forest.End(rng);
    });
  });
}

// A deadline, a cancellation, one of the parent, and two stops come at once.
TEST_P(ContextStressTest, OneOfManyWins) {
  Run([] {
    testing::StressLoop([](Rng& rng) {
      const auto parent = context::WithCancel(context::Background());
      const auto child = context::WithTimeout(
          parent.first, std::chrono::microseconds(rng.Below(100)));
      std::atomic<int> winners = 0;
      const StopFunc stop =
          context::AfterFunc(child.first, [&winners] { winners++; });
      sync::WaitGroup wg;
      for (int i = 0; i < 2; i++) {
        wg.Go([&] {
          if (stop()) winners++;
        });
      }
      if (rng.OneIn(2)) wg.Go([&] { child.second(); });
      if (rng.OneIn(2)) wg.Go([&] { parent.second(); });
      wg.Wait();
      (void)child.first.Done().Recv();
      EXPECT_TRUE(Eventually([&] { return winners == 1; }));
      runtime::Gosched();
      EXPECT_EQ(winners, 1);
    });
  });
}

// The last handle goes at the moment when the parent or the deadline ends the
// context. Functions that wait for that are called all the same.
TEST_P(ContextStressTest, LastHandleGoesWhileTheEndComes) {
  Run([] {
    testing::StressLoop([](Rng& rng) {
      constexpr int kChildren = 20;
      auto parent = context::WithCancel(context::Background());
      std::vector<Forest::Made> children;
      std::vector<recv_chan<void>> dones;
      std::atomic<int> ran = 0;
      for (int i = 0; i < kChildren; i++) {
        const Context of = WithValue(parent.first, kCounted, Counted(i));
        children.push_back(
            rng.OneIn(2)
                ? context::WithCancel(of)
                : context::WithTimeout(of, std::chrono::microseconds(i * 10)));
        dones.push_back(children.back().first.Done());
        context::AfterFunc(children.back().first,
                           [&ran, value = Counted(i)] { ran++; });
      }
      sync::WaitGroup wg;
      wg.Go([&] { parent.second(); });
      wg.Go([&] { children.clear(); });
      wg.Wait();
      for (auto& c : dones) EXPECT_FALSE(c.Recv());
      EXPECT_TRUE(Eventually([&] { return ran == kChildren; }));
      EXPECT_TRUE(Eventually([] { return Counted::values() == 0; }));
    });
  });
}

// A chain of contexts of which only functions are left. The root is given up
// without a cancellation while some of their deadlines come.
TEST_P(ContextStressTest, DeadlinesOfLostAncestorsStillCount) {
  Run([] {
    testing::StressLoop([](Rng& rng) {
      auto root =
          std::make_optional(context::WithCancel(context::Background()));
      Context c = root->first;
      std::atomic<int> timed_out = 0;
      int expected = 0;
      for (int i = 0; i < 20; i++) {
        const bool timed = rng.OneIn(5);
        const Context of = WithValue(c, kCounted, Counted(i));
        c = timed ? context::WithTimeout(
                        of, std::chrono::microseconds(rng.Below(60)))
                        .first
                  : context::WithCancel(of).first;
        // The deadline of a context ends all contexts below it as well.
        const bool told = timed || expected > 0;
        if (told) expected++;
        context::AfterFunc(c, [&timed_out, told, value = Counted(i)] {
          EXPECT_TRUE(told);
          timed_out++;
        });
      }
      sync::WaitGroup wg;
      wg.Go([&] { c = {}; });
      wg.Go([&] { root.reset(); });
      wg.Wait();
      EXPECT_TRUE(Eventually([&] { return timed_out == expected; }))
          << timed_out << " of " << expected;
      EXPECT_TRUE(Eventually([] { return Counted::values() == 0; }));
    });
  });
}

}  // namespace
}  // namespace gump
