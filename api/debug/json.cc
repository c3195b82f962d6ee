#include "api/debug/json.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace gump::internal {

namespace {

// CharacterSize returns the number of bytes of the character with which s
// begins. It returns 0 if they are not valid UTF-8 (RFC 3629): if they are cut
// off, longer than necessary, a surrogate, or above U+10FFFF.
size_t CharacterSize(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t n = first < 0xc2   ? 0
                   : first < 0xe0 ? 2
                   : first < 0xf0 ? 3
                   : first < 0xf5 ? 4
                                  : 0;
  if (n == 0 || s.size() < n) return 0;
  // Only the second byte has a range that depends on the first.
  const uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < n; i++) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return n;
}

void AppendAscii(std::string* out, char c) {
  switch (c) {
    case '"':
    case '\\':
      *out += {'\\', c};
      return;
    case '\n':
      *out += "\\n";
      return;
    case '\r':
      *out += "\\r";
      return;
    case '\t':
      *out += "\\t";
      return;
    default:
      break;
  }
  if (static_cast<uint8_t>(c) >= 0x20) {
    *out += c;
    return;
  }
  char escape[7];
  std::snprintf(escape, sizeof(escape), "\\u%04x", c);
  *out += escape;
}

}  // namespace

void AppendJsonString(std::string* out, std::string_view s) {
  *out += '"';
  while (!s.empty()) {
    const size_t n = CharacterSize(s);
    if (n == 0) {
      *out += "\xef\xbf\xbd";  // U+FFFD
    } else if (n == 1) {
      AppendAscii(out, s[0]);
    } else {
      out->append(s, 0, n);
    }
    s.remove_prefix(n == 0 ? 1 : n);
  }
  *out += '"';
}

}  // namespace gump::internal
