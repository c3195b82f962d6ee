// The window for errors that end the process. linkname.h gives the rules.
#ifndef GUMP_INTERNAL_LINKNAME_PANIC_H_
#define GUMP_INTERNAL_LINKNAME_PANIC_H_

#include <cstddef>

#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump::rt {

// These end the process with a fatal error, by the verbs of
// runtime/diag/panic.h. fatalError is fatal: the caller made a mistake, and the
// report shows its goroutine. fatalErrorAll is fatalAll: the report shows every
// goroutine. fatalInvariant is fatalthrow: an invariant of ours broke.
//
// fatalPanicTwice ends the process with a report of two panics: `second` was
// thrown while the panic `text`, of n bytes, was unwinding the stack.
[[noreturn]] void fatalError(const char* go_text) noexcept;
[[noreturn]] void fatalErrorAll(const char* text) noexcept;
[[noreturn]] void fatalInvariant(const char* go_text) noexcept;
[[noreturn]] void fatalPanicTwice(const char* text, size_t n,
                                  const char* second) noexcept;

}  // namespace gump::rt

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_LINKNAME_PANIC_H_
