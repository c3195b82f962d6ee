#include "api/signal_name.h"

#include <cstddef>
#include <iterator>
#include <string>

namespace gump::internal {

std::string SignalName(int sig) {
  static constexpr const char* kNames[] = {
      nullptr,
      "hangup",
      "interrupt",
      "quit",
      "illegal instruction",
      "trace/breakpoint trap",
      "aborted",
      "bus error",
      "floating point exception",
      "killed",
      "user defined signal 1",
      "segmentation fault",
      "user defined signal 2",
      "broken pipe",
      "alarm clock",
      "terminated",
      "stack fault",
      "child exited",
      "continued",
      "stopped (signal)",
      "stopped",
      "stopped (tty input)",
      "stopped (tty output)",
      "urgent I/O condition",
      "CPU time limit exceeded",
      "file size limit exceeded",
      "virtual timer expired",
      "profiling timer expired",
      "window changed",
      "I/O possible",
      "power failure",
      "bad system call",
  };
  const auto i = static_cast<size_t>(sig);
  if (i > 0 && i < std::size(kNames)) return kNames[i];
  return "signal " + std::to_string(sig);
}

}  // namespace gump::internal
