#include "gump/sync/cond.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/mutex.h"
#include "gump/sync/rwmutex.h"
#include "gump/sync/waitgroup.h"
#include "gump/synctest.h"
#include "gump/time/sleep.h"
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

TEST_P(CondTest, WaitWithALimitEndsWhenTheTimeHasPassed) {
  Run([] {
    Mutex mu;
    Cond c{mu};
    std::scoped_lock hold(mu);
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    EXPECT_FALSE(c.WaitFor(std::chrono::milliseconds(2)));
    EXPECT_GE(std::chrono::steady_clock::now(), end);
    EXPECT_FALSE(c.WaitUntil(end));
    EXPECT_FALSE(c.WaitUntil(absl::InfinitePast()));
    EXPECT_FALSE(mu.TryLock()) << "the mutex is locked again";
    int calls = 0;
    EXPECT_FALSE(c.WaitFor(absl::Milliseconds(1), [&] {
      calls++;
      return false;
    }));
    EXPECT_GE(calls, 2);
    EXPECT_TRUE(c.WaitUntil(absl::InfinitePast(), [] { return true; }));
  });
}

TEST_P(CondTest, SignalEndsAWaitWithALimit) {
  Run([] {
    Mutex mu;
    Cond c{mu};
    int stage = 0;
    std::scoped_lock hold(mu);
    go([&] {
      for (int i = 1; i <= 3; i++) {
        std::scoped_lock inner(mu);
        stage = i;
        i % 2 == 0 ? c.Broadcast() : c.Signal();
      }
    });
    EXPECT_TRUE(c.WaitFor(absl::Hours(1)));
    EXPECT_TRUE(c.WaitFor(absl::Hours(1), [&] { return stage >= 2; }));
    EXPECT_TRUE(
        c.WaitUntil(absl::InfiniteFuture(), [&] { return stage == 3; }));
  });
}

// Waiters with and without a limit queue up in turn, and are signalled in that
// order.
TEST_P(CondTest, SignalWakesWaitersWithAndWithoutALimitInOrder) {
  Run([] {
    Mutex mu;
    Cond c{mu};
    std::vector<int> woken;
    sync::WaitGroup wg;
    constexpr int kWaiters = 12;
    for (int i = 0; i < kWaiters; i++) {
      wg.Go([&, i] {
        std::scoped_lock hold(mu);
        if (i % 3 == 0) {
          c.Wait();
        } else {
          EXPECT_TRUE(c.WaitFor(absl::Hours(1)));
        }
        woken.push_back(i);
      });
      ASSERT_TRUE(testing::EventuallyParked("sync.Cond.Wait",
                                            static_cast<size_t>(i) + 1));
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

// Waiters in the middle of the list give up. The next signals go to the others.
TEST_P(CondTest, SignalsAreNotLostOnWaitersThatHaveGivenUp) {
  Run([] {
    Mutex mu;
    Cond c{mu};
    std::atomic<int> woken = 0;
    sync::WaitGroup untimed;
    sync::WaitGroup timed;
    constexpr int kWaiters = 9;
    for (int i = 0; i < kWaiters; i++) {
      if (i % 3 == 0) {
        untimed.Go([&] {
          std::scoped_lock hold(mu);
          c.Wait();
          woken++;
        });
        ASSERT_TRUE(Eventually([&] {
          return testing::CountParked("sync.Cond.Wait") >=
                 static_cast<size_t>(i / 3) + 1;
        }));
      } else {
        timed.Go([&, i] {
          std::scoped_lock hold(mu);
          EXPECT_FALSE(c.WaitFor(absl::Milliseconds(1 + i)));
        });
      }
    }
    timed.Wait();
    for (int i = 0; i < kWaiters / 3; i++) c.Signal();
    untimed.Wait();
    EXPECT_EQ(woken, 3);
  });
}

// Each token is signalled once, to waiters that give up all the time. Between
// the end of its time and the mutex, a waiter may find a token all the same.
TEST_P(CondTest, LimitsAndSignalsAtTheSameTimeLoseNothing) {
  Run([] {
    Mutex mu;
    Cond c{mu};
    constexpr int kTokens = 400;
    int tokens = 0;  // guarded by mu
    int taken = 0;   // guarded by mu
    const auto take = [&](bool timed) {
      std::scoped_lock hold(mu);
      while (taken < kTokens) {
        if (!timed) {
          c.Wait([&] { return tokens > 0 || taken == kTokens; });
        } else if (!c.WaitFor(absl::Microseconds(20),
                              [&] { return tokens > 0; })) {
          continue;
        }
        if (tokens == 0) return;
        tokens--;
        if (++taken == kTokens) c.Broadcast();
      }
    };
    std::vector<std::thread> threads;
    threads.push_back(testing::KnownThread([&] { take(true); }));
    sync::WaitGroup wg;
    for (int i = 0; i < 3; i++) {
      wg.Go([&] { take(true); });
      wg.Go([&] { take(false); });
    }
    for (int i = 0; i < kTokens; i++) {
      std::scoped_lock hold(mu);
      tokens++;
      c.Signal();
    }
    wg.Wait();
    testing::JoinAll(threads);
    EXPECT_EQ(taken, kTokens);
  });
}

TEST_P(CondTest, MayBeDestroyedAsSoonAsAWaitWithALimitReturns) {
  Run([] {
    Mutex mu;
    for (int i = 0; i < 500; i++) {
      auto c = std::make_unique<Cond>(mu);
      bool done = false;
      mu.Lock();
      go([&, cond = c.get()] {
        std::scoped_lock hold(mu);
        done = true;
        cond->Signal();
      });
      while (!done) (void)c->WaitFor(absl::Microseconds(i % 50));
      c.reset();
      mu.Unlock();
    }
  });
}

// unlock() throws before the wait. The signal that found the waiter is passed
// on, and no part of the waiter is left in the list.
TEST_P(CondTest, LockThatCannotBeUnlockedEndsAWaitWithALimit) {
  Run([] {
    Mutex mu;
    std::unique_lock<Mutex> not_held(mu, std::defer_lock);
    Cond c{not_held};
    EXPECT_THROW((void)c.WaitFor(absl::Hours(1)), std::system_error);
    c.Signal();
    not_held.lock();
    EXPECT_FALSE(c.WaitFor(absl::Microseconds(1)));
  });
}

TEST(CondBubbleTest, LimitPassesOnTheClockOfTheBubble) {
  gump::Run([] {
    synctest::Run([] {
      Mutex mu;
      Cond c{mu};
      std::scoped_lock hold(mu);
      const absl::Time before = synctest::Now();
      EXPECT_FALSE(c.WaitFor(absl::Hours(1)));
      EXPECT_EQ(synctest::Now() - before, absl::Hours(1));
      EXPECT_FALSE(c.WaitUntil(before + absl::Hours(3)));
      EXPECT_EQ(synctest::Now() - before, absl::Hours(3));
      go([&] {
        time::Sleep(absl::Minutes(1));
        c.Signal();
      });
      EXPECT_TRUE(c.WaitFor(absl::Hours(1)));
      EXPECT_EQ(synctest::Now() - before, absl::Minutes(181));
    });
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
