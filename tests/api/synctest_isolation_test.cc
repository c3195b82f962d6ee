// Bubbles and the things of other packages: what stays inside of a bubble, and
// what may cross its border.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <utility>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/rate.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync/cond.h"
#include "gump/sync/waitgroup.h"
#include "gump/synctest.h"
#include "gump/time.h"
#include "tests/api/synctest_testing.h"
#include "tests/testing/contexts.h"
#include "tests/testing/counted.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Counted;
using testing::kStart;
using testing::Since;
using testing::SynctestTest;
using namespace std::chrono_literals;

GUMP_INSTANTIATE_GOMAXPROCS(SynctestTest);

using SynctestDeathTest = ::testing::Test;

// LeakChan returns a channel of a bubble that is over.
chan<int> LeakChan() {
  chan<int> c;
  synctest::Run([&] { c = make_chan<int>(1); });
  return c;
}

void ExpectFatal(void (*f)(), const char* text) {
  EXPECT_EXIT(gump::Run([f] { f(); }), ::testing::ExitedWithCode(2), text);
}

// A process of its own: the first finalizer of all starts the goroutine that
// runs them, which is in no bubble.
TEST(SynctestDeathTest, FinalizersAreOutside) {
  EXPECT_EXIT(
      {
        gump::Run([] {
          synctest::Run([] {
            runtime::SetFinalizer([] {});
            time::Sleep(1h);
          });
        });
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(SynctestDeathTest, ChannelsStayInside) {
  ExpectFatal([] { LeakChan().Send(1); },
              "send on synctest channel from outside bubble");
  ExpectFatal([] { (void)LeakChan().TryRecv(); },
              "receive on synctest channel from outside bubble");
  ExpectFatal([] { LeakChan().Close(); },
              "close of synctest channel from outside bubble");
  ExpectFatal(
      [] {
        auto c = LeakChan();
        auto ready = make_chan<int>(1);
        ready.Send(1);
        const auto ignore = [](int) {};
        select(Recv(ready, ignore), Recv(ready, ignore), Recv(c, ignore),
               Recv(ready, ignore), Recv(ready, ignore));
      },
      "select on synctest channel from outside bubble");
  ExpectFatal(
      [] {
        auto c = LeakChan();
        synctest::Run([c] { c.Send(1); });
      },
      "send on synctest channel from outside bubble");
}

TEST(SynctestDeathTest, TimersStayInside) {
  ExpectFatal(
      [] {
        time::Timer t;
        synctest::Run([&] { t = time::NewTimer(1h); });
        t.Stop();
      },
      "stop of synctest timer from outside bubble");
  ExpectFatal(
      [] {
        time::Timer t;
        synctest::Run([&] { t = time::AfterFunc(1h, [] {}); });
        t.Reset(1h);
      },
      "reset of synctest timer from outside bubble");
  ExpectFatal(
      [] {
        time::Ticker t;
        synctest::Run([&] { t = time::NewTicker(1h); });
        t.Reset(1h);
      },
      "reset of synctest timer from outside bubble");
}

TEST_P(SynctestTest, ContextsEndByTheClockOfTheBubble) {
  Run([] {
    synctest::Run([] {
      auto [ctx, cancel] =
          context::WithTimeout(context::Background(), absl::Hours(3));
      EXPECT_EQ(ctx.Deadline(), kStart + absl::Hours(3));
      time::Sleep(absl::Hours(3) - absl::Nanoseconds(1));
      EXPECT_TRUE(ctx.Err().ok());
      ctx.Done().Recv();
      EXPECT_EQ(Since(), absl::Hours(3));
      EXPECT_FALSE(ctx.Err().ok());
      cancel();
    });
  });
}

// A process of its own, because there is one channel for all contexts, made by
// the first.
TEST(SynctestDeathTest, AContextCancelledBeforeDoneIsTheSameEverywhere) {
  EXPECT_EXIT(
      gump::Run([] {
        const auto look = [] {
          auto [ctx, cancel] = context::WithCancel(context::Background());
          cancel();
          (void)ctx.Done().Recv();
          select(Recv(ctx.Done(), [] {}), Recv(make_chan<int>(), [] {}));
        };
        synctest::Run(look);
        look();
        synctest::Run(look);
        std::_Exit(0);
      }),
      ::testing::ExitedWithCode(0), "");
}

TEST_P(SynctestTest, ContextsMayBeDroppedOutside) {
  Run([] {
    const auto make = [] {
      return context::WithTimeout(testing::Watched(context::Background()),
                                  absl::Hours(1))
          .first;
    };
    // When the bubble has gone.
    context::Context kept;
    synctest::Run([&] { kept = make(); });
    EXPECT_EQ(Counted::values(), 1);
    kept = {};
    EXPECT_EQ(Counted::values(), 0);
    // While it is there. The deadline comes, and finds no context.
    auto handed = make_chan<context::Context>();
    auto dropped = make_chan<void>();
    go([=] {
      (void)handed.Recv();
      dropped.Send();
    });
    synctest::Run([&] {
      context::Context ctx = make();
      handed.Send(std::move(ctx));
      (void)dropped.Recv();
      EXPECT_EQ(Counted::values(), 0);
      time::Sleep(2h);
    });
  });
}

TEST_P(SynctestTest, LimitersFillByTheClockOfTheBubble) {
  Run([] {
    synctest::Run([] {
      rate::Limiter one_an_hour(rate::Every(absl::Hours(1)), 1);
      for (int i = 0; i < 5; i++) {
        EXPECT_TRUE(one_an_hour.Wait(context::Background()).ok());
      }
      EXPECT_EQ(absl::Floor(Since() + absl::Milliseconds(1), absl::Seconds(1)),
                absl::Hours(4));
      EXPECT_FALSE(one_an_hour.Allow());
    });
  });
}

TEST(SynctestDeathTest, WaitGroupsStayInside) {
  ExpectFatal(
      [] {
        sync::WaitGroup wg;
        wg.Add(1);
        synctest::Run([&] { wg.Done(); });
      },
      "sync: WaitGroup.Add called from inside and outside synctest bubble");
  ExpectFatal(
      [] {
        sync::WaitGroup wg;
        synctest::Run([&] { wg.Add(1); });
        wg.Done();
      },
      "sync: WaitGroup.Add called from inside and outside synctest bubble");
  ExpectFatal(
      [] {
        sync::WaitGroup wg;
        synctest::Run([&] { wg.Add(1); });
        synctest::Run([&] { wg.Done(); });
      },
      "sync: WaitGroup.Add called from multiple synctest bubbles");
}

}  // namespace
}  // namespace gump
