// gump/synctest.h: an hour in no time.
#include <gump/synctest.h>
#include <gump/time.h>

using namespace gump;  // NOLINT: as api.md writes programs

namespace {

int Main() {
  bool ok = false;
  synctest::Run([&] {
    const absl::Time start = synctest::Now();
    time::Sleep(absl::Hours(1));
    synctest::Wait();
    ok = synctest::Now() - start == absl::Hours(1);
  });
  return ok ? 0 : 1;
}

}  // namespace

int main() { return Run(Main); }
