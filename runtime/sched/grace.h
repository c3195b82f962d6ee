// The watch over a goroutine during a grace period (grace.cc), for its test.
// The interface of grace periods is in gump/internal/linkname.h.
#ifndef RUNTIME_SCHED_GRACE_H_
#define RUNTIME_SCHED_GRACE_H_

#include <cstdint>

namespace gump::rt {

struct G;

// EntryWatch is for a goroutine that had lost its P from outside when the watch
// began. It tells whether the goroutine has entered the runtime by itself since
// then. Of a goroutine that had not lost its P it says, sooner or later, that
// it has.
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
