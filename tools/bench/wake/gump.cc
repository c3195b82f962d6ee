// W16: a plain thread posts to an idle runtime every millisecond. We measure
// the time until the work runs: on a goroutine that the thread starts (go), or
// on one that waits for a channel (chan).
#include <gump/chan.h>
#include <gump/go.h>
#include <gump/sync.h>

#include <thread>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

constexpr int64_t kPause = 1'000'000;  // ns

std::vector<int64_t> ByGo(int64_t posts) {
  std::vector<int64_t> late(static_cast<size_t>(posts));
  sync::WaitGroup ran;
  ran.Add(static_cast<int>(posts));
  std::thread poster([&] {
    for (int64_t& slot : late) {
      SleepNanos(kPause);
      go([&ran, &slot, at = NowNanos()] {
        slot = NowNanos() - at;
        ran.Done();
      });
    }
  });
  ran.Wait();
  poster.join();
  return late;
}

std::vector<int64_t> ByChan(int64_t posts) {
  std::vector<int64_t> late;
  late.reserve(static_cast<size_t>(posts));
  chan<int64_t> c = make_chan<int64_t>();
  std::thread poster([c, posts]() mutable {
    for (int64_t i = 0; i < posts; i++) {
      SleepNanos(kPause);
      c.Send(NowNanos());
    }
    c.Close();
  });
  for (const int64_t at : c) late.push_back(NowNanos() - at);
  poster.join();
  return late;
}

void Measure(const Options& o, const char* workload,
             std::vector<int64_t> (*post)(int64_t)) {
  if (!o.Selected(workload)) return;
  post(o.Scaled(100));
  for (int r = 0; r < o.reps; r++) {
    PrintQuantiles(workload, post(o.Scaled(1000)));
  }
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    Measure(o, "W16/go", ByGo);
    Measure(o, "W16/chan", ByChan);
  });
}
