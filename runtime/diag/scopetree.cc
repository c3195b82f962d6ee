// Collects the goroutines of scopes from the records of a dump, and sorts them
// so that the children of a scope or a goroutine lie side by side. Nothing here
// calls malloc (I1 of traceback.cc): the memory is address space that is
// touched as far as it is used.
#include "runtime/diag/scopetree.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "runtime/diag/debugvars.h"
#include "runtime/diag/traceback.h"
#include "runtime/sched/proc.h"
#include "runtime/sys/os_linux.h"

namespace gump::rt {

// Entry is a goroutine of a scope.
struct ScopeTree::Entry {
  const ScopeRecord* scope;
  uint64_t goid;
  const char* state;
  const ScopeRecord* outer;
  uint64_t owner;
  char name[sizeof(GRecord::scopeName)];
};

// Head is a scope: its first entry, and what its place in the tree depends on.
struct ScopeTree::Head {
  const ScopeRecord* outer;
  uint64_t owner;
  const Entry* first;
};

namespace {

using Entry = ScopeTree::Entry;
using Head = ScopeTree::Head;

constexpr uint64_t kMadeMeanwhile = 256;  // started while the dump is made
constexpr int kDeepest = 64;  // keeps the recursion on a signal stack

// ScopePrinter prints the sorted entries and heads.
struct ScopePrinter {
  Writer* w;
  const Entry* entries;
  const Entry* entriesEnd;
  const Head* heads;
  const Head* headsEnd;

  void indent(int depth) const {
    for (int i = 0; i < depth; i++) put(w, "  ", 2);
  }

  // find returns the entry of goid in scope, or the first one behind it.
  const Entry* find(const ScopeRecord* scope, uint64_t goid) const {
    return std::lower_bound(entries, entriesEnd, std::tuple(scope, goid),
                            [](const Entry& e, const auto& key) {
                              return std::tuple(e.scope, e.goid) < key;
                            });
  }
  bool has(const ScopeRecord* scope) const {
    const Entry* e = find(scope, 0);
    return e != entriesEnd && e->scope == scope;
  }
  bool has(const ScopeRecord* scope, uint64_t goid) const {
    const Entry* e = find(scope, goid);
    return e != entriesEnd && e->scope == scope && e->goid == goid;
  }
  const Head* findHead(const ScopeRecord* outer, uint64_t owner) const {
    return std::lower_bound(heads, headsEnd, std::tuple(outer, owner),
                            [](const Head& h, const auto& key) {
                              return std::tuple(h.outer, h.owner) < key;
                            });
  }

  void printScopeAt(const Head& h, int depth) const {
    const Entry* e = h.first;
    GRecord r;
    r.scopeOwner = h.owner;
    memcpy(r.scopeName, e->name, sizeof(r.scopeName));
    indent(depth);
    printScope(w, r);
    put(w, "\n", 1);
    if (depth >= kDeepest) return;
    const ScopeRecord* scope = e->scope;
    for (; e != entriesEnd && e->scope == scope; e++) {
      indent(depth + 1);
      print(w, "goroutine %U [%s]\n", e->goid, e->state);
      for (const Head* in = findHead(scope, e->goid);
           in != headsEnd && in->outer == scope && in->owner == e->goid; in++) {
        printScopeAt(*in, depth + 2);
      }
    }
    for (const Head* in = findHead(scope, 0);
         in != headsEnd && in->outer == scope; in++) {
      if (!has(scope, in->owner)) printScopeAt(*in, depth + 1);
    }
  }
};

}  // namespace

void ScopeTree::start() {
  if (debug.scopes <= 0) return;
  const size_t most = gcountAll() + kMadeMeanwhile;
  bytes = most * (sizeof(Entry) + sizeof(Head));
  entries = static_cast<Entry*>(sysReserve(bytes));
  room = entries == nullptr ? 0 : most;
}

void ScopeTree::add(const GRecord& r) {
  if (debug.scopes <= 0 || r.scope == nullptr) return;
  if (used == room) {
    elided++;
    return;
  }
  Entry* e = &entries[used++];
  e->scope = r.scope;
  e->goid = r.goid;
  e->state = statusText(r);
  e->outer = r.scopeOuter;
  e->owner = r.scopeOwner;
  memcpy(e->name, r.scopeName, sizeof(e->name));
}

void ScopeTree::finish(Writer* w) {
  if (used == 0 && elided == 0) {
    if (entries != nullptr) sysFree(entries, bytes);
    return;
  }
  std::sort(entries, entries + used, [](const Entry& a, const Entry& b) {
    return std::tuple(a.scope, a.goid) < std::tuple(b.scope, b.goid);
  });
  Head* heads = reinterpret_cast<Head*>(entries + room);
  size_t n = 0;
  for (size_t i = 0; i < used; i++) {
    if (i != 0 && entries[i].scope == entries[i - 1].scope) continue;
    heads[n++] = {entries[i].outer, entries[i].owner, &entries[i]};
  }
  std::sort(heads, heads + n, [](const Head& a, const Head& b) {
    return std::tuple(a.outer, a.owner, a.first->goid) <
           std::tuple(b.outer, b.owner, b.first->goid);
  });
  const ScopePrinter p{w, entries, entries + used, heads, heads + n};
  print(w, "\nscopes:\n");
  for (const Head* h = heads; h != heads + n; h++) {
    if (!p.has(h->outer)) p.printScopeAt(*h, 1);
  }
  if (elided != 0) {
    print(w, "  ...%U goroutines elided for want of memory...\n", elided);
  }
  if (entries != nullptr) sysFree(entries, bytes);
}

}  // namespace gump::rt
