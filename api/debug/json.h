// Writing JSON (RFC 8259).
#ifndef API_DEBUG_JSON_H_
#define API_DEBUG_JSON_H_

#include <string>
#include <string_view>

namespace gump::internal {

// AppendJsonString appends s as a string of JSON, in quotes. A control
// character becomes an escape. Each byte of s that is not part of valid UTF-8
// becomes U+FFFD. So the result is valid UTF-8, and on one line.
void AppendJsonString(std::string* out, std::string_view s);

}  // namespace gump::internal

#endif  // API_DEBUG_JSON_H_
