// Which goroutine is in which scope (gump/scope.h).
//
// A goroutine has a node in its list of local values for each scope that it has
// opened, and one for the scope that it is a goroutine of. The list is newest
// first, so the first node of a scope names the innermost one, and the last
// node of a scope is the one that the goroutine was started with.
//
// A G has no field for this. It has no byte to spare, and a goroutine that uses
// no scope pays nothing: the end of a goroutine looks at the list anyway.
//
// (S1) A scope is open at least as long as each scope inside of it, because
//      scopes are closed in reverse order, a goroutine closes its scopes before
//      it leaves the one that it is in, and a scope is closed when all its
//      goroutines have left it. So `outer` may be followed from any scope that
//      the caller is in. What would break (S1) is a fatal error.
#include "runtime/sched/scope.h"

#include "runtime/diag/panic.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

const char kScopeKey = 0;  // its address counts

namespace {

const ScopeRecord* recordOf(const LocalNode* n) {
  return static_cast<const ScopeRecord*>(n->value);
}

// innermost returns the innermost scope that gp is in, or nullptr.
const ScopeRecord* innermost(const G* gp) {
  for (const LocalNode* n = gp->gls; n != nullptr; n = n->next) {
    if (isScopeNode(n)) return recordOf(n);
  }
  return nullptr;
}

// leftOpen is called at the end of a goroutine or thread that has not closed a
// scope. Other goroutines may be in that scope, and follow `outer` (S1).
void leftOpen(void*) {
  fatal("scope: a goroutine has ended without destroying its Scope");
}

}  // namespace

void scopeOpen(ScopeRecord* s) noexcept {
  G* gp = runtimeEntry();
  s->owner = gp;
  s->owner_goid = gp->goid;
  s->outer = innermost(gp);
  s->link = {&kScopeKey, s, leftOpen, gp->gls};
  compilerFence();  // a dump may see the link as soon as it is there
  gp->gls = &s->link;
}

void scopeClose(ScopeRecord* s) noexcept {
  G* gp = runtimeEntry();
  if (s->owner != gp) {
    fatal("scope: Scope destroyed by a goroutine that does not own it");
  }
  if (innermost(gp) != s) {
    fatal("scope: Scope destroyed before a Scope inside of it");
  }
  // Values that are not of scopes may be in front.
  LocalNode** at = &gp->gls;
  while (*at != &s->link) at = &(*at)->next;
  *at = s->link.next;
  compilerFence();
}

bool scopeIsOwner(const ScopeRecord* s) noexcept { return s->owner == getg(); }

bool scopeContains(const ScopeRecord* s) noexcept {
  const G* gp = getg();  // nullptr: the thread has not used the library
  if (gp == nullptr) return false;
  const ScopeRecord* in = innermost(gp);
  while (in != nullptr && in != s) in = in->outer;  // (S1)
  return in == s;
}

LocalNode scopeMember(const ScopeRecord* s) noexcept {
  return {&kScopeKey, const_cast<ScopeRecord*>(s), nullptr, nullptr};
}

bool goexiting() noexcept {
  const G* gp = getg();
  return gp != nullptr && gp->goexited;
}

GUMP_NO_SANITIZE const ScopeRecord* scopeOf(const G* gp) {
  const LocalNode* last = nullptr;
  for (const LocalNode* n = gp->gls; n != nullptr; n = n->next) {
    if (n->key == &kScopeKey) last = n;
  }
  if (last == nullptr) return nullptr;
  const auto* s = static_cast<const ScopeRecord*>(last->value);
  return s->owner == gp ? nullptr : s;
}

}  // namespace gump::rt
