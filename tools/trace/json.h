// Pieces of JSON.
#ifndef TOOLS_TRACE_JSON_H_
#define TOOLS_TRACE_JSON_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace trace_tool {

// AppendQuoted appends text to *out as a JSON string. A byte that is not part
// of valid UTF-8 becomes '?'. '<' is escaped, so that the string may stand in a
// script of a page.
inline void AppendQuoted(absl::string_view text, std::string* out) {
  constexpr char kHex[] = "0123456789abcdef";
  out->push_back('"');
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(static_cast<char>(c));
    } else if (c < 0x20 || c == '<' || c == 0x7f) {
      out->append("\\u00");
      out->push_back(kHex[c >> 4]);
      out->push_back(kHex[c & 15]);
    } else if (c < 0x80) {
      out->push_back(static_cast<char>(c));
    } else {
      const size_t size = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 0;
      bool ok = size != 0 && c < 0xf5 && i + size <= text.size();
      for (size_t k = 1; ok && k < size; ++k) {
        ok = (static_cast<unsigned char>(text[i + k]) & 0xc0) == 0x80;
      }
      if (!ok) {
        out->push_back('?');
        continue;
      }
      out->append(text.data() + i, size);
      i += size - 1;
    }
  }
  out->push_back('"');
}

}  // namespace trace_tool

#endif  // TOOLS_TRACE_JSON_H_
