// What coroutines await: channels, time, goroutines; and co::Wait.
#include "gump/co.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <coroutine>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync.h"
#include "gump/synctest.h"
#include "gump/time.h"
#include "tests/api/synctest_testing.h"
#include "tests/testing/counted.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/owned_coroutine.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_counted.h"

namespace gump {
namespace {

using testing::Counted;
using testing::PanicText;
using CoTest = testing::WithCounted;
GUMP_INSTANTIATE_GOMAXPROCS(CoTest);

co::task<int> Total(recv_chan<int> c) {
  int sum = 0;
  while (std::optional<int> v = co_await co::Recv(c)) sum += *v;
  co_return sum;
}

co::task<> Produce(send_chan<int> c, int n) {
  for (int i = 1; i <= n; i++) co_await co::Send(c, i);
  c.Close();
}

TEST_P(CoTest, RecvTakesValuesUntilTheChannelIsClosed) {
  Run([] {
    for (size_t cap : {0u, 3u, 100u}) {
      chan<int> c = make_chan<int>(cap);
      go([c] {
        for (int i = 1; i <= 100; i++) c.Send(i);
        c.Close();
      });
      EXPECT_EQ(co::Wait(Total(c)), 5050);
    }
  });
}

TEST_P(CoTest, CoroutinesOnBothSidesOfAChannelMeet) {
  Run([] {
    for (size_t cap : {0u, 3u}) {
      chan<int> c = make_chan<int>(cap);
      go([c] { co::Wait(Produce(c, 1000)); });
      EXPECT_EQ(co::Wait(Total(c)), 500500);
    }
  });
}

TEST_P(CoTest, MoveOnlyValuesPassThroughWaitingSendsAndReceives) {
  Run([] {
    for (size_t cap : {0u, 2u}) {
      auto c = make_chan<Counted>(cap);
      auto send = [&]() -> co::task<> {
        for (int i = 0; i < 100; i++) co_await co::Send(c, Counted(i));
        c.Close();
      };
      auto recv = [&]() -> co::task<int> {
        int sum = 0;
        while (auto v = co_await co::Recv(c)) sum += v->n();
        co_return sum;
      };
      sync::WaitGroup sender;
      sender.Go([&] { co::Wait(send()); });
      EXPECT_EQ(co::Wait(recv()), 4950);
      sender.Wait();
    }
  });
}

TEST_P(CoTest, LargeValuesPassThrough) {
  struct Large {
    int n = 0;
    char more[500] = {};
  };
  Run([] {
    auto c = make_chan<Large>();
    auto send = [&]() -> co::task<> {
      Large v;
      v.n = 7;
      co_await co::Send(c, v);
    };
    auto recv = [&]() -> co::task<int> { co_return (co_await co::Recv(c))->n; };
    sync::WaitGroup sender;
    sender.Go([&] { co::Wait(send()); });
    EXPECT_EQ(co::Wait(recv()), 7);
    sender.Wait();
  });
}

TEST_P(CoTest, ChannelOfVoidGivesABool) {
  Run([] {
    auto c = make_chan<void>();
    auto recv = [&]() -> co::task<int> {
      int n = 0;
      while (co_await co::Recv(c)) n++;
      co_return n;
    };
    auto send = [&]() -> co::task<> {
      for (int i = 0; i < 5; i++) co_await co::Send(c);
      c.Close();
    };
    sync::WaitGroup sender;
    sender.Go([&] { co::Wait(send()); });
    EXPECT_EQ(co::Wait(recv()), 5);
    sender.Wait();
  });
}

TEST_P(CoTest, SendOnAClosedChannelPanics) {
  Run([] {
    chan<int> c = make_chan<int>();
    auto send = [&]() -> co::task<> { co_await co::Send(c, 1); };
    go([c] {
      EXPECT_TRUE(testing::EventuallyParked("select", 1));
      c.Close();  // while the coroutine waits
    });
    EXPECT_EQ(PanicText([&] { co::Wait(send()); }), "send on closed channel");
    EXPECT_EQ(PanicText([&] { co::Wait(send()); }), "send on closed channel");
  });
}

TEST_P(CoTest, TemporaryChannelIsKeptWhileTheCoroutineWaits) {
  Run([] {
    auto recv = []() -> co::task<bool> {
      co_return (co_await co::Recv(time::After(absl::Milliseconds(1))))
          .has_value();
    };
    EXPECT_TRUE(co::Wait(recv()));
  });
}

TEST_P(CoTest, CoroutineMayBlockAfterItHasWaited) {
  Run([] {
    chan<int> c = make_chan<int>();
    chan<int> d = make_chan<int>();
    sync::Mutex mu;
    auto f = [&]() -> co::task<int> {
      const int a = *co_await co::Recv(c);
      mu.Lock();  // blocks
      const int b = *d.Recv();
      int x = 0;
      select(Recv(c, [&](int v) { x = v; }), Recv(d, [&](int v) { x = v; }));
      co_await co::Sleep(absl::Milliseconds(1));
      time::Sleep(absl::Milliseconds(1));
      mu.Unlock();
      co_return a + b + x;
    };
    mu.Lock();
    sync::WaitGroup sender;
    sender.Go([&] {
      c.Send(1);
      mu.Unlock();
      d.Send(10);
      c.Send(100);
    });
    EXPECT_EQ(co::Wait(f()), 111);
    sender.Wait();
  });
}

TEST_P(CoTest, WaitingReceiveOfAGoroutineTakesNoOther) {
  Run([] {
    chan<int> c = make_chan<int>();
    const int before = 1;
    // Goroutines of the case before may not have ended yet.
    EXPECT_TRUE(
        testing::Eventually([] { return runtime::NumGoroutine() == before; }));
    go([&] { EXPECT_EQ(co::Wait(Total(c)), 1); });
    EXPECT_TRUE(testing::EventuallyParked("select", 1));
    EXPECT_EQ(runtime::NumGoroutine(), before + 1);
    c.Send(1);
    c.Close();
    EXPECT_TRUE(
        testing::Eventually([&] { return runtime::NumGoroutine() == before; }));
  });
}

TEST_P(CoTest, SleepingCoroutinesHaveNoGoroutine) {
  Run([] {
    EXPECT_TRUE(
        testing::Eventually([] { return runtime::NumGoroutine() == 1; }));
    std::vector<testing::OwnedCoroutine> asleep;
    for (int i = 0; i < 100; i++) {
      asleep.push_back(testing::Start(co::Sleep(absl::Hours(1))));
    }
    EXPECT_EQ(runtime::NumGoroutine(), 1);
  });
}

TEST_P(CoTest, SleepOfNoTimeIsReady) {
  Run([] {
    auto f = []() -> co::task<uint64_t> {
      co_await co::Sleep(absl::ZeroDuration());
      co_await co::Sleep(std::chrono::seconds(-1));
      co_return runtime::Goid();
    };
    EXPECT_EQ(co::Wait(f()), runtime::Goid());
  });
}

TEST_P(CoTest, GoGivesTheResultAndContinuesOnTheNewGoroutine) {
  Run([] {
    auto f = []() -> co::task<> {
      const uint64_t before = runtime::Goid();
      const uint64_t in_f = co_await co::Go([] { return runtime::Goid(); });
      EXPECT_NE(in_f, before);
      EXPECT_EQ(runtime::Goid(), in_f);
      auto p = co_await co::Go([] { return std::make_unique<int>(5); });
      EXPECT_EQ(*p, 5);
      int x = 1;
      int& r = co_await co::Go([&]() -> int& { return x; });
      EXPECT_EQ(&r, &x);
      co_await co::Go([] {});
    };
    co::Wait(f());
  });
}

TEST_P(CoTest, ExceptionOfGoIsThrownByTheAwait) {
  Run([] {
    auto f = []() -> co::task<std::string> {
      try {
        co_await co::Go([] { throw std::runtime_error("in f"); });
      } catch (const std::runtime_error& e) {
        co_return e.what();
      }
      co_return "nothing";
    };
    EXPECT_EQ(co::Wait(f()), "in f");
  });
}

TEST_P(CoTest, FunctionOfGoIsDestroyedBeforeTheCoroutineContinues) {
  Run([] {
    auto f = []() -> co::task<> {
      auto fn = [c = Counted(1)]() mutable { return c.n(); };
      EXPECT_EQ(co_await co::Go(std::move(fn)), 1);
      EXPECT_EQ(Counted::values(), 0);
    };
    co::Wait(f());
  });
}

TEST_P(CoTest, GoexitInTheFunctionOfGoPanicsInTheCoroutine) {
  Run([] {
    auto f = []() -> co::task<> { co_await co::Go([] { runtime::Goexit(); }); };
    EXPECT_EQ(PanicText([&] { co::Wait(f()); }),
              "co: function of Go called Goexit");
  });
}

TEST_P(CoTest, GoexitDestroysTheFunctionBeforeTheCoroutineContinues) {
  Run([] {
    auto f = []() -> co::task<> {
      auto fn = [c = Counted(1)] { runtime::Goexit(); };
      EXPECT_EQ(Counted::values(), 1);
      try {
        co_await co::Go(std::move(fn));
      } catch (const PanicError&) {
        EXPECT_EQ(Counted::values(), 0);
        co_return;
      }
      ADD_FAILURE() << "no panic";
    };
    co::Wait(f());
  });
}

TEST_P(CoTest, SecondAwaitOfGoOrSendPanics) {
  Run([] {
    chan<int> c = make_chan<int>(2);
    auto go_twice = []() -> co::task<> {
      auto g = co::Go([] {});
      co_await std::move(g);
      co_await std::move(g);
    };
    auto send_twice = [&]() -> co::task<> {
      auto s = co::Send(c, 1);
      co_await std::move(s);
      co_await std::move(s);
    };
    EXPECT_EQ(PanicText([&] { co::Wait(go_twice()); }),
              "co: Go or Send is awaited twice");
    EXPECT_EQ(PanicText([&] { co::Wait(send_twice()); }),
              "co: Go or Send is awaited twice");
  });
}

TEST_P(CoTest, WaitTakesAnyAwaitable) {
  Run([] {
    chan<int> c = make_chan<int>(1);
    co::Wait(co::Send(c, 3));
    EXPECT_EQ(co::Wait(co::Recv(c)), std::optional<int>(3));
    co::Wait(co::Sleep(absl::Milliseconds(1)));
    EXPECT_EQ(co::Wait(co::Go([] { return 4; })), 4);
    co::Wait(std::suspend_never());
  });
}

TEST_P(CoTest, ThreadsAndGoroutinesWaitSideBySide) {
  Run([] {
    chan<int> c = make_chan<int>();
    std::atomic<int> sum{0};
    go([c] {
      for (int i = 1; i <= 1000; i++) c.Send(i);
      c.Close();
    });
    testing::InThreadsAndGoroutines(3, 3, [&] { sum += co::Wait(Total(c)); });
    EXPECT_EQ(sum, 500500);
  });
}

TEST_P(CoTest, CoroutineOfAPlainThreadContinuesOnAGoroutine) {
  Run([] {
    chan<int> c = make_chan<int>();
    std::thread t = testing::KnownThread([c] {
      auto f = [](chan<int> in) -> co::task<> {
        const auto thread = testing::CurrentThread();
        (void)co_await co::Recv(in);
        EXPECT_NE(testing::CurrentThread(), thread);
      };
      co::Wait(f(c));
    });
    EXPECT_TRUE(testing::EventuallyParked("select", 1));
    c.Send(1);
    blocking([&] { t.join(); });
  });
}

TEST_P(CoTest, ContextCancelsACoroutine) {
  Run([] {
    chan<int> c = make_chan<int>();
    auto [ctx, cancel] = context::WithCancel(context::Background());
    auto f = [&ctx = ctx, c]() -> co::task<bool> {
      co_await co::Go([] {});  // from here on it may block
      bool stopped = false;
      select(Recv(c), Recv(ctx.Done(), [&] { stopped = true; }));
      co_return stopped && !co_await co::Recv(ctx.Done());
    };
    go([cancel = cancel] { cancel(); });
    EXPECT_TRUE(co::Wait(f()));
  });
}

TEST(CoRunTest, CoroutineThatWaitsContinuesInTheNextRun) {
  chan<int> c = make_chan<int>();
  chan<int> result = make_chan<int>(1);
  gump::Run([&] {
    go([=] { result.Send(co::Wait(Total(c))); });
    EXPECT_TRUE(testing::EventuallyParked("select", 1));
  });
  gump::Run([&] {
    c.Send(5);
    c.Close();
    EXPECT_EQ(result.Recv(), std::optional<int>(5));
  });
}

TEST(CoRunTest, ReadyCoroutineRunsWithoutARun) {
  chan<int> c = make_chan<int>(3);
  for (int i : {1, 2, 3}) c.Send(i);
  c.Close();
  EXPECT_EQ(co::Wait(Total(c)), 6);
}

class CoBubbleTest : public testing::SynctestTest {};
GUMP_INSTANTIATE_GOMAXPROCS(CoBubbleTest);

TEST_P(CoBubbleTest, SleepUsesTheClockOfTheBubble) {
  Bubble([] {
    auto f = []() -> co::task<> {
      co_await co::Sleep(absl::Hours(1));
      co_await co::Sleep(absl::Hours(2));
    };
    co::Wait(f());
    EXPECT_EQ(testing::Since(), absl::Hours(3));
  });
}

TEST_P(CoBubbleTest, WaitingIsDurablyBlocked) {
  Bubble([] {
    chan<int> c = make_chan<int>();
    chan<int> d = make_chan<int>();
    auto f = [&]() -> co::task<int> {
      const int a = *co_await co::Recv(c);
      co_await co::Send(d, a + 1);
      co_await co::Go([] { time::Sleep(absl::Hours(1)); });
      co_return a;
    };
    go([&] {
      time::Sleep(absl::Hours(1));
      c.Send(1);
      time::Sleep(absl::Hours(1));
      EXPECT_EQ(d.Recv(), std::optional<int>(2));
    });
    EXPECT_EQ(co::Wait(f()), 1);
    EXPECT_EQ(testing::Since(), absl::Hours(3));
  });
}

TEST(CoDeathTest, GoexitElsewhereIsFatal) {
  EXPECT_EXIT(gump::Run([] {
                auto f = []() -> co::task<> {
                  co_await co::Go([] {});
                  runtime::Goexit();
                };
                co::Wait(f());
              }),
              ::testing::ExitedWithCode(2),
              "fatal error: co: Goexit in a coroutine");
}

TEST(CoDeathTest, EmptyFunctionIsFatal) {
  EXPECT_EXIT(gump::Run([] {
                std::function<void()> empty;
                co::Wait(co::Go(empty));
              }),
              ::testing::ExitedWithCode(2),
              "fatal error: go of nil func value");
}

TEST(CoDeathTest, ReceiveThatNoGoroutineServesIsADeadlock) {
  // The test dies in a process of its own, not in a child of fork. checkdead
  // counts the threads of the process, and TSan gives a child of fork one
  // background thread too many if its parent had started no thread.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(gump::Run([] { co::Wait(Total(make_chan<int>())); }),
              ::testing::ExitedWithCode(2),
              "all goroutines are asleep - deadlock!");
}

}  // namespace
}  // namespace gump
