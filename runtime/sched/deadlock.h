// The deadlock detector, what it counts, and the scheduler's trace
// (proc_dead.cc).
#ifndef RUNTIME_SCHED_DEADLOCK_H_
#define RUNTIME_SCHED_DEADLOCK_H_

#include <cstdint>

namespace gump::rt {

// checkdead ends the process if no thread is left that could wake a goroutine.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void checkdead();
// recheckdead is checkdead for sysmon, which repeats the question
// (deadSuspect). It also finds the unknown threads that run no code of the
// program, and does not wait for those. That costs 14 µs for each thread of the
// process.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void recheckdead();
// incidlelocked changes the number of Ms that count as idle although they are
// not in midle. It calls checkdead if the number grew.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void incidlelocked(int32_t v);
// becomeSystemThread is called by sysmon, by the template thread and by the
// ring's thread, each once it runs. It removes the calling thread from those
// that could still wake a goroutine, and calls checkdead. Before that call the
// thread counts as running, so checkdead is silent. It must be silent for as
// long as the new M has no thread. mcount counts that M already, so one unknown
// thread of the process would seem to be the M's (hasUnknownThreads).
// On: the thread of a new M.  P: none.  Locks: takes sched.lock.  Parks: no.
void becomeSystemThread();
// AwakeScope is for a thread that checkdead does not count otherwise, sysmon's
// or the ring's. During the scope, checkdead counts it as one that may still
// wake goroutines. It is needed while a P or a goroutine is on its way from
// that thread to an M, because every M may look idle then. At the end checkdead
// looks again.
// On: a thread that nmsys counts.  P: none.  Locks: takes sched.lock, twice.
// Parks: no.
class AwakeScope {
 public:
  AwakeScope() { incidlelocked(-1); }
  ~AwakeScope() { incidlelocked(1); }
  AwakeScope(const AwakeScope&) = delete;
  AwakeScope& operator=(const AwakeScope&) = delete;
};
// timersPending tells whether a timer of some P will fire one day. The answer
// is exact while no M runs.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool timersPending();
// isUselessPoll tells whether the only M that is not idle sleeps in the poller,
// or is about to, for timers that have all been stopped.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
[[nodiscard]] bool isUselessPoll();
// checkIdleLists throws unless the lists of idle Ps and Ms agree with their
// counts and with the Ps' statuses. It also throws if a P or M is on its list
// twice, or if a P is lost.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void checkIdleLists();
// schedtrace prints a line to standard error, or many lines if detailed.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void schedtrace(bool detailed);
// schedtraceCrash is schedtrace(true) for a process that is ending.
// On: any.  P: either.  Locks: sched.lock, if it is free.  Parks: no.
void schedtraceCrash();
// gcount is the number of goroutines of the program, at least 1.
// On: any.  P: either.  Locks: none.  Parks: no.
int32_t gcount();

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_DEADLOCK_H_
