// STW: the world is stopped and started a thousand times, by changes of
// GOMAXPROCS between n and n+1. Meanwhile each P has a hog: a goroutine that
// computes and never enters the runtime. We measure how long one change takes
// its caller:
//
// * a plain thread, which needs no P of its own;
// * a goroutine, which competes with the hogs for a P.
//
// A pause before each change lets the hogs back on the Ps. STOP is the part of
// the change until the world is stopped.
#include <gump/go.h>
#include <gump/sync.h>

#include <atomic>
#include <thread>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

constexpr int64_t kPause = 200'000;  // ns

// All times are in ns.
struct Times {
  std::vector<int64_t> call;
  std::vector<int64_t> stop;
};

int64_t StopNanos() {
  return static_cast<int64_t>(debug::ReadSchedStats().world_stop_ns);
}

// Stops changes GOMAXPROCS an even number of times, so it ends with the value
// that it began with.
Times Stops(int64_t pairs) {
  const int procs = runtime::GOMAXPROCS(0);
  Times took;
  for (int64_t i = 0; i < 2 * pairs; i++) {
    blocking([] { SleepNanos(kPause); });
    const int64_t stopped = StopNanos();
    const int64_t start = NowNanos();
    runtime::GOMAXPROCS(i % 2 == 0 ? procs + 1 : procs);
    took.call.push_back(NowNanos() - start);
    took.stop.push_back(StopNanos() - stopped);
  }
  return took;
}

template <class F>
void Measure(const Options& o, const char* workload, F caller) {
  if (!o.Selected(workload)) return;
  const int hogs = runtime::GOMAXPROCS(0) + 1;
  std::atomic<bool> stop = false;
  std::atomic<int> begun = 0;
  sync::WaitGroup wg;
  for (int i = 0; i < hogs; i++) {
    wg.Go([&] {
      begun++;
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  }
  while (begun < hogs) runtime::Gosched();
  caller(o.Scaled(50));
  for (int r = 0; r < o.reps; r++) {
    const Times took = caller(o.Scaled(500));
    PrintQuantiles(workload, took.call);
    PrintQuantiles(("STOP" + std::string(workload).substr(3)).c_str(),
                   took.stop);
  }
  stop = true;
  wg.Wait();
}

Times OnAThread(int64_t pairs) {
  Times took;
  std::thread caller([&] { took = Stops(pairs); });
  blocking([&] { caller.join(); });
  return took;
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    Measure(o, "STW/thread", OnAThread);
    Measure(o, "STW/goroutine", Stops);
  });
}
