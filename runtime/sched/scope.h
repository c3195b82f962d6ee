// Which scope a goroutine is in (scope.cc), for its local values and for dumps.
#ifndef RUNTIME_SCHED_SCOPE_H_
#define RUNTIME_SCHED_SCOPE_H_

#include "gump/internal/linkname.h"

namespace gump::rt {

// kScopeKey is the key of the nodes of scopes in a list of local values.
extern const char kScopeKey;
// isScopeNode returns true if n lies in a Scope or in a goroutine's closure,
// and so is not freed with the list.
inline bool isScopeNode(const LocalNode* n) { return n->key == &kScopeKey; }

// scopeOf returns the scope that gp is a goroutine of, or nullptr. The caller
// is gp, or keeps gp where it is, and the scope lives as long.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] const ScopeRecord* scopeOf(const G* gp);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_SCOPE_H_
