// Text that the runtime writes into a std::string.
#ifndef API_GROW_TEXT_H_
#define API_GROW_TEXT_H_

#include <algorithm>
#include <cstddef>
#include <string>

namespace gump::internal {

// GrowText is the rt::BufferGrower of the std::string at `text`. It doubles the
// text's memory. If there is not so much memory, it takes what is needed now.
inline char* GrowText(void* text, size_t* size) {
  auto& s = *static_cast<std::string*>(text);
  for (const size_t n :
       {std::max({*size, 2 * s.size(), size_t{16} << 10}), *size}) {
    try {
      std::string larger;  // resize of `s` itself doubles by itself
      larger.reserve(n);
      larger = s;
      larger.resize(n);
      s.swap(larger);
    } catch (...) {  // whatever a program's operator new throws
      continue;
    }
    *size = n;
    return s.data();
  }
  return nullptr;
}

}  // namespace gump::internal

#endif  // API_GROW_TEXT_H_
