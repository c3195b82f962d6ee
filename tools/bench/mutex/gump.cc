// W7: k goroutines lock one mutex, increment a counter and unlock. With k = 1
// they do so twenty million times, uncontended; with k = 8 four million times
// in all.
#include <gump/go.h>
#include <gump/sync.h>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

void LockUnlock(int goroutines, int64_t ops_each) {
  sync::Mutex mu;
  int64_t counter = 0;
  sync::WaitGroup wg;
  wg.Add(goroutines);
  for (int g = 0; g < goroutines; g++) {
    go([&mu, &counter, &wg, ops_each] {
      for (int64_t i = 0; i < ops_each; i++) {
        mu.Lock();
        counter++;
        mu.Unlock();
      }
      wg.Done();
    });
  }
  wg.Wait();
  if (counter != goroutines * ops_each) {
    std::fprintf(stderr, "mutex: lost updates\n");
    std::exit(1);
  }
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    const int64_t alone = o.Scaled(20'000'000);
    MeasureNanosPer(o, "W7/1", "ns/op", alone, [&] { LockUnlock(1, alone); });
    const int64_t each = o.Scaled(4'000'000 / 8);
    MeasureNanosPer(o, "W7/8", "ns/op", each * 8, [&] { LockUnlock(8, each); });
  });
}
