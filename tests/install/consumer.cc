#include <gump/chan.h>
#include <gump/go.h>

int main() {
  int got = 0;
  gump::Run([&] {
    auto c = gump::make_chan<int>();
    gump::go([c]() mutable { c.Send(42); });
    c.Recv(got);
  });
  return got == 42 ? 0 : 1;
}
