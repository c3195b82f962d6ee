#include "gump/sync/errgroup.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::ErrGroup;
using ErrGroupTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(ErrGroupTest);

TEST_P(ErrGroupTest, WaitReturnsTheFirstError) {
  Run([] {
    ErrGroup group;
    chan<void> second = make_chan<void>();
    group.Go([] { return absl::OkStatus(); });
    group.Go([&] {
      (void)second.Recv();
      return absl::InternalError("second");
    });
    group.Go([] {});  // no result counts as OK
    ErrGroup inner;
    inner.Go([] { return absl::DataLossError("first"); });
    EXPECT_EQ(inner.Wait(), absl::DataLossError("first"));
    group.Go([&] {
      second.Close();
      return absl::OkStatus();
    });
    EXPECT_EQ(group.Wait(), absl::InternalError("second"));
  });
}

TEST_P(ErrGroupTest, LaterErrorsDoNotReplaceTheFirst) {
  Run([] {
    ErrGroup group;
    group.SetLimit(1);  // one after the other
    for (int i = 0; i < 10; i++) {
      group.Go([i] { return absl::InternalError(std::to_string(i)); });
    }
    EXPECT_EQ(group.Wait(), absl::InternalError("0"));
  });
}

TEST_P(ErrGroupTest, WaitIsOkWithoutErrors) {
  Run([] {
    ErrGroup group;
    EXPECT_TRUE(group.Wait().ok());
    std::atomic<int> n = 0;
    for (int i = 0; i < 100; i++) group.Go([&] { n++; });
    EXPECT_TRUE(group.Wait().ok());
    EXPECT_EQ(n, 100);
  });
}

