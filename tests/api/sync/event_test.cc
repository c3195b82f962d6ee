#include "gump/sync/event.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "gump/synctest.h"
#include "gump/time/sleep.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::Event;
using Mode = sync::Event::Mode;
using testing::EventuallyParked;
using EventTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(EventTest);

constexpr char kReason[] = "sync.Event.Wait";

TEST_P(EventTest, ManualEventStaysSetUntilReset) {
  Run([] {
    Event e(Mode::kManual);
    EXPECT_FALSE(e.IsSet());
    EXPECT_FALSE(e.TryWait());
    e.Set();
    e.Set();
    e.Wait();
    e.Wait();
    EXPECT_TRUE(e.TryWait());
    EXPECT_TRUE(e.IsSet());
    e.Reset();
    e.Reset();
    EXPECT_FALSE(e.IsSet());
    EXPECT_TRUE(Event(Mode::kManual, /*set=*/true).TryWait());
  });
}

TEST_P(EventTest, AutoEventLetsOneThroughForEachSet) {
  Run([] {
    Event e;
    e.Set();
    EXPECT_TRUE(e.IsSet());
    e.Wait();
    EXPECT_FALSE(e.IsSet());
    e.Set();
    e.Set();  // a flag, not a counter
    EXPECT_TRUE(e.TryWait());
    EXPECT_FALSE(e.TryWait());
    e.Set();
    e.Reset();
    EXPECT_FALSE(e.TryWait());
    Event set(Mode::kAuto, /*set=*/true);
    set.Wait();
    EXPECT_FALSE(set.IsSet());
  });
}

TEST_P(EventTest, SetOfAManualEventWakesAll) {
  Run([] {
    Event e(Mode::kManual);
    int written = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < 10; i++) {
      wg.Go([&] {
        e.Wait();
        EXPECT_EQ(written, 1);
      });
    }
    EXPECT_TRUE(EventuallyParked(kReason, 10));
    written = 1;
    e.Set();
    wg.Wait();
    EXPECT_TRUE(e.IsSet());
  });
}

TEST_P(EventTest, SetOfAnAutoEventWakesTheLongestWaiter) {
  Run([] {
    Event e;
    auto order = make_chan<int>(5);
    for (int i = 0; i < 5; i++) {
      go([&, order, i] {
        e.Wait();
        order.Send(i);
      });
      ASSERT_TRUE(EventuallyParked(kReason, static_cast<size_t>(i) + 1));
    }
    for (int i = 0; i < 5; i++) {
      e.Set();
      EXPECT_EQ(order.Recv(), i);
      EXPECT_FALSE(e.IsSet());
    }
  });
}

// One goroutine adds and sets, the other waits and takes all. No item is left
// behind, although a Set may find the Event set.
TEST_P(EventTest, WaiterSeesTheWorkBeforeEverySet) {
  Run([] {
    Event e;
    constexpr int kItems = 5000;
    std::atomic<int> items = 0;
    sync::WaitGroup setter;  // the last Set has to return before e is destroyed
    setter.Go([&] {
      for (int i = 0; i < kItems; i++) {
        items.fetch_add(1, std::memory_order_relaxed);
        e.Set();
      }
    });
    while (items.load(std::memory_order_relaxed) != kItems) e.Wait();
    setter.Wait();
  });
}

TEST_P(EventTest, WaitWithALimitEndsWhenTheTimeHasPassed) {
  Run([] {
    for (const Mode mode : {Mode::kManual, Mode::kAuto}) {
      Event e(mode);
      const auto end =
          std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
      EXPECT_FALSE(e.WaitFor(std::chrono::milliseconds(2)));
      EXPECT_GE(std::chrono::steady_clock::now(), end);
      EXPECT_FALSE(e.WaitUntil(end));
      EXPECT_FALSE(e.WaitFor(absl::ZeroDuration()));
      e.Set();
      EXPECT_TRUE(e.WaitUntil(absl::InfinitePast())) << "it is set";
      e.Reset();
      go([&] { e.Set(); });
      EXPECT_TRUE(e.WaitFor(absl::InfiniteDuration()));
    }
  });
}

TEST_P(EventTest, AnyOfSeveralTakesOnlyTheFirstThatIsSet) {
  Run([] {
    Event a;
    Event b;
    Event c(Mode::kManual);
    b.Set();
    c.Set();
    EXPECT_EQ(sync::WaitAny({&a, &b, &c}), 1u);
    EXPECT_FALSE(b.IsSet());
    EXPECT_EQ(sync::WaitAny({&a, &b, &c}), 2u);
    EXPECT_TRUE(c.IsSet());
    c.Reset();
    EXPECT_EQ(sync::WaitAnyFor({&a, &b, &c}, absl::Milliseconds(1)),
              std::nullopt);
    EXPECT_EQ(sync::WaitAnyUntil({&a, &b}, absl::InfinitePast()), std::nullopt);
    go([&] { c.Set(); });
    EXPECT_EQ(sync::WaitAny({&a, &b, &c, &c}), 2u);
    a.Set();
    EXPECT_EQ(sync::WaitAnyFor({&b, &a}, absl::ZeroDuration()), 1u);
  });
}

