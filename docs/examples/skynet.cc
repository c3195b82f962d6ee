// A tree of goroutines. Each inner node starts ten more and adds up the numbers
// that they send. A leaf sends its own number. The default makes 1,111,111
// goroutines.
//
//   skynet [LEAVES]            a power of ten (default 1000000)
#include <gump/gump.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

using namespace gump;

namespace {

constexpr int kChildren = 10;

void Node(send_chan<int64_t> parent, int64_t first, int64_t leaves) {
  if (leaves == 1) {
    parent.Send(first);
    return;
  }
  chan<int64_t> children = make_chan<int64_t>();
  const int64_t share = leaves / kChildren;
  for (int i = 0; i < kChildren; i++) {
    go(Node, children, first + i * share, share);
  }
  int64_t sum = 0;
  for (int i = 0; i < kChildren; i++) sum += *children.Recv();
  parent.Send(sum);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t leaves = argc > 1 ? std::atoll(argv[1]) : 1'000'000;
  int64_t power = 1;
  while (power < leaves) power *= kChildren;
  if (leaves < 1 || power != leaves) {
    std::fprintf(stderr, "skynet: %s is not a power of ten\n", argv[1]);
    return 2;
  }
  return Run([leaves] {
    const auto start = std::chrono::steady_clock::now();
    chan<int64_t> result = make_chan<int64_t>();
    go(Node, result, int64_t{0}, leaves);
    const int64_t sum = *result.Recv();
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - start;
    std::printf("sum %lld in %.0f ms\n", static_cast<long long>(sum),
                elapsed.count());
  });
}
