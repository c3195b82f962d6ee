// The recursion of W12.
#ifndef TOOLS_BENCH_FIB_H_
#define TOOLS_BENCH_FIB_H_

#include <gump/go.h>
#include <gump/sync.h>

#include <cstdint>

namespace gump::bench {

// Fib returns a Fibonacci number. Each call with n >= 2 starts a goroutine for
// n-1, computes n-2 itself, and waits.
inline int64_t Fib(int n) {
  if (n < 2) return n;
  int64_t x = 0;
  sync::WaitGroup wg;
  wg.Add(1);
  go([&x, &wg, n] {
    x = Fib(n - 1);
    wg.Done();
  });
  const int64_t y = Fib(n - 2);
  wg.Wait();
  return x + y;
}

// Spawns is the number of goroutines that Fib(n) starts, one for each call with
// n >= 2.
inline int64_t Spawns(int n) {
  return n < 2 ? 0 : 1 + Spawns(n - 1) + Spawns(n - 2);
}

}  // namespace gump::bench

#endif  // TOOLS_BENCH_FIB_H_
