#include "api/debug/http_message.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <system_error>

#include "absl/strings/ascii.h"

namespace gump::internal {

namespace {

char Lower(char c) {
  return absl::ascii_tolower(static_cast<unsigned char>(c));
}

// Is compares two strings and ignores case.
bool Is(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return Lower(x) == Lower(y); });
}

bool IsTokenChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         (c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) !=
                           std::string_view::npos);
}

bool IsToken(std::string_view s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), IsTokenChar);
}

bool IsVisible(char c) { return c > 0x20 && c < 0x7f; }

bool IsFieldChar(char c) {
  return IsVisible(c) || c == ' ' || c == '\t' || (c & 0x80) != 0;
}

std::string_view Trim(std::string_view s) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
  return s;
}

// Cut returns the part of s before sep, and removes that part and sep from s.
std::string_view Cut(std::string_view* s, std::string_view sep) {
  const size_t at = std::min(s->find(sep), s->size());
  const std::string_view before = s->substr(0, at);
  s->remove_prefix(std::min(at + sep.size(), s->size()));
  return before;
}

Refusal ParseRequestLine(std::string_view line, HttpRequest* r) {
  r->method = Cut(&line, " ");
  std::string_view target = Cut(&line, " ");
  if (!IsToken(r->method) || target.empty()) return {400, ""};
  if (!std::all_of(target.begin(), target.end(), IsVisible)) return {400, ""};
  if (!line.starts_with("HTTP/") || line.size() != 8) return {400, ""};
  if (line != "HTTP/1.1" && line != "HTTP/1.0") {
    return {505, "unsupported protocol version"};
  }
  r->minor = line.back() - '0';
  r->keep_alive = r->minor == 1;
  if (Is(target.substr(0, 7), "http://")) {  // as proxies ask
    target.remove_prefix(7);
    target.remove_prefix(std::min(target.find('/'), target.size()));
    if (target.empty()) target = "/";
  }
  if (target.front() != '/') return {400, ""};
  std::optional<std::string> path = Unescape(Cut(&target, "?"), false);
  if (!path.has_value()) return {400, ""};
  r->path = *std::move(path);
  r->query = target;
  return {};
}

// Fields holds what the fields of a head say in common.
struct Fields {
  int hosts = 0;
  int lengths = 0;
  int codings = 0;
};

Refusal TakeField(std::string_view name, std::string_view value, HttpRequest* r,
                  Fields* f) {
  if (Is(name, "Host")) {
    f->hosts++;
  } else if (Is(name, "Content-Length")) {
    f->lengths++;
    uint64_t length;
    const char* end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, length);
    if (error != std::errc() || stop != end) return {400, ""};
    if (length != 0) r->has_body = true;
  } else if (Is(name, "Transfer-Encoding")) {
    f->codings++;
    if (!Is(value, "chunked")) {
      return {r->minor == 1 ? 501 : 400, "Unsupported transfer encoding"};
    }
    r->has_body = true;
  } else if (Is(name, "Expect")) {
    if (!Is(value, "100-continue")) return {417, ""};
  } else if (Is(name, "Accept")) {
    constexpr std::string_view kJson = "application/json";
    r->accepts_json = std::search(value.begin(), value.end(), kJson.begin(),
                                  kJson.end(), [](char x, char y) {
                                    return Lower(x) == y;
                                  }) != value.end();
  } else if (Is(name, "Connection")) {
    for (std::string_view list = value; !list.empty();) {
      const std::string_view option = Trim(Cut(&list, ","));
      if (Is(option, "close")) r->keep_alive = false;
      if (Is(option, "keep-alive") && r->minor == 0) {
        r->keep_alive = true;
      }
    }
  }
  return {};
}

Refusal ParseField(std::string_view line, HttpRequest* r, Fields* f) {
  const size_t colon = line.find(':');
  // A name with a space before or after it is not a token.
  if (colon == std::string_view::npos || !IsToken(line.substr(0, colon))) {
    return {400, "invalid header name"};
  }
  const std::string_view value = Trim(line.substr(colon + 1));
  if (!std::all_of(value.begin(), value.end(), IsFieldChar)) {
    return {400, "invalid header value"};
  }
  return TakeField(line.substr(0, colon), value, r, f);
}

}  // namespace

std::optional<std::string> Unescape(std::string_view s, bool plus) {
  std::string out;
  for (size_t i = 0; i < s.size(); i++) {
    if (s[i] != '%') {
      out += plus && s[i] == '+' ? ' ' : s[i];
      continue;
    }
    const char* begin = s.data() + i + 1;
    uint8_t byte;
    if (s.size() - i < 3) return std::nullopt;
    const auto [stop, error] = std::from_chars(begin, begin + 2, byte, 16);
    if (error != std::errc() || stop != begin + 2) return std::nullopt;
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

std::optional<long long> ParseInt(std::string_view s) {
  if (s.starts_with('+')) {
    s.remove_prefix(1);
    if (s.starts_with('-')) return std::nullopt;
  }
  long long n;
  const char* end = s.data() + s.size();
  const auto [stop, error] = std::from_chars(s.data(), end, n);
  if (error != std::errc() || stop != end) return std::nullopt;
  return n;
}

std::string HttpRequest::FormValue(std::string_view name) const {
  for (std::string_view rest = query; !rest.empty();) {
    std::string_view pair = Cut(&rest, "&");
    if (pair.find(';') != pair.npos) continue;  // as Go
    const std::optional<std::string> key =
        Unescape(Cut(&pair, "="), /*plus=*/true);
    if (!key.has_value() || *key != name) continue;
    std::optional<std::string> value = Unescape(pair, /*plus=*/true);
    if (value.has_value()) return *std::move(value);
  }
  return "";
}

size_t EndOfHead(std::string_view text, size_t from) {
  for (size_t lf = from; (lf = text.find('\n', lf)) != text.npos; lf++) {
    if (lf == 0 || text[lf - 1] != '\r') return text.npos;
    if (lf >= 3 && text.substr(lf - 3, 2) == "\r\n") return lf + 1;
  }
  return 0;
}

Refusal ParseHead(HttpRequest* r) {
  std::string_view rest(r->head);
  if (rest.starts_with("\r\n"))
    rest.remove_prefix(2);  // some clients send an empty line first
  Fields f;
  Refusal refusal = ParseRequestLine(Cut(&rest, "\r\n"), r);
  while (refusal.status == 0 && rest != "\r\n") {
    refusal = ParseField(Cut(&rest, "\r\n"), r, &f);
  }
  if (refusal.status != 0) return refusal;
  if (f.hosts == 0 && r->minor == 1) {
    return {400, "missing required Host header"};
  }
  if (f.hosts > 1) return {400, "too many Host headers"};
  if (f.lengths + f.codings > 1 || (f.codings > 0 && r->minor == 0)) {
    return {400, ""};
  }
  return {};
}

}  // namespace gump::internal
