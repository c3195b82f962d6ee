#include "gump/sync/cond.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/mutex.h"
#include "gump/sync/rwmutex.h"
#include "gump/sync/waitgroup.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::Cond;
using sync::Mutex;
using testing::Eventually;
using CondTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(CondTest);

TEST_P(CondTest, SignalWakesInOrderOfArrival) {
  Run([] {
    Mutex mu;
    Cond c{mu};
    std::vector<int> woken;
    sync::WaitGroup wg;
    constexpr int kWaiters = 20;
    int waiting = 0;
    for (int i = 0; i < kWaiters; i++) {
      wg.Go([&, i] {
        std::scoped_lock hold(mu);
        waiting++;
        c.Wait();
        woken.push_back(i);
      });
      ASSERT_TRUE(Eventually([&] {
        std::scoped_lock hold(mu);
        return waiting == i + 1;
      }));
    }
    for (int i = 0; i < kWaiters; i++) {
      c.Signal();
      ASSERT_TRUE(Eventually([&] {
        std::scoped_lock hold(mu);
        return woken.size() == static_cast<size_t>(i) + 1;
      }));
      EXPECT_EQ(woken.back(), i);
    }
    wg.Wait();
  });
}

TEST_P(CondTest, BroadcastWakesAllWaitersAndNoLaterOne) {
  Run([] {
    Mutex mu;
    Cond c{mu};
    int waiting = 0;
    int woken = 0;
    sync::WaitGroup wg;
    auto wait = [&] {
      std::scoped_lock hold(mu);
      waiting++;
      c.Wait();
      woken++;
    };
    for (int i = 0; i < 30; i++) wg.Go(wait);
    ASSERT_TRUE(Eventually([&] {
      std::scoped_lock hold(mu);
      return waiting == 30;
    }));
    c.Broadcast();
    wg.Wait();
    EXPECT_EQ(woken, 30);
    wg.Go(wait);
    ASSERT_TRUE(Eventually([&] {
      std::scoped_lock hold(mu);
      return waiting == 31;
    }));
    EXPECT_TRUE(testing::EventuallyParked("sync.Cond.Wait", 1));
    {
      std::scoped_lock hold(mu);
      EXPECT_EQ(woken, 30) << "the broadcast was used up";
    }
    c.Signal();
    wg.Wait();
  });
}

TEST_P(CondTest, SignalsWithoutWaitersAreNotKept) {
  Run([] {
    Mutex mu;
    Cond c{mu};
    c.Signal();
    c.Broadcast();
    std::atomic<bool> woken = false;
    sync::WaitGroup wg;
    wg.Go([&] {
      mu.Lock();
      c.Wait();
      woken = true;
      mu.Unlock();
    });
    EXPECT_TRUE(testing::EventuallyParked("sync.Cond.Wait", 1));
    EXPECT_FALSE(woken);
    mu.Lock();
    c.Signal();
    mu.Unlock();
    wg.Wait();
  });
}

TEST_P(CondTest, WaitWithAConditionReturnsWhenItHolds) {
  Run([] {
    Mutex mu;
    Cond c{mu};
    int n = 0;
    sync::WaitGroup wg;
    for (int want = 1; want <= 10; want++) {
      wg.Go([&, want] {
        std::scoped_lock hold(mu);
        c.Wait([&] { return n >= want; });
        EXPECT_GE(n, want);
      });
    }
    while (n < 10) {
      {
        std::scoped_lock hold(mu);
        n++;
      }
      c.Broadcast();
      runtime::Gosched();
    }
    wg.Wait();
    std::scoped_lock hold(mu);
    c.Wait([] { return true; });  // does not wait
  });
}

template <class L>
void WaitForAGoroutine(L& lock, sync::Locker writer) {
  Cond c{lock};
  bool flag = false;
  sync::WaitGroup wg;
  c.L.Lock();
  wg.Go([&, writer] {
    std::scoped_lock hold(writer);
    flag = true;
    c.Signal();
  });
  c.Wait([&] { return flag; });
  c.L.Unlock();
  wg.Wait();
}

TEST_P(CondTest, WorksOverEveryKindOfLock) {
  Run([] {
    Mutex mu;
    std::unique_lock<Mutex> unique(mu, std::defer_lock);
    WaitForAGoroutine(unique, mu);
    sync::RWMutex rw;
    WaitForAGoroutine(rw, rw);
    sync::Locker reader = rw.RLocker();
    WaitForAGoroutine(reader, rw);
  });
}

TEST_P(CondTest, ThreadsAndGoroutinesPassATokenAround) {
  Run([] {
    Mutex mu;
    Cond c{mu};
    constexpr int kParties = 4;
    constexpr int kRounds = 200;
    int turn = 0;
    auto play = [&](int me) {
      for (int r = 0; r < kRounds; r++) {
        std::scoped_lock hold(mu);
        c.Wait([&] { return turn % kParties == me; });
        turn++;
        c.Broadcast();
      }
    };
    std::thread a = testing::KnownThread([&] { play(0); });
    std::thread b = testing::KnownThread([&] { play(1); });
    sync::WaitGroup wg;
    wg.Go([&] { play(2); });
    wg.Go([&] { play(3); });
    wg.Wait();
    blocking([&] {
      a.join();
      b.join();
    });
    EXPECT_EQ(turn, kParties * kRounds);
  });
}

