// Retaking the P of a goroutine that does not enter the runtime by itself. The
// essay is at the head of preempt.cc.
#ifndef RUNTIME_SCHED_PREEMPT_H_
#define RUNTIME_SCHED_PREEMPT_H_

#include <cstdint>

namespace gump::rt {

struct G;
struct M;
struct P;

// ---- preempt.cc -------------------------------------------------------------

// preemptone asks the goroutine on pp to yield at its next entry into the
// runtime. Returns false if there is no goroutine to ask. preemptall asks all.
// They are best effort. Both:
// On: any.  P: either.  Locks: none.  Parks: no.
void preemptall();
bool preemptone(P* pp);
// A thread counts as computing if, for this many ns, it has not slept and has
// used the processor for half of the time. kForcePreemptGap is for sysmon,
// kStopGap for a stop of the world.
inline constexpr int64_t kForcePreemptGap = 50'000;
inline constexpr int64_t kStopGap = 20'000;
// ForcePreempt is what a P is wanted for.
enum class ForcePreempt : uint8_t {
  kStop,      // for the caller's own purposes
  kHandOff,   // for other goroutines: only if there is a thread for the P
  kIfAsleep,  // the same, but a thread that runs is left alone
};
// forcePreempt forces the goroutine on pp to give it up before its next entry
// into the runtime. It takes pp if the thread is asleep, and signals the thread
// if it runs. Where /proc does not tell which, it signals only a thread that
// certainly computes. If it has taken pp, as presumeBlocked does, it returns
// the M that it took pp from, else nullptr. It costs some system calls.
// On: any, but pp's M.  P: either.  Locks: takes sched.lock.
// Parks: blocks the thread, briefly.
[[nodiscard]] M* forcePreempt(P* pp, ForcePreempt how);
// expectForce looks at the thread on pp, so that a forcePreempt at least
// kForcePreemptGap later can tell at once whether the thread computes.
// On: any, but pp's M.  P: either.  Locks: none.
// Parks: blocks the thread, briefly.
void expectForce(P* pp);
// preemptPless signals the threads that have lost their P and run without one
// now.
// On: sysmon.  P: none.  Locks: none.  Parks: blocks the thread, briefly.
void preemptPless();
// computes tells whether mp's thread, tid, has computed for long enough: for a
// gap, which is kForcePreemptGap or kStopGap. The caller has just seen it run,
// after `sleeps` sleeps. A thread has computed for long enough if both hold:
//  * The first look with this number of sleeps was at least a gap ago.
//  * Since that look, its CPU clock has advanced by half a gap. This need not
//    hold if the thread last slept in our own handler, nor for a stop of the
//    world if that look was at least a ms ago.
// computes records the first look after each sleep, and then returns false.
// On: any, but mp's thread.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool computes(M* mp, int32_t tid, uint64_t sleeps,
                            ForcePreempt how);

// ---- preempt_blocked.cc -----------------------------------------------------

// presumeBlocked takes pp from mp while mp runs gp and its thread is asleep in
// an undeclared call. Returns true if it has taken pp, which is then the
// caller's and kPidle. gp has lost its slot in its group, too.
// On: any, but mp's thread, m.locks > 0.  P: either.  Locks: a leaf and
// sched.lock, if gp is in a group.  Parks: no.
[[nodiscard]] bool presumeBlocked(P* pp, M* mp, G* gp);
// giveBackP undoes a presumeBlocked that took pp from mp. Returns false if mp
// has entered the runtime meanwhile and found that its P is gone, or if its
// goroutine is in a group. Then pp stays the caller's.
// On: any, but mp's thread.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool giveBackP(P* pp, M* mp);
// endPresumption ends a presumption about mp, which is in the runtime again.
// Returns true if its P is gone.
// On: the thread of mp.  P: maybe lost.  Locks: none.  Parks: no.
[[nodiscard]] bool endPresumption(M* mp);

// ---- preempt_signal.cc ------------------------------------------------------

// preemptM sends mp's thread SIGURG. It does nothing if asyncpreemptoff is set,
// or if a SIGURG has been on its way for less than a slice. Under
// kSanitizerDefersHandlers that SIGURG may never be handled, so another one is
// sent.
// On: any.  P: either.  Locks: none.  Parks: no.
void preemptM(M* mp);
// preemptedBySignal is the scheduler's part of the handler of SIGURG. sp is the
// stack pointer of the interrupted code.
// On: the signal stack.  P: either.  Locks: takes sched.lock.
// Parks: blocks the thread.
void preemptedBySignal(uintptr_t sp);
// releasePreempted releases the goroutines in the global queue that are
// preempted in place. They go on without a P until they enter the runtime.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void releasePreempted();
// mayLeaveStackAt tells whether sp, which is not on the goroutine's stack, is
// on a stack that the program made (a coroutine's), and not on the signal
// stack. It returns false while this thread ends the process (a panic), and
// with a sanitizer, which must be told which stack is left.
// On: the thread of mp.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool mayLeaveStackAt(const M* mp, uintptr_t sp);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_PREEMPT_H_
