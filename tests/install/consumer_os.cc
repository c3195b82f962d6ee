// gump/os.h: files and pipes.
#include <gump/go.h>
#include <gump/os.h>

#include <string>

using namespace gump;  // NOLINT: as api.md writes programs

namespace {

int Main() {
  auto ends = os::Pipe();
  auto& [r, w] = *ends;
  go([w = w] {
    w.Write("hello").IgnoreError();
    w.Close().IgnoreError();
  });
  char buf[16];
  bool ok = *r.Read(buf) == 5 && *r.Read(buf) == 0;
  absl::StatusOr<os::File> f = os::Open("/proc/self/status");
  absl::StatusOr<os::FileInfo> info = f->Stat();
  ok = ok && info->Name() == "status" && !info->IsDir();
  ok = ok && os::ReadFile("/proc/self/status")->starts_with("Name:");
  return ok && os::WriteFile("/dev/null", "x", 0600).ok() ? 0 : 1;
}

}  // namespace

int main() { return Run(Main); }
