// FdMutex alone: which users exclude each other, how a close ends users that
// are inside or wait, and that exactly one of them is the last to leave.
#include "netpoll/fd_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using rt::FdMutex;
using rt::PollMode;
using testing::Eventually;
using testing::EventuallyParked;
using testing::KnownThread;
using Lock = FdMutex::Lock;

constexpr PollMode kModes[] = {PollMode::kRead, PollMode::kWrite};

constexpr PollMode Other(PollMode mode) {
  return mode == PollMode::kRead ? PollMode::kWrite : PollMode::kRead;
}

using FdMutexTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(FdMutexTest);

// ---- One at a time

TEST_P(FdMutexTest, ReadersExcludeReadersAndWritersWriters) {
  Run([] {
    constexpr int kRounds = rt::kSanitizerBuild ? 500 : 10'000;
    FdMutex mu;
    std::atomic<int> inside[2] = {0, 0};
    int count[2] = {0, 0};
    const auto work = [&] {
      for (int i = 0; i < kRounds; i++) {
        const int d = i % 2;
        ASSERT_EQ(mu.rwlock(kModes[d]), Lock::kOk);
        EXPECT_EQ(++inside[d], 1);
        count[d]++;
        if (i % 16 < 2) runtime::Gosched();
        EXPECT_EQ(--inside[d], 0);
        EXPECT_FALSE(mu.rwunlock(kModes[d]));
      }
    };
    testing::OnBothSides(work);
    EXPECT_EQ(count[0], 4 * kRounds / 2);
    EXPECT_EQ(count[1], 4 * kRounds / 2);
  });
}

TEST_P(FdMutexTest, ReadersAndWritersDoNotExcludeEachOther) {
  Run([] {
    for (const PollMode mode : kModes) {
      FdMutex mu;
      ASSERT_EQ(mu.rwlock(mode), Lock::kOk);
      std::atomic<bool> done = false;
      go([&] {
        EXPECT_EQ(mu.rwlock(Other(mode)), Lock::kOk);
        EXPECT_EQ(mu.incref(), Lock::kOk);
        EXPECT_FALSE(mu.decref());
        EXPECT_FALSE(mu.rwunlock(Other(mode)));
        done = true;
      });
      EXPECT_TRUE(Eventually([&] { return done.load(); }));
      EXPECT_FALSE(mu.rwunlock(mode));
    }
  });
}

TEST_P(FdMutexTest, AnUnlockWakesOneWaiterOfItsDirection) {
  Run([] {
    for (const PollMode mode : kModes) {
      FdMutex mu;
      ASSERT_EQ(mu.rwlock(mode), Lock::kOk);
      ASSERT_EQ(mu.rwlock(Other(mode)), Lock::kOk);
      std::atomic<int> in = 0;
      std::atomic<int> other = 0;
      std::atomic<bool> leave = false;
      sync::WaitGroup wg;
      for (int i = 0; i < 3; i++) {
        wg.Go([&] {
          EXPECT_EQ(mu.rwlock(mode), Lock::kOk);
          in++;
          while (!leave) runtime::Gosched();
          EXPECT_FALSE(mu.rwunlock(mode));
        });
      }
      wg.Go([&] {
        EXPECT_EQ(mu.rwlock(Other(mode)), Lock::kOk);
        other++;
        EXPECT_FALSE(mu.rwunlock(Other(mode)));
      });
      ASSERT_TRUE(EventuallyParked("semacquire", 4));
      EXPECT_FALSE(mu.rwunlock(mode));
      EXPECT_TRUE(Eventually([&] { return in == 1; }));
      EXPECT_EQ(testing::CountParked("semacquire"), 3u);
      EXPECT_EQ(other, 0);
      leave = true;
      EXPECT_TRUE(EventuallyParked("semacquire", 1));
      EXPECT_FALSE(mu.rwunlock(Other(mode)));
      wg.Wait();
      EXPECT_EQ(in, 3);
      EXPECT_EQ(other, 1);
    }
  });
}

// ---- The end

TEST_P(FdMutexTest, CloseFailsSleepersAndLatecomers) {
  Run([] {
    FdMutex mu;
    ASSERT_EQ(mu.rwlock(PollMode::kRead), Lock::kOk);
    ASSERT_EQ(mu.rwlock(PollMode::kWrite), Lock::kOk);
    std::atomic<int> failed = 0;
    const auto wait = [&](PollMode mode) {
      EXPECT_EQ(mu.rwlock(mode), Lock::kClosed);
      failed++;
    };
    std::vector<std::thread> threads;
    for (const PollMode mode : kModes) {
      for (int i = 0; i < 3; i++) go([&, mode] { wait(mode); });
      threads.push_back(KnownThread([&, mode] { wait(mode); }));
    }
    ASSERT_TRUE(EventuallyParked("semacquire", 8));
    ASSERT_EQ(mu.close(), Lock::kOk);
    EXPECT_TRUE(Eventually([&] { return failed == 8; }));
    testing::JoinAll(threads);
    EXPECT_EQ(mu.rwlock(PollMode::kRead), Lock::kClosed);
    EXPECT_EQ(mu.rwlock(PollMode::kWrite), Lock::kClosed);
    EXPECT_EQ(mu.incref(), Lock::kClosed);
    EXPECT_EQ(mu.close(), Lock::kClosed);
    EXPECT_FALSE(mu.rwunlock(PollMode::kRead));
    EXPECT_FALSE(mu.decref()) << "the closer's";
    EXPECT_TRUE(mu.rwunlock(PollMode::kWrite)) << "the last one out";
  });
}

