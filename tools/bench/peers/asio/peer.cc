// The workloads with asio and coroutines of C++20. One io_context has all
// threads. A coroutine has no stack, so each function that waits is a
// coroutine. asio has no mutex for coroutines, so W7 is left out.
#include "tools/bench/peers/peer.h"

#include <asio.hpp>
#include <asio/experimental/channel.hpp>
#include <asio/experimental/concurrent_channel.hpp>
#include <atomic>
#include <memory>

namespace peer {
namespace {

using asio::use_awaitable;
using Task = asio::awaitable<void>;

// Join counts tasks that have ended. The last one wakes the coroutine that
// waits.
class Join {
 public:
  Join(asio::any_io_executor executor, int64_t n)
      : left_(n), done_(executor, 1) {}
  void Done() {
    if (left_.fetch_sub(1) == 1) done_.try_send(asio::error_code(), 0);
  }
  Task Wait() { co_await done_.async_receive(use_awaitable); }

 private:
  std::atomic<int64_t> left_;
  asio::experimental::concurrent_channel<void(asio::error_code, int)> done_;
};

// Run runs a coroutine on the threads, and returns when it has ended.
template <class F>
void Run(F f) {
  asio::io_context context(Threads());
  std::exception_ptr failed;
  asio::co_spawn(context, f(), [&](std::exception_ptr e) { failed = e; });
  std::vector<std::thread> threads;
  for (int i = 1; i < Threads(); i++) {
    threads.emplace_back([&] { context.run(); });
  }
  context.run();
  for (std::thread& t : threads) t.join();
  if (failed) std::rethrow_exception(failed);
}

// Start starts tasks, each of which is the coroutine task(i), and waits for
// them.
template <class F>
Task StartAll(int64_t n, F task) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Join join(executor, n);
  for (int64_t i = 0; i < n; i++) {
    asio::co_spawn(executor, task(i), [&join](std::exception_ptr e) {
      if (e) std::rethrow_exception(e);
      join.Done();
    });
  }
  co_await join.Wait();
}

int64_t Spawn(int64_t batches) {
  int64_t count = 0;
  Run([&]() -> Task {
    for (int64_t b = 0; b < batches; b++) {
      Marks ran(kBatch);
      co_await StartAll(kBatch, [&ran](int64_t i) -> Task {
        ran.Set(i);
        co_return;
      });
      count += ran.Count();
    }
  });
  return count;
}

int64_t Yields(int64_t tasks, int64_t each) {
  std::atomic<int64_t> yields = 0;
  Run([&] {
    return StartAll(tasks, [&yields, each](int64_t) -> Task {
      const asio::any_io_executor executor = co_await asio::this_coro::executor;
      for (int64_t i = 0; i < each; i++) {
        co_await asio::post(executor, use_awaitable);
      }
      yields += each;
    });
  });
  return yields;
}

// Channels of asio keep up to the given number of values; 0 is unbuffered.
template <class Channel>
int64_t TripsOver(int64_t n) {
  int64_t sum = 0;
  Run([&]() -> Task {
    const asio::any_io_executor executor = co_await asio::this_coro::executor;
    Channel ping(executor, 0);
    Channel pong(executor, 0);
    co_await StartAll(2, [&](int64_t which) -> Task {
      for (int64_t i = 0; i < n; i++) {
        if (which == 0) {
          co_await ping.async_send(asio::error_code(), i, use_awaitable);
          sum += co_await pong.async_receive(use_awaitable);
        } else {
          const int64_t v = co_await ping.async_receive(use_awaitable);
          co_await pong.async_send(asio::error_code(), v, use_awaitable);
        }
      }
    });
  });
  return sum;
}

int64_t Trips(int64_t n) {
  using Signature = void(asio::error_code, int64_t);
  if (Threads() == 1) {
    return TripsOver<asio::experimental::channel<Signature>>(n);
  }
  return TripsOver<asio::experimental::concurrent_channel<Signature>>(n);
}

Task Node(int64_t* result, int64_t first, int64_t leaves) {
  if (leaves == 1) {
    *result = first;
    co_return;
  }
  int64_t sums[kFanOut];
  co_await StartAll(kFanOut, [&sums, first, leaves](int64_t i) {
    return Node(&sums[i], first + i * (leaves / kFanOut), leaves / kFanOut);
  });
  *result = 0;
  for (const int64_t s : sums) *result += s;
}

int64_t Tree(int64_t leaves) {
  int64_t sum = 0;
  Run([&] { return Node(&sum, 0, leaves); });
  return sum;
}

void Sleep(int64_t tasks, int64_t* late) {
  Run([&] {
    return StartAll(tasks, [late](int64_t task) -> Task {
      asio::steady_timer timer(co_await asio::this_coro::executor);
      Naps naps(task);
      for (int64_t i = 0; i < kSleeps; i++) {
        const int64_t ns = naps.Next();
        const int64_t due = NowNanos() + ns;
        timer.expires_after(std::chrono::nanoseconds(ns));
        co_await timer.async_wait(use_awaitable);
        late[task * kSleeps + i] = NowNanos() - due;
      }
    });
  });
}

using asio::ip::tcp;

Task Serve(tcp::socket socket) {
  char buf[4096];
  for (;;) {
    asio::error_code ec;
    const size_t n = co_await socket.async_read_some(
        asio::buffer(buf), asio::redirect_error(use_awaitable, ec));
    if (ec) co_return;
    co_await asio::async_write(socket, asio::buffer(buf, n),
                               asio::redirect_error(use_awaitable, ec));
    if (ec) co_return;
  }
}

void Echo(const Options& o) {
  for (int r = 0; r < o.reps; r++) {
    asio::io_context context(1);
    tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
    std::thread client =
        Drive(o, acceptor.local_endpoint().port(), [&] { context.stop(); });
    asio::co_spawn(
        context,
        [&]() -> Task {
          for (;;) {
            tcp::socket socket = co_await acceptor.async_accept(use_awaitable);
            asio::co_spawn(context, Serve(std::move(socket)), asio::detached);
          }
        },
        asio::detached);
    context.run();
    client.join();
  }
}

}  // namespace
}  // namespace peer

int main(int argc, char** argv) {
  using namespace peer;
  Measure(ParseOptions(argc, argv), {.spawn = Spawn,
                                     .yields = Yields,
                                     .trips = Trips,
                                     .count = nullptr,
                                     .tree = Tree,
                                     .sleep = Sleep,
                                     .echo = Echo});
}