TEST_P(CondTest, MayBeDestroyedAsSoonAsWaitReturns) {
  Run([] {
    Mutex mu;
    for (int i = 0; i < 20000; i++) {
      auto c = std::make_unique<Cond>(mu);
      bool flag = false;
      go([&mu, &flag, c = c.get()] {
        mu.Lock();
        flag = true;
        c->Signal();  // under the lock: the waiter cannot be gone before
        mu.Unlock();
      });
      mu.Lock();
      c->Wait([&] { return flag; });
      c.reset();
      mu.Unlock();
    }
  });
}

// ---- With a context

const auto kNever = [] { return false; };

TEST_P(CondTest, ContextEndsTheWait) {
  Run([] {
    Mutex mu;
    Cond c{mu};
    const auto [ctx, cancel] = context::WithCancel({});
    sync::WaitGroup wg;
    for (int i = 0; i < 5; i++) {
      wg.Go([&, &ctx = ctx] {
        std::scoped_lock hold(mu);
        const absl::Status s = c.Wait(ctx, kNever);
        EXPECT_TRUE(absl::IsCancelled(s)) << s;
        EXPECT_FALSE(mu.TryLock());
      });
    }
    EXPECT_TRUE(testing::EventuallyParked("sync.Cond.Wait", 5));
    cancel();
    wg.Wait();
    mu.Lock();
    EXPECT_TRUE(absl::IsCancelled(c.Wait(ctx, kNever))) << "at once";
    const auto [timed, cancel_timed] =
        context::WithTimeout({}, std::chrono::milliseconds(2));
    EXPECT_TRUE(absl::IsDeadlineExceeded(c.Wait(timed, kNever)));
    mu.Unlock();
  });
}

TEST_P(CondTest, ConditionThatHoldsIsOkForAnyContext) {
  Run([] {
    Mutex mu;
    Cond c{mu};
    const auto [ctx, cancel] = context::WithCancel({});
    bool flag = false;
    sync::WaitGroup wg;
    wg.Go([&, &ctx = ctx] {
      std::scoped_lock hold(mu);
      EXPECT_TRUE(c.Wait(ctx, [&] { return flag; }).ok());
    });
    EXPECT_TRUE(testing::EventuallyParked("sync.Cond.Wait", 1));
    mu.Lock();
    flag = true;
    c.Signal();
    mu.Unlock();
    wg.Wait();
    cancel();
    std::scoped_lock hold(mu);
    EXPECT_TRUE(c.Wait(ctx, [&] { return flag; }).ok());
  });
}

// A waiter that leaves because of its context takes no Signal along. Otherwise
// the other waiter would sleep for ever.
TEST_P(CondTest, SignalsAreNotLostOnACancelledWaiter) {
  Run([] {
    Mutex mu;
    Cond c{mu};
    for (int i = 0; i < 1000; i++) {
      int tokens = 0;
      const auto some = [&] { return tokens > 0; };
      const auto put = [&] {
        std::scoped_lock hold(mu);
        tokens++;
        c.Signal();
      };
      const auto made = context::WithCancel({});
      sync::WaitGroup wg;
      wg.Go([&] {
        {
          std::scoped_lock hold(mu);
          if (!c.Wait(made.first, some).ok()) return;
          tokens--;
        }
        put();  // for the other
      });
      wg.Go([&] {
        std::scoped_lock hold(mu);
        c.Wait(some);
        tokens--;
      });
      wg.Go([&] { made.second(); });
      wg.Go(put);
      wg.Wait();
      EXPECT_EQ(tokens, 0);
    }
  });
}

TEST_P(CondTest, MayBeDestroyedWhileTheContextEnds) {
  Run([] {
    Mutex mu;
    for (int i = 0; i < 2000; i++) {
      auto c = std::make_unique<Cond>(mu);
      const auto made = context::WithCancel({});
      go([cancel = made.second] { cancel(); });
      mu.Lock();
      EXPECT_FALSE(c->Wait(made.first, kNever).ok());
      c.reset();
      mu.Unlock();
    }
  });
}

TEST(CondDeathTest, WaitWithoutTheLockIsFatal) {
  EXPECT_EXIT(gump::Run([] {
                Mutex mu;
                Cond c{mu};
                c.Wait();
              }),
              ::testing::ExitedWithCode(2),
              "fatal error: sync: unlock of unlocked mutex");
}

TEST(CondDeathTest, WaitWithoutAWakerIsADeadlock) {
  EXPECT_EXIT(gump::Run([] {
                Mutex mu;
                Cond c{mu};
                mu.Lock();
                c.Wait();
              }),
              ::testing::ExitedWithCode(2), "sync\\.Cond\\.Wait");
}

}  // namespace
}  // namespace gump
