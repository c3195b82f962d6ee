// gump/asio.h, with asio. asio_boost_test.cc runs the same with Boost.Asio.
#include <gtest/gtest.h>

#if defined(GUMP_TEST_BOOST_ASIO) && __has_include(<boost/asio.hpp>) || \
    !defined(GUMP_TEST_BOOST_ASIO) && __has_include(<asio.hpp>)

#if defined(GUMP_TEST_BOOST_ASIO)
#include <boost/asio.hpp>
namespace lib = boost::asio;
using boost::system::error_code;
using boost::system::system_error;
#define AsioTest BoostAsioTest
#else
#include <asio.hpp>
namespace lib = asio;
using asio::error_code;
using asio::system_error;
#endif

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gump/asio.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using context::Background;
using context::WithCancel;
using lib::ip::tcp;
using testing::Eventually;
using testing::KnownThread;
using namespace std::chrono_literals;

// Loop is an io_context with its thread.
class Loop {
 public:
  Loop() : work_(lib::make_work_guard(io)), thread_([this] { io.run(); }) {}
  ~Loop() {
    work_.reset();
    blocking([&] { thread_.join(); });
  }

  std::thread::id id() const { return thread_.get_id(); }
  lib::io_context io{1};

 private:
  lib::executor_work_guard<lib::io_context::executor_type> work_;
  std::thread thread_;
};

// Complete is an asynchronous operation. It completes at once with the values,
// on the thread of io.
template <class Signature, class Token, class... A>
auto Complete(lib::io_context& io, Token&& token, A... values) {
  return lib::async_initiate<Token, Signature>(
      [&io](auto handler, auto... v) {
        lib::post(io, [handler = std::move(handler),
                       v = std::make_tuple(std::move(v)...)]() mutable {
          std::apply(std::move(handler), std::move(v));
        });
      },
      token, std::move(values)...);
}

tcp::endpoint Loopback() { return {lib::ip::address_v4::loopback(), 0}; }

class AsioTest : public testing::WithGomaxprocs {};
GUMP_INSTANTIATE_GOMAXPROCS(AsioTest);

// ---- use_goroutine ----------------------------------------------------------

TEST_P(AsioTest, TimerParksTheGoroutine) {
  Run([] {
    Loop loop;
    lib::steady_timer timer(loop.io, 1ms);
    timer.async_wait(use_goroutine);
    EXPECT_LE(timer.expiry(), std::chrono::steady_clock::now());
  });
}

TEST_P(AsioTest, PlainThreadBlocks) {
  Run([] {
    Loop loop;
    std::thread t = KnownThread([&] {
      lib::steady_timer timer(loop.io, 1ms);
      timer.async_wait(use_goroutine);
    });
    blocking([&] { t.join(); });
  });
}

TEST_P(AsioTest, CallReturnsTheArgumentsOfTheHandler) {
  Run([] {
    Loop loop;
    const std::exception_ptr none;
    Complete<void()>(loop.io, use_goroutine);
    EXPECT_EQ(Complete<void(int)>(loop.io, use_goroutine, 7), 7);
    EXPECT_EQ((Complete<void(int, std::string)>(loop.io, use_goroutine, 7,
                                                std::string("x"))),
              std::make_tuple(7, std::string("x")));
    Complete<void(error_code)>(loop.io, use_goroutine, error_code());
    EXPECT_EQ((Complete<void(error_code, int)>(loop.io, use_goroutine,
                                               error_code(), 7)),
              7);
    EXPECT_EQ((Complete<void(error_code, int, int)>(loop.io, use_goroutine,
                                                    error_code(), 7, 8)),
              std::make_tuple(7, 8));
    Complete<void(std::exception_ptr)>(loop.io, use_goroutine, none);
    EXPECT_EQ((Complete<void(std::exception_ptr, int)>(loop.io, use_goroutine,
                                                       none, 7)),
              7);
    EXPECT_EQ(
        *(Complete<void(error_code, std::unique_ptr<int>)>(
            loop.io, use_goroutine, error_code(), std::make_unique<int>(7))),
        7);
  });
}

TEST_P(AsioTest, ErrorsAreThrownOrReported) {
  Run([] {
    Loop loop;
    const error_code refused = lib::error::connection_refused;
    try {
      Complete<void(error_code, int)>(loop.io, use_goroutine, refused, 7);
      ADD_FAILURE();
    } catch (const system_error& e) {
      EXPECT_EQ(e.code(), refused);
    }
    error_code ec;
    EXPECT_EQ((Complete<void(error_code, int)>(loop.io, use_goroutine[ec],
                                               refused, 7)),
              7);
    EXPECT_EQ(ec, refused);
    Complete<void(error_code)>(loop.io, use_goroutine[ec], error_code());
    EXPECT_FALSE(ec);
    const auto failed =
        std::make_exception_ptr(std::runtime_error("in the handler"));
    EXPECT_THROW(
        Complete<void(std::exception_ptr)>(loop.io, use_goroutine, failed),
        std::runtime_error);
  });
}

