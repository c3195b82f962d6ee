// A goroutine drops the only pointers to some blocks. LeakSanitizer must say
// so. It may find a stale copy of one pointer on a stack, but not of all.
#include <gump/chan.h>
#include <gump/go.h>

namespace {

void* volatile block;

}  // namespace

int main() {
  return gump::Run([] {
    auto done = gump::make_chan<void>();
    gump::go([&] {
      for (int i = 0; i < 1000; i++) block = new char[64];
      block = nullptr;
      done.Send();
    });
    done.Recv();
  });
}
