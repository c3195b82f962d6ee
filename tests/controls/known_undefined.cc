// A goroutine overflows a signed int. UndefinedBehaviorSanitizer must say so.
#include <gump/chan.h>
#include <gump/go.h>

#include <cstdio>
#include <limits>

int main(int argc, char**) {
  return gump::Run([&] {
    auto done = gump::make_chan<int>();
    gump::go([&] {
      volatile int big = std::numeric_limits<int>::max();
      done.Send(big + argc);
    });
    std::printf("%d\n", done.Recv().value_or(0));
  });
}
