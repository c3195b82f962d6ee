// The tree of W8: goroutines with fan-out 10. Every node adds up the results of
// its children.
#ifndef TOOLS_BENCH_SKYNET_H_
#define TOOLS_BENCH_SKYNET_H_

#include <gump/chan.h>
#include <gump/go.h>
#include <gump/sync.h>

#include <cstdint>

namespace gump::bench {

inline constexpr int kFanOut = 10;

inline void NodeChan(chan<int64_t> result, int64_t first, int64_t leaves) {
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

// SkynetChan returns the sum of the numbers of all leaves. There are `leaves`
// of them, a power of the fan-out. It uses an unbuffered channel for each inner
// node, SkynetJoin a WaitGroup.
inline int64_t SkynetChan(int64_t leaves) {
  chan<int64_t> result = make_chan<int64_t>();
  go(NodeChan, result, int64_t{0}, leaves);
  int64_t sum = 0;
  result.Recv(sum);
  return sum;
}

inline void NodeJoin(sync::WaitGroup* parent, int64_t* result, int64_t first,
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

inline int64_t SkynetJoin(int64_t leaves) {
  sync::WaitGroup wg;
  int64_t sum = 0;
  wg.Add(1);
  go(NodeJoin, &wg, &sum, int64_t{0}, leaves);
  wg.Wait();
  return sum;
}

}  // namespace gump::bench

#endif  // TOOLS_BENCH_SKYNET_H_
