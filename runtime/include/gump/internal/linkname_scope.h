// The window for gump/scope.h: which goroutine is in which scope. linkname.h
// gives the rules.
#ifndef GUMP_INTERNAL_LINKNAME_SCOPE_H_
#define GUMP_INTERNAL_LINKNAME_SCOPE_H_

#include <cstdint>

#include "gump/internal/compiler.h"
#include "gump/internal/linkname_gls.h"

#pragma GCC visibility push(default)

namespace gump::rt {

struct G;

// ScopeRecord is what the runtime knows of a gump::Scope. It lies in the Scope.
// All fields are constant while the scope is open.
struct ScopeRecord {
  LocalNode link;            // in the list of the owner
  const char* name = "";     // set by the caller of scopeOpen; "" means no name
  const G* owner = nullptr;  // the goroutine or foreign thread that opened it
  uint64_t owner_goid = 0;
  // The innermost of the scopes that were open around this one when it was
  // opened. Or nullptr.
  const ScopeRecord* outer = nullptr;
};

// scopeOpen makes the caller the owner of s, and s the caller's innermost
// scope. scopeClose ends that. The owner closes its scopes in reverse order.
// Anything else is a fatal error, because other goroutines may use the scopes
// inside of s.
void scopeOpen(ScopeRecord* s) noexcept;
void scopeClose(ScopeRecord* s) noexcept;

// scopeIsOwner returns true if the caller has opened s. scopeContains returns
// true if the caller is in s: it is the owner, or a goroutine of s, or in a
// scope inside of s. Requires: s is open.
[[nodiscard]] bool scopeIsOwner(const ScopeRecord* s) noexcept;
[[nodiscard]] bool scopeContains(const ScopeRecord* s) noexcept;

// scopeMember makes the node at the beginning of a closure. The goroutine that
// is started with this closure, and with SpawnOptions::in_scope, is a goroutine
// of s until its glsDestroyAll. s lives until then.
LocalNode scopeMember(const ScopeRecord* s) noexcept;

// goexiting returns true if the calling goroutine has called Goexit, so that
// its stack is being unwound without an exception.
[[nodiscard]] bool goexiting() noexcept;

}  // namespace gump::rt

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_LINKNAME_SCOPE_H_
