// The claims of the tests of Go's sync package about locks and conditions, and
// of its runtime about semaphores, under their names, in our words. Tests of
// Go's collector and of its copy checker are left out.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/internal/linkname_sync.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "tests/testing/fuzzsched.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::Cond;
using sync::Mutex;
using sync::RWMutex;
using sync::WaitGroup;
using testing::Eventually;

using SyncLockTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(SyncLockTest);

// ---- runtime/sema_test.go ---------------------------------------------------

// Handoff is one round. Returns true if the releaser gave its processor to the
// waiter at once.
bool Handoff() {
  rt::Atomic<uint32_t> sema;
  std::atomic<int> first = 0;  // 1: the waiter was first, 2: the releaser
  std::atomic<bool> waiting = false;
  std::atomic<bool> stop = false;
  WaitGroup wg;
  // All Ps are kept busy. If one were idle, the releaser could move to it,
  // which would look as if it had given its processor away.
  for (int i = 0; i < runtime::GOMAXPROCS(0); i++) {
    wg.Go([&] {
      while (!stop) runtime::Gosched();
    });
  }
  wg.Go([&] {
    waiting = true;
    rt::semacquire(&sema, /*lifo=*/false, rt::SemaReason::kSemacquire);
    int none = 0;
    first.compare_exchange_strong(none, 1);
    stop = true;
  });
  while (!waiting) runtime::Gosched();
  for (int i = 0; i < 10; i++) runtime::Gosched();  // it parks
  rt::semrelease(&sema, /*handoff=*/true);
  int none = 0;
  first.compare_exchange_strong(none, 2);
  wg.Wait();
  return first == 1;
}

TEST_P(SyncLockTest, TestSemaHandoff) {
  Run([] {
    int ok = 0;
    constexpr int kRounds = 200;
    for (int i = 0; i < kRounds; i++) ok += Handoff() ? 1 : 0;
    // If the scheduler shuffles, a waiter that is handed the processor does not
    // run next.
    EXPECT_GE(ok, testing::FuzzSched() ? 0 : kRounds * 2 / 3);
  });
}

// ---- mutex_test.go ----------------------------------------------------------

