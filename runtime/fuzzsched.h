// Schedule fuzzing: with GODEBUG fuzzsched=SEED the scheduler does rarely-seen
// things often. What it does is legal at any time; a program, or a test, that
// minds has relied on luck.
//
//   where                      what
//   runqput                    runnext, the tail of the ring, or the global
//                              queue
//   findRunnable               the global queue first; the ring turned; what
//                              was found given to others instead
//   directNext                 does not know
//   schedule                   who ran here last is left to others, or the P
//                              goes to another M with him on it: with more
//                              than one P, a switch leads to another thread
//   every runtime entry        may yield, or be late
//   entersyscall               the P is gone at once
//   runqgrab                   takes runnext without leaving its owner time
//   between the two halves of  delays: readier and sleeper (the essay in
//   a store-then-load pair     proc.cc), timers and poller, notes
//
// Every P draws its decisions from a sequence of its own, which the seed and
// its number fix, and an M without a P from one fixed by the seed and the M's.
// So a single P with asyncpreemptoff=1, under which slices do not end by the
// clock, repeats itself, and more than one nearly do. The seed is printed with
// every fatal error and panic.
//
// Off, P::fuzz is 0, and a hot path pays for a test of it, in a line that it
// has at hand.
#ifndef RUNTIME_FUZZSCHED_H_
#define RUNTIME_FUZZSCHED_H_

#include "runtime/proc.h"

namespace gump::rt {

// fuzzing tells whether the seed is set; for paths that are slow anyway.
inline bool fuzzing() { return GUMP_UNLIKELY(debug.fuzzsched != 0); }

// fuzzSeed is the first state of sequence id; never 0.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] uint32_t fuzzSeed(int64_t id);

// fuzzOneIn is true once in n times.
// On: any.  P: pp, owned by the caller, fuzzed.  Locks: none.  Parks: no.
[[nodiscard]] bool fuzzOneIn(P* pp, uint32_t n);

// fuzzDelay lets others go first, sometimes, for at most some tens of
// microseconds. fuzzPoint is fuzzDelay if fuzzing.
// On: any.  P: either.  Locks: none.  Parks: no.
void fuzzDelay();
inline void fuzzPoint() {
  if (fuzzing()) fuzzDelay();
}

// fuzzPut is runqput; fuzzTurn puts some of pp's ring behind the others, and
// may give one to others.
// On: any.  P: pp, owned by the caller, fuzzed.  Locks: takes sched.lock.
// Parks: no.
void fuzzPut(P* pp, G* gp, bool next);
void fuzzTurn(P* pp);

// fuzzMName is mp's in G::fuzzM.
// On: any.  P: either.  Locks: none.  Parks: no.
inline uint32_t fuzzMName(const M* mp) {
  return static_cast<uint32_t>(mp->id) + 1;
}

// fuzzMoves decides whether gp, which would be next here, is to go on on
// another thread: mostly, if it ran here last, and there is more than one P.
// If nobody else can run gp it comes back here; each time it draws anew, which
// bounds how often it moves before it runs.
// On: g0, or user from directNext.  P: needed, fuzzed.  Locks: takes
// sched.lock.  Parks: no.
[[nodiscard]] bool fuzzMoves(const M* mp, const G* gp);

// fuzzMove queues gp, which is runnable and on no queue, and mostly gives the P
// to another M.
// On: g0.  P: needed, fuzzed; may be another afterwards, or none, as after
// stopm.  Locks: takes sched.lock.  Parks: blocks the thread.
void fuzzMove(G* gp);

// fuzzExecuted is called when gp has been made current: it may yield at every
// entry into the runtime, and where it runs is noted. fuzzExecute is execute,
// and that if fuzzing; for paths that are slow anyway.
// On, Locks, Parks: as execute.  P: needed.
void fuzzExecuted(G* gp);
[[nodiscard]] inline G* fuzzExecute(G* gp, bool inheritTime) {
  gp = execute(gp, inheritTime);
  if (fuzzing() && gp != nullptr) fuzzExecuted(gp);
  return gp;
}

// fuzzYields decides whether the goroutine, which is asked to yield at every
// entry into the runtime, does so at this one.
// On: user; m.locks is 0.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool fuzzYields();

}  // namespace gump::rt

#endif  // RUNTIME_FUZZSCHED_H_
