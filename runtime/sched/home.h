// Homes: threads that many goroutines share and nothing else uses
// (runtime::Thread). The protocol is in home.cc.
#ifndef RUNTIME_SCHED_HOME_H_
#define RUNTIME_SCHED_HOME_H_

#include <cstdint>

#include "gump/internal/linkname_thread.h"
#include "runtime/sched/gqueue.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"

namespace gump::rt {

// Status of a home
//
//   kRunning ─▶ kAsleep           owner: it has no work (I1)
//   kAsleep ─▶ kRunning           owner, CAS: there is work after all (I2)
//   kAsleep ─▶ kPolling           owner, CAS: it has the place in the poller
//   kPolling ─▶ kRunning          owner, CAS: the poll has ended
//   kAsleep, kPolling ─▶ kWaking  a waker, CAS (claim)
//   kRunning ─▶ kWaking           owner: it has work, and gives its P away
//                                 (awaitTurn)
//   kWaking ─▶ kRunning           owner: its thread has been woken (woken)
enum HomeState : uint32_t {
  // The thread is awake, or runs a goroutine, or waits with the goroutine that
  // it runs. It looks at its queue before it sleeps.
  kHomeRunning = 0,
  // It sleeps on its M's note, or is about to.
  kHomeAsleep = 1,
  // It sleeps in the poller, or is about to.
  kHomePolling = 2,
  // Its token is in a run queue, or a P is on its way to it.
  kHomeWaking = 3,
};

// HomeWatch is what sysmon remembers about the home of hooks at which it looks.
struct HomeWatch {
  bool armed = false;     // goroutines have waited since `since`
  bool reported = false;  // this wait has been reported
  uint32_t taken = 0;     // Home::taken at that time
  int64_t since = 0;
};

// Home is the thread of a runtime::Thread. Cells are used again and never
// freed, so a late waker may wake a later home. That home then looks at its
// queue and sleeps again.
struct alignas(kFalseSharing) Home {
  // Goroutines that other threads have made runnable, last first. Any thread
  // pushes, by CAS; the owner takes all, by exchange.
  Atomic<G*> incoming;
  Atomic<uint32_t> state;  // a HomeState
  // Handles, goroutines that were started on it and have not ended, and
  // goroutines that visit it. At 0 the thread ends.
  Atomic<int64_t> refs;
  M* m = nullptr;        // set before the first handle exists
  char name[16] = {};    // as Linux keeps it, or empty
  Home* next = nullptr;  // in the free list
  // For lookAtHomes, if locks are counted here. `hooked` is set once.
  Atomic<bool> hooked;
  Home* nextHooked = nullptr;
  HomeWatch watch;

  // The rest belongs to the thread of the home.
  alignas(kFalseSharing) GQueue local;  // runnable goroutines, in order
  // Hints for sysmon: how many goroutines are in `local`, and how many have
  // been taken out of it.
  Atomic<int32_t> waiting;
  Atomic<uint32_t> taken;
  // The goroutine that has called Gosched first since the home last let others
  // have its P. It is in `local`, or nullptr.
  const G* mark = nullptr;
  uint32_t turns = 0;      // goroutines run since then
  bool sliceOver = false;  // a goroutine was asked to yield
  // (T8) How many locks of the thread its goroutine holds, or nullptr if they
  // are not counted. It lies in the thread's local storage.
  const int32_t* locks = nullptr;
  // (T8) The goroutine for which the thread waits, or nullptr; and whether that
  // goroutine is runnable. It is not in `local` then.
  const G* keeper = nullptr;
  G* keeperReady = nullptr;
  // The locked goroutine that the scheduler sees. It never runs code. It is on
  // no list of goroutines, so no dump shows it.
  G token;
};

// homeOf returns the home to which gp belongs, or nullptr. The caller has seen
// that gp is special.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] inline Home* homeOf(const G* gp) {
  const M* mp = gp->lockedm;
  return mp == nullptr ? nullptr : mp->home;
}

// homeSchedule is schedule on the thread of a home. Returns nullptr if the home
// has ended.
// On: g0.  P: either.  Locks: takes sched.lock.  Parks: blocks the thread.
[[nodiscard]] G* homeSchedule(M* mp);
// leavesPollToHome tells whether mp, which is about to block in the poller,
// must not, because it has woken a home, which will poll. mp->wokenHome is set.
// On: g0.  P: none.  Locks: takes sched.lock.  Parks: no.
[[nodiscard]] bool leavesPollToHome(M* mp);
// homeReady queues gp, which is kGrunnable, on its home, and wakes the home.
// On: any, m.locks > 0.  P: either.  Locks: takes sched.lock.  Parks: no.
void homeReady(G* gp);
// homeJoin makes gp, which runs nowhere now, a goroutine of h.
// On: any.  P: either.  Locks: none.  Parks: no.
void homeJoin(Home* h, G* gp);
// homeDeliver readies gp, for which a poll has found an event. Returns false,
// and does nothing, if gp belongs to no home. (To a bubble gp was busy while it
// waited, so the bubble is told nothing.)
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
[[nodiscard]] bool homeDeliver(G* gp);
// homeYield is goschedImpl, and homePreempt is gopreemptImpl, for a goroutine
// of a home. Both:
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: blocks the thread.
G* homeYield(G* gp);
G* homePreempt(G* gp);
// homeKeep makes gp the keeper of its home (T8) if it holds a lock. It is
// called when gp leaves its thread, by a park or a visit. gp may run already.
// On: g0.  P: needed.  Locks: none.  Parks: no.
inline void homeKeep(M* mp, const G* gp) {
  Home* h = mp->home;
  if (h == nullptr || h->locks == nullptr || *h->locks <= 0) return;
  h->keeper = gp;
}
// homeGoexit is the rest of goexit0 on the thread of a home.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: blocks the thread.
G* homeGoexit(M* mp);

// lookAtHomes reports homes of hooks whose thread has run none of its runnable
// goroutines for a second. nextLookAtHomes returns how long (ns)
// sysmon may sleep before it calls lookAtHomes.
// On: sysmon.  P: none.  Locks: none.  Parks: no.
void lookAtHomes(int64_t now);
[[nodiscard]] int64_t nextLookAtHomes();

// bindHome makes mp, which has no thread yet, the M of h.
// On: any.  P: either.  Locks: none.  Parks: no.
inline void bindHome(M* mp, Home* h) {
  mp->home = h;
  mp->lockedg = &h->token;
  mp->lockedExt = 1;
  h->m = mp;
  h->token.lockedm = mp;
}

// beginExclusive makes gp the goroutine for which its thread waits (T4). It is
// for a goroutine that is bound to its thread at a place where the thread can
// run no other: preempted in place, or back from a call without a P.
// endExclusive puts the token back. Neither does anything on another thread
// than a home's.
// On: g0, or user.  P: either.  Locks: none.  Parks: no.
inline void beginExclusive(M* mp, G* gp) {
  if (mp->home != nullptr) mp->lockedg = gp;
}
inline void endExclusive(M* mp) {
  if (mp->home != nullptr) mp->lockedg = &mp->home->token;
}

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_HOME_H_
