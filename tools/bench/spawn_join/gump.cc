// W1: one goroutine starts a million empty goroutines, in batches of 1000, and
// waits for each batch.
#include <gump/go.h>
#include <gump/sync.h>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

constexpr int64_t kBatch = 1000;

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

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    const int64_t batches = o.Scaled(1'000'000 / kBatch);
    MeasureNanosPer(o, "W1", "ns/task", batches * kBatch,
                    [&] { SpawnJoin(batches); });
  });
}
