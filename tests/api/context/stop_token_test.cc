// WithStopToken and StopToken: cancellation between contexts and the tokens of
// the standard library.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/runtime/thread.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/contexts.h"
#include "tests/testing/counted.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using context::AfterFunc;
using context::Background;
using context::Context;
using context::StopToken;
using context::WithCancel;
using context::WithStopToken;
using context::WithTimeout;
using testing::Canceled;
using testing::Eventually;
using testing::Exceeded;
using testing::IsClosed;
using testing::KnownThread;
using testing::kSoon;
using testing::Live;
using testing::Watched;

using StopCallback = std::stop_callback<std::function<void()>>;

using StopTokenTest = testing::WithContexts;
GUMP_INSTANTIATE_GOMAXPROCS(StopTokenTest);

// ---- A token cancels a context ----------------------------------------------

TEST_P(StopTokenTest, RequestCancelsBeforeItReturns) {
  Run([] {
    std::stop_source source;
    const auto [ctx, cancel] = WithStopToken(Background(), source.get_token());
    const Context child = WithCancel(ctx).first;
    EXPECT_TRUE(Live(ctx));
    EXPECT_TRUE(source.request_stop());
    EXPECT_TRUE(Canceled(ctx));
    EXPECT_TRUE(Canceled(child));
  });
}

TEST_P(StopTokenTest, RequestOfAPlainThreadWakesTheGoroutine) {
  Run([] {
    std::stop_source source;
    const auto [ctx, cancel] = WithStopToken(Background(), source.get_token());
    std::thread t = KnownThread([&] { source.request_stop(); });
    EXPECT_FALSE(ctx.Done().Recv());
    EXPECT_TRUE(Canceled(ctx));
    blocking([&] { t.join(); });
  });
}

TEST_P(StopTokenTest, RequestBeforeTheCallCancelsAtOnce) {
  Run([] {
    std::stop_source source;
    source.request_stop();
    const auto [ctx, cancel] = WithStopToken(Background(), source.get_token());
    EXPECT_TRUE(Canceled(ctx));
  });
}

TEST_P(StopTokenTest, TokenWithoutASourceCancelsNothing) {
  Run([] {
    const auto [ctx, cancel] = WithStopToken(Background(), std::stop_token());
    EXPECT_TRUE(Live(ctx));
    cancel();
    EXPECT_TRUE(Canceled(ctx));
  });
}

TEST_P(StopTokenTest, OtherCancellationsStillWork) {
  Run([] {
    std::stop_source source;
    const auto parent = WithCancel(Background());
    const auto late = WithTimeout(Background(), kSoon);
    const auto a = WithStopToken(parent.first, source.get_token());
    const auto b = WithStopToken(late.first, source.get_token());
    const auto c = WithStopToken(Background(), source.get_token());
    parent.second();
    EXPECT_TRUE(Canceled(a.first));
    EXPECT_FALSE(b.first.Done().Recv());
    EXPECT_TRUE(Exceeded(b.first));
    EXPECT_TRUE(Live(c.first));
    c.second();
    EXPECT_TRUE(Canceled(c.first));
    source.request_stop();  // finds all of them cancelled
  });
}

TEST_P(StopTokenTest, CancelledParentCountsBeforeTheToken) {
  Run([] {
    std::stop_source source;
    const auto late = WithTimeout(Background(), absl::ZeroDuration());
    source.request_stop();
    const auto [ctx, cancel] = WithStopToken(late.first, source.get_token());
    EXPECT_TRUE(Exceeded(ctx));
  });
}

TEST_P(StopTokenTest, DroppedContextLeavesTheSource) {
  Run([] {
    std::stop_source source;
    for (int i = 0; i < 100; i++) {
      (void)Watched(WithStopToken(Background(), source.get_token()).first);
    }
    source.request_stop();
  });
}

TEST_P(StopTokenTest, FunctionAndChannelOutlastTheHandles) {
  Run([] {
    std::stop_source source;
    chan<void> called = make_chan<void>(1);
    recv_chan<void> done;
    {
      const auto [ctx, cancel] =
          WithStopToken(Background(), source.get_token());
      AfterFunc(ctx, [called, kept = testing::Counted(1)] { called.Send(); });
      done = WithStopToken(Background(), source.get_token()).first.Done();
    }
    EXPECT_FALSE(IsClosed(done));
    source.request_stop();
    EXPECT_TRUE(IsClosed(done));
    EXPECT_TRUE(called.Recv());
  });
}

