#include "gump/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "api/status_util.h"
#include "gump/go.h"
#include "gump/internal/linkname_trace.h"
#include "gump/os/file.h"

namespace gump::trace {

namespace {

absl::Status AlreadyEnabled() {
  return absl::FailedPreconditionError("tracing already enabled");
}

}  // namespace

absl::Status Start(int fd) {
  if (IsEnabled()) return AlreadyEnabled();
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) {
    return internal::ErrorStatus("write", EBADF, internal::kFileClosed);
  }
  return rt::traceStart(fd, /*owned=*/false) ? absl::OkStatus()
                                             : AlreadyEnabled();
}

absl::Status Start(std::string_view path) {
  if (IsEnabled()) return AlreadyEnabled();
  absl::StatusOr<os::File> file = os::Create(path);
  if (!file.ok()) return file.status();
  const int fd = ::fcntl(file->Fd(), F_DUPFD_CLOEXEC, 3);
  if (fd < 0) {
    return internal::ErrorStatus("open " + std::string(path), errno,
                                 internal::kFileClosed);
  }
  if (!rt::traceStart(fd, /*owned=*/true)) {
    ::close(fd);
    return AlreadyEnabled();
  }
  return absl::OkStatus();
}

void Stop() { rt::traceStop(); }

bool IsEnabled() { return rt::traceEnabled(); }

// ---- FlightRecorder ---------------------------------------------------------

FlightRecorder::FlightRecorder(FlightRecorderOptions options)
    : options_(options) {}

FlightRecorder::~FlightRecorder() { Stop(); }

absl::Status FlightRecorder::Start() {
  if (!rt::traceRecorderStart(absl::ToInt64Nanoseconds(options_.min_age),
                              options_.max_bytes)) {
    return absl::FailedPreconditionError("flight recorder already enabled");
  }
  enabled_.store(true, rt::relaxed);
  return absl::OkStatus();
}

void FlightRecorder::Stop() {
  if (enabled_.xchg(false, rt::relaxed)) rt::traceRecorderStop();
}

bool FlightRecorder::Enabled() const { return enabled_.load(rt::relaxed); }

absl::StatusOr<size_t> FlightRecorder::WriteTo(int fd) {
  if (!enabled_.load(rt::relaxed)) {
    return absl::FailedPreconditionError("flight recorder is not running");
  }
  const int64_t n = rt::traceRecorderWrite(fd);
  if (n < 0)
    return internal::ErrorStatus("write", static_cast<int>(-n),
                                 internal::kFileClosed);
  return static_cast<size_t>(n);
}

// ---- Annotations ------------------------------------------------------------

namespace {

const context::Key<uint64_t>& TaskKey() {
  static const context::Key<uint64_t> key;
  return key;
}

uint64_t TaskOf(const context::Context& ctx) {
  const uint64_t* id = ctx.Value(TaskKey());
  return id == nullptr ? 0 : *id;
}

}  // namespace

Task::Task(const context::Context& parent, std::string_view type)
    : id_(rt::traceTaskBegin(TaskOf(parent), type)),
      context_(context::WithValue(parent, TaskKey(), id_)) {}

Task::~Task() { End(); }

void Task::End() {
  if (!std::exchange(ended_, true)) rt::traceTaskEnd(id_);
}

Region::Region(const context::Context& ctx, std::string_view type) {
  if (!rt::tracesAnnotations()) return;
  task_ = TaskOf(ctx);
  begun_ = rt::traceRegion(task_, /*begins=*/true, type);
  if (begun_) type_ = type;
}

Region::~Region() {
  if (begun_) (void)rt::traceRegion(task_, /*begins=*/false, type_);
}

void Log(const context::Context& ctx, std::string_view category,
         std::string_view message) {
  if (rt::tracesAnnotations()) rt::traceLog(TaskOf(ctx), category, message);
}

}  // namespace gump::trace
