// Concatenation of texts and numbers. (absl::StrCat takes std::string_view only
// where Abseil was built for C++17.)
#ifndef API_CAT_H_
#define API_CAT_H_

#include <string>
#include <string_view>
#include <type_traits>

namespace gump::internal {

// Append appends parts to *text: texts, and numbers in decimal digits.
template <class... Parts>
void Append(std::string* text, const Parts&... parts) {
  const auto append = [&](const auto& part) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) {
      *text += std::to_string(part);
    } else if constexpr (requires { part.data(); }) {
      text->append(part.data(), part.size());  // also an absl::string_view
    } else {
      *text += std::string_view(part);
    }
  };
  (append(parts), ...);
}

// Cat returns the concatenation of parts.
template <class... Parts>
std::string Cat(const Parts&... parts) {
  std::string text;
  Append(&text, parts...);
  return text;
}

}  // namespace gump::internal

#endif  // API_CAT_H_
