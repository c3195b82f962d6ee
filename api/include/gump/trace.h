// Execution traces, in the format of Go's package runtime/trace, so that
// `go tool trace` of Go 1.23 and later reads them.
//
//   if (auto s = gump::trace::Start("trace.out"); !s.ok()) return s;
//   Serve();
//   gump::trace::Stop();
//
// A trace records:
//  * when each goroutine runs and when it waits, and for what;
//  * which goroutine makes another one runnable;
//  * system calls, and stops of the world;
//  * tasks, regions and messages of the program;
//  * the samples of a CPU profile that runs at the same time (gump/pprof.h).
//
// It consists of parts of about a second. Each part is readable without those
// after it, so the file of a process that dies is useful up to the last whole
// part. An event costs about 0.1 µs and ten bytes.
//
// Stacks are walked by frame pointers, so compile with -fno-omit-frame-pointer.
// A stack has the 32 innermost functions at most, and that of a sample the 64
// innermost.
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
#include "gump/internal/atomic.h"

#pragma GCC visibility push(default)

namespace gump::trace {

// Start begins a trace. If one is being written already, Start fails with
// FailedPrecondition "tracing already enabled", and touches no file.
//
// The first form leaves fd open, and the caller must keep it open until Stop
// returns. It fails with the error of EBADF if fd cannot be written. The second
// form makes the file, or empties it, and fails as os::Create does. If a write
// fails later, or if there is no memory, the rest of the trace is lost without
// an error.
//
// The environment variable GUMP_TRACE=FILE traces a program from its first Run
// until it returns from main or calls exit. In FILE, %p stands for the number
// of the process. A child of fork writes no trace.
//
// May be called from goroutines and plain threads. Parks, and stops the world
// for a moment.
[[nodiscard]] absl::Status Start(int fd);
[[nodiscard]] absl::Status Start(std::string_view path);

// Stop ends the trace, if there is one, and returns when all of it has been
// written. May be called from goroutines and plain threads. Parks.
void Stop();

// IsEnabled returns true while a trace of Start, not of a FlightRecorder, is
// being written. May be called from goroutines and plain threads. Never parks.
[[nodiscard]] bool IsEnabled();

// FlightRecorderOptions say how much a FlightRecorder keeps.
struct FlightRecorderOptions {
  // The recorder keeps the events of the last min_age, unless they take more
  // than max_bytes. Both are hints: it keeps whole parts of about a second, and
  // always at least one.
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
// goroutines and plain threads. Start, Stop and WriteTo park. One thread at a
// time uses a recorder, except for Enabled.
class FlightRecorder {
 public:
  explicit FlightRecorder(FlightRecorderOptions options = {});
  // Stops the recorder. Parks.
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // Start begins to record. Fails with FailedPrecondition "flight recorder
  // already enabled" if a recorder of the process runs.
  [[nodiscard]] absl::Status Start();
  // Stop ends the recording, and forgets it. It does nothing if the recorder
  // does not run.
  void Stop();
  // Enabled returns true between Start and Stop.
  [[nodiscard]] bool Enabled() const;
  // WriteTo writes the recording as a whole trace to fd, which stays open. The
  // recorder goes on. Returns the number of bytes. Fails with
  // FailedPrecondition "flight recorder is not running", or with the errno of
  // the write (status.h).
  [[nodiscard]] absl::StatusOr<size_t> WriteTo(int fd);

 private:
  const FlightRecorderOptions options_;
  rt::Atomic<bool> enabled_;  // relaxed: for Enabled on another thread
};

// A Task is work of several goroutines, such as one request. `go tool trace`
// shows how long tasks took, and what belongs to them.
//
//   gump::trace::Task task(ctx, "request");
//   gump::trace::Region region(task.Context(), "parse");
//   gump::trace::Log(task.Context(), "user", name);
//
// If no trace is being written, a Task costs an allocation, and Region and Log
// cost nothing. The trace copies all texts, and cuts them at 1,024 bytes. It
// has no tasks, regions and messages of plain threads. Task, Region and Log do
// not park. The constructors throw std::bad_alloc if there is no memory.
class Task {
 public:
  // The parent is the innermost task of `parent`, if there is one.
  Task(const context::Context& parent, std::string_view type);
  // Calls End.
  ~Task();
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // Context returns the parent's context with the task. Functions that get it
  // may add regions and messages to the task.
  [[nodiscard]] const context::Context& Context() const { return context_; }
  // End ends the task. It does nothing if the task has ended. It may be called
  // on another goroutine than the constructor, but not on two at a time.
  void End();

 private:
  uint64_t id_;
  context::Context context_;
  bool ended_ = false;
};

// A Region is a part of what one goroutine does for the task of ctx, or for
// none. Regions of a goroutine nest. The object must end on the goroutine that
// made it.
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

// Log adds a message to the task of ctx, or to none. The category groups
// messages of one kind, and there should be few categories.
void Log(const context::Context& ctx, std::string_view category,
         std::string_view message);

}  // namespace gump::trace

#pragma GCC visibility pop

#endif  // GUMP_TRACE_H_
