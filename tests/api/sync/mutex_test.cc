#include "gump/sync/mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/internal/linkname_sync.h"
#include "gump/runtime.h"
#include "gump/sync/rwmutex.h"
#include "gump/sync/waitgroup.h"
#include "gump/synctest.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::Mutex;

using MutexTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(MutexTest);

TEST_P(MutexTest, ExcludesGoroutines) {
  Run([] {
    Mutex mu;
    int n = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < 16; i++) {
      wg.Go([&] {
        for (int j = 0; j < 2000; j++) {
          std::scoped_lock hold(mu);
          n++;
        }
      });
    }
    wg.Wait();
    EXPECT_EQ(n, 32000);
  });
}

TEST_P(MutexTest, HolderMayParkWhileOthersWait) {
  Run([] {
    Mutex mu;
    bool busy = false;
    sync::WaitGroup wg;
    for (int i = 0; i < 50; i++) {
      wg.Go([&] {
        for (int j = 0; j < 20; j++) {
          mu.Lock();
          EXPECT_FALSE(busy);
          busy = true;
          runtime::Gosched();
          busy = false;
          mu.Unlock();
        }
      });
    }
    wg.Wait();
  });
}

TEST_P(MutexTest, TryLockFailsWhileHeldAndNeverParks) {
  Run([] {
    Mutex mu;
    EXPECT_TRUE(mu.TryLock());
    EXPECT_FALSE(mu.TryLock());
    EXPECT_FALSE(mu.try_lock());
    mu.Unlock();
    EXPECT_TRUE(mu.try_lock());
    mu.unlock();
  });
}

TEST_P(MutexTest, AnotherGoroutineMayUnlock) {
  Run([] {
    Mutex mu;
    mu.Lock();
    go([&] { mu.Unlock(); });
    mu.Lock();
    mu.Unlock();
  });
}

TEST_P(MutexTest, LocksOutPlainThreadsToo) {
  Run([] {
    Mutex mu;
    int n = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) {
      threads.push_back(testing::KnownThread([&] {
        for (int j = 0; j < 5000; j++) {
          std::scoped_lock hold(mu);
          n++;
        }
      }));
    }
    sync::WaitGroup wg;
    for (int i = 0; i < 3; i++) {
      wg.Go([&] {
        for (int j = 0; j < 5000; j++) {
          std::scoped_lock hold(mu);
          n++;
        }
      });
    }
    wg.Wait();
    testing::JoinAll(threads);
    EXPECT_EQ(n, 30000);
  });
}

void BusyFor(std::chrono::microseconds d) {
  const auto end = std::chrono::steady_clock::now() + d;
  while (std::chrono::steady_clock::now() < end) {
  }
}

// One goroutine takes the lock again the moment it has released it, and is
// always on a processor when the lock is free. Only starvation mode lets the
// other in.
TEST_P(MutexTest, GreedyHolderDoesNotStarveAWaiter) {
  Run([] {
    Mutex mu;
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    wg.Go([&] {
      while (!stop) {
        std::scoped_lock hold(mu);
        BusyFor(std::chrono::microseconds(200));
        runtime::Gosched();
      }
    });
    wg.Go([&] {
      for (int i = 0; i < 10; i++) {
        runtime::Gosched();
        std::scoped_lock hold(mu);
      }
      stop = true;
    });
    wg.Wait();
  });
}

// The lock goes from hand to hand in order of arrival once it is starving, and
// is an ordinary lock afterwards.
TEST_P(MutexTest, WorksAsBeforeAfterStarvation) {
  Run([] {
    Mutex mu;
    sync::WaitGroup wg;
    int n = 0;
    mu.Lock();
    for (int i = 0; i < 20; i++) {
      wg.Go([&] {
        for (int j = 0; j < 3; j++) {
          std::scoped_lock hold(mu);
          BusyFor(std::chrono::microseconds(100));
          n++;
        }
      });
    }
    runtime::Gosched();
    BusyFor(std::chrono::milliseconds(3));
    mu.Unlock();
    wg.Wait();
    EXPECT_EQ(n, 60);
    EXPECT_TRUE(mu.TryLock());
    mu.Unlock();
  });
}

TEST_P(MutexTest, MayBeDestroyedByTheNextHolder) {
  Run([] {
    struct Shared {
      Mutex mu;
      int refs = 4;
      void Unref() {
        mu.Lock();
        const bool last = --refs == 0;
        mu.Unlock();
        if (last) delete this;
      }
    };
    for (int i = 0; i < 2000; i++) {
      auto* s = new Shared;
      sync::WaitGroup wg;
      for (int j = 0; j < 4; j++) wg.Go([s] { s->Unref(); });
      wg.Wait();
    }
  });
}

