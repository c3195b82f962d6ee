// W2: k goroutines yield in a loop, five million times in all. It is meant for
// GOMAXPROCS=1.
#include <gump/go.h>
#include <gump/runtime.h>
#include <gump/sync.h>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

void Yield(int64_t goroutines, int64_t yields_each) {
  sync::WaitGroup wg;
  wg.Add(static_cast<int>(goroutines));
  for (int64_t g = 0; g < goroutines; g++) {
    go([&wg, yields_each] {
      for (int64_t i = 0; i < yields_each; i++) runtime::Gosched();
      wg.Done();
    });
  }
  wg.Wait();
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    const int64_t yields = o.Scaled(5'000'000);
    for (int64_t k : {2, 1000}) {
      const std::string workload = "W2/" + std::to_string(k);
      const int64_t each = std::max<int64_t>(1, yields / k);
      MeasureNanosPer(o, workload.c_str(), "ns/switch", each * k,
                      [&] { Yield(k, each); });
    }
  });
}
