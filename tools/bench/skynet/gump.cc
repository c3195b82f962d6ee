// W8: a tree of goroutines with fan-out 10 and a million leaves. Every node
// adds up the results of its children. "chan" uses an unbuffered channel for
// each inner node, "join" a WaitGroup.
#include "tools/bench/harness.h"
#include "tools/bench/skynet.h"

namespace gump::bench {
namespace {

void Check(int64_t sum, int64_t leaves) {
  if (sum != leaves * (leaves - 1) / 2) {
    std::fprintf(stderr, "skynet: wrong sum\n");
    std::exit(1);
  }
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    int64_t leaves = 1'000'000;  // stays a power of the fan-out under --divide
    while (leaves > kFanOut && leaves > o.Scaled(1'000'000)) leaves /= kFanOut;
    MeasureMillis(o, "W8/chan", [&] { Check(SkynetChan(leaves), leaves); });
    MeasureMillis(o, "W8/join", [&] { Check(SkynetJoin(leaves), leaves); });
  });
}
