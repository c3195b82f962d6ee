// OVERHEAD: the time that preemption takes from goroutines that only compute: 2
// goroutines, which have a P each, and 8, which share two Ps.
//
// The same work is done with preemption and without
// (GODEBUG=asyncpreemptoff=1), in turn. Each run is a process of its own,
// because the variable is read once. A process computes its checksum and
// reports wall and CPU time. A loss is computed from two runs that follow each
// other.
#include <gump/go.h>
#include <gump/sync.h>

#include <atomic>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

struct Cost {
  double wall_ms = 0;
  double cpu_ms = 0;
  uint64_t checksum = 0;
};

Cost Work(int goroutines, int64_t steps) {
  Cost cost;
  Run([&] {
    std::atomic<uint64_t> sum = 0;
    const int64_t start = NowNanos();
    const int64_t cpu = CpuNanos();
    sync::WaitGroup wg;
    for (int i = 0; i < goroutines; i++) {
      wg.Go([&sum, i, each = steps / goroutines] {
        sum += Compute(static_cast<uint64_t>(i), each);
      });
    }
    wg.Wait();
    cost.wall_ms = static_cast<double>(NowNanos() - start) / 1e6;
    cost.cpu_ms = static_cast<double>(CpuNanos() - cpu) / 1e6;
    cost.checksum = sum;
  });
  return cost;
}

// Child runs this program again, for one piece of work.
Cost Child(const char* self, int goroutines, int64_t steps, bool preempt) {
  setenv("GODEBUG", preempt ? "" : "asyncpreemptoff=1", /*overwrite=*/1);
  const std::string command = std::string(self) + " --work " +
                              std::to_string(goroutines) + " " +
                              std::to_string(steps);
  Cost cost;
  unsigned long long checksum = 0;
  FILE* out = popen(command.c_str(), "re");
  const bool read =
      out != nullptr && std::fscanf(out, "%lf %lf %llu", &cost.wall_ms,
                                    &cost.cpu_ms, &checksum) == 3;
  if (!read || pclose(out) != 0) {
    std::fprintf(stderr, "overhead: %s failed\n", command.c_str());
    std::exit(1);
  }
  cost.checksum = checksum;
  return cost;
}

void Measure(const Options& o, const char* self, const char* workload,
             int goroutines) {
  if (!o.Selected(workload)) return;
  const int64_t steps = o.Scaled(800'000'000);
  Child(self, goroutines, steps, true);
  for (int r = 0; r < o.reps; r++) {
    const Cost off = Child(self, goroutines, steps, false);
    const Cost on = Child(self, goroutines, steps, true);
    if (off.checksum != on.checksum) {
      std::fprintf(stderr, "overhead: checksums differ\n");
      std::exit(1);
    }
    Print(workload, "off-ms", off.wall_ms);
    Print(workload, "lost-%", 100 * (on.wall_ms / off.wall_ms - 1));
    Print(workload, "cpu-lost-%", 100 * (on.cpu_ms / off.cpu_ms - 1));
  }
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  if (argc == 4 && std::strcmp(argv[1], "--work") == 0) {
    const Cost cost = Work(std::atoi(argv[2]), std::atoll(argv[3]));
    std::printf("%f %f %llu\n", cost.wall_ms, cost.cpu_ms,
                static_cast<unsigned long long>(cost.checksum));
    return 0;
  }
  const Options o = ParseOptions(argc, argv);
  Measure(o, argv[0], "OVERHEAD/2", 2);
  Measure(o, argv[0], "OVERHEAD/8", 8);
  return 0;
}
