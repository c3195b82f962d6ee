// A program with gump::hooks: the read of libc parks the goroutine, and another
// goroutine writes.
#include <gump/gump.h>
#include <gump/hooks.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>

using namespace gump;

int main() {
  return Run([] {
    runtime::GOMAXPROCS(1);
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 1;
    go([to = ends[1]] {
      if (write(to, "hello\n", 6) != 6) std::perror("write");
    });
    char text[6];
    ssize_t n = hooked([&] { return read(ends[0], text, sizeof(text)); });
    std::printf("%.*s", static_cast<int>(n), text);
    return n == 6 ? 0 : 1;
  });
}
