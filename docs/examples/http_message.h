// Parses the heads of HTTP/1.1 requests (RFC 9112), without any I/O.
// http_server.h reads the bytes and calls these functions.
//
// The parser is strict where leniency is dangerous. If a proxy and a server
// disagree about where a request ends, a client can make them see different
// requests. So the parser refuses everything that can be read in two ways:
//
// * lines that do not end in CR LF;
// * lines that continue on the next line (obs-fold);
// * space before a colon;
// * a length with a sign, a list of lengths, or a length that is given twice;
// * a length together with Transfer-Encoding;
// * "chunked" together with another transfer coding.
//
// Functions whose result is an int return 0, or the HTTP status with which to
// refuse the request. The parser is written by hand because Debian 12 has no
// parser that is maintained. The authors of http-parser have replaced it with
// llhttp, which Debian 12 does not have.
#ifndef DOCS_EXAMPLES_HTTP_MESSAGE_H_
#define DOCS_EXAMPLES_HTTP_MESSAGE_H_

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace http {

// Request is a request. The views point into its head.
struct Request {
  std::string head;
  std::string_view method;
  std::string_view target;  // "/path?query"
  int minor = 1;            // of HTTP/1.minor: 0 or 1
  std::vector<std::pair<std::string_view, std::string_view>> fields;
  std::string body;

  // What the fields say about the message and the connection.
  uint64_t content_length = 0;
  bool chunked = false;
  bool keep_alive = true;
  bool expects_continue = false;

  std::string_view Path() const { return target.substr(0, target.find('?')); }
};

// ParseNumber accepts digits and nothing else.
inline bool ParseNumber(std::string_view s, int base, uint64_t& n) {
  const char* end = s.data() + s.size();
  const auto [stop, error] = std::from_chars(s.data(), end, n, base);
  return error == std::errc() && stop == end;  // n is unsigned: no sign passes
}

namespace internal {

inline char Lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
}

// Is compares two strings and ignores case.
inline bool Is(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return Lower(x) == Lower(y); });
}

inline bool IsTokenChar(char c) {
  return (c >= '0' && c <= '9') || (Lower(c) >= 'a' && Lower(c) <= 'z') ||
         (c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) !=
                           std::string_view::npos);
}

inline bool IsToken(std::string_view s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), IsTokenChar);
}

inline bool IsVisible(char c) { return c > 0x20 && c < 0x7f; }

inline std::string_view Trim(std::string_view s) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
  return s;
}

// Cut returns the part of s before sep, and removes that part and sep from s.
inline std::string_view Cut(std::string_view& s, std::string_view sep) {
  const size_t at = std::min(s.find(sep), s.size());
  const std::string_view before = s.substr(0, at);
  s.remove_prefix(std::min(at + sep.size(), s.size()));
  return before;
}

inline int ParseRequestLine(std::string_view line, Request& r) {
  r.method = Cut(line, " ");
  r.target = Cut(line, " ");
  if (!IsToken(r.method) || r.target.empty()) return 400;
  if (!std::all_of(r.target.begin(), r.target.end(), IsVisible)) return 400;
  if (!line.starts_with("HTTP/") || line.size() != 8) return 400;
  if (line != "HTTP/1.1" && line != "HTTP/1.0") return 505;
  r.minor = line.back() - '0';
  r.keep_alive = r.minor == 1;
  if (Is(r.target.substr(0, 7), "http://")) {  // the form for proxies
    r.target.remove_prefix(7);
    r.target.remove_prefix(std::min(r.target.find('/'), r.target.size()));
    if (r.target.empty()) r.target = "/";
  }
  return r.target.front() == '/' || r.target == "*" ? 0 : 400;
}

inline int ParseField(std::string_view line, Request& r) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return 400;
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = Trim(line.substr(colon + 1));
  // A name with a space before or after it is not a token, so it is refused.
  const auto is_text = [](char c) {
    return IsVisible(c) || c == ' ' || c == '\t' || (c & 0x80) != 0;
  };
  if (!IsToken(name)) return 400;
  if (!std::all_of(value.begin(), value.end(), is_text)) return 400;
  r.fields.emplace_back(name, value);
  return 0;
}

// Interpret finds out from the fields how long the message is, and whether the
// connection stays open.
inline int Interpret(Request& r) {
  int hosts = 0, lengths = 0, codings = 0;
  for (const auto& [name, value] : r.fields) {
    if (Is(name, "Host")) {
      hosts++;
    } else if (Is(name, "Content-Length")) {
      lengths++;
      if (!ParseNumber(value, 10, r.content_length)) return 400;
    } else if (Is(name, "Transfer-Encoding")) {
      codings++;
      if (!Is(value, "chunked")) return r.minor == 1 ? 501 : 400;
      r.chunked = true;
    } else if (Is(name, "Expect")) {
      if (!Is(value, "100-continue")) return 417;
      r.expects_continue = r.minor == 1;
    } else if (Is(name, "Connection")) {
      for (std::string_view list = value; !list.empty();) {
        const std::string_view option = Trim(Cut(list, ","));
        if (Is(option, "close")) r.keep_alive = false;
        if (Is(option, "keep-alive") && r.minor == 0) r.keep_alive = true;
      }
    }
  }
  if (hosts > 1 || (hosts == 0 && r.minor == 1)) return 400;
  if (lengths + codings > 1 || (codings > 0 && r.minor == 0)) return 400;
  return 0;
}

}  // namespace internal

// EndOfHead returns the length of the head at the start of text, which includes
// its empty line. It returns 0 if text does not hold the whole head yet, and
// npos if a line ends without CR. In the first call `from` is 0. In a later
// call it is the length that text had in the call before, so that no byte is
// searched twice.
inline size_t EndOfHead(std::string_view text, size_t from) {
  for (size_t lf = from; (lf = text.find('\n', lf)) != text.npos; lf++) {
    if (lf == 0 || text[lf - 1] != '\r') return text.npos;
    if (lf >= 3 && text.substr(lf - 3, 2) == "\r\n") return lf + 1;
  }
  return 0;
}

// ParseHead fills r from r.head, which must be exactly the head that EndOfHead
// has found.
inline int ParseHead(Request& r) {
  std::string_view rest(r.head);
  int refused = internal::ParseRequestLine(internal::Cut(rest, "\r\n"), r);
  while (refused == 0 && rest != "\r\n") {
    refused = internal::ParseField(internal::Cut(rest, "\r\n"), r);
  }
  return refused != 0 ? refused : internal::Interpret(r);
}

// ParseChunkSize reads the line before a chunk. The line holds the size, and
// perhaps extensions, which we ignore.
inline int ParseChunkSize(std::string_view line, uint64_t& size) {
  for (const char c : line) {
    if (!internal::IsVisible(c) && c != ' ' && c != '\t') return 400;
  }
  const std::string_view digits = internal::Cut(line, ";");
  return ParseNumber(internal::Trim(digits), 16, size) ? 0 : 400;
}

}  // namespace http

#endif  // DOCS_EXAMPLES_HTTP_MESSAGE_H_
