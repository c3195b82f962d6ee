// Execution traces, in the format of Go's package runtime/trace, so that
// `go tool trace` of Go 1.23 and later reads them.
//
//   if (auto s = gump::trace::Start("trace.out"); !s.ok()) return s;
//   Serve();
//   gump::trace::Stop();
//
// A trace records when each goroutine runs, waits, for what, and which other
// goroutine makes it runnable; system calls; and stops of the world. It
// consists of parts of about a second, and each is readable without those after
// it. So a file is useful although the process dies.
#ifndef GUMP_TRACE_H_
#define GUMP_TRACE_H_

#include <string_view>

#include "absl/status/status.h"

namespace gump::trace {

// Start begins a trace. Only one can be written at a time: Start fails with
// FailedPrecondition "tracing already enabled". The second form makes the file,
// or empties it, and fails as os::Create does. A failed Start touches no file.
//
// The first form leaves fd open, and the caller must keep it open until Stop
// returns. If a write fails, the rest of the trace is lost without an error.
// May be called from goroutines and plain threads. Parks.
[[nodiscard]] absl::Status Start(int fd);
[[nodiscard]] absl::Status Start(std::string_view path);

// Stop ends the trace, if there is one, and returns when all of it has been
// written. May be called from goroutines and plain threads. Parks.
void Stop();

// IsEnabled returns true while a trace is being written. Does not park.
[[nodiscard]] bool IsEnabled();

}  // namespace gump::trace

#endif  // GUMP_TRACE_H_