TEST(FdMutexCountTest, TheLastOneOutDestroys) {
  {
    FdMutex mu;
    ASSERT_EQ(mu.close(), Lock::kOk);
    EXPECT_TRUE(mu.decref()) << "no user was inside";
  }
  {
    FdMutex mu;
    ASSERT_EQ(mu.incref(), Lock::kOk);
    ASSERT_EQ(mu.close(), Lock::kOk);
    EXPECT_FALSE(mu.decref());
    EXPECT_TRUE(mu.decref());
  }
  for (const PollMode mode : kModes) {
    FdMutex mu;
    ASSERT_EQ(mu.rwlock(mode), Lock::kOk);
    ASSERT_EQ(mu.close(), Lock::kOk);
    EXPECT_FALSE(mu.decref());
    EXPECT_TRUE(mu.rwunlock(mode));
  }
}

TEST(FdMutexCountTest, LeavingAnOpenMutexDestroysNothing) {
  FdMutex mu;
  ASSERT_EQ(mu.incref(), Lock::kOk);
  EXPECT_FALSE(mu.decref());
  ASSERT_EQ(mu.rwlock(PollMode::kRead), Lock::kOk);
  EXPECT_FALSE(mu.rwunlock(PollMode::kRead));
  ASSERT_EQ(mu.close(), Lock::kOk);
  EXPECT_TRUE(mu.decref());
}

// ---- Too many

TEST(FdMutexCountTest, OneUserTooManyIsTurnedAway) {
  FdMutex mu;
  for (uint64_t i = 0; i < FdMutex::kMaxUsers; i++) {
    ASSERT_EQ(mu.incref(), Lock::kOk) << i;
  }
  EXPECT_EQ(mu.incref(), Lock::kOverflow);
  EXPECT_EQ(mu.rwlock(PollMode::kRead), Lock::kOverflow);
  EXPECT_EQ(mu.rwlock(PollMode::kWrite), Lock::kOverflow);
  EXPECT_EQ(mu.close(), Lock::kOverflow);
  EXPECT_FALSE(mu.decref());
  ASSERT_EQ(mu.rwlock(PollMode::kRead), Lock::kOk) << "there is room again";
  EXPECT_FALSE(mu.rwunlock(PollMode::kRead));
  ASSERT_EQ(mu.close(), Lock::kOk);
  for (uint64_t i = 0; i < FdMutex::kMaxUsers - 1; i++) {
    ASSERT_FALSE(mu.decref()) << i;
  }
  EXPECT_TRUE(mu.decref());
}

TEST(FdMutexDeathTest, LeavingWithoutHavingEnteredIsFatal) {
  EXPECT_EXIT(
      {
        FdMutex mu;
        (void)mu.decref();
      },
      ::testing::ExitedWithCode(2), "inconsistent poll.fdMutex");
  EXPECT_EXIT(
      {
        FdMutex mu;
        (void)mu.incref();
        (void)mu.rwunlock(PollMode::kWrite);
      },
      ::testing::ExitedWithCode(2), "inconsistent poll.fdMutex");
}

// ---- Everything at once

TEST_P(FdMutexTest, ExactlyOneUserDestroysAfterAClose) {
  Run([] {
    testing::StressLoop([](testing::Rng& rng) {
      FdMutex mu;
      std::atomic<int> destroyed = 0;
      std::atomic<int> closed = 0;
      // True until the last user has destroyed the descriptor.
      std::atomic<bool> alive = true;
      int guarded[2] = {0, 0};
      const auto leave = [&](bool last) {
        if (!last) return;
        EXPECT_TRUE(alive.exchange(false));
        destroyed++;
      };
      const auto use = [&](uint64_t seed) {
        testing::Rng own(seed);
        for (;;) {
          Lock l;
          const uint64_t what = own.Below(20);
          if (what < 2) {
            l = mu.incref();
            if (l == Lock::kOk) {
              EXPECT_TRUE(alive);
              if (own.OneIn(4)) runtime::Gosched();
              leave(mu.decref());
            }
          } else if (what == 2 && own.OneIn(20)) {
            l = mu.close();
            if (l == Lock::kOk) {
              closed++;
              leave(mu.decref());
            }
          } else {
            const int d = static_cast<int>(what % 2);
            l = mu.rwlock(kModes[d]);
            if (l == Lock::kOk) {
              EXPECT_TRUE(alive);
              guarded[d]++;
              if (own.OneIn(4)) runtime::Gosched();
              guarded[d]++;
              leave(mu.rwunlock(kModes[d]));
            }
          }
          if (l == Lock::kClosed) return;
        }
      };
      sync::WaitGroup wg;
      for (int i = 0; i < 8; i++) {
        wg.Go([&, seed = rng.Next()] { use(seed); });
      }
      std::thread t;
      if (rng.OneIn(8)) {
        t = KnownThread([&, seed = rng.Next()] { use(seed); });
      }
      wg.Wait();
      if (t.joinable()) blocking([&] { t.join(); });
      EXPECT_EQ(closed, 1);
      EXPECT_EQ(destroyed, 1);
      EXPECT_EQ(guarded[0] % 2, 0);
      EXPECT_EQ(guarded[1] % 2, 0);
    });
  });
}

}  // namespace
}  // namespace gump
