// What the programs of the peers share: options, clocks, checks, and the format
// of the lines. harness.h has the same for gumption, and go/harness.go for Go.
// This header does not use gumption.
#ifndef TOOLS_BENCH_PEERS_PEER_H_
#define TOOLS_BENCH_PEERS_PEER_H_

#include <sched.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace peer {

inline int64_t NowNanos() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

// CpuNanos is the user and system time of the whole process so far.
inline int64_t CpuNanos() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  auto nanos = [](const timeval& tv) {
    return int64_t{tv.tv_sec} * 1'000'000'000 + int64_t{tv.tv_usec} * 1000;
  };
  return nanos(usage.ru_utime) + nanos(usage.ru_stime);
}

// Threads is the number of threads that may run tasks: GOMAXPROCS, as for
// gumption and Go.
inline int Threads() {
  const char* text = std::getenv("GOMAXPROCS");
  return text != nullptr ? std::max(1, std::atoi(text)) : 1;
}

// Every program has the same options as those of gumption: --reps N, --only A,B
// and --divide N.
struct Options {
  int reps = 5;
  std::vector<std::string> only;
  int64_t divide = 1;

  bool Selected(std::string_view workload) const {
    return only.empty() ||
           std::find(only.begin(), only.end(), workload) != only.end();
  }
  // The echo server is measured alone, because its program has one processor.
  bool Echo() const { return only.size() == 1 && only[0] == "W13/100"; }
  int64_t Scaled(int64_t count) const {
    return std::max<int64_t>(1, count / divide);
  }
};

inline void PinTo(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

// ParseOptions also pins the program, if it is to be the echo server. So a
// program calls it before it starts threads.
inline Options ParseOptions(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; i++) {
    const bool has_value = i + 1 < argc;
    if (std::strcmp(argv[i], "--reps") == 0 && has_value) {
      o.reps = std::max(1, std::atoi(argv[++i]));
    } else if (std::strcmp(argv[i], "--divide") == 0 && has_value) {
      o.divide = std::max(1, std::atoi(argv[++i]));
    } else if (std::strcmp(argv[i], "--only") == 0 && has_value) {
      std::istringstream list(argv[++i]);
      for (std::string w; std::getline(list, w, ',');) o.only.push_back(w);
    } else {
      std::fprintf(stderr, "usage: %s [--reps N] [--only A,B] [--divide N]\n",
                   argv[0]);
      std::exit(2);
    }
  }
  if (o.Echo()) PinTo(0);
  return o;
}

// Marks shows which tasks have run. Each task marks an element of its own,
// which costs less than a counter that all of them share.
class Marks {
 public:
  explicit Marks(int64_t tasks) : ran_(static_cast<size_t>(tasks)) {}
  void Set(int64_t task) { ran_[static_cast<size_t>(task)] = 1; }
  int64_t Count() const {
    return std::count(ran_.begin(), ran_.end(), char{1});
  }

 private:
  std::vector<char> ran_;
};

inline void Print(const char* workload, const char* metric, double value) {
  std::printf("%s procs=%d %s %.6g\n", workload, Threads(), metric, value);
  std::fflush(stdout);
}

// Check ends the program if a workload has a wrong result.
inline void Check(const char* workload, int64_t have, int64_t want) {
  if (have == want) return;
  std::fprintf(stderr, "%s: the result is %lld, expected %lld\n", workload,
               static_cast<long long>(have), static_cast<long long>(want));
  std::exit(1);
}

// MeasureNanosPer runs f once to warm up and then reps times. It prints the
// nanoseconds per operation of each timed run.
template <class F>
void MeasureNanosPer(const Options& o, const char* workload, const char* metric,
                     int64_t ops, F f) {
  if (!o.Selected(workload)) return;
  f();
  for (int r = 0; r < o.reps; r++) {
    const int64_t start = NowNanos();
    f();
    Print(workload, metric,
          static_cast<double>(NowNanos() - start) / static_cast<double>(ops));
  }
}

// ---- The workloads, as far as they do not depend on a library. A program
// gives the functions of its library. The counts are those of tools/bench.

inline constexpr int64_t kBatch = 1000;
inline constexpr int kFanOut = 10;
inline constexpr int64_t kSleeps = 10;
inline constexpr int kConnections = 100;

// W1: spawn(batches) starts batches of kBatch empty tasks, waits for each
// batch, and returns how many tasks have run.
template <class F>
void SpawnJoin(const Options& o, F spawn) {
  const int64_t batches = o.Scaled(1'000'000 / kBatch);
  MeasureNanosPer(o, "W1", "ns/task", batches * kBatch,
                  [&] { Check("W1", spawn(batches), batches * kBatch); });
}

// W2/1000: yields(tasks, each) returns how often the tasks have yielded.
template <class F>
void Yield(const Options& o, F yields) {
  const int64_t each = o.Scaled(5'000'000) / 1000 + 1;
  MeasureNanosPer(o, "W2/1000", "ns/switch", each * 1000, [&] {
    Check("W2/1000", yields(int64_t{1000}, each), each * 1000);
  });
}

// W3: trips(n) returns the sum of the numbers 0 to n - 1, which have made a
// round trip. If a trip takes long, the program divides their number.
template <class F>
void PingPong(const Options& o, F trips, int64_t divide) {
  const int64_t n = std::max<int64_t>(1, o.Scaled(1'000'000) / divide);
  MeasureNanosPer(o, "W3", "ns/roundtrip", n,
                  [&] { Check("W3", trips(n), n * (n - 1) / 2); });
}

