// A strict reader of JSON (RFC 8259), for tests of what we write. It accepts
// nothing that the standard does not, and checks that the text is UTF-8.
#ifndef TESTS_TESTING_JSON_READER_H_
#define TESTS_TESTING_JSON_READER_H_

#include <string>
#include <string_view>
#include <vector>

namespace gump::testing {

// Json is a value. An object keeps its members in their order.
struct Json {
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  bool truth = false;
  std::string text;         // of a string, decoded; of a number, as it came
  std::vector<Json> items;  // of an array or an object
  std::vector<std::string> names;  // of the items of an object

  bool is_null() const { return kind == Kind::kNull; }
  // At returns a member, or a null if there is none.
  const Json& At(std::string_view name) const;
};

// ReadJson reads text, which must be one value. *error says what is wrong, and
// is empty if nothing is.
Json ReadJson(std::string_view text, std::string* error);

}  // namespace gump::testing

#endif  // TESTS_TESTING_JSON_READER_H_
