// W4, W5, W5b: p producers send integers over one channel to c consumers. The
// consumers range over it until it is closed.
#include <gump/chan.h>
#include <gump/go.h>
#include <gump/sync.h>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

struct Shape {
  const char* workload;
  size_t capacity;
  int producers;
  int consumers;
  int64_t items;
};

constexpr Shape kShapes[] = {
    {"W4", 128, 1, 1, 5'000'000},
    {"W5", 128, 4, 4, 4'000'000},
    {"W5b", 0, 4, 4, 2'000'000},
};

void Queue(const Shape& shape, int64_t items_each) {
  chan<int64_t> c = make_chan<int64_t>(shape.capacity);
  sync::WaitGroup producing;
  sync::WaitGroup consuming;
  producing.Add(shape.producers);
  consuming.Add(shape.consumers);
  for (int p = 0; p < shape.producers; p++) {
    go([&producing, c, items_each] {
      for (int64_t i = 0; i < items_each; i++) c.Send(i);
      producing.Done();
    });
  }
  for (int k = 0; k < shape.consumers; k++) {
    go([&consuming, c] {
      int64_t sum = 0;
      for (int64_t v : c) sum += v;
      Keep(sum);
      consuming.Done();
    });
  }
  producing.Wait();
  c.Close();
  consuming.Wait();
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    for (const Shape& shape : kShapes) {
      const int64_t each = o.Scaled(shape.items / shape.producers);
      MeasureNanosPer(o, shape.workload, "ns/item", each * shape.producers,
                      [&] { Queue(shape, each); });
    }
  });
}
