// W10: a million goroutines wait for one channel to be closed. What each costs
// in resident memory, how long it takes until all wait, and how long to release
// and finish all. A process measures once, since the second time its pages are
// warm: run.py starts it as often as it wants repetitions.
#include <gump/chan.h>
#include <gump/go.h>
#include <gump/sync.h>

#include "tools/bench/harness.h"

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    const int64_t n = o.Scaled(1'000'000);
    gump::chan<void> gate = gump::make_chan<void>();
    gump::sync::WaitGroup waiting;
    gump::sync::WaitGroup finished;
    waiting.Add(static_cast<int>(n));
    finished.Add(static_cast<int>(n));

    const int64_t rss_before = RssBytes();
    const int64_t start = NowNanos();
    for (int64_t i = 0; i < n; i++) {
      gump::go([&waiting, &finished, &gate] {
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

    Print(
        "W10", "B/task",
        static_cast<double>(rss_parked - rss_before) / static_cast<double>(n));
    Print("W10", "create-ms", static_cast<double>(parked - start) / 1e6);
    Print("W10", "release-ms", static_cast<double>(end - release) / 1e6);
  });
}
