// A goroutine writes one element past an array on its stack. AddressSanitizer
// must say so.
#include <gump/chan.h>
#include <gump/go.h>

#include <cstdio>

int main(int argc, char**) {
  return gump::Run([&] {
    auto done = gump::make_chan<int>();
    gump::go([&] {
      int array[4] = {};
      volatile int index = argc + 3;
      array[index] = 1;
      done.Send(array[argc]);
    });
    std::printf("%d\n", done.Recv().value_or(0));
  });
}
