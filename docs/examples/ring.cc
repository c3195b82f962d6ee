// Goroutines in a ring pass a token round. The goroutine that holds the token
// when its hops are used up tells main.
//
//   ring [NODES [HOPS]]        default 503 nodes, 1000000 hops
#include <gump/gump.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace gump;

namespace {

void Node(int id, recv_chan<int> in, send_chan<int> out,
          send_chan<int> winner) {
  for (int hops_left : in) {
    if (hops_left == 0) {
      winner.Send(id);
      return;
    }
    out.Send(hops_left - 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int nodes = argc > 1 ? std::atoi(argv[1]) : 503;
  const int hops = argc > 2 ? std::atoi(argv[2]) : 1'000'000;
  if (nodes < 1 || hops < 0) {
    std::fprintf(stderr, "usage: ring [NODES [HOPS]]\n");
    return 2;
  }
  return Run([nodes, hops] {
    // With one slot in each channel, a ring of a single node works too.
    std::vector<chan<int>> link;
    for (int i = 0; i < nodes; i++) link.push_back(make_chan<int>(1));
    chan<int> winner = make_chan<int>();
    for (int i = 0; i < nodes; i++) {
      const size_t here = static_cast<size_t>(i);
      go(Node, i + 1, link[here], link[(here + 1) % link.size()], winner);
    }
    const auto start = std::chrono::steady_clock::now();
    link[0].Send(hops);
    const int last = *winner.Recv();
    const std::chrono::duration<double, std::nano> elapsed =
        std::chrono::steady_clock::now() - start;
    std::printf("node %d of %d held the token last; %.0f ns a hop\n", last,
                nodes, elapsed.count() / (hops + 1));
  });
}
