// W12: fib(30). Each call with n >= 2 starts a goroutine for fib(n-1), calls
// fib(n-2) and waits for the goroutine.
#include "tools/bench/fib.h"
#include "tools/bench/harness.h"

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    int n = 30;
    while (n > 10 && Spawns(n) > o.Scaled(1'346'268)) n--;
    MeasureNanosPer(o, "W12", "ns/spawn", Spawns(n), [&] { Keep(Fib(n)); });
  });
}
