// The pages of debug::ServeHTTP, and their answers.
#ifndef API_DEBUG_PAGES_H_
#define API_DEBUG_PAGES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "api/debug/http_message.h"

namespace gump::internal {

struct HttpResponse {
  int status = 200;
  std::string fields = {};  // each ends in CR LF
  std::string body = {};
};

// ReasonOf returns the text of a status, such as "Not Found".
[[nodiscard]] std::string_view ReasonOf(int status);

// Waited says how a page's wait has ended.
enum class Waited : uint8_t {
  kFull,     // the time is over
  kGone,     // the client has left, or the server is to end
  kTooMany,  // the wait has not begun, because too many pages wait
};

// A PageWait waits for a duration. Parks.
using PageWait = absl::FunctionRef<Waited(absl::Duration)>;

// AnswerRequest makes the answer to a request. A page that lasts for some
// seconds calls `wait`. Throws what the page throws, such as std::bad_alloc.
// Parks.
[[nodiscard]] HttpResponse AnswerRequest(const HttpRequest& r, PageWait wait);

// AnswerRefusal makes the answer to a request that is refused.
[[nodiscard]] HttpResponse AnswerRefusal(const Refusal& refusal);

}  // namespace gump::internal

#endif  // API_DEBUG_PAGES_H_
