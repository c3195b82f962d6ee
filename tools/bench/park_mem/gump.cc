// W10: a million goroutines wait until one channel is closed. We measure
//
// * the resident memory for each goroutine;
// * the time until all wait;
// * the time to release and finish all.
//
// A process measures once, because a second time its pages would be warm.
// run.py starts it as often as it wants repetitions.
//
// W10h: the same, but the goroutines hibernate after a second. We measure the
// memory and the page tables for each when they have settled, the time to
// release all, and how long one takes to wake, awake and asleep.
//
// RECLAIM: 100,000 goroutines have each used 64 KiB of stack before they wait.
// We measure the memory for each before and after one reclamation cycle.
#include <gump/chan.h>
#include <gump/go.h>
#include <gump/runtime.h>
#include <gump/sync.h>
#include <gump/time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

void Park(const Options& o) {
  if (!o.Selected("W10")) return;
  const int64_t n = o.Scaled(1'000'000);
  chan<void> gate = make_chan<void>();
  sync::WaitGroup waiting;
  sync::WaitGroup finished;
  waiting.Add(static_cast<int>(n));
  finished.Add(static_cast<int>(n));

  const int64_t rss_before = RssBytes();
  const int64_t start = NowNanos();
  for (int64_t i = 0; i < n; i++) {
    go([&waiting, &finished, &gate] {
      waiting.Done();
      gate.Recv();
      finished.Done();
    });
  }
  waiting.Wait();
  const int64_t parked = NowNanos();
  const int64_t rss_parked = RssBytes();
  const int64_t release = NowNanos();
  gate.Close();
  finished.Wait();
  const int64_t end = NowNanos();

  Print("W10", "B/task",
        static_cast<double>(rss_parked - rss_before) / static_cast<double>(n));
  Print("W10", "create-ms", static_cast<double>(parked - start) / 1e6);
  Print("W10", "release-ms", static_cast<double>(end - release) / 1e6);
}

// PageTableBytes is the memory of the process's page tables.
int64_t PageTableBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmPTE:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

// AwaitSettled waits until the memory has stayed within 1 % for three seconds.
void AwaitSettled() {
  int64_t last = 0;
  for (int same = 0; same < 3;) {
    time::Sleep(absl::Seconds(1));
    const int64_t now = RssBytes();
    same = std::abs(now - last) * 100 < now ? same + 1 : 0;
    last = now;
  }
}

// WakeLatency prints how long it takes from a send to a goroutine that waits
// until that goroutine runs.
void WakeLatency(int64_t n, const char* name) {
  struct Waiter {
    chan<void> c = make_chan<void>();
    std::atomic<int64_t> ran = 0;
  };
  std::vector<Waiter> waiters(static_cast<size_t>(n));
  sync::WaitGroup done;
  for (Waiter& w : waiters) {
    done.Go([&w] {
      w.c.Recv();
      w.ran = NowNanos();
    });
  }
  AwaitSettled();
  std::vector<int64_t> took;
  for (Waiter& w : waiters) {
    const int64_t start = NowNanos();
    w.c.Send();
    while (w.ran == 0) runtime::Gosched();
    took.push_back(w.ran - start);
  }
  done.Wait();
  std::sort(took.begin(), took.end());
  Print("W10h", name, static_cast<double>(took[took.size() / 2]));
}

// W10h: as W10, but the goroutines hibernate.
void Hibernate(const Options& o) {
  if (!o.Selected("W10h")) return;
  const int64_t n = o.Scaled(1'000'000);
  WakeLatency(2000, "wake-awake-p50-ns");
  debug::SetHibernation(absl::Seconds(1));
  WakeLatency(2000, "wake-asleep-p50-ns");
  chan<void> gate = make_chan<void>();
  sync::WaitGroup finished;
  const int64_t rss = RssBytes();
  const int64_t tables = PageTableBytes();
  for (int64_t i = 0; i < n; i++) {
    finished.Go([&gate] { gate.Recv(); });
  }
  AwaitSettled();
  const auto each = static_cast<double>(n);
  Print("W10h", "B/task", static_cast<double>(RssBytes() - rss) / each);
  Print("W10h", "tables-B/task",
        static_cast<double>(PageTableBytes() - tables) / each);
  const int64_t release = NowNanos();
  gate.Close();
  finished.Wait();
  Print("W10h", "release-ms", static_cast<double>(NowNanos() - release) / 1e6);
}

[[gnu::noinline]] void UseStack() {
  volatile char room[64 << 10];
  for (size_t i = 0; i < sizeof(room); i += 512) room[i] = 1;
}

void Reclaim(const Options& o) {
  if (!o.Selected("RECLAIM")) return;
  const int64_t n = o.Scaled(100'000);
  chan<void> gate = make_chan<void>();
  sync::WaitGroup waiting;
  sync::WaitGroup finished;
  waiting.Add(static_cast<int>(n));
  const int64_t rss_before = RssBytes();
  const auto each = [&] {
    return static_cast<double>(RssBytes() - rss_before) /
           static_cast<double>(n);
  };
  for (int64_t i = 0; i < n; i++) {
    finished.Go([&] {
      UseStack();
      waiting.Done();
      gate.Recv();
    });
  }
  waiting.Wait();
  while (debug::ReadSchedStats().runnable > 0) runtime::Gosched();
  Print("RECLAIM", "before-B/task", each());
  const int64_t start = NowNanos();
  runtime::GC();
  Print("RECLAIM", "cycle-ms", static_cast<double>(NowNanos() - start) / 1e6);
  Print("RECLAIM", "B/task", each());
  gate.Close();
  finished.Wait();
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    Park(o);
    Reclaim(o);
    Hibernate(o);
  });
}
