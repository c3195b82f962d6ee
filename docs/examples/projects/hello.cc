// The program of the projects beside this file: two goroutines greet, and main
// prints what they say.
#include <gump/gump.h>

#include <cstdio>
#include <string>

using namespace gump;

int main() {
  return Run([] {
    chan<std::string> c = make_chan<std::string>();
    go([c] { c.Send("hello"); });
    go([c] { c.Send("hello"); });
    for (int i = 0; i < 2; i++) std::printf("%s\n", c.Recv()->c_str());
  });
}
