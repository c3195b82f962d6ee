// The statuses of failed calls. A status carries the errno and the byte count
// as payloads, in decimal.
#include "gump/status.h"

#include <locale.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "api/status_util.h"
#include "gump/panic.h"
#include "netpoll/fd.h"

namespace gump {
namespace {

constexpr char kErrnoUrl[] = "gump/errno";
constexpr char kWrittenUrl[] = "gump/bytes_written";

void Attach(absl::Status* status, const char* url, uint64_t value) {
  if (value != 0) status->SetPayload(url, absl::Cord(std::to_string(value)));
}

uint64_t Attached(const absl::Status& status, const char* url) {
  const auto text = status.GetPayload(url);
  uint64_t value;
  if (!text || !absl::SimpleAtoi(std::string(*text), &value)) return 0;
  return value;
}

std::string Prefixed(std::string_view what, std::string text) {
  if (what.empty()) return text;
  std::string result(what);
  result.append(": ").append(text);
  return result;
}

absl::StatusCode CodeOf(int err) {
  switch (err) {
    case rt::kErrClosing:
      return absl::StatusCode::kCancelled;
    case rt::kErrTimeout:
      return absl::StatusCode::kDeadlineExceeded;
    case rt::kErrNotPollable:
    case rt::kErrNoDeadline:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::ErrnoToStatusCode(err);
  }
}

}  // namespace

int Errno(const absl::Status& status) {
  return static_cast<int>(Attached(status, kErrnoUrl));
}

size_t BytesWritten(const absl::Status& status) {
  return static_cast<size_t>(Attached(status, kWrittenUrl));
}

namespace internal {

std::string ErrorText(int err, std::string_view closed) {
  switch (err) {
    case rt::kErrClosing:
      return std::string(closed);
    case rt::kErrTimeout:
      return "i/o timeout";
    case rt::kErrNotPollable:
      return "not pollable";
    case rt::kErrNoDeadline:
      return "file type does not support deadline";
    default:
      break;
  }
  // Go's texts are those of strerror_l, except for the first letter of a text
  // that begins with an ordinary word. (strerror would translate the text, and
  // share a buffer.)
  static const locale_t english = newlocale(LC_ALL_MASK, "C", nullptr);
  std::string text(strerror_l(err, english));
  if (text.starts_with("Unknown error")) return "errno " + std::to_string(err);
  const auto upper = [](char c) { return 'A' <= c && c <= 'Z'; };
  if (text.size() > 1 && upper(text[0]) && !upper(text[1])) {
    text[0] = static_cast<char>(text[0] - 'A' + 'a');
  }
  return text;
}

absl::Status ErrorStatus(std::string_view what, int err,
                         std::string_view closed, size_t written) {
  if (err == rt::kErrTooManyUsers) {
    panic(
        "too many concurrent operations on a single file or socket (max "
        "1048575)");
  }
  std::string text = Prefixed(what, ErrorText(err, closed));
  absl::Status status(CodeOf(err), text);
  Attach(&status, kErrnoUrl, err > 0 ? static_cast<uint64_t>(err) : 0);
  Attach(&status, kWrittenUrl, written);
  return status;
}

absl::Status Annotate(std::string_view what, const absl::Status& status) {
  absl::Status result(status.code(),
                      Prefixed(what, std::string(status.message())));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    result.SetPayload(url, payload);
  });
  return result;
}

}  // namespace internal
}  // namespace gump
