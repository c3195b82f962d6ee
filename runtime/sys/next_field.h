// Cuts the text files of the kernel into fields.
#ifndef RUNTIME_SYS_NEXT_FIELD_H_
#define RUNTIME_SYS_NEXT_FIELD_H_

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace gump::rt {

// nextField cuts the first field off *s, up to sep or to the end.
inline std::string_view nextField(std::string_view* s, char sep) {
  const size_t n = std::min(s->find(sep), s->size());
  const std::string_view field = s->substr(0, n);
  s->remove_prefix(std::min(n + 1, s->size()));
  return field;
}

}  // namespace gump::rt

#endif  // RUNTIME_SYS_NEXT_FIELD_H_
