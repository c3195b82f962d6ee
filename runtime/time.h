// Timers: a heap of them for each P.
//
// A Timer calls f once, at `when`, or every `period` from then on. Whoever owns
// it keeps its memory until it is out of every heap: a sleeping goroutine has
// it on its stack, AfterFunc in a cell, a channel of time beside its ring
// (timechan.h).
//
// Timers is the heap of one P: 4-ary, ordered by a copy of `when`, so that a
// sift does not touch the timers. Timers are added by the P's owner (and to
// P 0 by threads without a P), but run by whoever finds them due: the owner in
// findRunnable, or a thief. Stopping and resetting touch no heap: they change
// the timer and leave a mark, and the heap follows when it is next looked at.
//
// Invariants:
//  (T1) kTimerHeaped: t is in the heap t->ts, exactly once. Set and cleared
//       with both t->ts->mu and t->mu held; so is t->ts changed while it is
//       set.
//  (T2) kTimerModified: `when` was changed since t's place in the heap was
//       chosen. While it is set, t->ts->minWhenModified is not above `when`,
//       and not 0.
//  (T3) kTimerZombie: t is in the heap but has nothing to do there. Counted in
//       t->ts->zombies. A heap where more than a quarter are zombies is
//       cleaned at the next look.
//  (T4) A heap's wake time (wakeTime) is never later than the earliest `when`
//       of its timers that are not zombies. It may be earlier.
//  (T5) f is called with neither lock held, and t is not touched after it
//       unless t is in the heap again. So f may free t, stop it, reset it.
//  (T6) A channel's timer is in a heap, zombies apart, only while somebody is
//       blocked on the channel. (Go, since 1.23.)
//
// Order of locks: a channel's, Timers::mu, Timer::mu.
//
// Rejected: one lock for heap and timers (Stop from other threads would then
// contend with the P that runs them); an index in each timer, to take it out at
// once (every sift would write to the timers it moves); a timing wheel (its
// precision is that of its ticks, and it must be turned when nothing is due).
#ifndef RUNTIME_TIME_H_
#define RUNTIME_TIME_H_

#include <cstdint>

#include "runtime/lock_futex.h"

