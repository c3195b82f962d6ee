// PROFILE: the time that a CPU profile of 100 Hz takes from what runs beside
// it. PROFILE/compute: four goroutines compute. PROFILE/spawn: as W1.
// PROFILE/pingpong: as W3.
//
// The same work is done without a profile and with one. Each repetition does
// both twice, in the order without, with, with, without, so that a machine
// that becomes slower or faster favours neither. The profile starts before the
// clock does, and ends after it.
#include <fcntl.h>
#include <gump/chan.h>
#include <gump/go.h>
#include <gump/pprof.h>
#include <gump/sync.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

constexpr int64_t kBatch = 1000;

void ComputeAll(int64_t steps) {
  constexpr int kGoroutines = 4;
  std::atomic<uint64_t> sum = 0;
  sync::WaitGroup wg;
  for (int i = 0; i < kGoroutines; i++) {
    wg.Go([&sum, i, steps] {
      sum += Compute(static_cast<uint64_t>(i), steps / kGoroutines);
    });
  }
  wg.Wait();
  Keep(sum.load());
}

void SpawnJoin(int64_t batches) {
  sync::WaitGroup wg;
  for (int64_t b = 0; b < batches; b++) {
    wg.Add(kBatch);
    for (int64_t i = 0; i < kBatch; i++) {
      go([&wg] { wg.Done(); });
    }
    wg.Wait();
  }
}

void PingPong(int64_t round_trips) {
  chan<int64_t> ping = make_chan<int64_t>();
  chan<int64_t> pong = make_chan<int64_t>();
  go([=] {
    int64_t v;
    while (ping.Recv(v)) pong.Send(v);
    pong.Close();
  });
  int64_t v = 0;
  for (int64_t i = 0; i < round_trips; i++) {
    ping.Send(i);
    pong.Recv(v);
  }
  ping.Close();
  pong.Recv(v);
}

struct Cost {
  int64_t wall = 0, cpu = 0;  // ns
};

template <class F>
void Add(F&& work, bool profiled, Cost* cost) {
  static const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (profiled && !pprof::StartCPUProfile(null).ok()) {
    std::fprintf(stderr, "profile: no profile\n");
    std::exit(1);
  }
  const int64_t start = NowNanos();
  const int64_t cpu = CpuNanos();
  work();
  cost->wall += NowNanos() - start;
  cost->cpu += CpuNanos() - cpu;
  if (profiled) pprof::StopCPUProfile();
}

template <class F>
void Measure(const Options& o, const char* workload, F work) {
  if (!o.Selected(workload)) return;
  work();
  for (int r = 0; r < o.reps; r++) {
    Cost off, on;
    Add(work, false, &off);
    Add(work, true, &on);
    Add(work, true, &on);
    Add(work, false, &off);
    const auto lost = [](int64_t with, int64_t without) {
      return 100 *
             (static_cast<double>(with) / static_cast<double>(without) - 1);
    };
    Print(workload, "off-ms", static_cast<double>(off.wall) / 2e6);
    Print(workload, "lost-%", lost(on.wall, off.wall));
    Print(workload, "cpu-lost-%", lost(on.cpu, off.cpu));
  }
}

void Main(const Options& o) {
  Measure(o, "PROFILE/compute", [&] { ComputeAll(o.Scaled(400'000'000)); });
  Measure(o, "PROFILE/spawn", [&] { SpawnJoin(o.Scaled(3'000'000 / kBatch)); });
  Measure(o, "PROFILE/pingpong", [&] { PingPong(o.Scaled(2'000'000)); });
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] { Main(o); });
}
