// Runs the client of W13 (loadgen.cc) against a server of this process, and
// prints its results and the server's CPU time.
#ifndef TOOLS_BENCH_ECHO_CLIENT_H_
#define TOOLS_BENCH_ECHO_CLIENT_H_

#include <atomic>
#include <functional>
#include <thread>

#include "tools/bench/harness.h"

namespace gump::bench {

// Load is what the client does; see loadgen.cc.
struct Load {
  int connections;
  int bytes = 64;
  int active = 0;  // 0: all connections
  int each = 0;    // 0: as many messages as there is time for
};

inline std::string LoadgenPath() {
  if (const char* path = std::getenv("BENCH_LOADGEN")) return path;
  char self[4096];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof(self));
  const std::string path(self, n < 0 ? 0 : static_cast<size_t>(n));
  return path.substr(0, path.rfind('/') + 1) + "bench_loadgen";
}

// DriveEcho runs the client on a thread of its own, against a port of this
// process, prints the results and calls `done`. If the server counts its system
// calls in *calls, DriveEcho prints them as well.
inline std::thread DriveEcho(const Options& o, const std::string& workload,
                             int port, const Load& load,
                             std::function<void()> done,
                             const std::atomic<uint64_t>* calls = nullptr) {
  return std::thread([=, &o] {
    std::ostringstream command;
    command << "exec taskset -c 1 " << LoadgenPath() << ' ' << port << ' '
            << load.connections << ' ' << o.Scaled(500) << ' ' << o.Scaled(3000)
            << ' ' << load.bytes << ' '
            << (load.active == 0 ? load.connections : load.active) << ' '
            << load.each;
    FILE* out = popen(command.str().c_str(), "r");
    char line[200];
    int64_t cpu = 0;
    uint64_t called = 0;
    const auto count = [calls] { return calls != nullptr ? calls->load() : 0; };
    while (out != nullptr && std::fgets(line, sizeof(line), out) != nullptr) {
      if (std::strncmp(line, "begin", 5) == 0) {
        cpu = CpuNanos();
        called = count();
      }
      double requests;
      double p50;
      double p99;
      if (std::sscanf(line, "end %lf %lf %lf", &requests, &p50, &p99) != 3) {
        continue;
      }
      const auto used = static_cast<double>(CpuNanos() - cpu);
      Print(workload.c_str(), "cpu-us", used / 1e3 / requests);
      Print(workload.c_str(), "req/s",
            requests * 1e3 / static_cast<double>(o.Scaled(3000)));
      Print(workload.c_str(), "p50-us", p50);
      Print(workload.c_str(), "p99-us", p99);
      if (calls != nullptr) {
        Print(workload.c_str(), "calls/req",
              static_cast<double>(count() - called) / requests);
      }
    }
    if (out != nullptr) pclose(out);
    done();
  });
}

}  // namespace gump::bench

#endif  // TOOLS_BENCH_ECHO_CLIENT_H_
