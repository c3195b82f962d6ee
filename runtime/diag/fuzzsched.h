// Schedule fuzzing: with GODEBUG fuzzsched=SEED the scheduler does rarely-seen
// things often. Each of them is legal at any time, so a program or a test that
// minds has relied on luck.
//
//   where                      effect
//   runqput                    runnext, the tail of the ring, or the global
//                              queue
//   findRunnable               the global queue first; the ring turned; a G
//                              that was found is given to others instead
//   directNext                 gives up
//   schedule                   the G that ran here last goes to the global
//                              queue, or the P goes to another M with that G in
//                              its runnext; with more than one P, a switch then
//                              mostly leads to another thread
//   every runtime entry        may yield, or be late
//   entersyscall               the P is gone at once
//   runqgrab                   takes runnext without leaving its owner time
//   between the two halves of  a delay; there are such pairs between waker and
//   a store-then-load pair     sleeper (the essay in proc.cc), between timers
//                              and poller, and in notes
//
// Every P draws its decisions from a sequence of its own, which the seed and
// the P's number fix. An M without a P draws from a sequence that the seed and
// the M's number fix. With asyncpreemptoff=1 the clock does not end slices.
// Then two runs with the same seed are the same with a sole P, and nearly the
// same with several Ps. The seed is printed with every fatal error and panic.
//
// When fuzzing is off, P::fuzz is 0. A hot path pays for one test of it, in a
// cache line that it uses anyway.
#ifndef RUNTIME_DIAG_FUZZSCHED_H_
#define RUNTIME_DIAG_FUZZSCHED_H_

#include "runtime/diag/debugvars.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/runtime2.h"

namespace gump::rt {

// fuzzing returns true if the seed is set. It is for paths that are slow
// anyway.
inline bool fuzzing() { return GUMP_UNLIKELY(debug.fuzzsched != 0); }

// fuzzSeed returns the first state of sequence id. It is never 0.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] uint32_t fuzzSeed(int64_t id);

// fuzzOneIn returns true once in n times.
// On: any.  P: pp, owned by the caller, fuzzed.  Locks: none.  Parks: no.
[[nodiscard]] bool fuzzOneIn(P* pp, uint32_t n);

// fuzzDelay sometimes lets other threads go first, for at most some tens of
// microseconds. fuzzPoint is fuzzDelay if fuzzing.
// On: any.  P: either.  Locks: none.  Parks: no.
void fuzzDelay();
inline void fuzzPoint() {
  if (fuzzing()) fuzzDelay();
}

// fuzzPut is runqput when fuzzing. fuzzTurn moves some of the goroutines at the
// head of pp's ring to its tail, and may give one to others.
// On: any.  P: pp, owned by the caller, fuzzed.  Locks: takes sched.lock.
// Parks: no.
void fuzzPut(P* pp, G* gp, bool next);
void fuzzTurn(P* pp);

// fuzzMName returns the number that stands for mp in G::fuzzM. It is not 0. Two
// of many Ms may have the same. Then a goroutine moves once more.
// On: any.  P: either.  Locks: none.  Parks: no.
inline uint8_t fuzzMName(const M* mp) {
  return static_cast<uint8_t>(mp->id % UINT8_MAX + 1);
}

// fuzzMoves decides whether gp, which would be next here, moves to another
// thread. If gp ran here last and there is more than one P, it mostly moves. If
// no other M can run gp, gp comes back here. Every call decides anew and at
// random, so gp soon runs.
// On: g0, or user from directNext.  P: needed, fuzzed.  Locks: takes
// sched.lock.  Parks: no.
[[nodiscard]] bool fuzzMoves(const M* mp, const G* gp);

// fuzzMove queues gp, which is runnable and on no queue, and mostly gives the P
// to another M.
// On: g0.  P: needed, fuzzed; may be another afterwards, or none, as after
// stopm.  Locks: takes sched.lock.  Parks: blocks the thread.
void fuzzMove(G* gp);

// fuzzExecuted is called when gp has been made current. From then on gp may
// yield at every entry into the runtime. The call records where gp runs.
// fuzzExecute is execute, followed by recordExecuted if P::records asks for it.
// It is for paths that are slow anyway.
// On, Locks, Parks: as execute.  P: needed.
void fuzzExecuted(G* gp);
[[nodiscard]] inline G* fuzzExecute(G* gp, bool inheritTime) {
  gp = execute(gp, inheritTime);
  if (gp != nullptr && GUMP_UNLIKELY(gp->m->p->records.load(relaxed) != 0)) {
    recordExecuted(gp);
  }
  return gp;
}

// fuzzYields decides whether the goroutine, which is asked to yield at every
// entry into the runtime, does so at this one.
// On: user; m.locks is 0.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool fuzzYields();

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_FUZZSCHED_H_