TEST_P(ErrGroupTest, LimitBoundsTheActiveGoroutines) {
  Run([] {
    ErrGroup group;
    group.SetLimit(3);
    std::atomic<int> active = 0, most = 0;
    for (int i = 0; i < 200; i++) {
      group.Go([&] {
        const int now = ++active;
        for (int seen = most;
             now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        runtime::Gosched();
        active--;
      });
    }
    EXPECT_TRUE(group.Wait().ok());
    EXPECT_LE(most, 3);
  });
}

TEST_P(ErrGroupTest, TryGoStartsNothingBeyondTheLimit) {
  Run([] {
    ErrGroup group;
    group.SetLimit(2);
    chan<void> release = make_chan<void>();
    for (int i = 0; i < 2; i++) {
      EXPECT_TRUE(group.TryGo([&] { (void)release.Recv(); }));
    }
    EXPECT_FALSE(group.TryGo([] { FAIL(); }));
    std::atomic<bool> had_its_turn = false;
    go([&] {
      group.Go([] {});
      had_its_turn = true;
    });
    EXPECT_TRUE(testing::EventuallyParked("chan send", 1));
    release.Close();
    EXPECT_TRUE(testing::Eventually([&] { return had_its_turn.load(); }));
    EXPECT_TRUE(group.Wait().ok());
    group.SetLimit(0);
    EXPECT_FALSE(group.TryGo([] { FAIL(); }));
    group.SetLimit(-1);
    EXPECT_TRUE(group.TryGo([] {}));
    EXPECT_TRUE(group.Wait().ok());
  });
}

TEST_P(ErrGroupTest, SetLimitWhileActivePanics) {
  Run([] {
    ErrGroup group;
    group.SetLimit(5);
    chan<void> release = make_chan<void>();
    for (int i = 0; i < 2; i++) group.Go([&] { (void)release.Recv(); });
    try {
      group.SetLimit(6);
      ADD_FAILURE();
    } catch (const PanicError& e) {
      EXPECT_STREQ(e.what(),
                   "errgroup: modify limit while 2 goroutines in the group "
                   "are still active");
    }
    release.Close();
    EXPECT_TRUE(group.Wait().ok());
    group.SetLimit(6);
  });
}

TEST_P(ErrGroupTest, SetLimitWhileActiveWithoutOnePanics) {
  Run([] {
    ErrGroup group;
    chan<void> release = make_chan<void>();
    for (int i = 0; i < 2; i++) group.Go([&] { (void)release.Recv(); });
    EXPECT_EQ(testing::PanicText([&] { group.SetLimit(1); }),
              "errgroup: modify limit while 2 goroutines in the group "
              "are still active");
    release.Close();
    EXPECT_TRUE(group.Wait().ok());
    group.SetLimit(1);
  });
}

// For the sanitizers: the old limit is freed when no goroutine uses it.
TEST_P(ErrGroupTest, SetLimitMayMeetTheLastThatLeaves) {
  Run([] {
    ErrGroup group;
    group.SetLimit(1);
    for (int i = 0; i < 1000; i++) {
      group.Go([] {});
      EXPECT_TRUE(testing::Eventually([&] {
        return testing::PanicText([&] { group.SetLimit(1 + i % 2); }) ==
               "no panic";
      }));
    }
    EXPECT_TRUE(group.Wait().ok());
  });
}

TEST_P(ErrGroupTest, GoexitGivesThePlaceBack) {
  Run([] {
    ErrGroup group;
    group.SetLimit(1);
    for (int i = 0; i < 10; i++) group.Go([] { runtime::Goexit(); });
    EXPECT_TRUE(group.Wait().ok());
  });
}

TEST_P(ErrGroupTest, TakesMoveOnlyFunctionsAndDestroysThemBeforeWaitReturns) {
  Run([] {
    for (int i = 0; i < 100; i++) {
      ErrGroup group;
      group.SetLimit(1);
      auto owner = std::make_shared<int>(i);
      std::weak_ptr<int> watch = owner;
      group.Go([o = std::move(owner), u = std::make_unique<int>(1)] {
        return *u == 1 ? absl::OkStatus() : absl::InternalError("");
      });
      // The place is free only after the function has been destroyed.
      group.Go([watch] { EXPECT_TRUE(watch.expired()); });
      EXPECT_TRUE(group.Wait().ok());
      EXPECT_TRUE(watch.expired());
    }
  });
}

TEST_P(ErrGroupTest, TheFirstErrorCancelsTheContext) {
  Run([] {
    auto [group, ctx] = ErrGroup::WithContext(context::Background());
    for (int i = 0; i < 10; i++) {
      group.Go([&c = ctx] {
        (void)c.Done().Recv();
        return c.Err();
      });
    }
    group.Go([] { return absl::DataLossError("checksum"); });
    EXPECT_EQ(group.Wait(), absl::DataLossError("checksum"));
    EXPECT_EQ(ctx.Err(), absl::CancelledError("context canceled"));
    EXPECT_EQ(context::Cause(ctx), absl::DataLossError("checksum"));
  });
}

TEST_P(ErrGroupTest, WaitCancelsTheContext) {
  Run([] {
    auto [group, ctx] = ErrGroup::WithContext(context::Background());
    group.Go([&c = ctx] { return c.Err(); });
    EXPECT_TRUE(group.Wait().ok());
    EXPECT_EQ(context::Cause(ctx), absl::CancelledError("context canceled"));
  });
}

TEST_P(ErrGroupTest, MixesWithPlainThreads) {
  Run([] {
    ErrGroup group;
    group.SetLimit(2);
    std::atomic<int> n = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; i++) {
      threads.push_back(testing::KnownThread([&] {
        for (int k = 0; k < 100; k++) group.Go([&] { n++; });
      }));
    }
    testing::JoinAll(threads);
    std::thread waiter = testing::KnownThread([&] {
      EXPECT_TRUE(group.Wait().ok());
      EXPECT_EQ(n, 200);
    });
    blocking([&] { waiter.join(); });
  });
}

// As in a WaitGroup, copies are destroyed before Done. The place is freed after
// that, too.
TEST_P(ErrGroupTest, GoDestroysCopiesBeforeThePlaceIsFree) {
  Run([] {
    std::atomic<bool> gone = false;
    const auto end = [&gone](void*) {
      for (int i = 0; i < 100; i++) runtime::Gosched();
      gone = true;
    };
    ErrGroup group;
    group.SetLimit(1);
    chan<void> go_on = make_chan<void>();
    {
      const std::shared_ptr<void> owner(&gone, end);
      group.Go([owner, go_on] { go_on.Recv(); });
    }
    go_on.Send();
    group.Go([&gone] { EXPECT_TRUE(gone); });
    EXPECT_TRUE(group.Wait().ok());
  });
}

TEST(ErrGroupDeathTest, AnExceptionEndsTheProcess) {
  EXPECT_EXIT(gump::Run([] {
                ErrGroup group;
                group.SetLimit(1);
                group.Go([] { panic("out of cheese"); });
                (void)group.Wait();
                std::_Exit(0);
              }),
              ::testing::ExitedWithCode(2), "panic: out of cheese");
}

}  // namespace
}  // namespace gump
