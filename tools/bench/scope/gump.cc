// SCOPE: what a Scope costs beside a WaitGroup. SCOPE/one: each empty goroutine
// has a scope of its own. SCOPE/batch: a thousand share one. The two kinds take
// turns, so that a drift of the machine affects both.
#include <gump/go.h>
#include <gump/scope.h>
#include <gump/sync.h>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

void WithWaitGroup(int64_t rounds, int64_t batch) {
  for (int64_t r = 0; r < rounds; r++) {
    sync::WaitGroup wg;
    for (int64_t i = 0; i < batch; i++) wg.Go([] {});
    wg.Wait();
  }
}

void WithScope(int64_t rounds, int64_t batch) {
  for (int64_t r = 0; r < rounds; r++) {
    Scope scope;
    for (int64_t i = 0; i < batch; i++) scope.Go([] {});
    static_cast<void>(scope.Wait());
  }
}

void Measure(const Options& o, const char* workload, int64_t batch) {
  if (!o.Selected(workload)) return;
  const int64_t rounds = o.Scaled(1'000'000 / batch);
  const auto nanos = [&](void (*f)(int64_t, int64_t)) {
    const int64_t start = NowNanos();
    f(rounds, batch);
    return static_cast<double>(NowNanos() - start) /
           static_cast<double>(rounds * batch);
  };
  nanos(WithWaitGroup);
  nanos(WithScope);
  for (int r = 0; r < o.reps; r++) {
    const double group = nanos(WithWaitGroup);
    const double scope = nanos(WithScope);
    Print(workload, "group-ns", group);
    Print(workload, "ns/task", scope);
    Print(workload, "times", scope / group);
  }
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    Measure(o, "SCOPE/one", 1);
    Measure(o, "SCOPE/batch", 1000);
  });
}
