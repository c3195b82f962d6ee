#include "gump/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "absl/status/status.h"
#include "api/status_util.h"
#include "netpoll/fd.h"
#include "tests/testing/panic_text.h"

namespace gump {
namespace {

using internal::Annotate;
using internal::ErrorStatus;
using internal::ErrorText;
using internal::kFileClosed;
using internal::kNetClosed;

TEST(StatusTest, TextsAreGos) {
  struct {
    int err;
    const char* text;
  } const cases[] = {
      {EPERM, "operation not permitted"},
      {ENOENT, "no such file or directory"},
      {EIO, "input/output error"},
      {EBADF, "bad file descriptor"},
      {EAGAIN, "resource temporarily unavailable"},
      {EACCES, "permission denied"},
      {EEXIST, "file exists"},
      {ENOTDIR, "not a directory"},
      {EISDIR, "is a directory"},
      {EINVAL, "invalid argument"},
      {EMFILE, "too many open files"},
      {ENOSPC, "no space left on device"},
      {ESPIPE, "illegal seek"},
      {EPIPE, "broken pipe"},
      {ENAMETOOLONG, "file name too long"},
      {EADDRINUSE, "address already in use"},
      {EADDRNOTAVAIL, "cannot assign requested address"},
      {ENETUNREACH, "network is unreachable"},
      {ECONNRESET, "connection reset by peer"},
      {ECONNREFUSED, "connection refused"},
      {ETIMEDOUT, "connection timed out"},
      {EHOSTUNREACH, "no route to host"},
      {ERFKILL, "operation not possible due to RF-kill"},
      {EDOTDOT, "RFS specific error"},
      {12345, "errno 12345"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(ErrorText(c.err, kFileClosed), c.text);
  }
}

TEST(StatusTest, CarriesTheErrno) {
  const absl::Status s = ErrorStatus("open /x", ENOENT, kFileClosed);
  EXPECT_EQ(s.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(s.message(), "open /x: no such file or directory");
  EXPECT_EQ(Errno(s), ENOENT);
  EXPECT_EQ(BytesWritten(s), 0u);
  EXPECT_EQ(ErrorStatus("", EACCES, kFileClosed).message(),
            "permission denied");
}

TEST(StatusTest, CarriesTheBytesWritten) {
  const size_t many = size_t{1} << 40;
  const absl::Status s = ErrorStatus("write |1", EPIPE, kFileClosed, many);
  EXPECT_EQ(Errno(s), EPIPE);
  EXPECT_EQ(BytesWritten(s), many);
}

TEST(StatusTest, KnowsThePollersErrors) {
  EXPECT_EQ(ErrorStatus("read |0", rt::kErrTimeout, kFileClosed),
            absl::DeadlineExceededError("read |0: i/o timeout"));
  EXPECT_EQ(ErrorStatus("read |0", rt::kErrClosing, kFileClosed),
            absl::CancelledError("read |0: file already closed"));
  EXPECT_EQ(ErrorStatus("read tcp", rt::kErrClosing, kNetClosed),
            absl::CancelledError("read tcp: use of closed network connection"));
  EXPECT_EQ(
      ErrorStatus("", rt::kErrNoDeadline, kFileClosed),
      absl::FailedPreconditionError("file type does not support deadline"));
  EXPECT_EQ(ErrorStatus("read x", rt::kErrNotPollable, kFileClosed),
            absl::FailedPreconditionError("read x: not pollable"));
  EXPECT_EQ(testing::PanicText([] {
              (void)ErrorStatus("read x", rt::kErrTooManyUsers, kFileClosed);
            }),
            "too many concurrent operations on a single file or socket (max "
            "1048575)");
}

TEST(StatusTest, OthersCarryNothing) {
  EXPECT_EQ(Errno(absl::OkStatus()), 0);
  EXPECT_EQ(BytesWritten(absl::OkStatus()), 0u);
  EXPECT_EQ(Errno(absl::NotFoundError("x")), 0);
  EXPECT_EQ(BytesWritten(absl::NotFoundError("x")), 0u);
  EXPECT_EQ(Errno(ErrorStatus("x", rt::kErrTimeout, kFileClosed)), 0);
}

TEST(StatusTest, AnnotateKeepsAllButTheText) {
  const absl::Status inner =
      ErrorStatus("connect", ECONNREFUSED, kNetClosed, 7);
  const absl::Status s = Annotate("dial tcp 127.0.0.1:1", inner);
  EXPECT_EQ(s.message(), "dial tcp 127.0.0.1:1: connect: connection refused");
  EXPECT_EQ(s.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Errno(s), ECONNREFUSED);
  EXPECT_EQ(BytesWritten(s), 7u);
}

}  // namespace
}  // namespace gump
