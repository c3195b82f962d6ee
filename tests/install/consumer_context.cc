// gump/context.h: deadlines, cancellation and values.
#include <gump/context.h>

#include <stop_token>
#include <string>
#include <utility>

using namespace gump;  // NOLINT: as api.md writes programs

namespace {

const context::Key<std::string> kUser;

int Main() {
  auto [parent, cancel] = context::WithCancelCause(context::Background());
  context::Context ctx = context::WithValue(parent, kUser, "gopher");
  auto [limited, stop] = context::WithTimeout(ctx, absl::Hours(1));
  bool ok = *limited.Value(kUser) == "gopher" && limited.Deadline();
  auto told = make_chan<void>();
  context::AfterFunc(limited, [told] { told.Close(); });
  cancel(absl::DataLossError("lost"));
  (void)limited.Done().Recv();
  (void)told.Recv();
  ok = ok && limited.Err() == absl::CancelledError("context canceled");
  ok = ok && context::Cause(limited) == absl::DataLossError("lost");
  stop();
  std::stop_source source;
  context::Context by_token =
      context::WithStopToken(context::Background(), source.get_token()).first;
  source.request_stop();
  ok = ok && context::StopToken(by_token).stop_requested();
  return ok && context::WithoutCancel(limited).Err().ok() ? 0 : 1;
}

}  // namespace

int main() { return Run(Main); }
