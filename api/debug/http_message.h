// Parses the heads of HTTP/1.1 requests (RFC 9112), without any I/O.
//
// The parser is strict where leniency is dangerous. It refuses all that a proxy
// could read in another way:
//
// * lines that do not end in CR LF;
// * lines that continue on the next line (obs-fold);
// * space before a colon;
// * a length with a sign, a list of lengths, or a length that is given twice;
// * a length together with Transfer-Encoding.
//
// It does not read bodies. A request with one is answered, and then the
// connection ends.
#ifndef API_DEBUG_HTTP_MESSAGE_H_
#define API_DEBUG_HTTP_MESSAGE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gump::internal {

// HttpRequest is the head of a request. The views point into it.
struct HttpRequest {
  std::string head;
  std::string_view method;
  std::string path;           // decoded
  std::string_view query;     // as it came, without the question mark
  int minor = 1;              // of HTTP/1.minor: 0 or 1
  bool accepts_json = false;  // Accept names application/json
  bool keep_alive = true;
  bool has_body = false;

  // FormValue returns the value of a parameter of the query, decoded, or "".
  // The first of several counts. A pair that cannot be decoded is left out.
  [[nodiscard]] std::string FormValue(std::string_view name) const;
};

// Refusal says why a request is refused. A status of 0 means that it is not.
struct Refusal {
  int status = 0;
  std::string_view text;  // more than the status says, or ""
};

// EndOfHead returns the length of the head at the start of text, which includes
// its empty line. It returns 0 if text does not hold the whole head yet, and
// npos if a line ends without CR. In the first call `from` is 0. In a later
// call it is the length that text had in the call before, so that no byte is
// searched twice.
[[nodiscard]] size_t EndOfHead(std::string_view text, size_t from);

// ParseHead fills *r from r->head, which must be exactly the head that
// EndOfHead has found.
[[nodiscard]] Refusal ParseHead(HttpRequest* r);

// Unescape decodes the %XX in s, and + as a space if `plus` is set. Returns
// nullopt if a % is not followed by two digits.
[[nodiscard]] std::optional<std::string> Unescape(std::string_view s,
                                                  bool plus);

// ParseInt reads a decimal number with an optional sign, as Go's ParseInt does.
// Returns nullopt if s is not one, or does not fit.
[[nodiscard]] std::optional<long long> ParseInt(std::string_view s);

}  // namespace gump::internal

#endif  // API_DEBUG_HTTP_MESSAGE_H_