TEST_P(EventTest, AnyOfMoreThanFitOnTheStackIsFound) {
  Run([] {
    std::vector<std::unique_ptr<Event>> all;
    std::vector<Event*> events;
    for (int i = 0; i < 100; i++) {
      all.push_back(std::make_unique<Event>());
      events.push_back(all.back().get());
    }
    go([&] { all[77]->Set(); });
    EXPECT_EQ(sync::WaitAny(events), 77u);
  });
}

// Setters of two Events against waiters for both, some with a limit. Each Set
// of an unset Event lets exactly one through, or leaves it set.
TEST_P(EventTest, NoSetIsLostOnAWaiterForSeveral) {
  Run([] {
    Event a;
    Event b;
    constexpr int kRounds = 400;
    std::atomic<int> taken = 0;
    std::atomic<int> takers = 4;
    std::atomic<bool> stop = false;
    const auto take = [&](bool timed) {
      while (!stop) {
        if (!timed) {
          (void)sync::WaitAny({&a, &b});
          taken++;
        } else if (sync::WaitAnyFor({&b, &a}, absl::Microseconds(20))) {
          taken++;
        }
      }
      takers--;
    };
    std::vector<std::thread> threads;
    threads.push_back(testing::KnownThread([&] { take(true); }));
    sync::WaitGroup wg;
    wg.Go([&] { take(true); });
    wg.Go([&] { take(false); });
    wg.Go([&] { take(true); });
    for (int i = 0; i < kRounds; i++) {
      const int before = taken;
      a.Set();
      b.Set();
      while (taken != before + 2) runtime::Gosched();
    }
    stop = true;
    while (takers != 0) {
      a.Set();
      runtime::Gosched();
    }
    wg.Wait();
    testing::JoinAll(threads);
  });
}

TEST_P(EventTest, PlainThreadsSetAndWait) {
  Run([] {
    Event ping;
    Event pong;
    std::vector<std::thread> threads;
    threads.push_back(testing::KnownThread([&] {
      for (int i = 0; i < 200; i++) {
        ping.Wait();
        pong.Set();
      }
    }));
    for (int i = 0; i < 200; i++) {
      ping.Set();
      EXPECT_TRUE(pong.WaitFor(absl::Hours(1)));
    }
    testing::JoinAll(threads);
  });
}

TEST(EventThreadTest, WorksOnPlainThreadsWithoutRun) {
  Event e;
  EXPECT_FALSE(e.WaitFor(absl::Milliseconds(2)));
  std::thread t([&] { e.Set(); });
  e.Wait();
  t.join();
  EXPECT_FALSE(e.IsSet());
}

// A death test, because a process initialises the runtime once.
TEST(EventThreadDeathTest,
     APlainThreadMayWaitWhileAnotherInitialisesTheRuntime) {
  auto both = [] {
    std::thread waiter([] {
      Event e;
      (void)e.WaitFor(absl::Milliseconds(2));
    });
    (void)runtime::NumCPU();
    waiter.join();
    std::exit(0);
  };
  EXPECT_EXIT(both(), ::testing::ExitedWithCode(0), "");
}

TEST_P(EventTest, MayBeDestroyedAsSoonAsItsLastWaitHasReturned) {
  Run([] {
    for (int i = 0; i < 2000; i++) {
      auto e =
          std::make_unique<Event>(i % 2 == 0 ? Mode::kAuto : Mode::kManual);
      go([&e = *e] { e.Set(); });
      e->Wait();
      e.reset();
    }
  });
}

TEST(EventPanicTest, WaitForAnyOfNoEventsPanics) {
  gump::Run([] {
    EXPECT_EQ(testing::PanicText([] { (void)sync::WaitAny({}); }),
              "sync: WaitAny of no events");
  });
}

TEST(EventBubbleTest, WaitIsDurableAndItsLimitPassesInTheBubble) {
  gump::Run([] {
    synctest::Run([] {
      Event e;
      Event other;
      const absl::Time before = synctest::Now();
      EXPECT_FALSE(e.WaitFor(absl::Hours(1)));
      EXPECT_EQ(synctest::Now() - before, absl::Hours(1));
      EXPECT_EQ(sync::WaitAnyUntil({&e, &other}, before + absl::Hours(2)),
                std::nullopt);
      EXPECT_EQ(synctest::Now() - before, absl::Hours(2));
      go([&] {
        time::Sleep(absl::Hours(1));
        e.Set();
      });
      e.Wait();
      EXPECT_EQ(synctest::Now() - before, absl::Hours(3));
    });
  });
}

TEST(EventDeathTest, WaitWithoutASetterIsADeadlock) {
  EXPECT_EXIT(gump::Run([] {
                Event e;
                e.Wait();
              }),
              ::testing::ExitedWithCode(2), "sync\\.Event\\.Wait");
}

}  // namespace
}  // namespace gump
