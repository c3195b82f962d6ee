// W9: a thousand goroutines form a ring of unbuffered channels. One token makes
// two million hops.
#include <gump/chan.h>
#include <gump/go.h>
#include <gump/sync.h>

#include <vector>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

constexpr size_t kNodes = 1000;

// Node passes the token on, one higher, until the token has made all its hops.
void Node(chan<int64_t> in, chan<int64_t> out, chan<void> finished,
          int64_t hops, sync::WaitGroup* wg) {
  for (int64_t token : in) {
    if (token == hops) {
      finished.Send();
    } else {
      out.Send(token + 1);
    }
  }
  wg->Done();
}

// Ring returns the nanoseconds of the hops alone, without the time to build the
// ring.
int64_t Ring(int64_t hops) {
  std::vector<chan<int64_t>> link(kNodes);
  for (chan<int64_t>& c : link) c = make_chan<int64_t>();
  chan<void> finished = make_chan<void>();
  sync::WaitGroup wg;
  wg.Add(kNodes);
  for (size_t i = 0; i < kNodes; i++) {
    go(Node, link[i], link[(i + 1) % kNodes], finished, hops, &wg);
  }
  const int64_t start = NowNanos();
  link[0].Send(1);
  finished.Recv();
  const int64_t elapsed = NowNanos() - start;
  for (chan<int64_t>& c : link) c.Close();
  wg.Wait();
  return elapsed;
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    const int64_t hops = o.Scaled(2'000'000);
    Ring(hops);
    for (int r = 0; r < o.reps; r++) {
      Print("W9", "ns/hop",
            static_cast<double>(Ring(hops)) / static_cast<double>(hops));
    }
  });
}
