// W10: a million goroutines wait until one channel is closed. We measure
//
// * the resident memory for each goroutine;
// * the time until all wait;
// * the time to release and finish all.
//
// A process measures once, because a second time its pages would be warm.
// run.py starts it as often as it wants repetitions.
//
// RECLAIM: 100,000 goroutines have each used 64 KiB of stack before they wait.
// We measure the memory for each before and after one reclamation cycle.
#include <gump/chan.h>
#include <gump/go.h>
#include <gump/sync.h>

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
  });
}
