// Groups at random and all at once: every way in which a goroutine begins and
// stops to run, in several groups, while GOMAXPROCS and the limits change, the
// world stops, and reclamation cycles run. Each goroutine counts itself while
// it certainly runs (Crowd).
//
// tests/testing/stress.h says how to run it longer, or again.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "runtime/sys/base.h"
#include "tests/sched/group_testing.h"
#include "tests/stress/stress_testing.h"

namespace gump {
namespace {

using testing::Crowd;
using testing::Eventually;
using testing::Rng;
using namespace std::chrono_literals;

// Tenant is a group with its load.
class Tenant {
 public:
  Tenant(const char* name, int max)
      : g_(name, {.max_procs = max}), crowd_(max) {}

  void Start(uint64_t seed, const std::atomic<bool>& stop, bool compute) {
    Rng rng(seed);
    for (int i = 0; i < 6; i++) {
      Go([this, seed = rng.Next(), &stop, compute] {
        Rng own(seed);
        while (!stop) Step(own, compute, 2);
      });
    }
  }
  void Wait() { wg_.Wait(); }
  bool Ran() const { return crowd_.visits() > 0; }

  // Limit changes the limit, and from when on more goroutines are too many.
  void Limit(int n) {
    if (n >= limit_) crowd_.Allow(n);
    g_.SetMaxProcs(n);
    if (n < limit_) {
      EXPECT_TRUE(Eventually([&] { return g_.Running() <= n; }));
      crowd_.Allow(n);
    }
    limit_ = n;
  }

  void Check() {
    EXPECT_EQ(crowd_.tooMany(), 0) << g_.Name();
    EXPECT_TRUE(Eventually([&] { return g_.Running() + g_.Runnable() == 0; }))
        << g_.Running() << " run, " << g_.Runnable() << " are runnable";
  }

 private:
  template <class F>
  void Go(F f) {
    wg_.Add(1);
    go(GoOptions{.group = &g_}, [this, f]() mutable {
      f();
      wg_.Done();
    });
  }

  void Step(Rng& rng, bool compute, int depth) {
    crowd_.Visit(static_cast<int>(rng.Below(20)));
    switch (rng.Below(12)) {
      case 0:
        runtime::Gosched();
        break;
      case 1:
        time::Sleep(std::chrono::microseconds(rng.Below(50)));
        break;
      case 2:
        blocking([&] { usleep(static_cast<uint32_t>(rng.Below(50))); });
        break;
      case 3:
        if (rng.OneIn(4)) usleep(1000);  // long enough to lose the P
        break;
      case 4:
        if (compute && rng.OneIn(8)) Compute();
        break;
      case 5: {
        auto c = make_chan<int>();
        Go([c]() mutable { c.Send(1); });
        c.Recv();
        break;
      }
      case 6: {
        auto c = make_chan<int>();
        time::AfterFunc(std::chrono::microseconds(rng.Below(20)),
                        [this, c]() mutable {
                          crowd_.Visit(1);
                          c.Send(1);
                        });
        c.Recv();
        break;
      }
      case 7: {
        mu_.Lock();
        crowd_.Visit(1);
        if (rng.OneIn(4)) runtime::Gosched();
        mu_.Unlock();
        break;
      }
      case 8:
        runtime::LockOSThread();
        if (depth > 0) Step(rng, compute, depth - 1);
        runtime::UnlockOSThread();
        break;
      case 9:
        if (depth > 0) {
          sync::WaitGroup wg;
          for (int i = 0; i < 2; i++) {
            wg.Go([this, seed = rng.Next(), compute, depth] {
              Rng own(seed);
              Step(own, compute, depth - 1);
            });
          }
          wg.Wait();
        }
        break;
      case 10:
        blocking([&] { blocking([] {}); });
        break;
      default:
        break;
    }
  }

  static void Compute() {
    const auto until = std::chrono::steady_clock::now() + 12ms;
    while (std::chrono::steady_clock::now() < until) {
      for (int i = 0; i < 100; i++) rt::procyield(10);
    }
  }

  runtime::Group g_;
  Crowd crowd_;
  int limit_ = 0;
  sync::Mutex mu_;
  sync::WaitGroup wg_;
};

class GroupStressTest : public testing::TimedStress {
 protected:
  // Beside runs f until the time is over and all have run, beside the loads of
  // three tenants.
  template <class F>
  void Beside(bool compute, F f) {
    Run([&] {
      std::atomic<bool> stop = false;
      Rng rng(seed_);
      Tenant one("one", 1), two("two", 2), all("all", 0);
      all.Limit(8);
      one.Limit(1);
      two.Limit(2);
      for (Tenant* t : {&one, &two, &all}) t->Start(rng.Next(), stop, compute);
      while (!Over() || !one.Ran() || !two.Ran() || !all.Ran()) {
        f(rng, one, two);
      }
      stop = true;
      for (Tenant* t : {&one, &two, &all}) t->Wait();
      for (Tenant* t : {&one, &two, &all}) t->Check();
    });
  }
};
GUMP_INSTANTIATE_GOMAXPROCS(GroupStressTest);

TEST_P(GroupStressTest, LimitsHold) {
  Beside(/*compute=*/true, [](Rng&, Tenant&, Tenant&) { time::Sleep(1ms); });
}

TEST_P(GroupStressTest, LimitsHoldWhileTheWorldStops) {
  Beside(/*compute=*/true, [](Rng& rng, Tenant&, Tenant&) {
    switch (rng.Below(3)) {
      case 0:
        (void)runtime::Stack(true);
        break;
      case 1:
        testing::RandomProcs(rng);
        break;
      default:
        runtime::GC();
        break;
    }
    time::Sleep(std::chrono::microseconds(rng.Below(500)));
  });
}

TEST_P(GroupStressTest, LimitsHoldWhileTheyChange) {
  Beside(/*compute=*/false, [](Rng& rng, Tenant& one, Tenant& two) {
    one.Limit(1 + static_cast<int>(rng.Below(3)));
    two.Limit(1 + static_cast<int>(rng.Below(4)));
    if (rng.OneIn(4)) testing::RandomProcs(rng);
    time::Sleep(std::chrono::microseconds(rng.Below(300)));
  });
}

}  // namespace
}  // namespace gump
