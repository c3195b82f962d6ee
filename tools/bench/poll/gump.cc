// POLL: os::Poll beside poll(2). trip: two goroutines send a byte to and fro
// over two Unix sockets, and each waits in os::Poll before it reads. threads:
// two threads do the same with poll(2). ready: a descriptor that is ready.
// many: as trip, for 1,000 pairs at a time.
#include <gump/go.h>
#include <gump/os.h>
#include <gump/sync.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <utility>
#include <vector>

#include "tools/bench/file_limit.h"
#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

constexpr int kPairs = 1000;

struct Sockets {
  Sockets() {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) != 0) abort();
  }
  ~Sockets() {
    close(fd[0]);
    close(fd[1]);
  }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;
  int fd[2] = {-1, -1};
};

int WaitInKernel(pollfd* p) { return ::poll(p, 1, -1); }
int WaitParked(pollfd* p) {
  return os::Poll({p, 1}, absl::InfiniteDuration()).value_or(-1);
}

// Serve passes `trips` bytes on, and begins if `first` is true.
void Serve(int fd, int64_t trips, bool first, int (*wait)(pollfd*)) {
  char byte = 'x';
  if (first && write(fd, &byte, 1) != 1) abort();
  for (int64_t i = 0; i < trips; i++) {
    pollfd p{fd, POLLIN, 0};
    if (wait(&p) != 1 || read(fd, &byte, 1) != 1) abort();
    const bool last = first && i == trips - 1;
    if (!last && write(fd, &byte, 1) != 1) abort();
  }
}

void TripsOfGoroutines(int64_t trips) {
  const Sockets s;
  sync::WaitGroup ended;
  ended.Go([&] { Serve(s.fd[0], trips, /*first=*/true, WaitParked); });
  ended.Go([&] { Serve(s.fd[1], trips, /*first=*/false, WaitParked); });
  ended.Wait();
}

void TripsOfThreads(int64_t trips) {
  const Sockets s;
  std::thread other(
      [&] { Serve(s.fd[1], trips, /*first=*/false, WaitInKernel); });
  Serve(s.fd[0], trips, /*first=*/true, WaitInKernel);
  other.join();
}

void ManyGoroutines(int64_t trips) {
  const std::vector<Sockets> pairs(kPairs);
  sync::WaitGroup ended;
  for (const Sockets& s : pairs) {
    ended.Go([&] { Serve(s.fd[0], trips, /*first=*/true, WaitParked); });
    ended.Go([&] { Serve(s.fd[1], trips, /*first=*/false, WaitParked); });
  }
  ended.Wait();
}

void ManyThreads(int64_t trips) {
  const std::vector<Sockets> pairs(kPairs);
  std::vector<std::thread> threads;
  for (const Sockets& s : pairs) {
    for (const bool first : {true, false}) {
      threads.emplace_back([&s, trips, first] {
        Serve(s.fd[first ? 0 : 1], trips, first, WaitInKernel);
      });
    }
  }
  for (std::thread& t : threads) t.join();
}

// Measure prints the time and the CPU time of a round trip.
void Measure(const Options& o, const char* workload, int64_t trips,
             int64_t pairs, void (*run)(int64_t)) {
  if (!o.Selected(workload)) return;
  run(std::max<int64_t>(1, trips / 10));
  const auto all = static_cast<double>(trips * pairs);
  for (int r = 0; r < o.reps; r++) {
    const int64_t start = NowNanos();
    const int64_t cpu = CpuNanos();
    run(trips);
    Print(workload, "ns/roundtrip",
          static_cast<double>(NowNanos() - start) / all);
    Print(workload, "cpu-ns/roundtrip",
          static_cast<double>(CpuNanos() - cpu) / all);
  }
}

void Ready(const Options& o) {
  if (!o.Selected("POLL/ready")) return;
  const Sockets s;
  if (write(s.fd[0], "x", 1) != 1) abort();
  const int64_t calls = o.Scaled(1'000'000);
  const auto nanos_per = [&](int (*wait)(pollfd*)) {
    const int64_t start = NowNanos();
    for (int64_t i = 0; i < calls; i++) {
      pollfd p{s.fd[1], POLLIN, 0};
      Keep(wait(&p));
    }
    return static_cast<double>(NowNanos() - start) / static_cast<double>(calls);
  };
  for (int r = -1; r < o.reps; r++) {
    const double parked = nanos_per(WaitParked);
    const double kernel = nanos_per(WaitInKernel);
    if (r < 0) continue;  // warm-up
    Print("POLL/ready", "ns/op", parked);
    Print("POLL/ready", "raw-ns", kernel);
  }
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  RaiseFileLimit();
  return gump::Run([&] {
    const int64_t trips = o.Scaled(100'000);
    Measure(o, "POLL/trip", trips, 1, TripsOfGoroutines);
    Measure(o, "POLL/threads", trips, 1, TripsOfThreads);
    Measure(o, "POLL/many", o.Scaled(100), kPairs, ManyGoroutines);
    Measure(o, "POLL/many-threads", o.Scaled(100), kPairs, ManyThreads);
    Ready(o);
  });
}
