// W20: the time from the start of a program to its end, if the program runs one
// goroutine. `bench_start_line` is a C++ program that prints a line, for
// comparison. The two are started in turn.
#include <fcntl.h>
#include <gump/gump.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

// StartNanos starts a program that prints to /dev/null, and returns the time
// until the program has ended.
int64_t StartNanos(const std::string& program, const char* argument) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null",
                                   O_WRONLY, 0);
  char* argv[] = {const_cast<char*>(program.c_str()),
                  const_cast<char*>(argument), nullptr};
  const int64_t begin = NowNanos();
  pid_t pid = 0;
  int status = -1;
  if (posix_spawn(&pid, program.c_str(), &actions, nullptr, argv, environ) !=
          0 ||
      waitpid(pid, &status, 0) != pid || status != 0) {
    std::fprintf(stderr, "%s: cannot be run\n", program.c_str());
    std::exit(1);
  }
  posix_spawn_file_actions_destroy(&actions);
  return NowNanos() - begin;
}

double MedianMs(std::vector<int64_t>* nanos) {
  std::sort(nanos->begin(), nanos->end());
  return static_cast<double>((*nanos)[nanos->size() / 2]) / 1e6;
}

// RunOne is the program that W20 starts.
int RunOne() {
  return Run([] {
    sync::WaitGroup wg;
    wg.Go([] { std::puts("one"); });
    wg.Wait();
    return 0;
  });
}

}  // namespace
}  // namespace gump::bench

// But for RunOne, this process uses no part of the library, so it has one
// thread.
int main(int argc, char** argv) {
  using namespace gump::bench;
  if (argc == 2 && std::strcmp(argv[1], "one") == 0) return RunOne();
  const Options o = ParseOptions(argc, argv);
  const char* procs = std::getenv("GOMAXPROCS");
  const std::string self = argv[0];
  const std::string line = self + "_line";
  for (int r = 0; r < o.reps; r++) {
    std::vector<int64_t> one, plain;
    for (int64_t i = 0; i < o.Scaled(200); i++) {
      plain.push_back(StartNanos(line, nullptr));
      one.push_back(StartNanos(self, "one"));
    }
    const double ms = MedianMs(&one);
    std::printf("W20 procs=%s ms %.6g\n", procs == nullptr ? "0" : procs, ms);
    std::printf("W20 procs=%s over-ms %.6g\n", procs == nullptr ? "0" : procs,
                ms - MedianMs(&plain));
  }
  return 0;
}
