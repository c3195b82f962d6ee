#include "gump/sync/semaphore.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gump/context.h"
#include "gump/go.h"
#include "gump/sync/waitgroup.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::Semaphore;
using sync::WaitGroup;
using SemaphoreTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(SemaphoreTest);

TEST_P(SemaphoreTest, TryAcquireTakesOnlyFreeUnits) {
  Run([] {
    Semaphore s(3);
    EXPECT_TRUE(s.TryAcquire());
    EXPECT_TRUE(s.TryAcquire(0));
    EXPECT_FALSE(s.TryAcquire(3));
    EXPECT_TRUE(s.TryAcquire(2));
    EXPECT_FALSE(s.TryAcquire());
    s.Release(2);
    s.Release();
    EXPECT_TRUE(s.TryAcquire(3));
  });
}

TEST_P(SemaphoreTest, MisusePanics) {
  Run([] {
    Semaphore s(3);
    const std::string more = "semaphore: released more than held";
    EXPECT_EQ(testing::PanicText([&] { s.Release(); }), more);
    s.Acquire(2);
    EXPECT_EQ(testing::PanicText([&] { s.Release(3); }), more);
    const std::string negative = "semaphore: negative weight";
    EXPECT_EQ(testing::PanicText([&] { s.Acquire(-1); }), negative);
    EXPECT_EQ(testing::PanicText([&] { (void)s.TryAcquire(-1); }), negative);
    EXPECT_EQ(testing::PanicText([&] { s.Release(-1); }), negative);
    s.Release(2);  // nothing has changed
    EXPECT_TRUE(s.TryAcquire(3));
  });
}

TEST_P(SemaphoreTest, ServesInOrderOfArrival) {
  Run([] {
    Semaphore s(10);
    s.Acquire(10);
    std::vector<int> order;
    std::mutex mu;
    WaitGroup wg;
    for (int i = 1; i <= 4; i++) {
      wg.Go([&, i] {
        s.Acquire(10);  // alone, so in order
        {
          std::scoped_lock hold(mu);
          order.push_back(i);
        }
        s.Release(10);
      });
      EXPECT_TRUE(testing::EventuallyParked("select", static_cast<size_t>(i)));
    }
    s.Release(10);
    wg.Wait();
    EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4}));
  });
}

TEST_P(SemaphoreTest, ASmallRequestDoesNotOvertakeALargeOne) {
  Run([] {
    Semaphore s(4);
    s.Acquire(2);
    std::atomic<bool> large = false;
    WaitGroup wg;
    wg.Go([&] {
      s.Acquire(4);
      large = true;
      s.Release(4);
    });
    EXPECT_TRUE(testing::EventuallyParked("select", 1));
    EXPECT_FALSE(s.TryAcquire(1));
    wg.Go([&] {
      s.Acquire(1);
      EXPECT_TRUE(large);
      s.Release(1);
    });
    EXPECT_TRUE(testing::EventuallyParked("select", 2));
    s.Release(2);
    wg.Wait();
    EXPECT_TRUE(s.TryAcquire(4));
  });
}

TEST_P(SemaphoreTest, ReleaseWakesAllThatFit) {
  Run([] {
    Semaphore s(5);
    s.Acquire(5);
    WaitGroup wg;
    for (int i = 0; i < 5; i++) wg.Go([&] { s.Acquire(1); });
    EXPECT_TRUE(testing::EventuallyParked("select", 5));
    s.Release(5);
    wg.Wait();
    EXPECT_FALSE(s.TryAcquire());
  });
}

TEST_P(SemaphoreTest, CancellingTakesNothing) {
  Run([] {
    Semaphore s(2);
    s.Acquire(1);
    auto [ctx, cancel] = context::WithCancel(context::Background());
    WaitGroup wg;
    wg.Go([&, &c = ctx] {
      const absl::Status status = s.Acquire(c, 2);
      EXPECT_EQ(status, absl::CancelledError("context canceled"));
    });
    EXPECT_TRUE(testing::EventuallyParked("select", 1));
    // It waits behind the one that is cancelled, which then is not in the way.
    wg.Go([&] { EXPECT_TRUE(s.Acquire(context::Background(), 1).ok()); });
    EXPECT_TRUE(testing::EventuallyParked("select", 2));
    cancel();
    wg.Wait();
    EXPECT_FALSE(s.TryAcquire(1));
    s.Release(2);
    // A context that is done fails, even if there is enough.
    EXPECT_EQ(s.Acquire(ctx).code(), absl::StatusCode::kCancelled);
    EXPECT_TRUE(s.TryAcquire(2));
  });
}

// The units are granted, and the wait is cancelled, before the waiter has run.
// As in Go the waiter is told of the cancellation, and its units are free
// again, once. A waiter that was faster has them.
TEST_P(SemaphoreTest, WaiterGrantedAndCancelledGivesBack) {
  Run([] {
    constexpr int kEnough = 20;
    int cancelled = 0;
    for (int i = 0; i < 5000 && cancelled < kEnough; i++) {
      Semaphore s(2);
      s.Acquire(2);
      auto [ctx, cancel] = context::WithCancel(context::Background());
      absl::Status status;
      WaitGroup wg;
      wg.Go([&, &c = ctx] { status = s.Acquire(c, 2); });
      ASSERT_TRUE(testing::EventuallyParked("select", 1));
      s.Release(2);  // to the waiter
      cancel();
      wg.Wait();
      if (status.ok()) {
        s.Release(2);
      } else {
        EXPECT_EQ(status, absl::CancelledError("context canceled"));
        cancelled++;
      }
      ASSERT_TRUE(s.TryAcquire(2)) << "lost";
      ASSERT_FALSE(s.TryAcquire(1)) << "doubled";
    }
    EXPECT_EQ(cancelled, kEnough);
  });
}

TEST_P(SemaphoreTest, RequestBeyondTheSizeBlocksNoOther) {
  Run([] {
    Semaphore s(2);
    auto [ctx, cancel] = context::WithCancel(context::Background());
    WaitGroup wg;
    wg.Go([&, &c = ctx] {
      EXPECT_EQ(s.Acquire(c, 3).code(), absl::StatusCode::kCancelled);
    });
    EXPECT_TRUE(testing::EventuallyParked("chan receive", 1));
    s.Acquire(2);
    s.Release(2);
    cancel();
    wg.Wait();
  });
}

TEST_P(SemaphoreTest, MayBeDestroyedByTheWaiterThatIsLetIn) {
  Run([] {
    for (int i = 0; i < 3000; i++) {
      auto s = std::make_unique<Semaphore>(1);
      s->Acquire();
      go([p = s.get()] { p->Release(); });
      s->Acquire();
    }
  });
}

TEST_P(SemaphoreTest, MixesWithPlainThreads) {
  Run([] {
    Semaphore s(3);
    std::atomic<int64_t> inside = 0;
    const auto work = [&] {
      for (int i = 0; i < 500; i++) {
        const int64_t n = 1 + i % 3;
        s.Acquire(n);
        EXPECT_LE(inside += n, 3);
        inside -= n;
        s.Release(n);
      }
    };
    testing::InThreadsAndGoroutines(2, 3, work);
    EXPECT_TRUE(s.TryAcquire(3));
  });
}

}  // namespace
}  // namespace gump
