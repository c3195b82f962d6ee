// NUMA and LOCALITY: two simulated nodes with four Ps each, beside one with
// eight.
//
//  * LOCALITY: W8, W12 and W13. In how many of the switches a goroutine goes on
//    on another node than before (moves-%). A switch to a goroutine that begins
//    is never such a move, so we also print the share of those that are no
//    beginnings (resumed-%).
//  * NUMA/oneside: one goroutine starts all the work, so all of it begins on
//    one node. A piece of work holds its P for 200 us and needs no processor.
//    So eight Ps are eight times as fast as one, on any machine.
//  * NUMA/steals: two goroutines on each node start such work of different
//    lengths. How many of the steals cross nodes.
//  * NUMA/wait: how long a goroutine waits that is started on a node of which
//    all Ps are held, beside a node of which all Ps are idle. NUMA/wait1: the
//    same where the idle Ps are on the same node.
//
// A process has one topology for its life, so each measurement has a process of
// its own. Threads are not bound, unless the machine has eight processors.
#include <gump/net.h>
#include <gump/runtime.h>
#include <sys/wait.h>

#include <functional>
#include <thread>

#include "tools/bench/fib.h"
#include "tools/bench/harness.h"
#include "tools/bench/skynet.h"

namespace gump::bench {
namespace {

constexpr int kProcs = 8;
constexpr char kTwoNodes[] = "2x4";
constexpr char kOneNode[] = "1x8";

// OnTopology calls f on a goroutine of a new process that has a topology, and
// returns its result.
double OnTopology(const char* topology, const std::function<double()>& f) {
  int ends[2];
  if (pipe(ends) != 0) std::exit(1);
  const pid_t child = fork();
  if (child == 0) {
    setenv("GUMP_TOPOLOGY", topology, /*overwrite=*/1);
    setenv("GOMAXPROCS", std::to_string(kProcs).c_str(), /*overwrite=*/1);
    double result = 0;
    gump::Run([&] { result = f(); });
    const bool written = write(ends[1], &result, sizeof(result)) > 0;
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  double result = 0;
  const bool good = read(ends[0], &result, sizeof(result)) == sizeof(result);
  close(ends[0]);
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0 || !good) std::exit(1);
  return result;
}

// Say is Print for this process, which never begins to use the library.
void Say(const char* workload, const char* metric, double value) {
  std::printf("%s procs=%d %s %.6g\n", workload, kProcs, metric, value);
  std::fflush(stdout);
}

// ---- LOCALITY ---------------------------------------------------------------

double Percent(uint64_t part, uint64_t whole) {
  return whole == 0
             ? 0
             : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

// Moves runs f, which starts n goroutines, twice. It returns the share of moves
// in the switches of the second run, and prints the other one.
double Moves(const char* workload, int64_t n, const std::function<void()>& f) {
  f();
  const debug::SchedStats before = debug::ReadSchedStats();
  f();
  const debug::SchedStats after = debug::ReadSchedStats();
  const uint64_t moves = after.node_moves - before.node_moves;
  const uint64_t runs = after.node_runs - before.node_runs;
  Print(workload, "resumed-%", Percent(moves, runs));
  return Percent(moves, runs + static_cast<uint64_t>(n));
}

std::string LoadgenPath() {
  char self[4096];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof(self));
  const std::string path(self, n < 0 ? 0 : static_cast<size_t>(n));
  return path.substr(0, path.rfind('/') + 1) + "bench_loadgen";
}

void Serve(const net::Conn& conn) {
  char buf[4096];
  for (;;) {
    const absl::StatusOr<size_t> n = conn.Read(absl::MakeSpan(buf));
    if (!n.ok() || *n == 0) return;
    if (!conn.Write({buf, *n}).ok()) return;
  }
}

// Echo serves 100 connections of bench_loadgen for ms milliseconds.
void Echo(int64_t ms) {
  const net::Listener l = *net::Listen("tcp", "127.0.0.1:0");
  const std::string command = "exec " + LoadgenPath() + " " +
                              std::to_string(l.LocalAddr().Port()) + " 100 1 " +
                              std::to_string(ms);
  std::thread client([&] {
    FILE* out = popen(command.c_str(), "r");
    char line[200];
    while (out != nullptr && std::fgets(line, sizeof(line), out) != nullptr) {
    }
    if (out != nullptr) pclose(out);
    (void)l.Close();
  });
  for (;;) {
    const absl::StatusOr<net::Conn> conn = l.Accept();
    if (!conn.ok()) break;
    go([conn = *conn] { Serve(conn); });
  }
  client.join();
}

void Locality(const Options& o, const char* workload, int64_t n,
              const std::function<void()>& f) {
  if (!o.Selected(workload)) return;
  for (int r = 0; r < o.reps; r++) {
    Say(workload, "moves-%",
        OnTopology(kTwoNodes, [&] { return Moves(workload, n, f); }));
  }
}

// ---- NUMA -------------------------------------------------------------------

constexpr int64_t kHold = 200'000;  // ns

// OneSide returns how many ms it takes to do n pieces of work.
double OneSide(int64_t n) {
  constexpr int64_t kBatch = 200;
  const int64_t start = NowNanos();
  for (int64_t i = 0; i < n; i += kBatch) {
    sync::WaitGroup wg;
    for (int64_t k = 0; k < kBatch; k++) wg.Go([] { SleepNanos(kHold); });
    wg.Wait();
  }
  return static_cast<double>(NowNanos() - start) / 1e6;
}

void OneSide(const Options& o) {
  constexpr char kName[] = "NUMA/oneside";
  if (!o.Selected(kName)) return;
  const int64_t n = o.Scaled(20'000);
  for (int r = 0; r < o.reps; r++) {
    const double one = OnTopology(kOneNode, [n] { return OneSide(n); });
    const double two = OnTopology(kTwoNodes, [n] { return OneSide(n); });
    Say(kName, "one-node-ms", one);
    Say(kName, "ms", two);
    Say(kName, "throughput-%", 100 * one / two);
    Say(kName, "times", two / one);
  }
}

// Steals returns the share of steals that cross nodes, from the moment when two
// goroutines on each node have begun to start pieces of work until the first of
// the four has started n. Each of them keeps up to 64 pieces waiting, and keeps
// its P, so that the two other Ps of its node steal.
double Steals(int64_t n) {
  std::atomic<int> arrived = 0;
  std::atomic<int> producers[2] = {};
  std::atomic<bool> ended = false;
  double share = 0;
  sync::WaitGroup wg;
  for (int i = 0; i < kProcs; i++) {
    wg.Go([&, i] {
      arrived++;
      while (arrived < kProcs) SleepNanos(1000);  // each on a P of its own
      if (producers[runtime::Node()].fetch_add(1) >= 2) return;
      const debug::SchedStats before = debug::ReadSchedStats();
      std::atomic<int64_t> done = 0;
      sync::WaitGroup pieces;
      for (int64_t k = 0; k < n && !ended; k++) {
        while (k - done >= 64) SleepNanos(20'000);
        const int64_t hold = 20'000 + (k * 7 + i * 17) % 8 * 20'000;
        pieces.Go([&done, hold] {
          SleepNanos(hold);
          done++;
        });
      }
      if (!ended.exchange(true)) {
        const debug::SchedStats s = debug::ReadSchedStats();
        const uint64_t steals = s.node_steals - before.node_steals;
        share =
            Percent(s.node_steals_across - before.node_steals_across, steals);
        Print("NUMA/steals", "steals", static_cast<double>(steals));
      }
      pieces.Wait();
    });
  }
  wg.Wait();
  return share;
}

void Steals(const Options& o) {
  constexpr char kName[] = "NUMA/steals";
  if (!o.Selected(kName)) return;
  const int64_t n = o.Scaled(10'000);
  for (int r = 0; r < o.reps; r++) {
    Say(kName, "across-%", OnTopology(kTwoNodes, [n] { return Steals(n); }));
  }
}

// Wait prints how long goroutines waited that were started while the Ps 0 to 3
// were held.
double Wait(const char* workload, int64_t n) {
  std::atomic<int> arrived = 0;
  std::atomic<bool> stop = false;
  std::vector<int64_t> waits;
  sync::WaitGroup wg;
  // Eight goroutines are on all Ps. Those of one node, or four of eight, end.
  const int nodes = runtime::NumNode();
  for (int i = 0; i < kProcs; i++) {
    wg.Go([&] {
      const int me = arrived.fetch_add(1);
      while (arrived < kProcs) SleepNanos(1000);
      if (nodes > 1 ? runtime::Node() != 0 : me % 2 != 0) return;
      if (arrived.fetch_add(1) != kProcs) {
        while (!stop) SleepNanos(20'000);
        return;
      }
      for (int64_t k = 0; k < n; k++) {
        std::atomic<int64_t> ran = 0;
        const int64_t start = NowNanos();
        go([&ran] { ran = NowNanos(); });
        while (ran == 0) SleepNanos(20'000);
        waits.push_back(ran - start);
        SleepNanos(300'000);
      }
      stop = true;
    });
  }
  wg.Wait();
  int64_t late = 0;
  for (const int64_t w : waits) late += w > 1'000'000 ? 1 : 0;
  const double share = Percent(static_cast<uint64_t>(late), waits.size());
  for (int64_t limit = 50'000; limit <= 1'600'000; limit *= 2) {
    const int64_t below = std::count_if(waits.begin(), waits.end(),
                                        [=](int64_t w) { return w <= limit; });
    const std::string metric = "below-" + std::to_string(limit / 1000) + "us-%";
    Print(workload, metric.c_str(),
          Percent(static_cast<uint64_t>(below), waits.size()));
  }
  PrintQuantiles(workload, waits);
  return share;
}

void Wait(const Options& o, const char* workload, const char* topology) {
  if (!o.Selected(workload)) return;
  const int64_t n = o.Scaled(2000);
  for (int r = 0; r < o.reps; r++) {
    Say(workload, "late-%",
        OnTopology(topology, [=] { return Wait(workload, n); }));
  }
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  int64_t leaves = 1'000'000;  // stays a power of the fan-out under --divide
  while (leaves > kFanOut && leaves > o.Scaled(1'000'000)) leaves /= kFanOut;
  int n = 30;
  while (n > 10 && Spawns(n) > o.Scaled(1'346'268)) n--;
  const int64_t nodes = (leaves * kFanOut - 1) / (kFanOut - 1);
  Locality(o, "LOCALITY/chan", nodes, [=] { Keep(SkynetChan(leaves)); });
  Locality(o, "LOCALITY/join", nodes, [=] { Keep(SkynetJoin(leaves)); });
  Locality(o, "LOCALITY/fib", Spawns(n), [=] { Keep(Fib(n)); });
  Locality(o, "LOCALITY/echo", 100, [&] { Echo(o.Scaled(1000)); });
  OneSide(o);
  Steals(o);
  Wait(o, "NUMA/wait", kTwoNodes);
  Wait(o, "NUMA/wait1", kOneNode);
}
