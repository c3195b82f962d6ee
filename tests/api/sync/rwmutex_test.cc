#include "gump/sync/rwmutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::RWMutex;
using testing::EventuallyParked;

using RWMutexTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(RWMutexTest);

TEST_P(RWMutexTest, ReadersShare) {
  Run([] {
    RWMutex mu;
    auto in = make_chan<void>();
    auto out = make_chan<void>();
    auto done = make_chan<void>();
    for (int i = 0; i < 10; i++) {
      go([&] {
        mu.RLock();
        in.Send();
        out.Recv();
        mu.RUnlock();
        done.Send();
      });
    }
    for (int i = 0; i < 10; i++) in.Recv();  // all hold it
    EXPECT_FALSE(mu.TryLock());
    EXPECT_TRUE(mu.TryRLock());
    mu.RUnlock();
    out.Close();
    for (int i = 0; i < 10; i++) done.Recv();
    EXPECT_TRUE(mu.TryLock());
    mu.Unlock();
  });
}

TEST_P(RWMutexTest, WriterExcludesAllOthers) {
  Run([] {
    RWMutex mu;
    int writers = 0;
    std::atomic<int> readers = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([&] {
        for (int j = 0; j < 500; j++) {
          std::unique_lock hold(mu);
          EXPECT_EQ(writers++, 0);
          EXPECT_EQ(readers, 0);
          if (j % 16 == 0) runtime::Gosched();
          writers--;
        }
      });
      wg.Go([&] {
        for (int j = 0; j < 500; j++) {
          std::shared_lock hold(mu);
          readers++;
          EXPECT_EQ(writers, 0);
          if (j % 16 == 0) runtime::Gosched();
          readers--;
        }
      });
    }
    wg.Wait();
  });
}

TEST_P(RWMutexTest, WaitingWriterKeepsNewReadersOut) {
  Run([] {
    RWMutex mu;
    mu.RLock();
    sync::WaitGroup wg;
    std::atomic<bool> written = false;
    wg.Go([&] {
      mu.Lock();
      written = true;
      mu.Unlock();
    });
    while (mu.TryRLock()) {  // until the writer has announced itself
      mu.RUnlock();
      runtime::Gosched();
    }
    wg.Go([&] {
      mu.RLock();
      EXPECT_TRUE(written);
      mu.RUnlock();
    });
    EXPECT_TRUE(EventuallyParked("sync.RWMutex.RLock", 1));
    EXPECT_FALSE(written);
    mu.RUnlock();
    wg.Wait();
  });
}

// Both the readers and the second writer queue up behind the first writer.
TEST_P(RWMutexTest, ReadersThatQueuedGoBeforeTheNextWriter) {
  Run([] {
    RWMutex mu;
    mu.Lock();
    std::atomic<int> read = 0;
    sync::WaitGroup wg;
    wg.Go([&] {
      mu.Lock();
      EXPECT_EQ(read, 5);
      mu.Unlock();
    });
    ASSERT_TRUE(EventuallyParked("sync.Mutex.Lock", 1));
    for (int i = 0; i < 5; i++) {
      wg.Go([&] {
        mu.RLock();
        runtime::Gosched();
        read++;
        mu.RUnlock();
      });
    }
    ASSERT_TRUE(EventuallyParked("sync.RWMutex.RLock", 5));
    mu.Unlock();
    wg.Wait();
  });
}

TEST_P(RWMutexTest, RLockerLocksForReading) {
  Run([] {
    RWMutex mu;
    sync::Locker reader = mu.RLocker();
    std::scoped_lock first(reader);
    reader.Lock();
    EXPECT_FALSE(mu.TryLock());
    EXPECT_TRUE(mu.try_lock_shared());
    mu.unlock_shared();
    reader.Unlock();
  });
}

TEST_P(RWMutexTest, TryLocksFailWhileHeldForWriting) {
  Run([] {
    RWMutex mu;
    EXPECT_TRUE(mu.TryLock());
    EXPECT_FALSE(mu.TryLock());
    EXPECT_FALSE(mu.TryRLock());
    mu.Unlock();
    EXPECT_TRUE(mu.TryRLock());
    EXPECT_TRUE(mu.TryRLock());
    EXPECT_FALSE(mu.try_lock());
    mu.RUnlock();
    mu.RUnlock();
  });
}

