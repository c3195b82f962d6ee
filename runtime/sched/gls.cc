// Goroutine-local values: a list per G, newest first.
//
// Only its own goroutine touches a G's list (for the pseudo-G of a foreign
// thread, the thread itself), so there is nothing to synchronise. Programs have
// a handful of keys. A list of a handful is searched faster than a table, and a
// goroutine that uses none pays one pointer.
//
// Nodes come from malloc, so every function here runs on a user stack outside
// any lock of the runtime. Only the nodes of scopes (scope.cc) and of pprof::Do
// (labels.cc) do not.
//
// A dump reads the scopes of a goroutine that was preempted anywhere, so the
// list is whole at each instruction: a node is complete before it is linked,
// and unlinked before it is freed.
#include "runtime/sched/gls.h"

#include <cstdlib>
#include <new>

#include "gump/internal/linkname.h"
#include "runtime/sched/labels.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/scope.h"
#include "runtime/sched/threadhooks.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

LocalNode* find(const G* gp, const void* key) {
  LocalNode* n = gp->gls;
  while (n != nullptr && n->key != key) n = n->next;
  return n;
}

}  // namespace

G* glsOwner() {
  G* gp = getg();
  // The request to yield is set during a hook: see (T2) of threadhooks.cc.
  if (GUMP_UNLIKELY(gp == nullptr || gp->preempt.load(relaxed))) {
    return gp != nullptr && inThreadHook(gp->m) ? gp : runtimeEntry();
  }
  return gp;
}

void* glsGet(const void* key) noexcept {
  const LocalNode* n = find(glsOwner(), key);
  return n == nullptr ? nullptr : n->value;
}

bool glsSet(const void* key, void* value, void (*destroy)(void*)) noexcept {
  G* gp = glsOwner();
  if (LocalNode* n = find(gp, key)) {
    n->value = value;
    n->destroy = destroy;
    return true;
  }
  void* p = std::malloc(sizeof(LocalNode));
  if (p == nullptr) return false;
  auto* n = new (p) LocalNode{key, value, destroy, gp->gls};
  compilerFence();
  gp->gls = n;
  return true;
}

// A value leaves the list before its destructor runs. So a destructor that uses
// goroutine-local values sees only the older ones. It may set new ones, which
// are destroyed in turn.
void glsDestroyAll(G* gp) {
  while (LocalNode* n = gp->gls) {
    gp->gls = n->next;
    compilerFence();
    void* value = n->value;
    void (*destroy)(void*) = n->destroy;
    if (!isScopeNode(n) && n->key != &kDoKey) std::free(n);
    if (destroy != nullptr) destroy(value);
  }
}

// This is no entry into the runtime, as goexit1 is none: every goroutine of a
// WaitGroup comes here, and few have values.
void glsDestroyAll() {
  G* gp = getg();  // nullptr: the thread has not used the library
  if (gp != nullptr && gp->gls != nullptr) glsDestroyAll(gp);
}

}  // namespace gump::rt