TEST_P(AsioTest, ExceptionOfTheInitiationPasses) {
  Run([] {
    auto throws = [](auto&& token) {
      return lib::async_initiate<decltype(token), void()>(
          [](auto) { throw std::runtime_error("no memory"); }, token);
    };
    EXPECT_THROW(throws(use_goroutine), std::runtime_error);
  });
}

TEST_P(AsioTest, DestroyedHandlerCompletesTheOperation) {
  Run([] {
    auto io = std::make_unique<lib::io_context>();
    auto dropped = [&](auto&& token) {
      return lib::async_initiate<decltype(token), void(error_code, int)>(
          [&](auto handler) {
            lib::post(*io, [handler = std::move(handler)]() mutable {
              handler(error_code(), 7);
            });
          },
          token);
    };
    sync::WaitGroup wg;
    wg.Go([&] { EXPECT_THROW(dropped(use_goroutine), system_error); });
    wg.Go([&] {
      error_code ec;
      EXPECT_EQ(dropped(use_goroutine[ec]), 0);
      EXPECT_EQ(ec, lib::error::operation_aborted);
    });
    EXPECT_TRUE(testing::EventuallyParked("sync.Event.Wait", 2));
    io.reset();
    wg.Wait();
  });
}

TEST_P(AsioTest, GoroutinesTalkOverAConnection) {
  Run([] {
    Loop loop;
    tcp::acceptor acceptor(loop.io, Loopback());
    sync::WaitGroup wg;
    wg.Go([&] {
      tcp::socket s = acceptor.async_accept(use_goroutine);
      std::string line;
      for (;;) {
        error_code ec;
        const size_t n = lib::async_read_until(s, lib::dynamic_buffer(line),
                                               '\n', use_goroutine[ec]);
        if (ec == lib::error::eof) return;
        EXPECT_FALSE(ec);
        lib::async_write(s, lib::buffer(line, n), use_goroutine);
        line.erase(0, n);
      }
    });
    tcp::socket s(loop.io);
    s.async_connect(acceptor.local_endpoint(), use_goroutine);
    std::string got;
    for (int i = 0; i < 100; i++) {
      const std::string line = std::to_string(i) + "\n";
      EXPECT_EQ(lib::async_write(s, lib::buffer(line), use_goroutine),
                line.size());
      const size_t n = lib::async_read_until(s, lib::dynamic_buffer(got), '\n',
                                             use_goroutine);
      EXPECT_EQ(got.substr(0, n), line);
      got.erase(0, n);
    }
    s.close();
    wg.Wait();
  });
}

// ---- Cancellation by a context ----------------------------------------------

#if !defined(GUMP_TEST_BOOST_ASIO) || BOOST_ASIO_VERSION >= 101900

TEST_P(AsioTest, ContextCancelsAnOperation) {
  Run([] {
    Loop loop;
    const auto [ctx, cancel] = WithCancel(Background());
    sync::WaitGroup wg;
    wg.Go([&, ctx = ctx] {
      lib::steady_timer timer(loop.io, 24h);
      error_code ec;
      timer.async_wait(use_goroutine(ctx)[ec]);
      EXPECT_EQ(ec, lib::error::operation_aborted);
      EXPECT_THROW(timer.async_wait(use_goroutine(ctx)), system_error);
    });
    cancel();
    wg.Wait();
  });
}

TEST_P(AsioTest, CancelledContextCancelsAtOnce) {
  Run([] {
    Loop loop;
    const auto [ctx, cancel] = WithCancel(Background());
    cancel();
    lib::steady_timer timer(loop.io, 24h);
    error_code ec;
    timer.async_wait(use_goroutine(ctx)[ec]);
    EXPECT_EQ(ec, lib::error::operation_aborted);
  });
}

TEST_P(AsioTest, ContextThatIsNotCancelledChangesNothing) {
  Run([] {
    Loop loop;
    lib::steady_timer timer(loop.io, 1ms);
    timer.async_wait(use_goroutine(Background()));
    const auto [ctx, cancel] = WithCancel(Background());
    timer.expires_after(1ms);
    timer.async_wait(use_goroutine(ctx));
  });
}

