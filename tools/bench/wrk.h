// Runs wrk against a server of this process, and prints its results.
#ifndef TOOLS_BENCH_WRK_H_
#define TOOLS_BENCH_WRK_H_

#include "tools/bench/harness.h"

namespace gump::bench {

// Micros reads a time as wrk prints it, 812.00us, 1.20ms or 1.05s, and returns
// microseconds.
inline double Micros(double value, const std::string& unit) {
  if (unit == "us") return value;
  return unit == "ms" ? value * 1e3 : value * 1e6;
}

// Wrk runs wrk once and returns all that it prints.
inline std::string Wrk(int port, int connections, int64_t seconds) {
  const std::string command =
      "exec taskset -c 1 wrk --latency -t1 -c" + std::to_string(connections) +
      " -d" + std::to_string(seconds) +
      "s http://127.0.0.1:" + std::to_string(port) + "/ 2>&1";
  std::string all;
  FILE* out = popen(command.c_str(), "r");
  char line[200];
  while (out != nullptr && std::fgets(line, sizeof(line), out) != nullptr) {
    all += line;
  }
  if (out != nullptr) pclose(out);
  return all;
}

// Report prints the figures in `said`, which Wrk has returned, and the server's
// CPU time, which is in ns.
inline void Report(const std::string& workload, const std::string& said,
                   double cpu) {
  double requests = 0;
  double per_second = 0;
  double p50 = 0;
  double p99 = 0;
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    double value;
    char word[20];
    if (std::sscanf(line.c_str(), " 50%% %lf%19s", &value, word) == 2) {
      p50 = Micros(value, word);
    } else if (std::sscanf(line.c_str(), " 99%% %lf%19s", &value, word) == 2) {
      p99 = Micros(value, word);
    }
    (void)std::sscanf(line.c_str(), " %lf requests in", &requests);
    (void)std::sscanf(line.c_str(), "Requests/sec: %lf", &per_second);
  }
  if (per_second == 0 || said.find("Non-2xx") != said.npos ||
      said.find("Socket errors") != said.npos) {
    std::fprintf(stderr, "%s: wrk failed:\n%s", workload.c_str(), said.c_str());
    std::exit(1);
  }
  Print(workload.c_str(), "cpu-us", cpu / 1e3 / requests);
  Print(workload.c_str(), "req/s", per_second);
  Print(workload.c_str(), "p50-us", p50);
  Print(workload.c_str(), "p99-us", p99);
}

}  // namespace gump::bench

#endif  // TOOLS_BENCH_WRK_H_
