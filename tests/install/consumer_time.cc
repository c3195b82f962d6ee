// gump/time.h: Sleep, Timer, Ticker, After, Tick and AfterFunc.
#include <gump/go.h>
#include <gump/time.h>

#include <chrono>

using namespace gump;  // NOLINT: as api.md writes programs

namespace {

int Main() {
  time::Sleep(absl::Milliseconds(1));
  time::Sleep(std::chrono::milliseconds(1));
  time::Timer timer = time::NewTimer(absl::Hours(1));
  bool ok = timer.Stop() && !timer.Reset(absl::Milliseconds(1));
  ok = ok && timer.C.Recv().has_value();
  recv_chan<absl::Time> due = time::After(absl::Milliseconds(1));
  ok = ok && due.Recv().has_value();
  time::Ticker ticker = time::NewTicker(absl::Milliseconds(1));
  ok = ok && ticker.C.Recv() && ticker.C.Recv();
  ticker.Reset(absl::Milliseconds(2));
  ticker.Stop();
  ok = ok && !time::Tick(absl::ZeroDuration());
  auto called = make_chan<int>();
  time::AfterFunc(absl::Milliseconds(1), [called] { called.Send(6); });
  return ok && called.Recv() == 6 ? 0 : 1;
}

}  // namespace

int main() { return Run(Main); }
