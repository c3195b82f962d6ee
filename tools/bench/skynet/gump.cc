// W8: a tree of goroutines with fan-out 10 and a million leaves. Every node
// adds up the results of its children. "chan" uses an unbuffered channel for
// each inner node, "join" a WaitGroup.
#include <gump/chan.h>
#include <gump/go.h>
#include <gump/sync.h>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

constexpr int kFanOut = 10;

void NodeChan(chan<int64_t> result, int64_t first, int64_t leaves) {
  if (leaves == 1) {
    result.Send(first);
    return;
  }
  chan<int64_t> children = make_chan<int64_t>();
  for (int i = 0; i < kFanOut; i++) {
    go(NodeChan, children, first + i * (leaves / kFanOut), leaves / kFanOut);
  }
  int64_t sum = 0;
  int64_t v = 0;
  for (int i = 0; i < kFanOut; i++) {
    children.Recv(v);
    sum += v;
  }
  result.Send(sum);
}

int64_t SkynetChan(int64_t leaves) {
  chan<int64_t> result = make_chan<int64_t>();
  go(NodeChan, result, int64_t{0}, leaves);
  int64_t sum = 0;
  result.Recv(sum);
  return sum;
}

void NodeJoin(sync::WaitGroup* parent, int64_t* result, int64_t first,
              int64_t leaves) {
  if (leaves == 1) {
    *result = first;
    parent->Done();
    return;
  }
  sync::WaitGroup wg;
  int64_t sums[kFanOut];
  wg.Add(kFanOut);
  for (int i = 0; i < kFanOut; i++) {
    go(NodeJoin, &wg, &sums[i], first + i * (leaves / kFanOut),
       leaves / kFanOut);
  }
  wg.Wait();
  int64_t sum = 0;
  for (int64_t s : sums) sum += s;
  *result = sum;
  parent->Done();
}

int64_t SkynetJoin(int64_t leaves) {
  sync::WaitGroup wg;
  int64_t sum = 0;
  wg.Add(1);
  go(NodeJoin, &wg, &sum, int64_t{0}, leaves);
  wg.Wait();
  return sum;
}

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
