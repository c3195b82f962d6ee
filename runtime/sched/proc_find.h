// The steps of findRunnable that have a file of their own, and what they share
// with proc.cc.
#ifndef RUNTIME_SCHED_PROC_FIND_H_
#define RUNTIME_SCHED_PROC_FIND_H_

#include <cstdint>

#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"

namespace gump::rt {

// Find is the result of a step of findRunnable.
enum class Find : uint8_t {
  kFound,
  kAgain,    // begin again at step 0
  kNothing,  // go on with the next step
};

// Clock holds the times that one round of findRunnable reads.
struct Clock {
  int64_t now = 0;        // nanotime, or 0 if it has not been read yet
  int64_t pollUntil = 0;  // when the next timer is due, or 0 if there is none

  void lower(int64_t when) {
    if (when != 0 && (pollUntil == 0 || when < pollUntil)) pollUntil = when;
  }
};

// Unless a comment says otherwise:
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: no.

// stealWork tries every other P four times. In the last pass it also takes
// timers and runnext. With several nodes, only the last pass looks at others.
// Locks: as stealTimers.
[[nodiscard]] Find stealWork(M* mp, P* pp, Clock* clock, Runnable* out);
// stealTimers runs the timers of allp[id] that are due, and returns true if
// there were any. It removes zombies only if victim is idle, because the owner
// of a P removes its own.
// Locks: takes sched.lock, and as timersCheck.
bool stealTimers(uint32_t id, Clock* clock);

// becomeSpinning starts the search of mp, which has a P. The caller may hold
// sched.lock.
// Locks: none.
void becomeSpinning(M* mp);
// startSpinner gives an idle P to an M that spins: a P of `near` if there is
// one. near may be nullptr: then that of the node that needs it most. The
// caller has counted the spinner in sched.nmspinning. If no P is idle,
// startSpinner sets needspinning and uncounts it.
// On: any; m.locks > 0.  P: either.
void startSpinner(SchedNode* near);
// takeIdleP takes an idle P for an M that has no P and has just found work, and
// makes the M spin. Returns false if no P is idle.
// P: none; needed if it returns true.
[[nodiscard]] bool takeIdleP(M* mp);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_PROC_FIND_H_