namespace gump::rt {

struct Timers;

// Never: as far away as a time can be.
inline constexpr int64_t kMaxWhen = INT64_MAX;
// The longest that a thread asks the kernel to sleep at a time, ns: as Go.
inline constexpr int64_t kMaxDelay = 1'000'000'000'000'000;

enum TimerState : uint32_t {
  kTimerHeaped = 1,    // (T1)
  kTimerModified = 2,  // (T2)
  kTimerZombie = 4,    // (T3)
  // Nobody has a handle any more: who takes it out of the heap frees it.
  kTimerDropped = 8,
  kTimerChan = 16,  // part of a TimerChan; constant
  kTimerFake = 32,  // goes by the clock of a bubble (synctest.h); constant
};

// TimerFunc is what a timer calls: `when` is the time at which it was due. It
// wakes nobody for the Gs that it readies (goreadyQuiet): that is up to who
// runs it.
// On: g0 or user, m.locks > 0.  P: either.  Locks: none.  Parks: no.
using TimerFunc = void (*)(void* arg, uint64_t seq, int64_t when);

// Timer fills a cache line.
struct Timer {
  // Guards all of it. Forbidden while holding it: everything but a leaf.
  Mutex mu{LockRank::kTimer};
  Atomic<uint32_t> state;  // TimerState; written under mu, peeked at by heaps
  uint32_t blocked = 0;    // of a channel: goroutines that wait on it
  Timers* ts = nullptr;    // (T1)
  int64_t when = 0;        // nanotime, or a bubble's; 0: stopped
  int64_t period = 0;      // ns; 0: once
  TimerFunc f = nullptr;
  void* arg = nullptr;
  // Of a channel: +1 by each stop and reset, under mu and the sendLock.
  uint64_t seq = 0;
};
static_assert(sizeof(Timer) == kCacheLine);

// A place in the heap. `when` is a copy, stale while t is kTimerModified.
struct TimerWhen {
  Timer* timer;
  int64_t when;
};

// Timers starts its own line: others look at it while the P's owner runs.
struct alignas(kCacheLine) Timers {
  // Guards the heap. Forbidden while holding it: everything but the mu of its
  // timers, and leaves.
  Mutex mu{LockRank::kTimers};
  Atomic<uint32_t> len;  // of the heap; written under mu
  // Written by whoever holds the mu of the timer in question.
  Atomic<int32_t> zombies;
  // The smallest `when` in the heap; 0: it is empty. Written under mu.
  Atomic<int64_t> minWhenHeap;
  // Not above any kTimerModified timer's `when`; 0: there is none (T2).
  Atomic<int64_t> minWhenModified;
  TimerWhen* heap ABSL_GUARDED_BY(mu) = nullptr;
  uint32_t cap ABSL_GUARDED_BY(mu) = 0;
  // P::id, for timerpMask; -1: of no P.
  int32_t id = -1;
  uint32_t skipped = 0;  // timersDue's own; by the P's owner
};

// Unless it says otherwise:
// On: any, m.locks > 0.  P: either.  Locks: takes Timers::mu, Timer::mu.
// Parks: no.

// wakeTime is when ts wants to be looked at: nanotime; 0: never (T4).
// Locks: none.
[[nodiscard]] int64_t wakeTime(const Timers* ts);
// timerAdd puts t into the heap, if it wants to be in one and is in none. Not
// 0: that heap must be looked at earlier than before, at that time, t's `when`
// (wakeNetPoller). t may be gone by then.
[[nodiscard]] int64_t timerAdd(Timers* ts, Timer* t);
// timerModify sets t to fire at `when`, and every `period` from then on. True:
// it was pending, and what it would have done then is not done.
// Locks: also a channel's and its sendLock, sched.lock.
bool timerModify(Timer* t, int64_t when, int64_t period);
// timerStart sets t, which is new and no channel's, to fire once, at `when`.
// Locks: also sched.lock.
void timerStart(Timer* t, int64_t when);
// timerStop stops t. True: it was pending, and does nothing now. False: it had
// stopped or fired; f may still be under way.
// Locks: as timerModify.
bool timerStop(Timer* t);
// timerDrop gives up t, which nobody has a handle to any more and which is not
// pending, or is a channel's. It is freed (freeTimer) as soon as it is in no
// heap.
void timerDrop(Timer* t);

// A P's free cells of one kind (timechan.cc).
struct TimerCells {
  void* head = nullptr;
  uint32_t n = 0;
};

struct TimerCheck {
  int64_t next;  // when the heap wants to be looked at again; 0: never
  bool ran;      // some timer was due
};
// timersCheck runs the timers of ts that are due. *now: nanotime, read if it is
// 0 and needed. tidy: remove zombies, if there are many.
// Locks: also f's.
TimerCheck timersCheck(Timers* ts, int64_t* now, bool tidy);
// timersTake moves all timers of src, whose P goes away, to dst. The world is
// stopped.
// Locks: caller holds sched.lock.
void timersTake(Timers* dst, Timers* src);
// timeSleepUntil is the earliest wakeTime of all Ps; kMaxWhen: none.
// Locks: none.
[[nodiscard]] int64_t timeSleepUntil();
// hurrySysmon ends sysmon's nap if it would sleep past `when`, the time of a
// timer: somebody may have to be pressed then, or woken. To be called by
// whoever ceases to look at timers, or adds one, while nobody else looks.
// Locks: none.
void hurrySysmon(int64_t when);
// wakeNetPoller sees to it that somebody looks at the timers at `when`. To be
// called after a timer was added that is earlier than all others of its heap.
// Locks: takes sched.lock.
void wakeNetPoller(int64_t when);
// breakPollAfter wakes the M in the poller if it would sleep longer than until
// `when`.
// Locks: none.
void breakPollAfter(int64_t when);
// timeAfter is ns after now, at least now and at most kMaxWhen. Locks: none.
[[nodiscard]] int64_t timeAfter(int64_t now, int64_t ns);

// timersFirst is the earliest `when` of the timers of ts, exactly, if nobody
// changes them meanwhile; 0: there are none but zombies.
[[nodiscard]] int64_t timersFirst(Timers* ts);
// timersTakePending takes a timer that is pending out of the heap of a bubble
// in which nobody waits; it is for funcTimerDiscard. nullptr: there is none.
[[nodiscard]] Timer* timersTakePending(Timers* ts);

// timersDueNow tells whether ts has timers that are due.
// Locks: none.
[[nodiscard]] bool timersDueNow(const Timers* ts);
// timersDue tells the owner of ts, now and then, that timers are due: it looks
// at the clock only every 16th time.
// P: the owner of ts.  Locks: none.
[[nodiscard]] bool timersDue(Timers* ts);

}  // namespace gump::rt

#endif  // RUNTIME_TIME_H_
