// Taking back what goroutines hold too long. Apart from the loop, so that it
// can be tested with a clock of one's own and Ps made by hand.
#ifndef SYSMON_RETAKE_H_
#define SYSMON_RETAKE_H_

#include <cstdint>

#include "runtime/runtime2.h"

namespace gump::rt {

inline constexpr int64_t kForcePreemptNS = 10'000'000;  // a slice
// Pause before a goroutine that has been pressed (pressP) is pressed again;
// then twice as long, up to a slice.
inline constexpr int64_t kPressFirstNS = 100'000;

// retakeP looks at one P at time now. True: it has run without a new slice for
// kForcePreemptNS, and the goroutine on it has been asked to yield at its next
// entry into the runtime, and pressed to without one (preempt.cc); both again
// at later looks, for the request may have hit another goroutine.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
bool retakeP(P* pp, int64_t now);
// retakeSyscall looks at a P whose M is in a declared system call and takes it
// for others if the call has lasted from one look to the next, or the slice is
// used up by many calls; unless nothing waits for it, which is respected for
// kForcePreemptNS. True: taken.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
bool retakeSyscall(P* pp, int64_t now);
// retake looks at every P; returns how many it took from system calls.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
int32_t retake(int64_t now);

}  // namespace gump::rt

#endif  // SYSMON_RETAKE_H_