TEST_P(SyncLockTest, TestSemaphore) {
  Run([] {
    rt::Atomic<uint32_t> sema(1);
    WaitGroup wg;
    int n = 0;
    for (int i = 0; i < 10; i++) {
      wg.Go([&] {
        for (int j = 0; j < 1000; j++) {
          rt::semacquire(&sema, /*lifo=*/false, rt::SemaReason::kSemacquire);
          n++;
          rt::semrelease(&sema, /*handoff=*/false);
        }
      });
    }
    wg.Wait();
    EXPECT_EQ(n, 10'000);
  });
}

TEST_P(SyncLockTest, TestMutex) {
  Run([] {
    Mutex m;
    m.Lock();
    EXPECT_FALSE(m.TryLock());
    m.Unlock();
    EXPECT_TRUE(m.TryLock());
    m.Unlock();
    WaitGroup wg;
    for (int i = 0; i < 10; i++) {
      wg.Go([&] {
        for (int j = 0; j < 1000; j++) {
          if (j % 3 == 0) {
            if (m.TryLock()) m.Unlock();
            continue;
          }
          m.Lock();
          m.Unlock();
        }
      });
    }
    wg.Wait();
  });
}

TEST_P(SyncLockTest, TestMutexFairness) {
  Run([] {
    Mutex mu;
    std::atomic<bool> stop = false;
    auto hold = [&] {
      const auto end =
          std::chrono::steady_clock::now() + std::chrono::microseconds(100);
      while (std::chrono::steady_clock::now() < end) runtime::Gosched();
    };
    WaitGroup wg;
    wg.Go([&] {
      while (!stop) {
        mu.Lock();
        hold();
        mu.Unlock();
      }
    });
    wg.Go([&] {
      for (int i = 0; i < 10; i++) {
        hold();
        mu.Lock();
        mu.Unlock();
      }
      stop = true;
    });
    EXPECT_TRUE(Eventually([&] { return stop.load(); }));
    wg.Wait();
  });
}

// ---- rwmutex_test.go --------------------------------------------------------

TEST_P(SyncLockTest, TestParallelReaders) {
  Run([] {
    for (int readers : {1, 3, 4, 10}) {
      RWMutex m;
      auto locked = make_chan<void>();
      auto unlock = make_chan<void>();
      auto done = make_chan<void>();
      for (int i = 0; i < readers; i++) {
        go([&] {
          m.RLock();
          locked.Send();
          unlock.Recv();
          m.RUnlock();
          done.Send();
        });
      }
      for (int i = 0; i < readers; i++) locked.Recv();
      for (int i = 0; i < readers; i++) unlock.Send();
      for (int i = 0; i < readers; i++) done.Recv();
    }
  });
}

// Readers add 1, writers 10'000. Neither ever sees the other's number.
void HammerRWMutex(int readers, int rounds) {
  std::atomic<int> activity = 0;
  RWMutex m;
  WaitGroup wg;
  auto writer = [&] {
    for (int i = 0; i < rounds; i++) {
      m.Lock();
      EXPECT_EQ(activity += 10'000, 10'000);
      for (int j = 0; j < 100; j++) rt::compilerFence();
      activity -= 10'000;
      m.Unlock();
    }
  };
  auto reader = [&] {
    for (int i = 0; i < rounds; i++) {
      m.RLock();
      const int n = ++activity;
      EXPECT_TRUE(n >= 1 && n < 10'000) << n;
      for (int j = 0; j < 100; j++) rt::compilerFence();
      activity--;
      m.RUnlock();
    }
  };
  wg.Go(writer);
  for (int i = 0; i < readers / 2; i++) wg.Go(reader);
  wg.Go(writer);
  for (int i = readers / 2; i < readers; i++) wg.Go(reader);
  wg.Wait();
  EXPECT_EQ(activity, 0);
}

TEST_P(SyncLockTest, TestRWMutex) {
  Run([] {
    RWMutex m;
    m.Lock();
    EXPECT_FALSE(m.TryLock());
    EXPECT_FALSE(m.TryRLock());
    m.Unlock();
    EXPECT_TRUE(m.TryLock());
    m.Unlock();
    EXPECT_TRUE(m.TryRLock());
    EXPECT_TRUE(m.TryRLock());
    EXPECT_FALSE(m.TryLock());
    m.RUnlock();
    m.RUnlock();
    for (int readers : {1, 3, 10}) HammerRWMutex(readers, 1000);
  });
}

TEST_P(SyncLockTest, TestRLocker) {
  Run([] {
    RWMutex wl;
    sync::Locker rl = wl.RLocker();
    auto wlocked = make_chan<bool>(1);
    auto rlocked = make_chan<bool>(1);
    constexpr int kRounds = 10;
    go([&] {
      for (int i = 0; i < kRounds; i++) {
        rl.Lock();
        rl.Lock();
        rlocked.Send(true);
        wl.Lock();
        wlocked.Send(true);
      }
    });
    for (int i = 0; i < kRounds; i++) {
      rlocked.Recv();
      rl.Unlock();
      EXPECT_FALSE(wlocked.TryRecv().value.has_value());
      rl.Unlock();
      wlocked.Recv();
      EXPECT_FALSE(rlocked.TryRecv().value.has_value());
      wl.Unlock();
    }
  });
}

// ---- cond_test.go -----------------------------------------------------------

TEST_P(SyncLockTest, TestCondSignal) {
  Run([] {
    Mutex m;
    Cond c{m};
    constexpr int kN = 2;
    auto running = make_chan<bool>(kN);
    auto awake = make_chan<bool>(kN);
    for (int i = 0; i < kN; i++) {
      go([&] {
        m.Lock();
        running.Send(true);
        c.Wait();
        awake.Send(true);
        m.Unlock();
      });
    }
    for (int i = 0; i < kN; i++) running.Recv();
    for (int n = kN; n > 0; n--) {
      EXPECT_FALSE(awake.TryRecv().value.has_value()) << "not asleep";
      m.Lock();
      c.Signal();
      m.Unlock();
      awake.Recv();
      EXPECT_FALSE(awake.TryRecv().value.has_value()) << "too many awake";
    }
    c.Signal();
    m.Lock();  // the last one has let go of m
    m.Unlock();
  });
}

TEST_P(SyncLockTest, TestCondSignalGenerations) {
  Run([] {
    Mutex m;
    Cond c{m};
    constexpr int kN = 100;
    auto running = make_chan<bool>(kN);
    auto awake = make_chan<int>(kN);
    for (int i = 0; i < kN; i++) {
      go([&, i] {
        m.Lock();
        running.Send(true);
        c.Wait();
        awake.Send(i);
        m.Unlock();
      });
      if (i > 0) {
        EXPECT_EQ(awake.Recv(), i - 1);
      }
      running.Recv();
      m.Lock();
      c.Signal();
      m.Unlock();
    }
    EXPECT_EQ(awake.Recv(), kN - 1);
    m.Lock();  // the last one has let go of m
    m.Unlock();
  });
}

TEST_P(SyncLockTest, TestCondBroadcast) {
  Run([] {
    Mutex m;
    Cond c{m};
    constexpr int kN = 50;
    auto running = make_chan<int>(kN);
    auto awake = make_chan<int>(kN);
    bool exit = false;
    WaitGroup wg;
    for (int i = 0; i < kN; i++) {
      wg.Go([&, i] {
        m.Lock();
        while (!exit) {
          running.Send(i);
          c.Wait();
          awake.Send(i);
        }
        m.Unlock();
      });
    }
    for (int i = 0; i < kN; i++) {
      for (int j = 0; j < kN; j++) running.Recv();  // all ready to run
      if (i == kN - 1) {
        m.Lock();
        exit = true;
        m.Unlock();
      }
      EXPECT_FALSE(awake.TryRecv().value.has_value()) << "not asleep";
      m.Lock();
      c.Broadcast();
      m.Unlock();
      std::set<int> seen;
      for (int j = 0; j < kN; j++) {
        EXPECT_TRUE(seen.insert(awake.Recv().value()).second) << "woke twice";
      }
    }
    EXPECT_FALSE(running.TryRecv().value.has_value()) << "did not exit";
    wg.Wait();
  });
}

TEST_P(SyncLockTest, TestRace) {
  Run([] {
    Mutex m;
    Cond c{m};
    int x = 0;
    WaitGroup wg;
    wg.Go([&] {
      std::scoped_lock hold(m);
      x = 1;
      c.Wait();
      EXPECT_EQ(x, 2);
      x = 3;
      c.Signal();
    });
    wg.Go([&] {
      for (;;) {
        std::scoped_lock hold(m);
        if (x == 1) {
          x = 2;
          c.Signal();
          break;
        }
        runtime::Gosched();
      }
    });
    wg.Go([&] {
      for (;;) {
        std::scoped_lock hold(m);
        if (x == 2) {
          c.Wait();
          EXPECT_EQ(x, 3);
          break;
        }
        if (x == 3) break;
        runtime::Gosched();
      }
    });
    wg.Wait();
  });
}

// A Signal goes to a goroutine that waits already, not to one that begins to
// wait afterwards.
TEST_P(SyncLockTest, TestCondSignalStealing) {
  Run([] {
    for (int round = 0; round < 200; round++) {
      Mutex m;
      Cond cond{m};
      auto ch = make_chan<void>();
      WaitGroup wg;
      wg.Go([&] {
        m.Lock();
        ch.Send();
        cond.Wait();
        m.Unlock();
        ch.Send();
      });
      ch.Recv();
      m.Lock();
      m.Unlock();
      // The waiter is in the list, or on its way there without the lock.
      bool done = false;
      wg.Go([&] {
        m.Lock();
        while (!done) cond.Wait();
        m.Unlock();
      });
      cond.Signal();
      ch.Recv();  // it was the first that was woken
      m.Lock();
      done = true;
      m.Unlock();
      cond.Broadcast();
      wg.Wait();
    }
  });
}

}  // namespace
}  // namespace gump
