// gump/rate.h: the token bucket.
#include <gump/go.h>
#include <gump/rate.h>

using namespace gump;  // NOLINT: as api.md writes programs

namespace {

int Main() {
  rate::Limiter limiter(1000, 2);
  bool ok = limiter.Allow() && limiter.AllowN(1) && !limiter.AllowN(3);
  ok = ok && limiter.Wait(context::Background()).ok();
  rate::Reservation reserved = limiter.Reserve();
  ok = ok && reserved.OK() && reserved.Delay() <= absl::Seconds(1);
  reserved.Cancel();
  return ok && rate::Every(absl::Seconds(2)) == 0.5 ? 0 : 1;
}

}  // namespace

int main() { return Run(Main); }
