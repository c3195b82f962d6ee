// Random trees of scopes. Their goroutines return, fail, throw, call Goexit and
// cancel at random. Their owners wait, join or leave at random.
// tests/testing/stress.h says how to run it longer, or again.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/scope.h"
#include "gump/sync/waitgroup.h"
#include "tests/testing/counted.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_counted.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Counted;
using testing::Rng;

using ScopeStressTest = testing::WithCounted;
GUMP_INSTANTIATE_GOMAXPROCS(ScopeStressTest);

void Pause(Rng& rng) {
  for (uint64_t n = rng.Below(4); n > 0; n--) runtime::Gosched();
}

// Tree is one round. A node is a scope whose goroutines make nodes themselves.
class Tree {
 public:
  explicit Tree(uint64_t seed) : seed_(seed) {}

  // Grow makes a node, and checks that none of its goroutines is left when its
  // block has been left, however that was.
  void Grow(const context::Context& parent, int depth) {
    std::atomic<int> here = 0;
    try {
      Open(parent, depth, here);
    } catch (const std::runtime_error&) {
    }
    EXPECT_EQ(here, 0);
  }

 private:
  // Inside counts a goroutine while it has its closure.
  struct Inside {
    std::atomic<int>* here;
    Counted counted{0};
    explicit Inside(std::atomic<int>* h) : here(h) { (*here)++; }
    Inside(Inside&& o) noexcept
        : here(std::exchange(o.here, nullptr)), counted(std::move(o.counted)) {}
    ~Inside() {
      if (here != nullptr) (*here)--;
    }
  };

  Rng NextRng() { return Rng(seed_ + made_++); }

  void Open(const context::Context& parent, int depth, std::atomic<int>& here) {
    Rng rng = NextRng();
    Scope scope(parent, "node");
    std::vector<Scope::Handle<absl::StatusOr<Counted>>> handles;
    const uint64_t width = rng.Below(5);
    for (uint64_t i = 0; i < width; i++) {
      auto handle = scope.Go([this, &scope, &here, depth,
                              in = Inside(&here)](context::Context ctx) {
        return Branch(scope, here, ctx, depth);
      });
      if (rng.OneIn(2)) handles.push_back(std::move(handle));
      if (rng.OneIn(8)) Pause(rng);
    }
    if (rng.OneIn(8)) throw std::runtime_error("owner");
    if (rng.OneIn(8)) scope.Cancel();
    if (!handles.empty() && rng.OneIn(2)) Join(handles.back());
    if (rng.OneIn(3)) return;
    (void)scope.Wait();
    EXPECT_EQ(here, 0);
    for (auto& handle : handles) Join(handle);
  }

  // Join takes a result, which may be an exception, or none after a Goexit.
  static void Join(Scope::Handle<absl::StatusOr<Counted>>& handle) {
    try {
      (void)handle.Join();
    } catch (const std::runtime_error&) {
    }
  }

  absl::StatusOr<Counted> Branch(Scope& scope, std::atomic<int>& here,
                                 const context::Context& ctx, int depth) {
    Rng rng = NextRng();
    Pause(rng);
    if (rng.OneIn(4)) {
      scope.Go([in = Inside(&here)] { runtime::Gosched(); });
    }
    if (depth > 0 && rng.OneIn(2)) Grow(ctx, depth - 1);
    switch (rng.Below(12)) {
      case 0:
        return absl::InternalError("branch");
      case 1:
        throw std::runtime_error("branch");
      case 2:
        runtime::Goexit();
      case 3:
        scope.Cancel();
        return Counted(1);
      default:
        return Counted(1);
    }
  }

  const uint64_t seed_;
  std::atomic<uint64_t> made_ = 0;
};

TEST_P(ScopeStressTest, NoGoroutineOutlivesItsScope) {
  Run([] {
    testing::StressLoop([](Rng& rng) {
      Tree tree(rng.Next());
      sync::WaitGroup roots;
      for (int i = 0; i < 4; i++) {
        roots.Go([&] { tree.Grow(context::Background(), 3); });
      }
      roots.Wait();
    });
  });
}

TEST_P(ScopeStressTest, RaceHasOneWinnerAndJoinsTheOthers) {
  Run([] {
    testing::StressLoop([](Rng& rng) {
      std::atomic<int> running = 0;
      const uint64_t seed = rng.Next();
      const auto runner = [&](uint64_t who) {
        return [&, who](context::Context ctx) -> absl::StatusOr<uint64_t> {
          running++;
          Rng own(seed + who);
          Pause(own);
          const absl::Status cancelled = ctx.Err();
          running--;
          if (!cancelled.ok()) return cancelled;
          if (own.OneIn(4)) throw std::runtime_error("runner");
          if (own.OneIn(4)) return absl::InternalError("runner");
          return who;
        };
      };
      try {
        auto r = Race(context::Background(), runner(0), runner(1), runner(2));
        EXPECT_TRUE(r.ok() ? *r < 3 : r.status().message() == "runner");
      } catch (const std::runtime_error&) {
      }
      EXPECT_EQ(running, 0);
    });
  });
}

}  // namespace
}  // namespace gump