TEST_P(AsioTest, DeadlineCancelsAComposedOperation) {
  Run([] {
    Loop loop;
    tcp::acceptor acceptor(loop.io, Loopback());
    tcp::socket client(loop.io);
    client.async_connect(acceptor.local_endpoint(), use_goroutine);
    tcp::socket server = acceptor.async_accept(use_goroutine);
    lib::async_write(client, lib::buffer("half", 4), use_goroutine);
    const auto [ctx, cancel] =
        context::WithTimeout(Background(), absl::Milliseconds(5));
    char buffer[8];
    error_code ec;
    const size_t n =
        lib::async_read(server, lib::buffer(buffer), use_goroutine(ctx)[ec]);
    EXPECT_EQ(ec, lib::error::operation_aborted);
    EXPECT_LE(n, 4u);
  });
}

// Throws is an initiating function that fails.
struct Throws {
  using executor_type = lib::io_context::executor_type;
  executor_type get_executor() const noexcept { return executor; }
  template <class Handler>
  void operator()(Handler) const {
    throw std::runtime_error("no memory");
  }
  executor_type executor;
};

TEST_P(AsioTest, ExceptionOfAnInitiationWithAContextPasses) {
  Run([] {
    Loop loop;
    auto token = use_goroutine(Background());
    EXPECT_THROW((lib::async_initiate<decltype(token), void()>(
                     Throws{loop.io.get_executor()}, token)),
                 std::runtime_error);
  });
}

// Drops is an initiating function of an operation that drops its handler. Its
// slot must not be called after that.
struct Drops {
  using executor_type = lib::io_context::executor_type;
  executor_type get_executor() const noexcept { return executor; }
  template <class Handler>
  void operator()(Handler handler) const {
    lib::get_associated_cancellation_slot(handler).assign(
        [calls = calls](lib::cancellation_type) { ++*calls; });
  }
  executor_type executor;
  std::shared_ptr<std::atomic<int>> calls;
};

TEST_P(AsioTest, AnOperationThatDropsItsHandlerIsNotCancelled) {
  Run([] {
    const auto calls = std::make_shared<std::atomic<int>>(0);
    {
      Loop loop;
      const auto [ctx, cancel] = WithCancel(Background());
      cancel();
      auto token = use_goroutine(ctx);
      EXPECT_THROW((lib::async_initiate<decltype(token), void(error_code)>(
                       Drops{loop.io.get_executor(), calls}, token)),
                   system_error);
    }
    EXPECT_EQ(*calls, 0);
  });
}

// Operations end while their contexts are cancelled.
TEST_P(AsioTest, StressCompletionMeetsCancellation) {
  Run([] {
    Loop loop;
    const int rounds = rt::kSanitizerBuild ? 20 : 200;
    std::atomic<int> aborted = 0;
    std::atomic<int> completed = 0;
    for (int i = 0; i < rounds; i++) {
      const auto [ctx, cancel] = WithCancel(Background());
      sync::WaitGroup wg;
      for (int k = 0; k < 8; k++) {
        wg.Go([&, ctx = ctx, k] {
          lib::steady_timer timer(loop.io, std::chrono::microseconds(20 * k));
          error_code ec;
          timer.async_wait(use_goroutine(ctx)[ec]);
          (ec ? aborted : completed)++;
        });
      }
      time::Sleep(absl::Microseconds(i % 100));
      cancel();
      wg.Wait();
    }
    EXPECT_EQ(aborted + completed, 8 * rounds);
  });
}

#endif

// ---- goroutines -------------------------------------------------------------

TEST_P(AsioTest, PostedFunctionsRunOnGoroutines) {
  Run([] {
    chan<uint64_t> ids = make_chan<uint64_t>();
    // A Send without a receiver parks.
    lib::post(goroutines, [ids] { ids.Send(runtime::Goid()); });
    lib::dispatch(goroutines, [ids] { ids.Send(runtime::Goid()); });
    lib::defer(goroutines, [ids, owned = std::make_unique<int>(1)] {
      ids.Send(runtime::Goid());
    });
    for (int i = 0; i < 3; i++) EXPECT_NE(ids.Recv(), runtime::Goid());
  });
}

TEST_P(AsioTest, BoundHandlerRunsOnAGoroutine) {
  Run([] {
    Loop loop;
    lib::steady_timer timer(loop.io, 1ms);
    chan<bool> c = make_chan<bool>();
    timer.async_wait(lib::bind_executor(goroutines, [&](error_code) {
      c.Send(std::this_thread::get_id() != loop.id());
    }));
    EXPECT_EQ(c.Recv(), true);
  });
}

// ---- AsyncGo ----------------------------------------------------------------

