#include "gump/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "gump/go.h"
#include "gump/internal/linkname.h"
#include "gump/os/file.h"
#include "gump/status.h"

namespace gump::trace {

namespace {

absl::Status AlreadyEnabled() {
  return absl::FailedPreconditionError("tracing already enabled");
}

}  // namespace

absl::Status Start(int fd) {
  return rt::traceStart(fd, /*owned=*/false) ? absl::OkStatus()
                                             : AlreadyEnabled();
}

absl::Status Start(std::string_view path) {
  if (IsEnabled()) return AlreadyEnabled();
  absl::StatusOr<os::File> file = os::Create(path);
  if (!file.ok()) return file.status();
  const int fd = ::fcntl(file->Fd(), F_DUPFD_CLOEXEC, 3);
  if (!rt::traceStart(fd, /*owned=*/true)) {
    ::close(fd);
    return AlreadyEnabled();
  }
  return absl::OkStatus();
}

void Stop() { rt::traceStop(); }

bool IsEnabled() { return rt::traceEnabled(); }

}  // namespace gump::trace
