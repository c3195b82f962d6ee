// Retaking Ps that goroutines hold too long, or for which no thread comes. This
// is apart from the loop, so that it can be tested with a clock of the test's
// own and Ps made by hand.
#ifndef SYSMON_RETAKE_H_
#define SYSMON_RETAKE_H_

#include <cstdint>

namespace gump::rt {

struct P;

// A slice, in ns, while a goroutine waits for a P. Goroutines that have been
// preempted in place do not count.
inline constexpr int64_t kShortSliceNS = 2'000'000;
// CPU time, in ns, that a goroutine must also use for such a slice to be over.
// It counts from the first look after kShortSliceNS.
inline constexpr int64_t kShortCpuNS = 1'000'000;
// The time, in ns, from one attempt to force a goroutine off its P
// (forcePreempt) to the next. It doubles with each attempt, up to a slice.
inline constexpr int64_t kForcePreemptFirstNS = 100'000;

// ns by which a timer may be late before a goroutine is forced off its P for
// it.
inline constexpr int64_t kTimerLateNS = 500'000;

// If goroutines wait, and a P has had no new slice for this time, sysmon checks
// whether the goroutine on it sleeps in the kernel. In ns; doubles with each
// check.
inline constexpr int64_t kAsleepNS = 100'000;

// retakeP looks at one P at time now. It acts if the P's slice is used up, or
// if its timers are late, no P is idle and no M spins.
// - It asks the goroutine on the P to yield at its next entry into the runtime.
// - It also forces the goroutine to give up the P before that (forcePreempt).
//   If no goroutine and no late timer waits for the P, it does so only if the
//   thread is asleep.
//
// If sysmon sees the slice for the first time, and timers will be late at the
// next look, it only prepares that look (expectForce).
//
// Later looks repeat both, because the request may have hit another goroutine.
// Returns true if there was a goroutine to ask.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
bool retakeP(P* pp, int64_t now);
// retakeAsleep retakes a P for others if its thread is asleep in an undeclared
// call. kAsleepNS without a new slice is enough. Returns true if it took the P.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
bool retakeAsleep(P* pp, int64_t now);
// retakeSyscall looks at a P with its M in a declared call. It retakes the P
// for others if the call has lasted from one look to the next, or if many calls
// have used up the slice. If no goroutine waits for the P and another P is idle
// or an M spins, it leaves the P alone for kForcePreemptNS. Returns true if it
// took the P.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
bool retakeSyscall(P* pp, int64_t now);
// retake looks at every P.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
struct Retaken {
  int32_t taken = 0;  // from calls, declared or not
  // A goroutine is being forced off its P, or will be at the next look. That
  // look has to come after kForcePreemptFirstNS.
  bool forcing = false;
  bool waiting = false;  // slices are short because a goroutine waits
  // Timers were late in the last kForcePreemptNS. Such a timer is often set
  // again while all Ps are still busy.
  bool timers = false;
};
Retaken retake(int64_t now);

// replacesStartingMs returns true if replaceStartingMs has something to do once
// a thread is late.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
bool replacesStartingMs();
// replaceStartingMs takes Ps that wait for threads which do not start, and
// gives them to threads that are there. Then it calls wakep, because the M that
// was to begin by looking for work may never begin.
//
// If no thread is there, it waits for the kernel, because another thread would
// come no earlier. But a hook of the program's may take long on one thread
// only. So then a P whose thread is late is handed off again, and may get
// another new thread.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
void replaceStartingMs();

}  // namespace gump::rt

#endif  // SYSMON_RETAKE_H_
