// How a grace period watches a goroutine (grace.cc). It is declared here for
// the tests. The interface of grace periods is in gump/internal/linkname.h.
#ifndef RUNTIME_SCHED_GRACE_H_
#define RUNTIME_SCHED_GRACE_H_

#include <cstdint>

namespace gump::rt {

struct G;

// EntryWatch is for a goroutine that had lost its P from outside when the watch
// began. entered() tells whether the goroutine has entered the runtime by
// itself since then. For any other goroutine it returns true sooner or later.
// On: user.  P: either.  Locks: none.  Parks: no.
struct EntryWatch {
  explicit EntryWatch(const G* g);
  bool entered();

  const G* gp;
  const uint32_t n;  // interrupted exceeds this only after an entry
  bool looked = false;
};

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_GRACE_H_