TEST_P(StopTokenTest, FunctionOfAGoneSourceIsDestroyedWithoutACall) {
  Run([] {
    std::optional<std::stop_source> source(std::in_place);
    Context ctx = WithStopToken(Background(), source->get_token()).first;
    AfterFunc(ctx, [kept = testing::Counted(1)] { ADD_FAILURE(); });
    source.reset();
    ctx = Context();
  });
}

// The callback destroys itself, if it drops the last handle.
TEST_P(StopTokenTest, RequestMayDropTheLastHandle) {
  Run([] {
    std::stop_source source;
    auto held = std::make_unique<Context>(
        WithStopToken(Background(), source.get_token()).first);
    chan<void> called = make_chan<void>(1);
    AfterFunc(*held, [&held, called] {
      held.reset();
      called.Send();
    });
    source.request_stop();
    EXPECT_TRUE(called.Recv());
  });
}

TEST_P(StopTokenTest, RequestOnAHomeCancels) {
  Run([] {
    std::stop_source source;
    const Context ctx = WithStopToken(Background(), source.get_token()).first;
    runtime::Thread home("home");
    home.Run([&] { source.request_stop(); });
    EXPECT_TRUE(Canceled(ctx));
  });
}

TEST_P(StopTokenTest, RequestLeavesTheGoroutineUnlocked) {
  Run([] {
    std::stop_source source;
    const auto made = WithStopToken(Background(), source.get_token());
    source.request_stop();
    // A goroutine that ends while locked ends its thread, which is slow but no
    // error; so look at the dump.
    EXPECT_EQ(runtime::Stack(false).find("locked to thread"),
              std::string::npos);
  });
}

// ---- A context stops a token ------------------------------------------------

TEST_P(StopTokenTest, CancellationRequestsAStop) {
  Run([] {
    const auto [ctx, cancel] = WithCancel(Background());
    const std::stop_token token = StopToken(ctx);
    EXPECT_TRUE(token.stop_possible());
    EXPECT_FALSE(token.stop_requested());
    EXPECT_EQ(token, StopToken(ctx));
    chan<void> called = make_chan<void>(1);
    const StopCallback callback(token, [called] { called.Send(); });
    cancel();
    EXPECT_TRUE(called.Recv());
    EXPECT_TRUE(token.stop_requested());
  });
}

TEST_P(StopTokenTest, DeadlineRequestsAStop) {
  Run([] {
    const auto [ctx, cancel] = WithTimeout(Background(), kSoon);
    const std::stop_token token = StopToken(WithCancel(ctx).first);
    EXPECT_TRUE(Eventually([&] { return token.stop_requested(); }));
  });
}

TEST_P(StopTokenTest, CancelledContextHasAStoppedToken) {
  Run([] {
    const auto [ctx, cancel] = WithCancel(Background());
    const std::stop_token before = StopToken(ctx);
    cancel();
    EXPECT_TRUE(StopToken(ctx).stop_requested());
    EXPECT_TRUE(Eventually([&] { return before.stop_requested(); }));
  });
}

TEST_P(StopTokenTest, ContextThatCannotBeCancelledHasAnEmptyToken) {
  Run([] {
    EXPECT_FALSE(StopToken(Background()).stop_possible());
    EXPECT_FALSE(StopToken(context::TODO()).stop_possible());
    EXPECT_FALSE(StopToken(WithoutCancel(WithCancel(Background()).first))
                     .stop_possible());
  });
}

TEST_P(StopTokenTest, TokenOfADroppedContextBecomesImpossible) {
  Run([] {
    std::stop_token token;
    {
      const auto [ctx, cancel] = WithCancel(Background());
      token = StopToken(ctx);
    }
    EXPECT_FALSE(token.stop_possible());
  });
}

