// W15b: 64 goroutines sleep in the kernel, 100 times for 1 ms, while another
// goroutine computes. "declared" announces each sleep to the runtime, "raw"
// does not. We measure how long the sleepers take (at least 100 ms, and what
// the kernel's timers add), and how much of its speed the computing goroutine
// keeps.
//
// LIMIT: 10,000 goroutines sleep once for 50 ms in the kernel, undeclared, and
// the process may have 500 threads. We measure
//
// * how late another goroutine wakes from sleeps of 1 ms meanwhile;
// * how many more threads there are than before, one reclamation cycle later.
#include <gump/go.h>
#include <gump/runtime.h>
#include <gump/sync.h>
#include <gump/time.h>

#include <atomic>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

constexpr int kSleepers = 64;
constexpr int64_t kSleep = 1'000'000;  // ns

// Load computes on a goroutine from Start to Stop.
class Load {
 public:
  void Start() {
    stop_ = false;
    done_.Go([this] {
      const int64_t start = NowNanos();
      int64_t rounds = 0;
      for (uint64_t x = 1; !stop_.load(std::memory_order_relaxed); rounds++) {
        Keep(x = Compute(x, 1000));
      }
      rate_ =
          static_cast<double>(rounds) / static_cast<double>(NowNanos() - start);
    });
  }
  // Stop returns the speed, in thousands of steps per ns.
  double Stop() {
    stop_ = true;
    done_.Wait();
    return rate_;
  }

 private:
  std::atomic<bool> stop_ = false;
  sync::WaitGroup done_;
  double rate_ = 0;
};

void MeasureLimit(const Options& o) {
  if (!o.Selected("LIMIT")) return;
  const int limit = debug::SetMaxThreads(500);
  const int64_t goroutines = o.Scaled(10'000);
  for (int r = 0; r < o.reps; r++) {
    runtime::GC();
    const int32_t before = debug::ReadSchedStats().threads;
    std::atomic<bool> stop = false;
    std::vector<int64_t> late;
    sync::WaitGroup ticker;
    ticker.Go([&] {
      while (!stop) {
        const int64_t due = NowNanos() + kSleep;
        time::Sleep(std::chrono::nanoseconds(kSleep));
        late.push_back(NowNanos() - due);
      }
    });
    const int64_t start = NowNanos();
    sync::WaitGroup wg;
    for (int64_t i = 0; i < goroutines; i++) {
      wg.Go([] { SleepNanos(50 * kSleep); });
    }
    wg.Wait();
    Print("LIMIT", "wall-ms", static_cast<double>(NowNanos() - start) / 1e6);
    stop = true;
    ticker.Wait();
    PrintQuantiles("LIMIT", late);
    runtime::GC();
    time::Sleep(std::chrono::seconds(1));  // for the surplus threads to end
    Print("LIMIT", "threads", debug::ReadSchedStats().threads - before);
  }
  debug::SetMaxThreads(limit);
}

template <class F>
void Measure(const Options& o, const char* workload, F sleep) {
  if (!o.Selected(workload)) return;
  const int64_t sleeps = o.Scaled(100);
  Load load;
  for (int r = -1; r < o.reps; r++) {
    load.Start();
    blocking([&] { SleepNanos(o.Scaled(100) * 1'000'000); });
    const double alone = load.Stop();
    load.Start();
    const int64_t start = NowNanos();
    sync::WaitGroup wg;
    for (int i = 0; i < kSleepers; i++) {
      wg.Go([&] {
        for (int64_t k = 0; k < sleeps; k++) sleep();
      });
    }
    wg.Wait();
    const int64_t wall = NowNanos() - start;
    const double beside = load.Stop();
    if (r < 0) continue;  // the first round makes the threads
    Print(workload, "wall-ms", static_cast<double>(wall) / 1e6);
    Print(workload, "compute-%", 100 * beside / alone);
  }
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    Measure(o, "W15b/declared",
            [] { gump::blocking([] { SleepNanos(kSleep); }); });
    Measure(o, "W15b/raw", [] { SleepNanos(kSleep); });
    MeasureLimit(o);
  });
}
