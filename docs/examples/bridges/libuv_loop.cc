// A loop of libuv on its own thread, which goroutines use, and one that a
// goroutine drives.
//
//   libuv_loop [goroutines]
//
// Only uv_async_send may be called from any thread. All else belongs to the
// thread of the loop. So a goroutine puts a function into a queue and calls
// uv_async_send, and the function answers through a channel.
#include <poll.h>
#include <uv.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gump/gump.h"

using namespace gump;

namespace {

// UvThread is a thread that runs a uv_loop_t.
//
// No function is lost. Post puts it into the queue before uv_async_send, and
// libuv notes that a send has come before it calls Drain. So a function that
// Drain misses has a send of its own. libuv may join several sends into one
// call of Drain, which therefore takes all functions.
//
// Nothing is freed too early. The destructor posts the function that closes the
// handle, so all functions before it run first, and uv_run returns only when
// every handle is closed. Requires: no Post after the destructor has begun.
class UvThread {
 public:
  UvThread() {
    uv_loop_init(&loop_);
    uv_async_init(&loop_, &wake_, [](uv_async_t* a) {
      static_cast<UvThread*>(a->data)->Drain();
    });
    wake_.data = this;
    thread_ = std::thread([this] { uv_run(&loop_, UV_RUN_DEFAULT); });
  }
  ~UvThread() {
    Post([this](uv_loop_t*) {
      uv_close(reinterpret_cast<uv_handle_t*>(&wake_), nullptr);
    });
    blocking([this] { thread_.join(); });
    uv_loop_close(&loop_);
  }

  // Post has the loop's thread call f. It may be called from any goroutine or
  // thread. It never waits for the loop.
  void Post(std::function<void(uv_loop_t*)> f) {
    {
      const std::scoped_lock hold(mu_);
      queue_.push_back(std::move(f));
    }
    uv_async_send(&wake_);
  }

 private:
  void Drain() {
    std::vector<std::function<void(uv_loop_t*)>> all;
    {
      const std::scoped_lock hold(mu_);
      all.swap(queue_);
    }
    for (auto& f : all) f(&loop_);
  }

  uv_loop_t loop_;
  uv_async_t wake_;
  sync::Mutex mu_;  // a goroutine that waits for it parks
  std::vector<std::function<void(uv_loop_t*)>> queue_;
  std::thread thread_;
};

// UvTimer is a timer of libuv that a goroutine waits for. Only the loop's
// thread touches it. It frees itself after uv_close, which libuv requires.
class UvTimer {
 public:
  UvTimer(uv_loop_t* loop, uint64_t ms, chan<bool> fired) : fired_(fired) {
    uv_timer_init(loop, &timer_);
    timer_.data = this;
    uv_timer_start(
        &timer_,
        [](uv_timer_t* t) { static_cast<UvTimer*>(t->data)->End(true); }, ms,
        0);
  }
  // End sends the answer, once. The channel has room, so the loop never waits.
  void End(bool fired) {
    fired_.Send(fired);
    uv_close(reinterpret_cast<uv_handle_t*>(&timer_),
             [](uv_handle_t* h) { delete static_cast<UvTimer*>(h->data); });
  }

 private:
  uv_timer_t timer_;
  chan<bool> fired_;
};

// SleepInLoop waits for a timer of libuv. Returns false if ctx was cancelled
// before. The timer may fire just then, so only the loop's thread decides which
// came first, and the goroutine waits for its answer in any case.
bool SleepInLoop(UvThread& loop, uint64_t ms, const context::Context& ctx) {
  chan<bool> fired = make_chan<bool>(1);
  auto timer = std::make_shared<UvTimer*>();  // of the loop's thread
  loop.Post([=](uv_loop_t* l) { *timer = new UvTimer(l, ms, fired); });
  std::optional<bool> answer;
  select(Recv(fired, [&](bool b) { answer = b; }), Recv(ctx.Done(), [] {}));
  if (answer) return *answer;
  chan<void> looked = make_chan<void>(1);
  loop.Post([=](uv_loop_t*) {
    // If the timer has fired, it may be gone. Its answer is in the channel,
    // because the goroutine receives only after this.
    if (fired.Len() == 0) (*timer)->End(false);
    looked.Send();
  });
  (void)looked.Recv();
  return fired.Recv().value_or(false);
}

// Drive runs a loop on the calling goroutine, which parks while the loop waits.
// uv_run comes first: it tells the kernel what the callbacks want to wait for,
// and only then is the answer of uv_backend_timeout right. A uv_async_send from
// any thread makes the descriptor readable, so Poll returns.
void Drive(uv_loop_t* loop) {
  while (uv_run(loop, UV_RUN_NOWAIT) != 0) {
    pollfd p = {uv_backend_fd(loop), POLLIN, 0};
    (void)os::Poll(absl::MakeSpan(&p, 1),
                   absl::Milliseconds(uv_backend_timeout(loop)));
  }
}

void DriveATicker() {
  uv_loop_t loop;
  uv_loop_init(&loop);
  int left = 5;
  uv_timer_t ticker;
  uv_timer_init(&loop, &ticker);
  ticker.data = &left;
  uv_timer_start(
      &ticker,
      [](uv_timer_t* t) {
        if (--*static_cast<int*>(t->data) == 0) {
          uv_close(reinterpret_cast<uv_handle_t*>(t), nullptr);
        }
      },
      1, 1);
  Drive(&loop);
  uv_loop_close(&loop);
  std::printf("%d ticks left\n", left);
}

void Main(int goroutines) {
  UvThread loop;
  std::atomic<int> calls = 0;
  int total = 0;  // of the loop's thread: no lock
  sync::WaitGroup wg;
  for (int i = 0; i < goroutines; i++) {
    wg.Go([&] {
      for (int k = 0; k < 100; k++) {
        chan<int> answer = make_chan<int>(1);
        loop.Post([&total, answer](uv_loop_t*) { answer.Send(++total); });
        if (answer.Recv()) calls++;
      }
    });
  }
  wg.Wait();
  std::printf("%d calls, %s\n", calls.load(),
              calls == total ? "all answered" : "some lost");

  const bool slept = SleepInLoop(loop, 1, context::Background());
  auto [ctx, cancel] = context::WithCancel(context::Background());
  go(cancel);
  const bool late = SleepInLoop(loop, 3'600'000, ctx);
  std::printf("slept: %d, cancelled: %d\n", slept, !late);
}

}  // namespace

int main(int argc, char** argv) {
  const int goroutines = argc > 1 ? std::atoi(argv[1]) : 50;
  return Run([&] {
    Main(goroutines);
    DriveATicker();
  });
}