TEST_P(MutexTest, LockWithALimitFailsOnlyWhenTheTimeHasPassed) {
  Run([] {
    Mutex mu;
    mu.Lock();
    const auto begin = std::chrono::steady_clock::now();
    const auto end = begin + std::chrono::milliseconds(5);
    EXPECT_FALSE(mu.TryLockFor(std::chrono::milliseconds(5)));
    EXPECT_GE(std::chrono::steady_clock::now(), end);
    EXPECT_FALSE(mu.TryLockUntil(end));
    EXPECT_FALSE(mu.TryLockUntil(absl::InfinitePast()));
    EXPECT_FALSE(mu.TryLockFor(absl::ZeroDuration()));
    EXPECT_FALSE(mu.TryLockUntil(std::chrono::system_clock::now() +
                                 std::chrono::milliseconds(1)));
    mu.Unlock();
    EXPECT_TRUE(mu.TryLockFor(absl::ZeroDuration()));
    mu.Unlock();
    EXPECT_TRUE(mu.TryLockUntil(absl::InfinitePast()));
    mu.Unlock();
  });
}

TEST_P(MutexTest, LockWithALimitTakesTheLockAsSoonAsItIsFree) {
  Run([] {
    Mutex mu;
    int written = 0;
    for (const absl::Duration limit :
         {absl::Duration(absl::Hours(1)), absl::InfiniteDuration()}) {
      mu.Lock();
      auto done = make_chan<bool>();
      go([&, done] {
        const bool ok = mu.TryLockFor(limit);
        if (ok) {
          EXPECT_EQ(written, 1);
        }
        done.Send(ok);
      });
      EXPECT_TRUE(testing::EventuallyParked("sync.Mutex.Lock", 1));
      written = 1;
      mu.Unlock();
      EXPECT_EQ(done.Recv(), true);
      written = 0;
      mu.Unlock();
    }
    EXPECT_TRUE(mu.TryLockUntil(absl::InfiniteFuture()));
    mu.Unlock();
  });
}

TEST_P(MutexTest, UniqueLockTakesALimit) {
  Run([] {
    Mutex mu;
    {
      std::unique_lock hold(mu, std::chrono::milliseconds(1));
      EXPECT_TRUE(hold.owns_lock());
      std::unique_lock second(mu, std::chrono::microseconds(100));
      EXPECT_FALSE(second.owns_lock());
      EXPECT_FALSE(second.try_lock_until(std::chrono::steady_clock::now()));
      EXPECT_FALSE(second.try_lock());
    }
    std::unique_lock third(mu, std::chrono::steady_clock::now());
    EXPECT_TRUE(third.owns_lock());
  });
}

// Half of the waiters give up at any time, while the lock changes hands, in
// normal mode and in starvation mode. None of the others is forgotten, and the
// lock is free in the end.
TEST_P(MutexTest, WaitersThatGiveUpLeaveTheLockToTheOthers) {
  Run([] {
    Mutex mu;
    int n = 0;
    int expected = 0;
    std::atomic<int> taken = 0;
    const auto untimed = [&](int turns) {
      for (int j = 0; j < turns; j++) {
        std::scoped_lock hold(mu);
        if (j % 16 == 0) BusyFor(std::chrono::microseconds(300));
        n++;
      }
    };
    const auto timed = [&](int turns) {
      for (int j = 0; j < turns; j++) {
        if (!mu.TryLockFor(absl::Microseconds(1 + 97 * j % 800))) continue;
        n++;
        taken++;
        mu.Unlock();
      }
    };
    std::vector<std::thread> threads;
    threads.push_back(testing::KnownThread([&] { untimed(100); }));
    threads.push_back(testing::KnownThread([&] { timed(200); }));
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([&] { untimed(100); });
      wg.Go([&] { timed(200); });
    }
    wg.Wait();
    testing::JoinAll(threads);
    expected = 5 * 100 + taken;
    EXPECT_EQ(n, expected);
    EXPECT_TRUE(mu.TryLock());
    mu.Unlock();
    Mutex fresh;
    EXPECT_EQ(std::memcmp(&mu, &fresh, sizeof(mu)), 0)
        << "a waiter or a wake-up is left over";
  });
}

// The waiter gives up while the holder unlocks. Either it has the lock, or the
// lock is free.
TEST_P(MutexTest, LimitAndUnlockAtTheSameTimeLoseNothing) {
  Run([] {
    Mutex mu;
    for (int i = 0; i < 300; i++) {
      mu.Lock();
      auto done = make_chan<bool>(1);
      go([&, done] {
        const bool ok = mu.TryLockFor(absl::Microseconds(50));
        if (ok) mu.Unlock();
        done.Send(ok);
      });
      BusyFor(std::chrono::microseconds(30 + i % 40));
      runtime::Gosched();
      mu.Unlock();
      (void)done.Recv();
      ASSERT_TRUE(mu.TryLock());
      mu.Unlock();
    }
  });
}

