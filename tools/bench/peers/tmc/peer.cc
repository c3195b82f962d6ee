// The workloads with TooManyCooks, whose tasks are coroutines of C++20. A
// coroutine has no stack, so each function that waits is a coroutine. Timers
// and sockets are asio's, on a thread of their own. Channels have no bound, so
// a sender never waits for its receiver.
#define TMC_IMPL
#include "tools/bench/peers/peer.h"

#include <asio.hpp>
#include <atomic>

#include "tmc/all_headers.hpp"
#include "tmc/asio/aw_asio.hpp"
#include "tmc/asio/ex_asio.hpp"

namespace peer {
namespace {

using Task = tmc::task<void>;

void Run(Task task) {
  tmc::post_waitable(tmc::cpu_executor(), std::move(task)).get();
}

// All starts the tasks make(0) to make(n - 1), and waits for them.
template <class F>
Task All(int64_t n, F make) {
  tmc::iter_adapter tasks(int64_t{0}, make);
  co_await tmc::spawn_many(tasks, static_cast<size_t>(n));
}

Task Mark(Marks& ran, int64_t i) {
  ran.Set(i);
  co_return;
}

Task Spawner(int64_t batches, int64_t& count) {
  for (int64_t b = 0; b < batches; b++) {
    Marks ran(kBatch);
    co_await All(kBatch, [&](int64_t i) { return Mark(ran, i); });
    count += ran.Count();
  }
}

int64_t Spawn(int64_t batches) {
  int64_t count = 0;
  Run(Spawner(batches, count));
  return count;
}

Task Yielder(std::atomic<int64_t>& yields, int64_t each) {
  for (int64_t i = 0; i < each; i++) co_await tmc::yield();
  yields += each;
}

int64_t Yields(int64_t tasks, int64_t each) {
  std::atomic<int64_t> yields = 0;
  Run(All(tasks, [&](int64_t) { return Yielder(yields, each); }));
  return yields;
}

using Channel = tmc::chan_tok<int64_t>;

Task Player(int64_t which, Channel ping, Channel pong, int64_t n,
            int64_t& sum) {
  for (int64_t i = 0; i < n; i++) {
    if (which == 0) {
      ping.post(i);
      sum += *co_await pong.pull();
    } else {
      pong.post(*co_await ping.pull());
    }
  }
}

int64_t Trips(int64_t n) {
  int64_t sum = 0;
  const Channel ping = tmc::make_channel<int64_t>();
  const Channel pong = tmc::make_channel<int64_t>();
  Run(All(2, [&](int64_t i) { return Player(i, ping, pong, n, sum); }));
  return sum;
}

Task Counter(tmc::mutex& mu, int64_t& counter, int64_t each) {
  for (int64_t i = 0; i < each; i++) {
    const auto lock = co_await mu.lock_scope();
    counter++;
  }
}

int64_t Count(int64_t tasks, int64_t each) {
  tmc::mutex mu;
  int64_t counter = 0;
  Run(All(tasks, [&](int64_t) { return Counter(mu, counter, each); }));
  return counter;
}

tmc::task<int64_t> Node(int64_t first, int64_t leaves) {
  if (leaves == 1) co_return first;
  const int64_t part = leaves / kFanOut;
  const auto sums = co_await tmc::spawn_many<kFanOut>(tmc::iter_adapter(
      int64_t{0}, [=](int64_t i) { return Node(first + i * part, part); }));
  int64_t sum = 0;
  for (const int64_t s : sums) sum += s;
  co_return sum;
}

int64_t Tree(int64_t leaves) {
  return tmc::post_waitable(tmc::cpu_executor(), Node(0, leaves)).get();
}

Task Sleeper(int64_t task, int64_t* late) {
  asio::steady_timer timer(tmc::asio_executor());
  Naps naps(task);
  for (int64_t i = 0; i < kSleeps; i++) {
    const int64_t ns = naps.Next();
    const int64_t due = NowNanos() + ns;
    timer.expires_after(std::chrono::nanoseconds(ns));
    co_await timer.async_wait(tmc::aw_asio);
    late[i] = NowNanos() - due;
  }
}

// The tasks sleep on the thread of asio, because its timers are not safe to use
// from several threads.
void Sleep(int64_t tasks, int64_t* late) {
  tmc::post_waitable(
      tmc::asio_executor(),
      All(tasks, [=](int64_t i) { return Sleeper(i, late + i * kSleeps); }))
      .get();
}

using asio::ip::tcp;

Task Serve(tcp::socket socket) {
  char buf[4096];
  for (;;) {
    auto [error, n] =
        co_await socket.async_read_some(asio::buffer(buf), tmc::aw_asio);
    if (error) co_return;
    auto [failed, written] =
        co_await asio::async_write(socket, asio::buffer(buf, n), tmc::aw_asio);
    if (failed) co_return;
  }
}

Task Accept(tcp::acceptor& acceptor) {
  for (;;) {
    auto [error, socket] = co_await acceptor.async_accept(tmc::aw_asio);
    if (error) co_return;
    tmc::spawn(Serve(std::move(socket))).detach();
  }
}

void Echo(const Options& o) {
  for (int r = 0; r < o.reps; r++) {
    tcp::acceptor acceptor(tmc::asio_executor(),
                           {asio::ip::address_v4::loopback(), 0});
    std::thread client = Drive(o, acceptor.local_endpoint().port(), [&] {
      asio::post(acceptor.get_executor(), [&] { acceptor.close(); });
    });
    tmc::post_waitable(tmc::asio_executor(), Accept(acceptor)).get();
    client.join();
  }
}

}  // namespace
}  // namespace peer

int main(int argc, char** argv) {
  using namespace peer;
  const Options o = ParseOptions(argc, argv);
  tmc::cpu_executor().set_thread_count(static_cast<size_t>(Threads())).init();
  tmc::asio_executor().init();
  Measure(o, {.spawn = Spawn,
              .yields = Yields,
              .trips = Trips,
              .count = Count,
              .tree = Tree,
              .sleep = Sleep,
              .echo = Echo});
}
