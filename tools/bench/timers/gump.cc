// TIMER: the cost of timers that never fire, and how late timers are when the
// process has nothing else to do.
//
//   TIMER/stop   Two goroutines start and stop 500,000 timers each, of which a
//                thousand exist at a time: ns of wall time a timer.
//   TIMER/func   AfterFunc of 1 ms in an idle process, until its function runs.
//   TIMER/sleep  Sleep of 50 µs in an idle process.
//   TIMER/far    Five seconds with a million timers an hour away: CPU time.
#include <gump/chan.h>
#include <gump/go.h>
#include <gump/sync.h>
#include <gump/time.h>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

constexpr size_t kAtATime = 1000;
const auto kFar = std::chrono::hours(1);

void StartAndStop(int64_t n) {
  std::vector<time::Timer> live(kAtATime);
  for (int64_t i = 0; i < n; i++) {
    time::Timer& slot = live[static_cast<size_t>(i) % kAtATime];
    if (i >= static_cast<int64_t>(kAtATime)) slot.Stop();
    slot = time::AfterFunc(kFar, [] {});
  }
  for (time::Timer& t : live) t.Stop();
}

double Stop(int64_t each) {
  constexpr int kGoroutines = 2;
  const int64_t start = NowNanos();
  sync::WaitGroup wg;
  for (int i = 0; i < kGoroutines; i++) {
    wg.Go([each] { StartAndStop(each); });
  }
  wg.Wait();
  return static_cast<double>(NowNanos() - start) /
         static_cast<double>(kGoroutines * each);
}

std::vector<int64_t> Func(int64_t n) {
  constexpr int64_t kNs = 1'000'000;
  std::vector<int64_t> late;
  chan<int64_t> ran = make_chan<int64_t>(1);
  for (int64_t i = 0; i < n; i++) {
    const int64_t due = NowNanos() + kNs;
    time::AfterFunc(std::chrono::nanoseconds(kNs),
                    [ran] { ran.Send(NowNanos()); });
    late.push_back(*ran.Recv() - due);
  }
  return late;
}

std::vector<int64_t> Sleep(int64_t n) {
  constexpr int64_t kNs = 50'000;
  std::vector<int64_t> late;
  for (int64_t i = 0; i < n; i++) {
    const int64_t due = NowNanos() + kNs;
    time::Sleep(std::chrono::nanoseconds(kNs));
    late.push_back(NowNanos() - due);
  }
  return late;
}

double Far(int64_t n, int64_t ms) {
  std::vector<time::Timer> timers;
  for (int64_t i = 0; i < n; i++) {
    timers.push_back(time::AfterFunc(kFar, [] {}));
  }
  const int64_t cpu = CpuNanos();
  time::Sleep(std::chrono::milliseconds(ms));
  const int64_t used = CpuNanos() - cpu;
  for (time::Timer& t : timers) t.Stop();
  return static_cast<double>(used) / 1e6;
}

void Measure(const Options& o) {
  for (int r = 0; o.Selected("TIMER/stop") && r <= o.reps; r++) {
    const double ns = Stop(o.Scaled(500'000));
    if (r > 0) Print("TIMER/stop", "ns/timer", ns);  // round 0 warms up
  }
  for (int r = 0; o.Selected("TIMER/func") && r < o.reps; r++) {
    PrintQuantiles("TIMER/func", Func(o.Scaled(500)));
  }
  for (int r = 0; o.Selected("TIMER/sleep") && r < o.reps; r++) {
    PrintQuantiles("TIMER/sleep", Sleep(o.Scaled(5000)));
  }
  for (int r = 0; o.Selected("TIMER/far") && r < o.reps; r++) {
    Print("TIMER/far", "cpu-ms", Far(o.Scaled(1'000'000), o.Scaled(5000)));
  }
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] { Measure(o); });
}
