// trace_check FILE...: checks execution traces. Prints a line for each valid
// one, with the number of its CPU samples if it has any, and for any other what
// is wrong and where. Exit code 1: a trace is not valid. Exit code 2: a file
// cannot be read.
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tools/trace/event_reader.h"
#include "tools/trace/file.h"

namespace {

absl::Status Check(absl::string_view bytes, std::string* summary) {
  absl::StatusOr<trace_tool::EventReader> reader =
      trace_tool::EventReader::Open(bytes);
  if (!reader.ok()) return reader.status();
  uint64_t generations = 0, events = 0;
  size_t samples = 0;
  while (reader->Next()) {
    ++generations;
    samples += reader->generation().samples.size();
    reader->ForEachEvent([&](const trace_tool::Event&) { ++events; });
  }
  *summary = absl::StrCat("go 1.", reader->version(),
                          ", generations: ", generations, ", events: ", events);
  if (samples > 0) absl::StrAppend(summary, ", samples: ", samples);
  return reader->status();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: trace_check FILE...\n");
    return 2;
  }
  int code = 0;
  for (int i = 1; i < argc; ++i) {
    const absl::StatusOr<std::string> bytes = trace_tool::ReadFile(argv[i]);
    if (!bytes.ok()) {
      std::fprintf(stderr, "trace_check: %s\n",
                   std::string(bytes.status().message()).c_str());
      return 2;
    }
    std::string summary;
    const absl::Status status = Check(*bytes, &summary);
    if (status.ok()) {
      std::printf("%s: valid, %s\n", argv[i], summary.c_str());
      continue;
    }
    std::printf("%s: %s\n", argv[i], std::string(status.message()).c_str());
    code = 1;
  }
  return code;
}
