#include "tests/testing/json_reader.h"

#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace gump::testing {

namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Json ReadAll(std::string* error) {
    Json v = Value(0);
    Space();
    if (error_.empty() && at_ != text_.size()) Fail("more than one value");
    *error = error_;
    return v;
  }

 private:
  static constexpr int kMaxDepth = 64;

  void Fail(const char* what) {
    if (!error_.empty()) return;
    error_ = std::string(what) + " at byte " + std::to_string(at_);
    at_ = text_.size();
  }
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool Take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void Expect(std::string_view token) {
    if (!Take(token)) Fail("a character is missing");
  }
  void Space() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) {
      at_++;
    }
  }

  Json Value(int depth) {
    Json v;
    Space();
    if (depth > kMaxDepth) Fail("too deep");
    if (Take("null")) return v;
    if (Take("true") || Take("false")) {
      v.kind = Json::Kind::kBool;
      v.truth = text_[at_ - 2] == 'u';
      return v;
    }
    switch (Peek()) {
      case '"':
        v.kind = Json::Kind::kString;
        v.text = String();
        return v;
      case '[':
        return Array(depth);
      case '{':
        return Object(depth);
      default:
        return Number();
    }
  }

  Json Array(int depth) {
    Json v;
    v.kind = Json::Kind::kArray;
    Expect("[");
    Space();
    if (Take("]")) return v;
    do {
      v.items.push_back(Value(depth + 1));
      Space();
    } while (Take(","));
    Expect("]");
    return v;
  }

  Json Object(int depth) {
    Json v;
    v.kind = Json::Kind::kObject;
    Expect("{");
    Space();
    if (Take("}")) return v;
    do {
      Space();
      std::string name = String();
      for (const std::string& other : v.names) {
        if (other == name) Fail("a name stands twice");
      }
      Space();
      Expect(":");
      v.names.push_back(std::move(name));
      v.items.push_back(Value(depth + 1));
      Space();
    } while (Take(","));
    Expect("}");
    return v;
  }

  void Digits() {
    if (!std::isdigit(static_cast<unsigned char>(Peek()))) Fail("no digit");
    while (std::isdigit(static_cast<unsigned char>(Peek()))) at_++;
  }

  Json Number() {
    Json v;
    v.kind = Json::Kind::kNumber;
    const size_t begin = at_;
    (void)Take("-");
    if (!Take("0")) Digits();
    if (Take(".")) Digits();
    if (Take("e") || Take("E")) {
      (void)(Take("+") || Take("-"));
      Digits();
    }
    v.text = text_.substr(begin, at_ - begin);
    return v;
  }

  static void AppendUtf8(std::string* out, uint32_t c) {
    const auto byte = [&](uint32_t b) { *out += static_cast<char>(b); };
    if (c < 0x80) {
      byte(c);
    } else if (c < 0x800) {
      byte(0xc0 | c >> 6);
      byte(0x80 | (c & 0x3f));
    } else {
      byte(0xe0 | c >> 12);
      byte(0x80 | (c >> 6 & 0x3f));
      byte(0x80 | (c & 0x3f));
    }
  }

  void Escape(std::string* out) {
    constexpr std::string_view kFrom = "\"\\/bfnrt";
    constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
    const char c = Peek();
    at_++;
    if (const size_t i = kFrom.find(c); c != '\0' && i != kFrom.npos) {
      *out += kTo[i];
      return;
    }
    uint32_t code = 0;
    if (c != 'u' || text_.size() - at_ < 4) return Fail("bad escape");
    const char* begin = text_.data() + at_;
    const auto [stop, e] = std::from_chars(begin, begin + 4, code, 16);
    if (e != std::errc() || stop != begin + 4) return Fail("bad escape");
    if (code >= 0xd800 && code < 0xe000) return Fail("a surrogate");
    at_ += 4;
    AppendUtf8(out, code);
  }

  // Character copies one character, which must be valid UTF-8.
  void Character(std::string* out) {
    const auto first = static_cast<uint8_t>(text_[at_]);
    const size_t n = first < 0x80           ? 1
                     : (first >> 5) == 6    ? 2
                     : (first >> 4) == 0xe  ? 3
                     : (first >> 3) == 0x1e ? 4
                                            : 0;
    if (n == 0 || text_.size() - at_ < n) return Fail("not UTF-8");
    uint32_t code = n == 1 ? first : first & (0x7fU >> n);
    for (size_t i = 1; i < n; i++) {
      const auto b = static_cast<uint8_t>(text_[at_ + i]);
      if ((b & 0xc0) != 0x80) return Fail("not UTF-8");
      code = code << 6 | (b & 0x3f);
    }
    constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kLeast[n] || code > 0x10ffff ||
        (code >= 0xd800 && code < 0xe000)) {
      return Fail("not UTF-8");
    }
    if (code < 0x20) return Fail("a control character");
    out->append(text_, at_, n);
    at_ += n;
  }

  std::string String() {
    std::string out;
    Expect("\"");
    while (error_.empty() && !Take("\"")) {
      if (at_ == text_.size()) {
        Fail("a string has no end");
      } else if (Take("\\")) {
        Escape(&out);
      } else {
        Character(&out);
      }
    }
    return out;
  }

  const std::string_view text_;
  size_t at_ = 0;
  std::string error_;
};

}  // namespace

const Json& Json::At(std::string_view name) const {
  static const Json null;
  for (size_t i = 0; i < names.size(); i++) {
    if (names[i] == name) return items[i];
  }
  return null;
}

Json ReadJson(std::string_view text, std::string* error) {
  return Reader(text).ReadAll(error);
}

}  // namespace gump::testing
