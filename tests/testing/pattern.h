// Data of which no part can be taken for another.
#ifndef TESTS_TESTING_PATTERN_H_
#define TESTS_TESTING_PATTERN_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace gump::testing {

// Pattern returns n bytes, no two parts of which look the same.
inline std::string Pattern(size_t n) {
  std::string s(n, '\0');
  uint32_t x = 1;
  for (char& c : s) {
    x = x * 1664525 + 1013904223;
    c = static_cast<char>(x >> 24);
  }
  return s;
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_PATTERN_H_