TEST_P(StopTokenTest, TokenOutlastsTheHandles) {
  Run([] {
    const auto parent = WithCancel(Background());
    const std::stop_token token = StopToken(WithCancel(parent.first).first);
    parent.second();
    EXPECT_TRUE(Eventually([&] { return token.stop_requested(); }));
  });
}

TEST_P(StopTokenTest, CallbackMayParkAndKeepsItsThread) {
  Run([] {
    const auto [ctx, cancel] = WithCancel(Background());
    chan<void> c = make_chan<void>();
    chan<bool> same = make_chan<bool>(1);
    // It destroys itself, which would hang on another thread.
    std::unique_ptr<StopCallback> callback;
    callback = std::make_unique<StopCallback>(StopToken(ctx), [&, c, same] {
      const auto before = testing::CurrentThread();
      (void)c.Recv();
      time::Sleep(absl::Microseconds(100));
      chan<bool> result = same;
      const bool is_same = testing::CurrentThread() == before;
      callback.reset();
      result.Send(is_same);
    });
    cancel();
    c.Send();
    EXPECT_EQ(same.Recv(), true);
  });
}

// A plain thread waits as the standard says, and is woken by the token.
TEST_P(StopTokenTest, StopPassesThroughTwoContextsToAToken) {
  Run([] {
    std::stop_source source;
    const auto a = WithStopToken(Background(), source.get_token());
    const auto b = WithStopToken(Background(), StopToken(a.first));
    std::jthread t([&, token = StopToken(b.first)] {
      std::atomic<bool> stopped = false;
      const StopCallback wake(token, [&] {
        stopped = true;
        stopped.notify_all();
      });
      stopped.wait(false);
    });
    source.request_stop();
    EXPECT_FALSE(b.first.Done().Recv());
    blocking([&] { t.join(); });
  });
}

// ---- Races ------------------------------------------------------------------

// In each round a stop is requested, or a context is dropped or cancelled,
// while contexts are made of the same token.
TEST_P(StopTokenTest, StressRequestMeetsMakingAndDropping) {
  Run([] {
    const int rounds = rt::kSanitizerBuild ? 100 : 1000;
    chan<std::shared_ptr<std::stop_source>> sources =
        make_chan<std::shared_ptr<std::stop_source>>();
    std::thread requester = KnownThread([sources] {
      while (auto source = sources.Recv()) (*source)->request_stop();
    });
    for (int i = 0; i < rounds; i++) {
      auto source = std::make_shared<std::stop_source>();
      sync::WaitGroup wg;
      std::atomic<int> called = 0;
      for (int k = 0; k < 3; k++) {
        wg.Go([&, k] {
          auto [ctx, cancel] = WithStopToken(Background(), source->get_token());
          AfterFunc(ctx, [&] { called++; });
          if (k == 0) return;  // dropped, but the function still waits
          if (k == 1) cancel();
          EXPECT_FALSE(ctx.Done().Recv());
          EXPECT_FALSE(Live(ctx));
        });
      }
      if (i % 2 == 0) {
        sources.Send(source);
      } else {
        wg.Go([source] { source->request_stop(); });
      }
      wg.Wait();
      EXPECT_TRUE(Eventually([&] { return called == 3; }));
    }
    sources.Close();
    blocking([&] { requester.join(); });
  });
}

TEST_P(StopTokenTest, StressCancellationMeetsTokensAndCallbacks) {
  Run([] {
    const int rounds = rt::kSanitizerBuild ? 100 : 1000;
    for (int i = 0; i < rounds; i++) {
      const auto [ctx, cancel] = WithCancel(Background());
      std::atomic<int> called = 0;
      sync::WaitGroup wg;
      for (int k = 0; k < 4; k++) {
        wg.Go([&, ctx = ctx, k] {
          const std::stop_token token = StopToken(ctx);
          const StopCallback callback(token, [&] { called++; });
          if (k == 0) return;  // destroyed while it may run
          EXPECT_TRUE(Eventually([&] { return token.stop_requested(); }));
        });
      }
      wg.Go(cancel);
      wg.Wait();
      EXPECT_GE(called.load(), 0);
      EXPECT_TRUE(StopToken(ctx).stop_requested());
    }
  });
}

}  // namespace
}  // namespace gump
