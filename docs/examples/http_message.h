// What HTTP/1.1 requests look like (RFC 9112), without any I/O: who reads them
// is http_server.cc.
//
// It is strict where leniency is a hole. A proxy and a server that disagree
// about where a request ends can be made to see different requests, so whatever
// could be read in two ways is refused: lines that do not end in CR LF, lines
// continued on the next (obs-fold), space before a colon, a length that is
// signed, listed or given twice, a length beside Transfer-Encoding, chunked
// that is not alone.
//
// Functions return 0, or the status to refuse the request with. It is written
// by hand because Debian 12 has no parser that is kept up: the authors of
// http-parser have left it for llhttp, which is not there.
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

// Request is a request without its body. The views are into its head.
struct Request {
  std::string head;
  std::string_view method;
  std::string_view target;  // "/path?query"
  int minor = 1;            // of HTTP/1.minor: 0 or 1
  std::vector<std::pair<std::string_view, std::string_view>> fields;
  std::string body;

  // What the fields say of the message and the connection.
  uint64_t content_length = 0;
  bool chunked = false;
  bool keep_alive = true;
  bool expects_continue = false;

  std::string_view Path() const { return target.substr(0, target.find('?')); }
};

// ParseNumber wants digits and nothing else.
inline bool ParseNumber(std::string_view s, int base, uint64_t& n) {
  const char* end = s.data() + s.size();
  const auto [stop, error] = std::from_chars(s.data(), end, n, base);
  return error == std::errc() && stop == end;  // unsigned: takes no sign
}

namespace internal {

inline char Lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
}

// Is compares regardless of case.
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

// Cut returns what is before sep, and removes it and sep from s.
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
  if (Is(r.target.substr(0, 7), "http://")) {  // as proxies are asked
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
  // Space before the colon, and before the name, is no token.
  const auto is_text = [](char c) {
    return IsVisible(c) || c == ' ' || c == '\t' || (c & 0x80) != 0;
  };
  if (!IsToken(name)) return 400;
  if (!std::all_of(value.begin(), value.end(), is_text)) return 400;
  r.fields.emplace_back(name, value);
  return 0;
}

// Interpret finds out how long the message is, and what becomes of the
// connection.
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

// EndOfHead is the length of the head that text begins with, its empty line
// included. 0: there has to be more; npos: a line ends without CR. What is
// before `from` has been looked at.
inline size_t EndOfHead(std::string_view text, size_t from) {
  for (size_t lf = from; (lf = text.find('\n', lf)) != text.npos; lf++) {
    if (lf == 0 || text[lf - 1] != '\r') return text.npos;
    if (lf >= 3 && text.substr(lf - 3, 2) == "\r\n") return lf + 1;
  }
  return 0;
}

// ParseHead fills r from r.head, which is all that EndOfHead has found.
inline int ParseHead(Request& r) {
  std::string_view rest(r.head);
  int refused = internal::ParseRequestLine(internal::Cut(rest, "\r\n"), r);
  while (refused == 0 && rest != "\r\n") {
    refused = internal::ParseField(internal::Cut(rest, "\r\n"), r);
  }
  return refused != 0 ? refused : internal::Interpret(r);
}

// ParseChunkSize reads the line before a chunk: the size, and extensions, which
// mean nothing to us.
inline int ParseChunkSize(std::string_view line, uint64_t& size) {
  for (const char c : line) {
    if (!internal::IsVisible(c) && c != ' ' && c != '\t') return 400;
  }
  const std::string_view digits = internal::Cut(line, ";");
  return ParseNumber(internal::Trim(digits), 16, size) ? 0 : 400;
}

}  // namespace http

#endif  // DOCS_EXAMPLES_HTTP_MESSAGE_H_
