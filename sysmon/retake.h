// Taking back what goroutines hold too long. Apart from the loop, so that it
// can be tested with a clock of one's own and Ps made by hand.
#ifndef SYSMON_RETAKE_H_
#define SYSMON_RETAKE_H_

#include <cstdint>

#include "runtime/proc.h"

namespace gump::rt {

// A slice, ns, while goroutines wait that have not been preempted themselves.
inline constexpr int64_t kShortSliceNS = 2'000'000;
// And this much CPU time, ns, from the first look after that.
inline constexpr int64_t kShortCpuNS = 1'000'000;
// ns before a goroutine that has been pressed (pressP) is pressed again; then
// twice as long each time, up to a slice.
inline constexpr int64_t kPressFirstNS = 100'000;

// ns by which a timer may be late before somebody is pressed for it.
inline constexpr int64_t kTimerLateNS = 500'000;

// ns without a new slice after which sysmon looks whether a goroutine sleeps in
// the kernel, if others wait; again after twice as long each time.
inline constexpr int64_t kAsleepNS = 100'000;

// retakeP looks at one P at time now. If its slice is used up, or its timers
// are late and nobody is idle, the goroutine on it is asked to yield at its
// next entry into the runtime, and pressed to give the P up before that
// (pressP), unless nobody waits for it; both again at later looks, for the
// request may have hit another goroutine. True: there was one to ask.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
bool retakeP(P* pp, int64_t now);
// retakeAsleep takes a P for others if its thread is found asleep in a call
// that nobody declared, after kAsleepNS already. True: taken.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
bool retakeAsleep(P* pp, int64_t now);
// retakeSyscall looks at a P whose M is in a declared system call and takes it
// for others if the call has lasted from one look to the next, or the slice is
// used up by many calls; unless nothing waits for it, which is respected for
// kForcePreemptNS. True: taken.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
bool retakeSyscall(P* pp, int64_t now);
// retake looks at every P.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
struct Retaken {
  int32_t taken = 0;  // from calls, declared or not
  // Somebody is being pressed, which takes a second look, in kPressFirstNS.
  bool pressing = false;
  bool waiting = false;  // somebody waits, for whom slices are short
};
Retaken retake(int64_t now);

}  // namespace gump::rt

#endif  // SYSMON_RETAKE_H_
