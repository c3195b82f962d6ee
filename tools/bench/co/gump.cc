// CO: coroutines. The costs of one await of a task that ends at once, of a
// receive and a send that are ready, and of a receive that waits. Beside them
// are the plain calls, for comparison.
//
// A repetition is the least of many short runs of 1000 operations, so that
// other programs on the machine hardly count. The cost of an await is that of
// making and awaiting a task, less that of making and destroying one, which is
// an allocation.
#include <gump/chan.h>
#include <gump/co.h>
#include <gump/go.h>

#include <algorithm>
#include <limits>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

constexpr int kOps = 1000;

__attribute__((noinline)) co::task<int> Value(int v) { co_return v; }

co::task<int> MakeAndAwait() {
  int sum = 0;
  for (int i = 0; i < kOps; i++) sum += co_await Value(i);
  co_return sum;
}

co::task<int> Receive(chan<int> c) {
  int sum = 0;
  for (int i = 0; i < kOps; i++) sum += *co_await co::Recv(c);
  co_return sum;
}

co::task<> Send(chan<int> c) {
  for (int i = 0; i < kOps; i++) co_await co::Send(c, i);
}

void Fill(const chan<int>& c) {
  while (c.Len() < c.Cap()) c.Send(0);
}
void Drain(const chan<int>& c) {
  while (c.Len() > 0) (void)c.Recv();
}

// Least returns the nanoseconds per operation of the fastest of n runs of f,
// each after prepare.
template <class P, class F>
double Least(int64_t n, P prepare, F f) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t i = 0; i < n; i++) {
    prepare();
    const int64_t start = NowNanos();
    f();
    least = std::min(least, NowNanos() - start);
  }
  return static_cast<double>(least) / kOps;
}

void MeasureAwait(int64_t runs) {
  const auto nothing = [] {};
  const double awaited =
      Least(runs, nothing, [] { Keep(co::Wait(MakeAndAwait())); });
  const double dropped = Least(runs, nothing, [] {
    for (int i = 0; i < kOps; i++) Keep(Value(i));
  });
  Print("CO/await", "make-ns", dropped);
  Print("CO/await", "ns/await", awaited - dropped);
}

void MeasureChan(int64_t runs) {
  const chan<int> c = make_chan<int>(kOps);
  const auto fill = [&] { Fill(c); };
  const auto drain = [&] { Drain(c); };
  Print("CO/chan", "recv-ns", Least(runs, fill, [&] { co::Wait(Receive(c)); }));
  Print("CO/chan", "plain-recv-ns", Least(runs, fill, [&] {
          for (int i = 0; i < kOps; i++) Keep(c.Recv());
        }));
  Print("CO/chan", "send-ns", Least(runs, drain, [&] { co::Wait(Send(c)); }));
  Print("CO/chan", "plain-send-ns", Least(runs, drain, [&] {
          for (int i = 0; i < kOps; i++) c.Send(i);
        }));
}

// Each value is received before the next one is sent, so every receive waits.
void MeasureWaiting(int64_t runs) {
  const chan<int> c = make_chan<int>();
  const auto feed = [&] {
    go([&c] {
      for (int i = 0; i < kOps; i++) c.Send(i);
    });
  };
  Print("CO/wait", "ns/op", Least(runs, feed, [&] { co::Wait(Receive(c)); }));
  Print("CO/wait", "plain-ns", Least(runs, feed, [&] {
          for (int i = 0; i < kOps; i++) Keep(c.Recv());
        }));
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    const int64_t runs = o.Scaled(2000);
    for (int r = 0; r < o.reps; r++) {
      if (o.Selected("CO/await")) MeasureAwait(runs);
      if (o.Selected("CO/chan")) MeasureChan(runs);
      if (o.Selected("CO/wait")) MeasureWaiting(runs);
    }
  });
}
