// gump/exec.h: another program, and its output.
#include <gump/exec.h>

#include <string>
#include <vector>

using namespace gump;  // NOLINT: as api.md writes programs

namespace {

int Main() {
  absl::StatusOr<std::string> out = exec::Cmd("echo", "hello").Output();
  exec::Cmd cat("cat");
  auto in = cat.StdinPipe();
  auto copy = cat.StdoutPipe();
  bool ok = out.ok() && *out == "hello\n" && cat.Start().ok();
  in->Write("x").IgnoreError();
  in->Close().IgnoreError();
  char buf[8];
  ok = ok && *copy->Read(buf) == 1 && cat.Wait().ok();
  exec::Cmd env("env", std::vector<std::string>{"-u", "HOME"});
  env.SetEnv({"HOME=/", "A=b"});
  ok = ok && *env.Output() == "A=b\n";
  return ok && !exec::CommandContext(context::Background(), "false").Run().ok()
             ? 0
             : 1;
}

}  // namespace

int main() { return Run(Main); }
