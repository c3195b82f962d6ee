// A program that ends with a report: main sends on a channel, and no goroutine
// receives.
#include <gump/chan.h>
#include <gump/go.h>

using namespace gump;  // NOLINT: as api.md writes programs

namespace {

[[gnu::noinline]] int Main() {
  chan<int> c = make_chan<int>();
  go([c] { c.Send(1); });
  c.Send(2);
  return 0;
}

}  // namespace

int main() { return Run(Main); }
