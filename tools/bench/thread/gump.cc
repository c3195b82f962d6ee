// THREAD: goroutines that share a runtime::Thread. pair: two of them make round
// trips over two unbuffered channels, as in W3. apart: one of them and one
// goroutine that any thread may run do. post and net: a plain thread wakes one
// of them every millisecond, in an idle process, by a channel or by a
// connection. run: a goroutine calls Thread::Run.
#include <gump/chan.h>
#include <gump/go.h>
#include <gump/net.h>
#include <gump/runtime.h>
#include <gump/sync.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

constexpr int64_t kPause = 1'000'000;  // ns

// RoundTrips makes round trips between a goroutine on `here`, which reports
// each to `took`, and one on `there`. nullptr stands for any thread.
template <class Took>
void RoundTrips(int64_t round_trips, runtime::Thread* here,
                runtime::Thread* there, Took took) {
  chan<int64_t> ping = make_chan<int64_t>();
  chan<int64_t> pong = make_chan<int64_t>();
  sync::WaitGroup ended;
  ended.Add(2);
  go(GoOptions{.thread = there}, [=, &ended] {
    int64_t v;
    while (ping.Recv(v)) pong.Send(v);
    ended.Done();
  });
  go(GoOptions{.thread = here}, [=, &ended, &took] {
    int64_t v = 0;
    for (int64_t i = 0; i < round_trips; i++) {
      ping.Send(i);
      pong.Recv(v);
      took();
    }
    ping.Close();
    ended.Done();
  });
  ended.Wait();
}

std::vector<int64_t> Apart(runtime::Thread* t, int64_t round_trips) {
  std::vector<int64_t> nanos;
  nanos.reserve(static_cast<size_t>(round_trips));
  int64_t last = NowNanos();
  RoundTrips(round_trips, nullptr, t, [&] {
    const int64_t now = NowNanos();
    nanos.push_back(now - last);
    last = now;
  });
  return nanos;
}

std::vector<int64_t> Post(runtime::Thread* t, int64_t posts) {
  std::vector<int64_t> late;
  late.reserve(static_cast<size_t>(posts));
  chan<int64_t> c = make_chan<int64_t>();
  sync::WaitGroup ended;
  ended.Add(1);
  go(GoOptions{.thread = t}, [&, c] {
    for (const int64_t at : c) late.push_back(NowNanos() - at);
    ended.Done();
  });
  std::thread poster([c, posts]() mutable {
    for (int64_t i = 0; i < posts; i++) {
      SleepNanos(kPause);
      c.Send(NowNanos());
    }
    c.Close();
  });
  ended.Wait();
  poster.join();
  return late;
}

std::vector<int64_t> Net(runtime::Thread* t, int64_t posts) {
  auto pipe = net::Pipe();
  if (!pipe.ok()) std::abort();
  auto [reader, writer] = *std::move(pipe);
  std::vector<int64_t> late;
  late.reserve(static_cast<size_t>(posts));
  sync::WaitGroup ended;
  ended.Add(1);
  go(GoOptions{.thread = t}, [&, reader = reader]() mutable {
    int64_t at;
    for (int64_t i = 0; i < posts; i++) {
      auto n = reader.Read({reinterpret_cast<char*>(&at), sizeof(at)});
      if (!n.ok() || *n != sizeof(at)) std::abort();
      late.push_back(NowNanos() - at);
    }
    ended.Done();
  });
  std::thread poster([fd = writer.Fd(), posts] {
    for (int64_t i = 0; i < posts; i++) {
      SleepNanos(kPause);
      const int64_t at = NowNanos();
      if (write(fd, &at, sizeof(at)) != sizeof(at)) std::abort();
    }
  });
  ended.Wait();
  poster.join();
  return late;
}

std::vector<int64_t> Visits(runtime::Thread* t, int64_t visits) {
  std::vector<int64_t> nanos;
  nanos.reserve(static_cast<size_t>(visits));
  for (int64_t i = 0; i < visits; i++) {
    const int64_t begin = NowNanos();
    t->Run([] {});
    nanos.push_back(NowNanos() - begin);
  }
  return nanos;
}

void Measure(const Options& o, const char* workload,
             std::vector<int64_t> (*run)(runtime::Thread*, int64_t),
             int64_t n) {
  if (!o.Selected(workload)) return;
  runtime::Thread t("bench");
  run(&t, o.Scaled(n / 10));
  for (int r = 0; r < o.reps; r++) {
    PrintQuantiles(workload, run(&t, o.Scaled(n)));
  }
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    const int64_t n = o.Scaled(1'000'000);
    gump::runtime::Thread t("bench");
    MeasureNanosPer(o, "THREAD/pair", "ns/roundtrip", n,
                    [&] { RoundTrips(n, &t, &t, [] {}); });
    Measure(o, "THREAD/apart", Apart, 20'000);
    Measure(o, "THREAD/post", Post, 1000);
    Measure(o, "THREAD/net", Net, 1000);
    Measure(o, "THREAD/run", Visits, 20'000);
  });
}
