// The tree of scopes at the end of a dump of all goroutines, with
// GODEBUG=scopes=1:
//
//   scopes:
//     scope "serve" of goroutine 1
//       goroutine 7 [Scope.Wait]
//         scope "fetch" of goroutine 7
//           goroutine 9 [IO wait]
//           goroutine 10 [IO wait]
//       goroutine 8 [chan receive]
//
// A scope stands below the goroutine that owns it. If that goroutine is not in
// the scope around it, but owns that one too, it stands below the outer scope.
// A scope that no goroutine is in does not appear. In a dying process, the
// goroutines that still run on other threads do not appear either.
#ifndef RUNTIME_DIAG_SCOPETREE_H_
#define RUNTIME_DIAG_SCOPETREE_H_

#include <cstddef>
#include <cstdint>

#include "runtime/sys/print.h"

namespace gump::rt {

struct GRecord;

// ScopeTree collects the goroutines of scopes for one dump. One thread uses it.
struct ScopeTree {
  struct Entry;
  struct Head;

  Entry* entries = nullptr;
  size_t room = 0;  // entries that fit
  size_t used = 0;
  size_t bytes = 0;     // of the memory at entries
  uint64_t elided = 0;  // goroutines that did not fit

  // start takes memory for the goroutines of a dump, if GODEBUG asks for the
  // tree. Without memory, the tree says how many goroutines it lacks.
  // On: any.  P: either.  Locks: none.  Parks: no.
  void start();
  // add takes what the tree needs from r.
  // On: any.  P: either.  Locks: none.  Parks: no.
  void add(const GRecord& r);
  // finish prints the tree, if there is any scope in it, and gives the memory
  // back.
  // On: any.  P: either.  Locks: none.  Parks: no.
  void finish(Writer* w);
};

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_SCOPETREE_H_
