// A goroutine reads a local of a function that has returned. AddressSanitizer
// notices this only if its fake stacks follow the goroutine through its
// switches.
#include <gump/chan.h>
#include <gump/go.h>
#include <gump/runtime.h>

#include <cstdio>

namespace {

int* volatile escaped;

__attribute__((noinline)) void Leave() {
  int local = 1;
  escaped = &local;
  gump::runtime::Gosched();
}

}  // namespace

int main() {
  return gump::Run([] {
    auto done = gump::make_chan<int>();
    gump::go([&] {
      Leave();
      gump::runtime::Gosched();
      done.Send(*escaped);
    });
    std::printf("%d\n", done.Recv().value_or(0));
  });
}
