// gump/hooks.h: calls of libc that park.
#include <gump/go.h>
#include <gump/hooks.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace gump;  // NOLINT: as api.md writes programs

namespace {

// The two ends of a pair share a thread, so this ends only if recv parks.
int Main() {
  hooks::SetThreads(1);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 1;
  hooks::Go([ends] {
    usleep(1000);
    if (send(ends[1], "x", 1, 0) != 1) _exit(1);
  });
  char c = 0;
  const ssize_t n = hooked([&] { return recv(ends[0], &c, 1, 0); });
  return n == 1 && c == 'x' ? 0 : 1;
}

}  // namespace

int main() { return Run(Main); }
