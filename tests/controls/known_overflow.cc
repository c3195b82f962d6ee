// A goroutine writes one element past an array on its stack. AddressSanitizer
// must say so. (It writes through a pointer, because UndefinedBehaviorSanitizer
// knows the size of the array and would be first.)
#include <gump/chan.h>
#include <gump/go.h>

#include <cstdio>

int main(int argc, char**) {
  return gump::Run([&] {
    auto done = gump::make_chan<int>();
    gump::go([&] {
      int array[4] = {};
      int* volatile end = array + argc + 3;
      *end = 1;
      done.Send(array[argc]);
    });
    std::printf("%d\n", done.Recv().value_or(0));
  });
}
