// m.locks: how code of the runtime keeps its M and its P.
//
// While m.locks > 0 the goroutine is not preempted and no other thread takes
// its P. A goroutine enters the runtime by its outermost acquirem. There it
// learns whether its P was taken from outside meanwhile (preempt.cc), and if so
// waits for another.
#ifndef RUNTIME_SCHED_MLOCKS_H_
#define RUNTIME_SCHED_MLOCKS_H_

#include "absl/base/thread_annotations.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

// reenter is the slow path of acquirem. It is called if m.presumed is set:
//  * An asker has taken, or is about to take, the P of an M that seemed to be
//    blocked (preempt_blocked.cc).
//  * This is the goroutine's first entry since it was preempted in place
//    (preempt_signal.cc), or since its P was taken and given back.
//  * This is a child of fork (fork.cc).
//  * A hook of the program's runs on this thread (threadhooks.cc).
// It may park the goroutine until there is a P, and returns the M that the
// goroutine is on then.
// On: user; m.locks is 1.  P: maybe lost.  Locks: takes sched.lock.
// Parks: yes.
M* reenter(M* mp);
// reenterNoPark is the first half of reenter. Returns true if mp has lost its
// P. The caller may then do work that other goroutines wait for and that needs
// no P. After that it calls markPLost, so that the next entry gets another P.
// If main has ended, that entry may wait until the next Run.
// On: user; m.locks is 1.  P: maybe lost.  Locks: none.  Parks: no.
[[nodiscard]] bool reenterNoPark(M* mp);
void markPLost(M* mp);

// acquirem and releasem bracket code that must keep its M and P: while m.locks
// > 0 the G is not preempted. The outermost acquirem is where a goroutine
// enters the runtime. It returns the M that the goroutine is on from then on.
// On: any.  P: either.  Locks: none.  Parks: the outermost acquirem may
// (reenter), the others and releasem do not.
GUMP_ALWAYS_INLINE M* acquirem(M* mp) {
  // Only the owner writes m.locks. Others read it after a membarrier. The next
  // three statements are B1 to B3 of preempt_blocked.cc; B2 is the light side
  // of a membarrier.
  mp->locks.store(mp->locks.load(relaxed) + 1, relaxed);
  compilerFence();
  if (GUMP_UNLIKELY(mp->presumed.load(relaxed) != kPresumedNot)) {
    return reenter(mp);
  }
  return mp;
}
GUMP_ALWAYS_INLINE M* acquirem() { return acquirem(getg()->m); }
// acquiremNoPark is acquirem that goes on without a P if mp has lost its own.
// If it returns true, the caller has to call markPLost before releasem.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] GUMP_ALWAYS_INLINE bool acquiremNoPark(M* mp) {
  mp->locks.store(mp->locks.load(relaxed) + 1, relaxed);  // as in acquirem
  compilerFence();
  return GUMP_UNLIKELY(mp->presumed.load(relaxed) != kPresumedNot) &&
         reenterNoPark(mp);
}
GUMP_ALWAYS_INLINE void releasem(M* mp) {
  // Pairs with A3 of preempt_blocked.cc: the asker that takes our P sees our
  // writes to it.
  mp->locks.store(mp->locks.load(relaxed) - 1, release);
}

// LockScope holds a Mutex for a scope, and raises m.locks for as long: a lock
// holder is neither preempted nor taken off its P.
class ABSL_SCOPED_LOCKABLE LockScope {
 public:
  explicit LockScope(Mutex* l) ABSL_EXCLUSIVE_LOCK_FUNCTION(l)
      : l_(l), mp_(getg() == nullptr ? nullptr : acquirem()) {
    lock(l);
  }
  ~LockScope() ABSL_UNLOCK_FUNCTION() {
    unlock(l_);
    if (mp_ != nullptr) releasem(mp_);
  }
  LockScope(const LockScope&) = delete;
  LockScope& operator=(const LockScope&) = delete;

 private:
  Mutex* const l_;
  M* const mp_;
};

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_MLOCKS_H_
