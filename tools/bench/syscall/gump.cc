// W15a: three million calls of getppid, undeclared, and declared as calls that
// may block. The cost of the declaration is the difference of two runs that
// follow each other.
#include <gump/go.h>
#include <unistd.h>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

template <class F>
double NanosPer(int64_t calls, F f) {
  const int64_t start = NowNanos();
  for (int64_t i = 0; i < calls; i++) f();
  return static_cast<double>(NowNanos() - start) / static_cast<double>(calls);
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    const int64_t calls = o.Scaled(3'000'000);
    for (int r = -1; r < o.reps; r++) {
      const double raw = NanosPer(calls, [] { Keep(getppid()); });
      const double declared = NanosPer(
          calls, [] { Keep(gump::blocking([] { return getppid(); })); });
      if (r < 0) continue;  // warm-up
      Print("W15a", "ns/op", declared);
      Print("W15a", "raw-ns", raw);
      Print("W15a", "over-ns", declared - raw);
    }
  });
}
