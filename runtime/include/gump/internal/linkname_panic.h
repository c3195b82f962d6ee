// The window for errors that end the process. linkname.h gives the rules.
#ifndef GUMP_INTERNAL_LINKNAME_PANIC_H_
#define GUMP_INTERNAL_LINKNAME_PANIC_H_

#include <cstddef>

namespace gump::rt {

// fatalError is fatal of panic.h. fatalPanicTwice is its fatalpanic for a panic
// (second) during another.
[[noreturn]] void fatalError(const char* go_text) noexcept;
[[noreturn]] void fatalPanicTwice(const char* text, size_t n,
                                  const char* second) noexcept;

}  // namespace gump::rt

#endif  // GUMP_INTERNAL_LINKNAME_PANIC_H_
