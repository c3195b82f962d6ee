// Goroutine-local values: a list per G, newest first.
//
// Only its own goroutine touches a G's list (for the pseudo-G of a foreign
// thread, the thread itself), so there is nothing to synchronise. Programs have
// a handful of keys. A list of a handful is searched faster than a table, and a
// goroutine that uses none pays one pointer.
//
// Nodes come from malloc, so every function here runs on a user stack outside
// any lock of the runtime.
#include "runtime/sched/gls.h"

#include <cstdlib>

#include "gump/internal/linkname.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

struct GlsNode {
  const void* key;
  void* value;
  void (*destroy)(void*);
  GlsNode* next;  // set before this one
};

GlsNode* head(const G* gp) { return static_cast<GlsNode*>(gp->gls); }

GlsNode* find(const G* gp, const void* key) {
  GlsNode* n = head(gp);
  while (n != nullptr && n->key != key) n = n->next;
  return n;
}

}  // namespace

void* glsGet(const void* key) noexcept {
  const GlsNode* n = find(runtimeEntry(), key);
  return n == nullptr ? nullptr : n->value;
}

bool glsSet(const void* key, void* value, void (*destroy)(void*)) noexcept {
  G* gp = runtimeEntry();
  GlsNode* n = find(gp, key);
  if (n == nullptr) {
    n = static_cast<GlsNode*>(std::malloc(sizeof(GlsNode)));
    if (n == nullptr) return false;
    n->key = key;
    n->next = head(gp);
    gp->gls = n;
  }
  n->value = value;
  n->destroy = destroy;
  return true;
}

// A value leaves the list before its destructor runs. So a destructor that uses
// goroutine-local values sees only the older ones. It may set new ones, which
// are destroyed in turn.
void glsDestroyAll(G* gp) {
  while (GlsNode* n = head(gp)) {
    gp->gls = n->next;
    void* value = n->value;
    void (*destroy)(void*) = n->destroy;
    std::free(n);
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
