// Text that the runtime writes into a std::string.
#ifndef API_GROW_TEXT_H_
#define API_GROW_TEXT_H_

#include <algorithm>
#include <cstddef>
#include <string>

namespace gump::internal {

// GrowText is the rt::BufferGrower of the std::string at `text`. It doubles the
// memory of the text, or takes only *size bytes if there is not so much memory.
// It stores the new size in *size. Returns nullptr if there is no memory.
inline char* GrowText(void* text, size_t* size) {
  auto& s = *static_cast<std::string*>(text);
  for (const size_t n :
       {std::max({*size, 2 * s.size(), size_t{16} << 10}), *size}) {
    try {
      std::string larger;  // s.resize would take twice the memory in any case
      larger.reserve(n);
      larger = s;
      larger.resize(n);
      s.swap(larger);
    } catch (...) {  // a program's operator new may throw anything
      continue;
    }
    *size = n;
    return s.data();
  }
  return nullptr;
}

}  // namespace gump::internal

#endif  // API_GROW_TEXT_H_
