// The pages of debug::ServeHTTP, and their answers.
#ifndef API_DEBUG_PAGES_H_
#define API_DEBUG_PAGES_H_

#include "api/debug/http_message.h"
#include "api/debug/http_response.h"

namespace gump::internal {

// AnswerRequest makes the answer to a request. Throws what the page throws,
// such as std::bad_alloc. Parks.
[[nodiscard]] HttpResponse AnswerRequest(const HttpRequest& r,
                                         PageClient& client);

// AnswerRefusal makes the answer to a request that is refused.
[[nodiscard]] HttpResponse AnswerRefusal(const Refusal& refusal);

}  // namespace gump::internal

#endif  // API_DEBUG_PAGES_H_
