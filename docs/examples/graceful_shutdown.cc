// A server that shuts down without losing a request. One context tells the
// workers to take no more requests. A second one limits the time that they may
// take to finish.
//
//   graceful_shutdown [REQUESTS [WORKERS]]     default 100 requests, 4 workers
#include <gump/gump.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>

using namespace gump;
using namespace std::chrono_literals;

namespace {

const context::Key<int> kWorker;

// Serve takes requests until ctx is cancelled. It finishes every request that
// it has taken: the work has the values of ctx, but not its cancellation.
void Serve(const context::Context& ctx, recv_chan<int> requests,
           std::atomic<int>& served) {
  for (bool open = true; open;) {
    select(Recv(ctx.Done(), [&] { open = false; }),
           Recv(requests, [&](int request) {
             const auto [work, cancel] =
                 context::WithTimeout(context::WithoutCancel(ctx), 10s);
             time::Sleep(std::chrono::microseconds(100 + request % 7));
             if (work.Err().ok()) served++;
             cancel();
           }));
  }
  std::fprintf(stderr, "worker %d stops: %s\n", *ctx.Value(kWorker),
               context::Cause(ctx).ToString().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const int requests = argc > 1 ? std::atoi(argv[1]) : 100;
  const int workers = argc > 2 ? std::atoi(argv[2]) : 4;
  if (requests < 1 || workers < 1) {
    std::fprintf(stderr, "usage: graceful_shutdown [REQUESTS [WORKERS]]\n");
    return 2;
  }
  return Run([requests, workers] {
    auto [ctx, cancel] = context::WithCancelCause(context::Background());
    chan<int> queue = make_chan<int>();
    std::atomic<int> served = 0;
    sync::WaitGroup pool;
    for (int w = 0; w < workers; w++) {
      pool.Go([=, &served, mine = context::WithValue(ctx, kWorker, w)] {
        Serve(mine, queue, served);
      });
    }
    for (int r = 0; r < requests; r++) queue.Send(r);  // a worker takes each

    cancel(absl::UnavailableError("shutting down"));
    // A worker that is still busy after the grace period is left behind.
    auto [grace, done] = context::WithTimeout(context::Background(), 10s);
    go([&pool, finished = done] {
      pool.Wait();
      finished();
    });
    (void)grace.Done().Recv();
    std::printf("%d requests accepted, %d served, %s\n", requests,
                served.load(),
                absl::IsCancelled(grace.Err()) ? "all home" : "out of time");
  });
}