// W7/8: count(tasks, each) returns what the tasks have counted under a lock.
template <class F>
void Mutex(const Options& o, F count) {
  const int64_t each = o.Scaled(4'000'000 / 8);
  MeasureNanosPer(o, "W7/8", "ns/op", each * 8,
                  [&] { Check("W7/8", count(int64_t{8}, each), each * 8); });
}

// W8/join: tree(leaves) returns the sum of the numbers of the leaves.
template <class F>
void Skynet(const Options& o, F tree) {
  int64_t leaves = 1'000'000;
  while (leaves > kFanOut && leaves > o.Scaled(1'000'000)) leaves /= kFanOut;
  MeasureNanosPer(o, "W8/join", "ms", 1'000'000, [&] {
    Check("W8/join", tree(leaves), leaves * (leaves - 1) / 2);
  });
}

// Naps are the lengths of the sleeps of one task of W11, in nanoseconds.
class Naps {
 public:
  explicit Naps(int64_t task)
      : x_(static_cast<uint64_t>(task) * 0x9e3779b97f4a7c15 + 1) {}
  int64_t Next() {
    constexpr uint64_t kMin = 1'000'000;
    constexpr uint64_t kMax = 100'000'000;
    x_ ^= x_ << 13;
    x_ ^= x_ >> 7;
    x_ ^= x_ << 17;
    return static_cast<int64_t>(kMin + x_ % (kMax - kMin + 1));
  }

 private:
  uint64_t x_;
};

// W11: sleep(tasks, late) lets each task sleep kSleeps times. Task i writes how
// late it woke to late[i * kSleeps] and behind.
template <class F>
void Sleepers(const Options& o, F sleep) {
  if (!o.Selected("W11")) return;
  const int64_t tasks = o.Scaled(100'000);
  for (int r = -1; r < o.reps; r++) {
    std::vector<int64_t> late(static_cast<size_t>(tasks * kSleeps), -1);
    const int64_t start = NowNanos();
    const int64_t cpu = CpuNanos();
    sleep(tasks, late.data());
    const int64_t cpu_used = CpuNanos() - cpu;
    const int64_t wall = NowNanos() - start;
    std::sort(late.begin(), late.end());
    Check("W11, sleeps that ended early or did not happen",
          std::count_if(late.begin(), late.end(),
                        [](int64_t ns) { return ns < 0; }),
          0);
    if (r < 0) continue;
    auto micros = [&](size_t i) { return static_cast<double>(late[i]) / 1e3; };
    Print("W11", "cpu-ms", static_cast<double>(cpu_used) / 1e6);
    Print("W11", "wall-ms", static_cast<double>(wall) / 1e6);
    Print("W11", "p50-us", micros(late.size() / 2));
    Print("W11", "p99-us", micros(late.size() * 99 / 100));
  }
}

// W13/100: the server is on processor 0, and the client of tools/bench/echo on
// processor 1. Drive runs the client on a thread of its own against a port of
// this process, and then calls `done`.
inline std::thread Drive(const Options& o, int port,
                         std::function<void()> done) {
  return std::thread([o, port, done] {
    const char* client = std::getenv("BENCH_LOADGEN");
    const std::string command =
        std::string("exec taskset -c 1 ") +
        (client != nullptr ? client : "bench_loadgen") + " " +
        std::to_string(port) + " " + std::to_string(kConnections) + " " +
        std::to_string(o.Scaled(500)) + " " + std::to_string(o.Scaled(3000));
    FILE* out = popen(command.c_str(), "r");
    char line[200];
    int64_t cpu = 0;
    double requests = 0;
    double p50 = 0;
    double p99 = 0;
    while (out != nullptr && std::fgets(line, sizeof(line), out) != nullptr) {
      if (std::strncmp(line, "begin", 5) == 0) cpu = CpuNanos();
      if (std::sscanf(line, "end %lf %lf %lf", &requests, &p50, &p99) != 3) {
        continue;
      }
      const auto used = static_cast<double>(CpuNanos() - cpu);
      Print("W13/100", "cpu-us", used / 1e3 / requests);
      Print("W13/100", "req/s",
            requests * 1e3 / static_cast<double>(o.Scaled(3000)));
    }
    const int status = out == nullptr ? -1 : pclose(out);
    Check("W13/100, status of the client", status, 0);
    Check("W13/100, clients that had an answer", requests > 0 ? 1 : 0, 1);
    done();
  });
}

// Workloads are the functions of a program. It leaves out those that its
// library cannot have.
struct Workloads {
  std::function<int64_t(int64_t batches)> spawn;
  std::function<int64_t(int64_t tasks, int64_t each)> yields;
  std::function<int64_t(int64_t n)> trips;
  int64_t divide_trips = 1;
  std::function<int64_t(int64_t tasks, int64_t each)> count;
  std::function<int64_t(int64_t leaves)> tree;
  std::function<void(int64_t tasks, int64_t* late)> sleep;
  std::function<void(const Options&)> echo;
};

inline void Measure(const Options& o, const Workloads& w) {
  if (w.spawn) SpawnJoin(o, w.spawn);
  if (w.yields) Yield(o, w.yields);
  if (w.trips) PingPong(o, w.trips, w.divide_trips);
  if (w.count) Mutex(o, w.count);
  if (w.tree) Skynet(o, w.tree);
  if (w.sleep) Sleepers(o, w.sleep);
  if (w.echo && o.Echo()) w.echo(o);
}

}  // namespace peer

#endif  // TOOLS_BENCH_PEERS_PEER_H_