TEST(LockerTest, RefersToAnyLock) {
  Mutex mu;
  std::mutex standard;
  sync::RWMutex rw;
  for (sync::Locker l : {sync::Locker(mu), sync::Locker(standard),
                         sync::Locker(rw), rw.RLocker()}) {
    std::scoped_lock hold(l);
    sync::Locker copy = l;
    copy.Unlock();
    copy.Lock();
  }
}

TEST(MutexThreadTest, WorksOnAPlainThreadWithoutRun) {
  Mutex mu;
  mu.Lock();
  std::thread t([&] { mu.Lock(); });
  mu.Unlock();
  t.join();
  EXPECT_FALSE(mu.TryLock());
}

TEST(MutexThreadTest, LimitsWorkOnAPlainThreadWithoutRun) {
  Mutex mu;
  mu.Lock();
  EXPECT_FALSE(mu.TryLockFor(absl::Milliseconds(2)));
  std::thread t([&] { EXPECT_TRUE(mu.TryLockFor(absl::Hours(1))); });
  mu.Unlock();
  t.join();
  EXPECT_FALSE(mu.TryLock());
}

// A death test, because a process initialises the runtime once.
TEST(MutexThreadDeathTest,
     APlainThreadMayWaitWhileAnotherInitialisesTheRuntime) {
  auto both = [] {
    Mutex mu;
    mu.Lock();
    std::thread waiter([&] { mu.Lock(); });
    (void)runtime::NumCPU();
    mu.Unlock();
    waiter.join();
    std::exit(0);
  };
  EXPECT_EXIT(both(), ::testing::ExitedWithCode(0), "");
}

// A lock may be held outside of the bubble, so its time passes outside.
TEST(MutexBubbleTest, LimitPassesOutsideOfTheBubble) {
  gump::Run([] {
    synctest::Run([] {
      Mutex mu;
      const absl::Time before = synctest::Now();
      auto locked = make_chan<void>();
      auto end = make_chan<void>();
      sync::WaitGroup holder;
      holder.Go([&] {
        mu.Lock();
        locked.Close();
        (void)end.Recv();
        mu.Unlock();
      });
      (void)locked.Recv();
      EXPECT_FALSE(mu.TryLockFor(absl::Milliseconds(2)));
      EXPECT_FALSE(mu.TryLockUntil(synctest::Now() + absl::Milliseconds(2)));
      EXPECT_EQ(synctest::Now(), before);
      end.Close();
      holder.Wait();  // it uses mu
    });
  });
}

TEST(MutexDeathTest, UnlockOfUnlockedIsFatal) {
  EXPECT_EXIT(gump::Run([] {
                Mutex mu;
                mu.Unlock();
              }),
              ::testing::ExitedWithCode(2),
              "fatal error: sync: unlock of unlocked mutex");
}

TEST(MutexDeathTest, UnlockTwiceIsFatalAndCannotBeCaught) {
  EXPECT_EXIT(gump::Run([] {
                Mutex mu;
                mu.Lock();
                mu.Unlock();
                try {
                  mu.Unlock();
                } catch (...) {
                }
              }),
              ::testing::ExitedWithCode(2),
              "fatal error: sync: unlock of unlocked mutex");
}

// WakeWith has a goroutine wait for a locked Mutex, puts `state` where the
// Mutex keeps its own, as a stray write would, and wakes that goroutine.
void WakeWith(int32_t state) {
  testing::RunWith(1, [state] {
    Mutex mu;
    auto* words = reinterpret_cast<rt::Atomic<int32_t>*>(&mu);
    auto* sema = reinterpret_cast<rt::Atomic<uint32_t>*>(words + 1);
    mu.Lock();
    go([&mu] { mu.Lock(); });
    while (words->load(rt::relaxed) == 1) runtime::Gosched();  // no waiter
    words->store(state, rt::relaxed);
    rt::semrelease(sema, /*handoff=*/false);
    for (;;) runtime::Gosched();
  });
}

TEST(MutexDeathTest, InconsistentStateIsFatal) {
  // An invariant of the library, so the report shows every goroutine.
  constexpr char kText[] =
      "^fatal error: sync: inconsistent mutex state\n(.*\n)+"
      "goroutine [0-9]+ .*\n(.*\n)+goroutine [0-9]+ ";
  constexpr int32_t kLocked = 1;
  constexpr int32_t kStarving = 4;
  constexpr int32_t kWaiter = 8;
  const auto dies = ::testing::ExitedWithCode(2);
  // The goroutine is awake, but the state does not say so.
  EXPECT_EXIT(WakeWith(kLocked), dies, kText);
  // The lock is handed over, but it is held.
  EXPECT_EXIT(WakeWith(kLocked | kStarving | kWaiter), dies, kText);
  // The lock is handed over, but there is no waiter.
  EXPECT_EXIT(WakeWith(kStarving), dies, kText);
}

}  // namespace
}  // namespace gump
