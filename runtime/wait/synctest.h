// Bubbles: goroutines with a clock of their own, for tests. The clock stands
// still while one of them can run, and jumps when none can.
//
// A goroutine belongs to the bubble of the goroutine that started it. It is
// durably blocked when only a goroutine of its bubble, or the bubble's clock,
// can wake it. isIdleInSynctest names the reasons for parking that mean this. A
// channel of a bubble (Hchan::bubble) can be used only inside the bubble, so a
// goroutine that waits on it is durably blocked. For a Cond the program must
// ensure that no goroutine outside of the bubble uses it.
//
// The root is the goroutine that called synctest::Run. It belongs to the bubble
// until Run returns. It moves the clock, and runs the timers in the bubble's
// heap that are due. Suppose that another goroutine sets a timer, and is about
// to put it into the heap. If the timer is due already, that goroutine runs it
// at once (beginFake in time.cc), and keeps the bubble busy meanwhile.
//
// `busy` counts the goroutines of the bubble that are not durably blocked, the
// root included. It also counts a goroutine that is already published as
// blocked, until its parker has done S3:
//
//   parker                                  waker
//   S1 status = kGwaiting                   W1 take gp from where it waits
//   S2 unlockf: a waker can find gp         W2 busy += 1
//   S3 busy -= 1; if it is 0, pick          W3 make gp runnable
//
// S2 precedes W1. A wake-up adds one (W2) and the park subtracts one (S3), in
// whichever order they take `mu`. gp runs only after W3, so busy is never too
// low. Once all are blocked and all have done S3, busy is 0.
//
// The thread that made busy 0 then picks, under the same lock, the goroutine
// that goes on:
//  1. the root, if a timer is due;
//  2. otherwise the goroutine in synctest::Wait;
//  3. otherwise the root, to move the clock or to report a deadlock.
//
// Picking a goroutine increments busy and clears its slot (`idle` or `waiter`),
// so it cannot be picked twice. That holds although a thread outside the bubble
// may wake another goroutine at that moment. A candidate set its slot before it
// parked, while busy counted it. Since busy became 0, the candidate's S3 is
// over, so it can be picked. It will be picked. busy becomes 0 only in an S3,
// or when a goroutine ends. That step picks under the same lock if a slot is
// set. If no slot is set, the root has gone. No wake-up is lost.
//
// So the root moves the clock only when no other goroutine of the bubble runs.
// By then every timer that is due has been run, and every goroutine that this
// woke is blocked again.
//
// Invariants:
//  (B1) gp->bubble changes only before gp first runs, or when gp has ended. The
//       root changes its own. If gp->bubble is not null, gp->special is set.
//  (B2) Timers of a bubble (kTimerFake) are in its heap or in none. They change
//       only inside the bubble, except that any thread may drop them. So a
//       thread that handles a timer in use finds its heap and its clock by
//       getg()->bubble.
//  (B3) Bubbles are type-stable, and their ids are unique for 2^32 Runs. So a
//       handle that has outlived its bubble counts as outside everywhere.
//
// Costs outside of bubbles: parking and readying test gp->special, where they
// would test gp->foreign. A channel operation tests Hchan::bubble, in a cache
// line that it reads anyway.
//
// Rejected:
//  - A hook in casgstatus, as in Go. Every transition would test for a bubble,
//    though only a park and a wake-up can matter.
//  - Counting a G as blocked at S1, as in Go. A second count must then keep the
//    bubble awake until the end of unlockf.
//  - A thread that moves the clock. Run already has a goroutine that waits.
#ifndef RUNTIME_WAIT_SYNCTEST_H_
#define RUNTIME_WAIT_SYNCTEST_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "runtime/sched/time.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"
#include "runtime/sys/lock_futex.h"

namespace gump::rt {

struct G;

// Bubble is one bubble. A cell is used again when all of its goroutines have
// ended.
struct alignas(kFalseSharing) Bubble {
  // A leaf. Guards every field that is not atomic, except id, timers and next.
  Mutex mu{LockRank::kLeaf};
  uint32_t id = 0;                            // never 0; constant while in use
  int32_t busy ABSL_GUARDED_BY(mu) = 0;       // see above
  int32_t total ABSL_GUARDED_BY(mu) = 0;      // goroutines, with the root
  bool idle ABSL_GUARDED_BY(mu) = false;      // the root can be picked
  bool ended ABSL_GUARDED_BY(mu) = false;     // the main goroutine has ended
  uint64_t mainGoid ABSL_GUARDED_BY(mu) = 0;  // the first goroutine started
  G* root ABSL_GUARDED_BY(mu) = nullptr;      // null after Run has returned
  G* waiter ABSL_GUARDED_BY(mu) = nullptr;    // the goroutine in Wait
  // ns since the Unix epoch. Written by the root. A goroutine sees the right
  // value because the store happens before it is woken.
  Atomic<int64_t> now;
  Timers timers;
  Bubble* next = nullptr;  // in the free list
};

// ---- For proc_park.cc and proc_new.cc ---------------------------------------
// Unless it says otherwise:
// On: any, m.locks > 0.  P: either.  Locks: a leaf; sched.lock.  Parks: no.

// bubbleBlocked is S3.
void bubbleBlocked(Bubble* b);
// bubbleReady is W2, for gp, which the caller alone is going to wake.
// Locks: a leaf.
void bubbleReady(G* gp);
// bubbleJoin makes gp one of b's goroutines. No other thread knows gp yet, and
// the caller keeps b busy.
// Locks: a leaf.
void bubbleJoin(Bubble* b, G* gp);
// bubbleLeave says that the goroutine goid of b has ended.
void bubbleLeave(Bubble* b, uint64_t goid);

// ---- For channels and timers ------------------------------------------------
// All functions:
// On: any.  P: either.  Locks: none.  Parks: no.

// bubbleCheck is called when the caller uses an object of the bubble `id`. If
// the caller is not in that bubble, it raises the fatal error goText.
void bubbleCheck(uint32_t id, const char* goText);
// bubbleNow is the clock of the caller's bubble. The caller must be in one.
[[nodiscard]] int64_t bubbleNow();
// bubbleTimers is the heap of the caller's bubble.
[[nodiscard]] Timers* bubbleTimers();

}  // namespace gump::rt

#endif  // RUNTIME_WAIT_SYNCTEST_H_
