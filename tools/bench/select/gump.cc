// W6: one receiver selects over four unbuffered channels. Each channel has its
// own producer, and they send a million integers in all.
#include <gump/chan.h>
#include <gump/go.h>
#include <gump/select.h>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

constexpr int kProducers = 4;

void Select4(int64_t items_each) {
  chan<int64_t> c[kProducers];
  for (chan<int64_t>& ci : c) {
    ci = make_chan<int64_t>();
    go([ci, items_each] {
      for (int64_t i = 0; i < items_each; i++) ci.Send(i);
    });
  }
  int64_t sum = 0;
  auto add = [&sum](int64_t v) { sum += v; };
  for (int64_t i = 0; i < items_each * kProducers; i++) {
    select(Recv(c[0], add), Recv(c[1], add), Recv(c[2], add), Recv(c[3], add));
  }
  Keep(sum);
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    const int64_t each = o.Scaled(1'000'000 / kProducers);
    MeasureNanosPer(o, "W6", "ns/item", each * kProducers,
                    [&] { Select4(each); });
  });
}
