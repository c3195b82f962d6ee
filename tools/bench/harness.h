// What all benchmarks share: clocks, repetitions and the line format that
// run.py reads.
//
// A program prints one line for each metric and repetition on standard output,
// "<workload> procs=<n> <metric> <value>", and nothing else. The Go twin
// (go/harness.go) prints the same lines. run.py computes medians and ratios.
#ifndef TOOLS_BENCH_HARNESS_H_
#define TOOLS_BENCH_HARNESS_H_

#include <gump/go.h>
#include <gump/runtime.h>
#include <gump/sync.h>
#include <gump/time.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace gump::bench {

// NowNanos is CLOCK_MONOTONIC.
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

// RssBytes is the resident set of the process.
inline int64_t RssBytes() {
  long total = 0;
  long resident = 0;
  if (FILE* f = std::fopen("/proc/self/statm", "r"); f != nullptr) {
    if (std::fscanf(f, "%ld %ld", &total, &resident) != 2) resident = 0;
    std::fclose(f);
  }
  return int64_t{resident} * sysconf(_SC_PAGESIZE);
}

// PinTo pins this thread, and the threads that it makes, to one processor.
inline void PinTo(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

// Every program has the same options:
//
// * --reps N: the number of timed repetitions, after one warm-up;
// * --only A,B: measure only these of the workloads that the program knows;
// * --divide N: divide all counts by N, for a quick look at whether a workload
//   runs at all;
// * --beside stack|procs: stop the world every 10 ms while a workload is timed,
//   see Beside.
struct Options {
  int reps = 5;
  std::vector<std::string> only;
  int64_t divide = 1;
  std::string beside;

  bool Selected(std::string_view workload) const {
    return only.empty() ||
           std::find(only.begin(), only.end(), workload) != only.end();
  }

  // Scaled returns count, divided as --divide says, but at least 1.
  int64_t Scaled(int64_t count) const {
    return std::max<int64_t>(1, count / divide);
  }
};

inline Options ParseOptions(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; i++) {
    const bool has_value = i + 1 < argc;
    if (std::strcmp(argv[i], "--reps") == 0 && has_value) {
      o.reps = std::max(1, std::atoi(argv[++i]));
    } else if (std::strcmp(argv[i], "--divide") == 0 && has_value) {
      o.divide = std::max(1, std::atoi(argv[++i]));
    } else if (std::strcmp(argv[i], "--beside") == 0 && has_value) {
      o.beside = argv[++i];
    } else if (std::strcmp(argv[i], "--only") == 0 && has_value) {
      std::istringstream list(argv[++i]);
      for (std::string w; std::getline(list, w, ',');) o.only.push_back(w);
    } else {
      std::fprintf(stderr,
                   "usage: %s [--reps N] [--only A,B] [--divide N] "
                   "[--beside stack|procs]\n",
                   argv[0]);
      std::exit(2);
    }
  }
  return o;
}

inline void Print(const char* workload, const char* metric, double value) {
  std::printf("%s procs=%d %s %.6g\n", workload, gump::runtime::GOMAXPROCS(0),
              metric, value);
  std::fflush(stdout);
}

// Keep makes the compiler believe that the value is used.
template <class T>
void Keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

// PrintQuantiles prints the median, the 99th percentile and the maximum of
// times in ns as p50-us, p99-us and max-us, in microseconds.
inline void PrintQuantiles(const char* workload, std::vector<int64_t> nanos) {
  if (nanos.empty()) return;
  std::sort(nanos.begin(), nanos.end());
  auto micros = [&](size_t i) { return static_cast<double>(nanos[i]) / 1e3; };
  Print(workload, "p50-us", micros(nanos.size() / 2));
  Print(workload, "p99-us", micros(nanos.size() * 99 / 100));
  Print(workload, "max-us", micros(nanos.size() - 1));
}

// SleepNanos sleeps in the kernel for the whole time, even if signals arrive,
// and does not declare the call. On a goroutine it is an undeclared call.
inline void SleepNanos(int64_t ns) {
  timespec ts{ns / 1'000'000'000, ns % 1'000'000'000};
  while (nanosleep(&ts, &ts) != 0) {
  }
}

// Compute makes n steps of arithmetic, each of which needs the one before.
inline uint64_t Compute(uint64_t x, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    x = x * 6364136223846793005 + 1442695040888963407;
  }
  return x;
}

// Beside stops the world every 10 ms as long as it lives, from a goroutine: it
// takes the stacks of all goroutines, or changes GOMAXPROCS and changes it
// back. Without the option it does nothing.
class Beside {
 public:
  explicit Beside(const Options& o) : procs_(runtime::GOMAXPROCS(0)) {
    if (o.beside.empty()) return;
    running_.Go([this, stacks = o.beside == "stack"] {
      while (!stop_) {
        time::Sleep(absl::Milliseconds(10));
        if (stacks) {
          (void)runtime::Stack(/*all=*/true);
        } else {
          runtime::GOMAXPROCS(procs_ + 1);
          runtime::GOMAXPROCS(procs_);
        }
      }
    });
  }
  ~Beside() {
    stop_ = true;
    running_.Wait();
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

 private:
  const int procs_;
  std::atomic<bool> stop_ = false;
  sync::WaitGroup running_;
};

// MeasureNanosPer runs f once to warm up and then reps times. It prints the
// nanoseconds per operation of each timed run.
template <class F>
void MeasureNanosPer(const Options& o, const char* workload, const char* metric,
                     int64_t ops, F f) {
  if (!o.Selected(workload)) return;
  const Beside beside(o);
  f();
  for (int r = 0; r < o.reps; r++) {
    const int64_t start = NowNanos();
    f();
    Print(workload, metric,
          static_cast<double>(NowNanos() - start) / static_cast<double>(ops));
  }
}

// MeasureMillis does the same and prints milliseconds per run.
template <class F>
void MeasureMillis(const Options& o, const char* workload, F f) {
  MeasureNanosPer(o, workload, "ms", 1'000'000, f);
}

}  // namespace gump::bench

#endif  // TOOLS_BENCH_HARNESS_H_
