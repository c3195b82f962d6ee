// The page /debug/pprof/trace.
#ifndef API_DEBUG_TRACE_PAGE_H_
#define API_DEBUG_TRACE_PAGE_H_

#include "api/debug/http_message.h"
#include "api/debug/http_response.h"

namespace gump::internal {

// ExecutionTrace serves an execution trace while it is written. As with a CPU
// profile, a client that closes its half of the connection gets the events so
// far. Throws std::bad_alloc. Parks.
[[nodiscard]] HttpResponse ExecutionTrace(const HttpRequest& r,
                                          PageClient& client);

}  // namespace gump::internal

#endif  // API_DEBUG_TRACE_PAGE_H_
