// The answers of debug::ServeHTTP: short ones, and those that are sent in parts
// while they are made.
#ifndef API_DEBUG_HTTP_RESPONSE_H_
#define API_DEBUG_HTTP_RESPONSE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

namespace gump::internal {

// PageClient is the client of a page, as the page sees it. One goroutine calls
// Reserve and Wait. One calls Write, and it may be another.
class PageClient {
 public:
  // Reserve takes one of the places for pages that last for some seconds. The
  // page has it until its answer has been sent. Returns false if there is none.
  [[nodiscard]] virtual bool Reserve() = 0;
  // Wait waits for d. Returns false if the client has left meanwhile, or the
  // server is to end. Parks.
  [[nodiscard]] virtual bool Wait(absl::Duration d) = 0;
  // Write sends a part of the body. Returns false if that failed, or if the
  // client has not read what it got in time. Then the page gives up. Parks.
  // Throws nothing.
  [[nodiscard]] virtual bool Write(std::string_view part) = 0;
  // Backlog returns how many bytes a page may hold for a client that is slower
  // than the page.
  [[nodiscard]] virtual size_t Backlog() const = 0;

 protected:
  ~PageClient() = default;
};

// HttpResponse is an answer.
struct HttpResponse {
  int status = 200;
  std::string fields = {};  // each ends in CR LF
  std::string body = {};
  // Sends the body, in place of `body`, by client.Write. Its length need not be
  // known, and it need not fit into memory. The head has been sent by then, so
  // an error can only cut the body off: if stream returns false or throws, the
  // client sees that the body is not whole. It is not called for HEAD.
  absl::AnyInvocable<bool(PageClient& client)> stream = {};
};

inline constexpr std::string_view kPlainTextField =
    "Content-Type: text/plain; charset=utf-8\r\n";
inline constexpr std::string_view kBinaryField =
    "Content-Type: application/octet-stream\r\n";
inline constexpr std::string_view kNosniffField =
    "X-Content-Type-Options: nosniff\r\n";
// AttachmentField tells a browser to keep the body in a file.
[[nodiscard]] std::string AttachmentField(std::string_view name);

// ReasonOf returns the text of a status, such as "Not Found".
[[nodiscard]] std::string_view ReasonOf(int status);

// HttpError is http.Error of Go, and PprofError is serveError of
// net/http/pprof.
[[nodiscard]] HttpResponse HttpError(int status, std::string_view text);
[[nodiscard]] HttpResponse PprofError(int status, std::string_view text);
// TooManyPages is the answer if Reserve has failed.
[[nodiscard]] HttpResponse TooManyPages();

}  // namespace gump::internal

#endif  // API_DEBUG_HTTP_RESPONSE_H_
