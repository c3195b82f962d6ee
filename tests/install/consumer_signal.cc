// gump/signal.h: a signal as a value, and as the end of a context.
#include <gump/signal.h>

#include <csignal>

using namespace gump;  // NOLINT: as api.md writes programs

namespace {

int Main() {
  auto signals = make_chan<int>(1);
  signal::Notify(signals, {SIGUSR1});
  ::raise(SIGUSR1);
  bool ok = signals.Recv() == SIGUSR1;
  signal::Stop(signals);
  signal::Reset({SIGUSR1});
  auto [ctx, stop] = signal::NotifyContext(context::Background(), {SIGUSR2});
  ::raise(SIGUSR2);
  (void)ctx.Done().Recv();
  stop();
  return ok && !ctx.Err().ok() ? 0 : 1;
}

}  // namespace

int main() { return Run(Main); }
