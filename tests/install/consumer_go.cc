// gump/go.h alone: go, blocking, Run, defer, panic and gls.
#include <gump/go.h>

int main() {
  gump::gls<int> calls{0};
  int ends = 0;
  const int result = gump::Run([&] {
    {
      gump::defer _{[&] { ends++; }};
      ++*calls;
    }
    gump::go(
        gump::GoOptions{.stack_size = 64 << 10, .name = "consumer"}, [](int) {},
        1);
    try {
      gump::panic("caught");
    } catch (const gump::PanicError& e) {
      if (std::string_view(e.what()) == "caught") ends++;
    }
    return *calls + gump::blocking([&] { return ends; });
  });
  return result == 3 ? 0 : 1;
}