TEST_P(AsioTest, AsyncGoPostsItsResult) {
  Run([] {
    // No guard: run returns only when the handlers have been called.
    lib::io_context io;
    std::string results;
    const auto note = [&](std::exception_ptr e, int n) {
      if (e == nullptr) results += std::to_string(n);
      if (e != nullptr) results += "!";
    };
    chan<int> c = make_chan<int>();
    AsyncGo(
        io.get_executor(), [c] { return c.Recv().value_or(0); }, note);
    AsyncGo(
        io.get_executor(), [c]() -> int { throw std::runtime_error("x"); },
        note);
    go([c] { c.Send(7); });
    blocking([&] { io.run(); });
    EXPECT_TRUE(results == "7!" || results == "!7") << results;
  });
}

// The program may destroy the io_context as soon as the handler has run.
TEST_P(AsioTest, HandlerOfAsyncGoMayEndTheLoop) {
  Run([] {
    blocking([] {
      for (int i = 0; i < 500; i++) {
        auto io = std::make_unique<lib::io_context>();
        AsyncGo(
            io->get_executor(), [] { return 7; },
            [&io](std::exception_ptr, int) { io->stop(); });
        io->run();
        io.reset();
      }
    });
  });
}

TEST_P(AsioTest, AsyncGoTakesOtherTokens) {
  Run([] {
    Loop loop;
    auto future = AsyncGo(
        loop.io.get_executor(), [] { return std::make_unique<int>(7); },
        lib::use_future);
    blocking([&] { EXPECT_EQ(*future.get(), 7); });
    bool called = false;
    AsyncGo(
        loop.io.get_executor(), [&] { called = true; }, use_goroutine);
    EXPECT_TRUE(called);
    // The handler's own executor counts.
    chan<bool> elsewhere = make_chan<bool>();
    AsyncGo(
        loop.io.get_executor(), [] {},
        lib::bind_executor(goroutines, [&](std::exception_ptr) {
          elsewhere.Send(std::this_thread::get_id() != loop.id());
        }));
    EXPECT_EQ(elsewhere.Recv(), true);
  });
}

TEST_P(AsioTest, AsyncGoFromAPlainThreadCallsBackInTheStrand) {
  Run([] {
    Loop loop;
    auto strand = lib::make_strand(loop.io);
    chan<bool> inside = make_chan<bool>(1);
    std::thread t = KnownThread([&] {
      AsyncGo(
          strand, [] { return 7; },
          [&](std::exception_ptr, int) {
            inside.Send(strand.running_in_this_thread());
          });
    });
    EXPECT_EQ(inside.Recv(), true);
    blocking([&] { t.join(); });
  });
}

TEST_P(AsioTest, GoexitReachesTheHandler) {
  Run([] {
    Loop loop;
    EXPECT_THROW(
        AsyncGo(
            loop.io.get_executor(), [] { runtime::Goexit(); }, use_goroutine),
        PanicError);
  });
}

#if defined(BOOST_ASIO_HAS_CO_AWAIT) || defined(ASIO_HAS_CO_AWAIT)
TEST_P(AsioTest, CoroutineOfAsioAwaitsAGoroutine) {
  Run([] {
    Loop loop;
    chan<int> c = make_chan<int>();
    go([c] { c.Send(7); });
    auto coroutine = [&]() -> lib::awaitable<int> {
      const int n = co_await AsyncGo(
          loop.io.get_executor(), [c] { return c.Recv().value_or(0); },
          lib::use_awaitable);
      EXPECT_EQ(testing::CurrentThread(), loop.id());
      co_return n + 1;
    };
    EXPECT_EQ(lib::co_spawn(loop.io, coroutine(), use_goroutine), 8);
  });
}
#endif

// Many goroutines ask asio, and asio asks as many goroutines.
TEST_P(AsioTest, StressNoCallIsLostInEitherDirection) {
  Run([] {
    Loop loop;
    const int rounds = rt::kSanitizerBuild ? 30 : 500;
    std::atomic<int> handled = 0;
    sync::WaitGroup wg;
    for (int k = 0; k < 16; k++) {
      wg.Go([&] {
        for (int i = 0; i < rounds; i++) {
          EXPECT_EQ(Complete<void(int)>(loop.io, use_goroutine, i), i);
          AsyncGo(
              loop.io.get_executor(), [i] { return i; },
              [&, i](std::exception_ptr e, int n) {
                EXPECT_EQ(e, nullptr);
                EXPECT_EQ(n, i);
                handled++;
              });
        }
      });
    }
    wg.Wait();
    EXPECT_TRUE(Eventually([&] { return handled == 16 * rounds; }));
  });
}

}  // namespace
}  // namespace gump

#else

TEST(AsioTest, LibraryIsAbsent) { GTEST_SKIP() << "asio is not installed"; }

#endif