TEST_P(RWMutexTest, MixesWithPlainThreads) {
  Run([] {
    RWMutex mu;
    int n = 0;
    auto work = [&] {
      for (int j = 0; j < 2000; j++) {
        if (j % 4 == 0) {
          std::unique_lock hold(mu);
          n++;
        } else {
          std::shared_lock hold(mu);
          EXPECT_LE(n, 2000);
        }
      }
    };
    testing::OnBothSides(work);
    EXPECT_EQ(n, 2000);
  });
}

TEST_P(RWMutexTest, WriterWithALimitFailsWhenTheTimeHasPassed) {
  Run([] {
    RWMutex mu;
    mu.RLock();
    EXPECT_FALSE(mu.TryLockFor(absl::Milliseconds(1)));
    EXPECT_FALSE(mu.TryLockFor(absl::ZeroDuration()));
    EXPECT_FALSE(mu.TryLockUntil(std::chrono::steady_clock::now() +
                                 std::chrono::milliseconds(1)));
    EXPECT_TRUE(mu.TryRLock()) << "the writer has given up";
    mu.RUnlock();
    mu.RUnlock();
    EXPECT_TRUE(mu.TryLockFor(absl::ZeroDuration()));
    mu.Unlock();
    EXPECT_TRUE(mu.TryLockUntil(absl::InfinitePast()));
    EXPECT_FALSE(mu.TryLockFor(absl::Milliseconds(1))) << "held by a writer";
    mu.Unlock();
  });
}

TEST_P(RWMutexTest, ReaderWithALimitFailsWhenTheTimeHasPassed) {
  Run([] {
    RWMutex mu;
    mu.Lock();
    EXPECT_FALSE(mu.TryRLockFor(absl::Milliseconds(1)));
    EXPECT_FALSE(mu.TryRLockFor(absl::ZeroDuration()));
    EXPECT_FALSE(mu.TryRLockUntil(absl::InfinitePast()));
    mu.Unlock();
    EXPECT_TRUE(mu.TryRLockFor(absl::Milliseconds(1)));
    EXPECT_TRUE(mu.TryRLockUntil(absl::InfinitePast()));
    mu.RUnlock();
    mu.RUnlock();
    EXPECT_TRUE(mu.TryLock());
    mu.Unlock();
  });
}

// Three readers wait behind the writer. When it gives up, they get in, while
// the reader that it has waited for is still there.
TEST_P(RWMutexTest, WriterThatGivesUpLetsTheReadersIn) {
  Run([] {
    RWMutex mu;
    mu.RLock();
    auto gave_up = make_chan<void>();
    go([&] {
      EXPECT_FALSE(mu.TryLockFor(absl::Milliseconds(20)));
      gave_up.Close();
    });
    sync::WaitGroup wg;
    for (int i = 0; i < 3; i++) {
      wg.Go([&] {
        mu.RLock();
        mu.RUnlock();
      });
    }
    wg.Wait();
    (void)gave_up.Recv();
    mu.RUnlock();
    EXPECT_TRUE(mu.TryLock());
    mu.Unlock();
  });
}

TEST_P(RWMutexTest, LimitsEndWithTheLockAsSoonAsItIsFree) {
  Run([] {
    RWMutex mu;
    mu.Lock();
    sync::WaitGroup wg;
    wg.Go([&] {
      EXPECT_TRUE(mu.TryRLockFor(absl::Hours(1)));
      mu.RUnlock();
    });
    EXPECT_TRUE(EventuallyParked("sync.RWMutex.RLock", 1));
    mu.Unlock();
    wg.Wait();
    mu.RLock();
    wg.Go([&] {
      EXPECT_TRUE(mu.TryLockFor(absl::InfiniteDuration()));
      mu.Unlock();
    });
    EXPECT_TRUE(EventuallyParked("sync.RWMutex.Lock", 1));
    mu.RUnlock();
    wg.Wait();
  });
}

TEST_P(RWMutexTest, GuardsOfTheStandardLibraryTakeALimit) {
  Run([] {
    RWMutex mu;
    {
      std::shared_lock read(mu, std::chrono::milliseconds(1));
      EXPECT_TRUE(read.owns_lock());
      std::unique_lock write(mu, std::chrono::microseconds(100));
      EXPECT_FALSE(write.owns_lock());
    }
    std::unique_lock write(mu, std::chrono::steady_clock::now());
    EXPECT_TRUE(write.owns_lock());
    std::shared_lock read(mu, std::chrono::steady_clock::now());
    EXPECT_FALSE(read.owns_lock());
  });
}

