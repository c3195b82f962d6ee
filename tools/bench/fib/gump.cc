// W12: fib(30). Each call with n >= 2 starts a goroutine for fib(n-1), calls
// fib(n-2) and waits for the goroutine.
#include <gump/go.h>
#include <gump/sync.h>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

int64_t Fib(int n) {
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
int64_t Spawns(int n) { return n < 2 ? 0 : 1 + Spawns(n - 1) + Spawns(n - 2); }

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    int n = 30;
    while (n > 10 && Spawns(n) > o.Scaled(1'346'268)) n--;
    MeasureNanosPer(o, "W12", "ns/spawn", Spawns(n), [&] { Keep(Fib(n)); });
  });
}
