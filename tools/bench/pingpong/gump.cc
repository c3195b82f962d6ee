// W3: two goroutines make a million round trips over two unbuffered channels.
#include <gump/chan.h>
#include <gump/go.h>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

void PingPong(int64_t round_trips) {
  chan<int64_t> ping = make_chan<int64_t>();
  chan<int64_t> pong = make_chan<int64_t>();
  go([=] {
    int64_t v;
    while (ping.Recv(v)) pong.Send(v);
    pong.Close();
  });
  int64_t v = 0;
  for (int64_t i = 0; i < round_trips; i++) {
    ping.Send(i);
    pong.Recv(v);
  }
  ping.Close();
  pong.Recv(v);
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    const int64_t n = o.Scaled(1'000'000);
    MeasureNanosPer(o, "W3", "ns/roundtrip", n, [&] { PingPong(n); });
  });
}
