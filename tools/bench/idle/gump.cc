// W17: the CPU time that a process uses in five seconds while its thousand
// goroutines are parked. The plain main thread sleeps. It makes an undeclared
// call, so the scheduler does not know that it waits.
#include <gump/chan.h>
#include <gump/go.h>
#include <gump/sync.h>

#include "tools/bench/harness.h"

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  constexpr int kParked = 1000;
  gump::chan<void> gate = gump::make_chan<void>();
  gump::sync::WaitGroup waiting;
  gump::sync::WaitGroup finished;
  waiting.Add(kParked);
  finished.Add(kParked);
  for (int i = 0; i < kParked; i++) {
    gump::go([&waiting, &finished, &gate] {
      waiting.Done();
      gate.Recv();
      finished.Done();
    });
  }
  waiting.Wait();
  SleepNanos(100'000'000);  // until threads that look for work are asleep
  for (int r = 0; r < o.reps; r++) {
    const int64_t before = CpuNanos();
    SleepNanos(o.Scaled(5000) * 1'000'000);
    Print("W17", "cpu-ms", static_cast<double>(CpuNanos() - before) / 1e6);
  }
  gate.Close();
  finished.Wait();
  return 0;
}
