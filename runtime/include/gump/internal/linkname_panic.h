// The window for errors that end the process. linkname.h gives the rules.
#ifndef GUMP_INTERNAL_LINKNAME_PANIC_H_
#define GUMP_INTERNAL_LINKNAME_PANIC_H_

#include <cstddef>

namespace gump::rt {

// fatalError ends the process with a fatal error (fatal in
// runtime/diag/panic.h). fatalPanicTwice ends it with a report of two panics:
// `second` was thrown while the panic `text`, of n bytes, was unwinding the
// stack.
[[noreturn]] void fatalError(const char* go_text) noexcept;
[[noreturn]] void fatalPanicTwice(const char* text, size_t n,
                                  const char* second) noexcept;

}  // namespace gump::rt

#endif  // GUMP_INTERNAL_LINKNAME_PANIC_H_
