#include "api/debug/http_response.h"

#include <utility>

#include "api/cat.h"

namespace gump::internal {

std::string AttachmentField(std::string_view name) {
  return Cat("Content-Disposition: attachment; filename=\"", name, "\"\r\n");
}

std::string_view ReasonOf(int status) {
  static constexpr std::pair<int, std::string_view> kReasons[] = {
      {200, "OK"},
      {307, "Temporary Redirect"},
      {400, "Bad Request"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {417, "Expectation Failed"},
      {431, "Request Header Fields Too Large"},
      {501, "Not Implemented"},
      {503, "Service Unavailable"},
      {505, "HTTP Version Not Supported"}};
  for (const auto& [code, reason] : kReasons) {
    if (code == status) return reason;
  }
  return "Internal Server Error";
}

HttpResponse HttpError(int status, std::string_view text) {
  return {status, Cat(kPlainTextField, kNosniffField), Cat(text, "\n")};
}

HttpResponse PprofError(int status, std::string_view text) {
  return {status, Cat(kNosniffField, kPlainTextField, "X-Go-Pprof: 1\r\n"),
          Cat(text, "\n")};
}

HttpResponse TooManyPages() {
  return PprofError(503, "too many profiles are being taken");
}

}  // namespace gump::internal
