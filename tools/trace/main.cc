// gump_trace [--perfetto] [-o OUT] FILE: turns an execution trace into an HTML
// page, or into JSON for Perfetto, and prints the name of the file that it has
// written. `tools/gump trace` calls it.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tools/trace/file.h"
#include "tools/trace/html.h"
#include "tools/trace/model.h"
#include "tools/trace/perfetto.h"

namespace {

int Usage() {
  std::fprintf(stderr, "usage: gump_trace [--perfetto] [-o OUT] FILE\n");
  return 2;
}

absl::string_view BaseName(absl::string_view path) {
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace

int main(int argc, char** argv) {
  bool perfetto = false;
  std::string out, in;
  for (int i = 1; i < argc; ++i) {
    const absl::string_view arg = argv[i];
    if (arg == "--perfetto") {
      perfetto = true;
    } else if (arg == "-o" && i + 1 < argc) {
      out = argv[++i];
    } else if (arg.empty() || arg[0] == '-' || !in.empty()) {
      return Usage();
    } else {
      in = std::string(arg);
    }
  }
  if (in.empty()) return Usage();
  if (out.empty()) {
    out = std::string(absl::StripSuffix(in, ".trace")) +
          (perfetto ? ".json" : ".html");
  }
  const absl::StatusOr<std::string> bytes = trace_tool::ReadFile(in);
  if (!bytes.ok()) {
    std::fprintf(stderr, "gump_trace: %s\n",
                 std::string(bytes.status().message()).c_str());
    return 1;
  }
  const absl::StatusOr<trace_tool::Model> model =
      trace_tool::BuildModel(*bytes);
  if (!model.ok()) {
    std::fprintf(stderr, "gump_trace: %s: %s\n", in.c_str(),
                 std::string(model.status().message()).c_str());
    return 1;
  }
  std::FILE* file = std::fopen(out.c_str(), "wb");
  if (file == nullptr) {
    std::fprintf(stderr, "gump_trace: %s: %s\n", out.c_str(),
                 std::strerror(errno));
    return 1;
  }
  const auto write = [&](absl::string_view text) {
    std::fwrite(text.data(), 1, text.size(), file);
  };
  if (perfetto) {
    trace_tool::WritePerfetto(*model, write);
  } else {
    trace_tool::WriteHtml(*model, BaseName(in), write);
  }
  const bool failed = std::ferror(file) != 0;
  if (std::fclose(file) != 0 || failed) {
    std::fprintf(stderr, "gump_trace: cannot write %s\n", out.c_str());
    return 1;
  }
  std::printf("%s\n", out.c_str());
  if (!model->problem.empty()) {
    std::fprintf(stderr, "gump_trace: %s: %s\n", in.c_str(),
                 model->problem.c_str());
    std::fprintf(stderr, "gump_trace: %s shows what precedes that\n",
                 out.c_str());
  }
  return 0;
}
