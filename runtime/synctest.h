// Bubbles: goroutines whose clock stands still while one of them can run, and
// jumps when none can. For tests.
//
// A goroutine belongs to the bubble of the one that started it. It is durably
// blocked when only a goroutine of its bubble, or the bubble's clock, can wake
// it; the reasons for parking that mean this are isIdleInSynctest's. A channel
// of a bubble (Hchan::bubble) can be used inside only, which makes sure of it;
// for a Cond the program must.
//
// The root is who called synctest::Run: it runs the bubble's timers, moves the
// clock, and belongs to the bubble for as long.
//
// `busy` counts the goroutines of the bubble that are not durably blocked, the
// root included, and those that have been published as blocked but whose parker
// has not said so yet:
//
//   who parks                               who wakes him
//   S1 status = kGwaiting                   W1 take gp from where it waits
//   S2 unlockf: a waker can find gp         W2 busy += 1
//   S3 busy -= 1; 0: pick                   W3 make gp runnable
//
// S2 precedes W1. Each S3 has its W2, in whatever order the two take `mu`, so
// busy is never too low, and once all are blocked and all have said so it is 0.
//
// Then whoever has made it 0 picks, under the same lock, who goes on: the root
// if a timer is due; or else the one in synctest::Wait; or else the root, to
// move the clock or to report a deadlock. Picking counts him as busy and
// forgets that he waits, so nobody is picked twice, although somebody outside
// may wake another one right then. He can be picked: he has enlisted himself
// (`idle`, `waiter`) before he parked, while busy counted him, and it became 0,
// so his S3 is over. He will be picked: busy is 0 only after somebody's S3, and
// only picks, starts and W2 raise it; so of any time in which it stays 0, the
// beginning has picked, unless nobody was enlisted, that is, the root has gone.
// No wake-up is lost.
//
// So the root moves the clock only when nobody else in the bubble runs: every
// timer that is due has been run, and all that came of it has come to rest.
//
// Invariants:
//  (B1) gp->bubble changes only before gp first runs, when it has ended, or, of
//       the root, by itself. gp->special is set if it is not null.
//  (B2) Timers of a bubble (kTimerFake) are in its heap or none, and change
//       only inside it, but for being dropped. So whoever handles one in use
//       finds the heap and the clock by getg()->bubble.
//  (B3) Bubbles are type-stable, and their ids are unique for 2^32 Runs: a
//       handle that has outlived its bubble is one from outside everywhere.
//
// Costs outside of bubbles: parking and readying test gp->special, where they
// would test gp->foreign; a channel operation tests Hchan::bubble, in a line
// that it reads anyway.
//
// Rejected: a hook in casgstatus, as in Go (every transition would test for a
// bubble, though only a park and a wake-up can matter); counting a G as blocked
// at S1, as in Go (a second count must then keep the bubble awake up to the end
// of unlockf); a thread that turns the clock (Run has one that waits).
#ifndef RUNTIME_SYNCTEST_H_
#define RUNTIME_SYNCTEST_H_

#include <cstdint>

#include "runtime/runtime2.h"

namespace gump::rt {

// Bubble is one; a cell is used again when all of its goroutines have ended.
struct alignas(kFalseSharing) Bubble {
  // A leaf. Guards what is not atomic, id and timers excepted.
  Mutex mu{LockRank::kLeaf};
  uint32_t id = 0;                            // never 0; constant while in use
  int32_t busy ABSL_GUARDED_BY(mu) = 0;       // see above
  int32_t total ABSL_GUARDED_BY(mu) = 0;      // goroutines, and the root
  bool idle ABSL_GUARDED_BY(mu) = false;      // the root is to be picked
  bool ended ABSL_GUARDED_BY(mu) = false;     // the main goroutine has
  uint64_t mainGoid ABSL_GUARDED_BY(mu) = 0;  // the first to be started
  G* root ABSL_GUARDED_BY(mu) = nullptr;      // nullptr: Run has returned
  G* waiter ABSL_GUARDED_BY(mu) = nullptr;    // the one in Wait
  // ns since the Unix epoch. Written by the root; what it is for a goroutine is
  // ordered by its own waking.
  Atomic<int64_t> now;
  Timers timers;
  Bubble* next = nullptr;  // in the free list
};

// ---- For proc_park.cc and proc_new.cc ---------------------------------------
// Unless it says otherwise:
// On: any, m.locks > 0.  P: either.  Locks: a leaf; sched.lock.  Parks: no.

// bubbleBlocked is S3.
void bubbleBlocked(Bubble* b);
// bubbleReady is W2, for gp whose waking the caller owns.
// Locks: a leaf.
void bubbleReady(G* gp);
// bubbleJoin makes gp, which nobody knows yet, one of b's goroutines; the
// caller keeps b busy.
// Locks: a leaf.
void bubbleJoin(Bubble* b, G* gp);
// bubbleLeave says that goid, which was one, has ended.
void bubbleLeave(Bubble* b, uint64_t goid);

// ---- For channels and timers ------------------------------------------------
// All: On: any.  P: either.  Locks: none.  Parks: no.

// bubbleCheck: the caller uses what belongs to the bubble `id`; unless he is in
// it, this is the fatal error goText.
void bubbleCheck(uint32_t id, const char* goText);
// bubbleNow is the clock of the caller's bubble; he is in one.
[[nodiscard]] int64_t bubbleNow();
// bubbleTimers is the heap of the caller's bubble.
[[nodiscard]] Timers* bubbleTimers();

}  // namespace gump::rt

#endif  // RUNTIME_SYNCTEST_H_
