// W14: for three seconds, a goroutine sleeps 1 ms again and again while four
// others, the hogs, spin. We measure how late the sleeper wakes.
#include <gump/go.h>
#include <gump/sync.h>
#include <gump/time.h>

#include <atomic>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

constexpr int kHogs = 4;
constexpr int64_t kPeriod = 1'000'000;  // ns

std::vector<int64_t> Tick(int64_t ns) {
  std::vector<int64_t> late;
  const int64_t end = NowNanos() + ns;
  for (int64_t now = NowNanos(); now < end;) {
    const int64_t due = now + kPeriod;
    time::Sleep(std::chrono::nanoseconds(kPeriod));
    now = NowNanos();
    late.push_back(now - due);
  }
  return late;
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  if (!o.Selected("W14")) return 0;
  return gump::Run([&] {
    std::atomic<bool> stop = false;
    gump::sync::WaitGroup hogs;
    for (int i = 0; i < kHogs; i++) {
      hogs.Go([&stop] {
        while (!stop.load(std::memory_order_relaxed)) {
        }
      });
    }
    for (int r = 0; r < o.reps; r++) {
      const std::vector<int64_t> late = Tick(o.Scaled(3000) * 1'000'000);
      Print("W14", "ticks", static_cast<double>(late.size()));
      PrintQuantiles("W14", late);
    }
    stop = true;
    hogs.Wait();
  });
}
