// W11: 100,000 goroutines sleep ten times each, for a random time of 1 to 100
// ms. We measure the CPU time and wall time of it all, and how late they wake.
#include <gump/go.h>
#include <gump/sync.h>
#include <gump/time.h>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

constexpr int64_t kSleeps = 10;
constexpr uint64_t kMinNs = 1'000'000;
constexpr uint64_t kMaxNs = 100'000'000;

uint64_t XorShift(uint64_t x) {
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x;
}

// Sleeper writes into late[0, kSleeps) how late it woke each time.
void Sleeper(uint64_t seed, int64_t* late) {
  uint64_t x = seed * 0x9e3779b97f4a7c15 + 1;
  for (int64_t i = 0; i < kSleeps; i++) {
    x = XorShift(x);
    const auto ns = static_cast<int64_t>(kMinNs + x % (kMaxNs - kMinNs + 1));
    const int64_t due = NowNanos() + ns;
    time::Sleep(std::chrono::nanoseconds(ns));
    late[i] = NowNanos() - due;
  }
}

std::vector<int64_t> Sleep(int64_t goroutines) {
  std::vector<int64_t> late(static_cast<size_t>(goroutines * kSleeps));
  sync::WaitGroup wg;
  for (int64_t i = 0; i < goroutines; i++) {
    wg.Go([i, out = &late[static_cast<size_t>(i * kSleeps)]] {
      Sleeper(static_cast<uint64_t>(i), out);
    });
  }
  wg.Wait();
  return late;
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  if (!o.Selected("W11")) return 0;
  return gump::Run([&] {
    const int64_t goroutines = o.Scaled(100'000);
    Sleep(goroutines);
    for (int r = 0; r < o.reps; r++) {
      const int64_t start = NowNanos();
      const int64_t cpu = CpuNanos();
      const std::vector<int64_t> late = Sleep(goroutines);
      Print("W11", "cpu-ms", static_cast<double>(CpuNanos() - cpu) / 1e6);
      Print("W11", "wall-ms", static_cast<double>(NowNanos() - start) / 1e6);
      PrintQuantiles("W11", late);
    }
  });
}
