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

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gump/context.h"

namespace gump::trace {

// Start begins a trace. Only one can be written at a time: Start fails with
// FailedPrecondition "tracing already enabled". The second form makes the file,
// or empties it, and fails as os::Create does. A failed Start touches no file.
//
// The first form leaves fd open, and the caller must keep it open until Stop
// returns. It fails with the error of EBADF if fd cannot be written. If a write
// fails later, or if there is no memory, the rest of the trace is lost without
// an error.
//
// The environment variable GUMP_TRACE=FILE traces a program from its first Run
// until it returns from main or calls exit. In FILE, %p stands for the number
// of the process.
//
// May be called from goroutines and plain threads. Parks.
[[nodiscard]] absl::Status Start(int fd);
[[nodiscard]] absl::Status Start(std::string_view path);

// Stop ends the trace, if there is one, and returns when all of it has been
// written. May be called from goroutines and plain threads. Parks.
void Stop();

// IsEnabled returns true while Start's trace is being written. Does not park.
[[nodiscard]] bool IsEnabled();

// FlightRecorderOptions say how much a FlightRecorder keeps.
struct FlightRecorderOptions {
  // What has happened in the last min_age is kept, unless it is more than
  // max_bytes. Both are hints: the recorder keeps whole parts of about a
  // second.
  absl::Duration min_age = absl::Seconds(10);
  size_t max_bytes = size_t{16} << 20;
};

// A FlightRecorder keeps the last seconds of a trace in memory, so that a
// program can write them when it notices that something was slow.
//
//   gump::trace::FlightRecorder recorder;
//   if (auto s = recorder.Start(); !s.ok()) return s;
//   ...
//   if (slow) recorder.WriteTo(fd).IgnoreError();
//
// It may run beside a trace of Start. Its functions may be called from
// goroutines and plain threads, and park. One thread at a time uses a recorder,
// except for Enabled.
class FlightRecorder {
 public:
  explicit FlightRecorder(FlightRecorderOptions options = {});
  // Stops it.
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // Start fails with FailedPrecondition "flight recorder already enabled" if a
  // recorder of the process runs.
  [[nodiscard]] absl::Status Start();
  // Stop forgets what has been recorded.
  void Stop();
  [[nodiscard]] bool Enabled() const;
  // WriteTo writes a whole trace to fd, and goes on recording. Returns the
  // number of bytes. Fails with FailedPrecondition "flight recorder is not
  // running", or if the write does.
  [[nodiscard]] absl::StatusOr<size_t> WriteTo(int fd);

 private:
  const FlightRecorderOptions options_;
  bool enabled_ = false;
};

// A Task is work of several goroutines, such as one request. `go tool trace`
// shows how long tasks took, and what belongs to them.
//
//   gump::trace::Task task(ctx, "request");
//   gump::trace::Region region(task.Context(), "parse");
//   gump::trace::Log(task.Context(), "user", name);
//
// If no trace is being written, a Task costs an allocation, and Region and Log
// cost nothing.
class Task {
 public:
  // The parent is the innermost task of `parent`, if there is one.
  Task(const context::Context& parent, std::string_view type);
  // Ends the task, if End has not.
  ~Task();
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // Context returns the parent's context with the task. Functions that get it
  // may add regions and messages to the task.
  [[nodiscard]] const context::Context& Context() const { return context_; }
  void End();

 private:
  uint64_t id_;
  context::Context context_;
  bool ended_ = false;
};

// A Region is a part of what one goroutine does for a task, or for none.
// Regions of a goroutine nest. The object must end on the goroutine that made
// it.
class Region {
 public:
  Region(const context::Context& ctx, std::string_view type);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

 private:
  uint64_t task_ = 0;
  bool begun_ = false;
  std::string type_;
};

// Log adds a message to the task of ctx. The category groups messages of one
// kind, and there should be few.
void Log(const context::Context& ctx, std::string_view category,
         std::string_view message);

}  // namespace gump::trace

#endif  // GUMP_TRACE_H_
