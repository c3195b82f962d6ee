// GROUP: what a group with a limit costs, and what it is good for.
//
//  * GROUP/park, GROUP/yield: a switch between two goroutines of a group of
//  one,
//    and the same outside of a group, in turn. We measure CPU time.
//  * GROUP/full: a yield with 100 goroutines in a group of one, so that most of
//    them wait for room.
//  * GROUP/ticker: how late a goroutine wakes that sleeps 1 ms again and again,
//    beside a group of one with 1,000 goroutines that compute, and without
//    them.
#include <gump/chan.h>
#include <gump/go.h>
#include <gump/runtime.h>
#include <gump/sync.h>
#include <gump/time.h>

#include <atomic>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

// InGroup starts f in g, or in no group if g is nullptr.
template <class F>
void InGroup(runtime::Group* g, sync::WaitGroup& wg, F f) {
  wg.Add(1);
  go(GoOptions{.group = g}, [&wg, f]() mutable {
    f();
    wg.Done();
  });
}

void PingPong(runtime::Group* g, int64_t switches) {
  auto ping = make_chan<int64_t>();
  auto pong = make_chan<int64_t>();
  sync::WaitGroup wg;
  const int64_t n = switches / 2;
  InGroup(g, wg, [=]() mutable {
    int64_t v;
    for (int64_t i = 0; i < n && ping.Recv(v); i++) pong.Send(v);
  });
  InGroup(g, wg, [=]() mutable {
    int64_t v;
    for (int64_t i = 0; i < n; i++) {
      ping.Send(i);
      pong.Recv(v);
    }
  });
  wg.Wait();
}

void Yield(runtime::Group* g, int goroutines, int64_t switches) {
  sync::WaitGroup wg;
  for (int i = 0; i < goroutines; i++) {
    InGroup(g, wg, [n = switches / goroutines] {
      for (int64_t k = 0; k < n; k++) runtime::Gosched();
    });
  }
  wg.Wait();
}

// Compare measures f outside of a group and in a group of one, in turn.
template <class F>
void Compare(const Options& o, const char* workload, int64_t ops, F f) {
  if (!o.Selected(workload)) return;
  runtime::Group one("one", {.max_procs = 1});
  const auto time = [&](runtime::Group* g) {
    const int64_t start = CpuNanos();
    f(g);
    return static_cast<double>(CpuNanos() - start) / static_cast<double>(ops);
  };
  time(nullptr);
  time(&one);
  for (int r = 0; r < o.reps; r++) {
    const double outside = time(nullptr);
    const double inside = time(&one);
    Print(workload, "outside-cpu-ns", outside);
    Print(workload, "cpu-ns/switch", inside);
    Print(workload, "ratio", inside / outside);
  }
}

constexpr int64_t kPeriod = 1'000'000;  // ns

void Tick(const char* workload, int64_t ns) {
  std::vector<int64_t> late;
  const int64_t end = NowNanos() + ns;
  for (int64_t now = NowNanos(); now < end;) {
    const int64_t due = now + kPeriod;
    time::Sleep(std::chrono::nanoseconds(kPeriod));
    now = NowNanos();
    late.push_back(now - due);
  }
  PrintQuantiles(workload, late);
}

void Ticker(const Options& o) {
  for (int r = 0; r < o.reps; r++) {
    const int64_t ns = o.Scaled(3000) * 1'000'000;
    if (o.Selected("GROUP/alone")) Tick("GROUP/alone", ns);
    if (!o.Selected("GROUP/ticker")) continue;
    std::atomic<bool> stop = false;
    runtime::Group one("one", {.max_procs = 1});
    sync::WaitGroup wg;
    for (int i = 0; i < 1000; i++) {
      InGroup(&one, wg, [&stop] {
        while (!stop.load(std::memory_order_relaxed)) {
        }
      });
    }
    Tick("GROUP/ticker", ns);
    stop = true;
    wg.Wait();
  }
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    const int64_t n = o.Scaled(2'000'000);
    Compare(o, "GROUP/park", n,
            [n](gump::runtime::Group* g) { PingPong(g, n); });
    Compare(o, "GROUP/yield", n,
            [n](gump::runtime::Group* g) { Yield(g, 2, n); });
    Compare(o, "GROUP/full", n,
            [n](gump::runtime::Group* g) { Yield(g, 100, n); });
    Ticker(o);
  });
}
