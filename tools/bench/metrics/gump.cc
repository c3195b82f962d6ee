// METRICS: 100,000 goroutines wait, and a goroutine reads all metrics, again
// and again. METRICS/read: into the same samples. METRICS/text: as a text for
// Prometheus, which allocates.
#include <gump/chan.h>
#include <gump/go.h>
#include <gump/metrics.h>
#include <gump/sync.h>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

template <class F>
void Measure(const Options& o, const char* workload, F read) {
  if (!o.Selected(workload)) return;
  for (int r = 0; r < o.reps; r++) {
    std::vector<int64_t> took;
    for (int64_t i = o.Scaled(1000); i > 0; i--) {
      const int64_t start = NowNanos();
      read();
      took.push_back(NowNanos() - start);
    }
    PrintQuantiles(workload, took);
  }
}

void Main(const Options& o) {
  auto stop = make_chan<void>();
  sync::WaitGroup wg;
  for (int64_t i = o.Scaled(100'000); i > 0; i--) {
    wg.Go([=] { (void)stop.Recv(); });
  }
  for (int i = 0; i < 10; i++) runtime::Gosched();  // they wait
  std::vector<metrics::Sample> samples;
  for (const metrics::Description& d : metrics::All()) {
    samples.push_back({d.name, {}});
  }
  Measure(o, "METRICS/read", [&] { metrics::Read(absl::MakeSpan(samples)); });
  Measure(o, "METRICS/text", [] { Keep(metrics::Prometheus().size()); });
  stop.Close();
  wg.Wait();
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] { Main(o); });
}