// Readers and writers, each with and without limits, in goroutines and in plain
// threads. `n` is guarded by the lock.
TEST_P(RWMutexTest, ThoseThatGiveUpLeaveTheLockToTheOthers) {
  Run([] {
    RWMutex mu;
    int n = 0;
    std::atomic<int> written = 0;
    std::atomic<int> inside = 0;
    const auto write = [&] {
      EXPECT_EQ(inside, 0);
      n++;
      written++;
    };
    const auto read = [&] {
      inside++;
      EXPECT_EQ(n, written);
      if (inside % 3 == 0) runtime::Gosched();
      inside--;
    };
    const auto work = [&](int kind) {
      for (int i = 0; i < 300; i++) {
        const absl::Duration limit = absl::Microseconds(1 + 37 * i % 200);
        if (kind == 0) {
          mu.Lock();
          write();
          mu.Unlock();
        } else if (kind == 1) {
          mu.RLock();
          read();
          mu.RUnlock();
        } else if (kind == 2) {
          if (!mu.TryLockFor(limit)) continue;
          write();
          mu.Unlock();
        } else if (mu.TryRLockFor(limit)) {
          read();
          mu.RUnlock();
        }
      }
    };
    std::vector<std::thread> threads;
    sync::WaitGroup wg;
    for (int kind = 0; kind < 4; kind++) {
      threads.push_back(testing::KnownThread([&, kind] { work(kind); }));
      for (int i = 0; i < 2; i++) wg.Go([&, kind] { work(kind); });
    }
    wg.Wait();
    testing::JoinAll(threads);
    EXPECT_EQ(n, written);
    EXPECT_TRUE(mu.TryRLock()) << "a writer is left over";
    mu.RUnlock();
    EXPECT_TRUE(mu.TryLock()) << "a reader is left over";
    mu.Unlock();
  });
}

// The reader may come in while an Unlock is halfway through.
TEST_P(RWMutexTest, MayBeDestroyedByTheLastToUnlock) {
  Run([] {
    struct Shared {
      RWMutex mu;
      std::atomic<int> refs = 4;
    };
    for (int i = 0; i < 2000; i++) {
      auto* s = new Shared;
      sync::WaitGroup wg;
      for (int j = 0; j < 3; j++) {
        wg.Go([s] {
          s->mu.Lock();
          const bool last = --s->refs == 0;
          s->mu.Unlock();
          if (last) delete s;
        });
      }
      wg.Go([s] {
        s->mu.RLock();
        const bool last = --s->refs == 0;
        s->mu.RUnlock();
        if (last) delete s;
      });
      wg.Wait();
    }
  });
}

template <class F>
void RunFatal(F f) {
  gump::Run([&] {
    RWMutex mu;
    f(mu);
  });
}

TEST(RWMutexDeathTest, UnlockOfUnlockedIsFatal) {
  EXPECT_EXIT(RunFatal([](RWMutex& mu) { mu.Unlock(); }),
              ::testing::ExitedWithCode(2),
              "fatal error: sync: Unlock of unlocked RWMutex");
}
TEST(RWMutexDeathTest, UnlockOfReadLockedIsFatal) {
  EXPECT_EXIT(RunFatal([](RWMutex& mu) {
                mu.RLock();
                mu.Unlock();
              }),
              ::testing::ExitedWithCode(2),
              "fatal error: sync: Unlock of unlocked RWMutex");
}
TEST(RWMutexDeathTest, RUnlockOfUnlockedIsFatal) {
  EXPECT_EXIT(RunFatal([](RWMutex& mu) { mu.RUnlock(); }),
              ::testing::ExitedWithCode(2),
              "fatal error: sync: RUnlock of unlocked RWMutex");
}
TEST(RWMutexDeathTest, RUnlockOfWriteLockedIsFatal) {
  EXPECT_EXIT(RunFatal([](RWMutex& mu) {
                mu.Lock();
                mu.RUnlock();
              }),
              ::testing::ExitedWithCode(2),
              "fatal error: sync: RUnlock of unlocked RWMutex");
}

}  // namespace
}  // namespace gump
