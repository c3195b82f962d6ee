// Coroutines and awaitables of other libraries, on both sides.
#include <gtest/gtest.h>

#include <atomic>
#include <coroutine>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/co.h"
#include "gump/gls.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/time.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/owned_coroutine.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Eventually;
using testing::OwnedCoroutine;
using testing::ThreadExecutor;

class CoForeignTest : public testing::WithGomaxprocs {
 protected:
  // Introduced waits until the runtime knows the thread of an executor, so that
  // the deadlock report counts it.
  static void Introduced(ThreadExecutor& executor) {
    std::atomic<bool> known{false};
    executor.Call([&] {
      static gls<int> introduced{0};
      ++*introduced;
      known = true;
    });
    EXPECT_TRUE(Eventually([&] { return known.load(); }));
  }
};
GUMP_INSTANTIATE_GOMAXPROCS(CoForeignTest);

co::task<int> One() { co_return 1; }

co::task<int> Loop(int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) sum += co_await One();
  co_return sum;
}

TEST_P(CoForeignTest, TaskAwaitsAnotherLibrarysExecutor) {
  Run([] {
    ThreadExecutor executor;
    Introduced(executor);
    auto hop = [&]() -> co::task<std::thread::id> {
      co_await executor;
      co_return testing::CurrentThread();
    };
    auto f = [&]() -> co::task<int> {
      const auto there = co_await hop();
      EXPECT_EQ(there, executor.id());
      EXPECT_EQ(testing::CurrentThread(), executor.id());
      // The loop of this stack is not ours; one is made for each await.
      const int n = co_await Loop(100'000);
      EXPECT_EQ(testing::CurrentThread(), executor.id());
      co_await co::Go([] {});
      EXPECT_NE(testing::CurrentThread(), executor.id());
      co_return n;
    };
    EXPECT_EQ(co::Wait(f()), 100'000);
  });
}

TEST_P(CoForeignTest, TaskOnAnExecutorAwaitsChannelsAndTime) {
  Run([] {
    ThreadExecutor executor;
    Introduced(executor);
    chan<int> c = make_chan<int>();
    auto f = [&]() -> co::task<int> {
      int sum = 0;
      for (;;) {
        co_await executor;
        std::optional<int> v = co_await co::Recv(c);
        if (!v) break;
        // Resumed by gumption, so on a goroutine: it may block.
        time::Sleep(absl::Microseconds(10));
        sum += *v;
        co_await executor;
        co_await co::Sleep(absl::Microseconds(10));
      }
      co_return sum;
    };
    go([c] {
      for (int i = 1; i <= 20; i++) c.Send(i);
      c.Close();
    });
    EXPECT_EQ(co::Wait(f()), 210);
  });
}

TEST_P(CoForeignTest, ForeignCoroutineAwaitsEverything) {
  Run([] {
    chan<int> c = make_chan<int>();
    chan<std::string> result = make_chan<std::string>(1);
    auto fail = []() -> co::task<> {
      throw std::runtime_error("failed");
      co_return;
    };
    auto f = [&]() -> OwnedCoroutine {
      int sum = co_await Loop(1000);
      while (auto v = co_await co::Recv(c)) sum += *v;
      co_await co::Sleep(absl::Milliseconds(1));
      sum += co_await co::Go([] { return 5; });
      std::string text = std::to_string(sum);
      try {
        co_await fail();
      } catch (const std::runtime_error& e) {
        text += e.what();
      }
      co_await co::Send(result, text);
    };
    OwnedCoroutine o = f();
    for (int i = 1; i <= 10; i++) c.Send(i);
    c.Close();
    EXPECT_EQ(result.Recv(), std::optional<std::string>("1060failed"));
    EXPECT_TRUE(Eventually([&] { return o.Ended(); }));
  });
}

TEST_P(CoForeignTest, WaitTakesAForeignAwaitable) {
  Run([] {
    ThreadExecutor executor;
    Introduced(executor);
    co::Wait(executor);
    std::thread t = testing::KnownThread([&] { co::Wait(executor); });
    blocking([&] { t.join(); });
  });
}

// Awaiters of every form that the standard allows.
struct NeverSuspends {  // bool
  bool await_ready() { return false; }
  bool await_suspend(std::coroutine_handle<>) { return false; }
  int await_resume() { return 1; }
};
struct TransfersBack {  // a handle: its own
  bool await_ready() { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> h) { return h; }
  int await_resume() { return 2; }
};
struct Throws {
  bool await_ready() { return false; }
  void await_suspend(std::coroutine_handle<>) {
    throw std::runtime_error("in await_suspend");
  }
  void await_resume() {}
};
struct Member {
  NeverSuspends operator co_await() && { return {}; }
};
struct Free {};
TransfersBack operator co_await(Free) { return {}; }
struct Resumes {  // resumes at once, from await_suspend
  bool await_ready() { return false; }
  void await_suspend(std::coroutine_handle<> h) { h.resume(); }
  int await_resume() { return 3; }
};

co::task<int> AwaitAll() {
  int sum = 0;
  for (int i = 0; i < 1000; i++) {
    sum += co_await NeverSuspends();
    sum += co_await TransfersBack();
    sum += co_await Member();
    sum += co_await Free();
    Free named;
    sum += co_await named;
    try {
      co_await Throws();
    } catch (const std::runtime_error&) {
      sum += 100;
    }
    sum += co_await One();
  }
  co_return sum;
}

TEST_P(CoForeignTest, AwaitersOfEveryFormWork) {
  Run([] {
    EXPECT_EQ(co::Wait(AwaitAll()), 109 * 1000);
    auto f = []() -> co::task<int> {
      const int n = co_await Resumes();
      co_return n + co_await AwaitAll();
    };
    auto outer = [&]() -> co::task<int> { co_return co_await f(); };
    EXPECT_EQ(co::Wait(outer()), 3 + 109 * 1000);
  });
}

// A coroutine that is run in place of ours, by transfer, and transfers back.
struct Lazy {
  struct promise_type {
    std::coroutine_handle<>* then;
    promise_type(std::coroutine_handle<>* t, int*) : then(t) {}
    Lazy get_return_object() {
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    auto final_suspend() noexcept {
      struct Back {
        std::coroutine_handle<> h;
        bool await_ready() noexcept { return false; }
        std::coroutine_handle<> await_suspend(
            std::coroutine_handle<>) noexcept {
          return h;
        }
        void await_resume() noexcept {}
      };
      return Back{*then};
    }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<promise_type> h;
};
Lazy Count(std::coroutine_handle<>*, int* n) {
  ++*n;
  co_return;
}
struct RunLazy {
  Lazy lazy;
  std::coroutine_handle<>* then;
  bool await_ready() { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> h) {
    *then = h;
    return lazy.h;
  }
  void await_resume() { lazy.h.destroy(); }
};

// Compilers transfer without a deeper stack if they optimize. g++ 12 does not
// if it instruments the code for a sanitizer.
#ifdef __OPTIMIZE__
constexpr int kTransfers = rt::kSanitizerBuild ? 1000 : 1'000'000;
#else
constexpr int kTransfers = 1000;
#endif

TEST_P(CoForeignTest, TaskTransfersToForeignCoroutinesAndBackWithoutAStack) {
  Run([] {
    auto f = []() -> co::task<int> {
      int n = 0;
      for (int i = 0; i < kTransfers; i++) {
        std::coroutine_handle<> then;
        co_await RunLazy{Count(&then, &n), &then};
        n += co_await One();
      }
      co_return n;
    };
    EXPECT_EQ(co::Wait(f()), 2 * kTransfers);
  });
}

}  // namespace
}  // namespace gump
