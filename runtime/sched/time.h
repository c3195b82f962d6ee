// Timers: a heap of them for each P.
//
// A Timer calls f once, at `when`, or every `period` from then on. Its owner
// keeps its memory until it is out of every heap. Sleep and AfterFunc
// have it in a cell, and a channel of time has it beside its slot (timechan.h).
//
// Timers is the heap of one P. It is 4-ary, and ordered by a copy of `when`, so
// that a sift does not touch the timers. The P's owner adds timers to it;
// threads without a P add them to P 0. An M that finds timers due runs them:
// the owner in findRunnable, or a thief. Stopping and resetting touch no heap:
// they change the timer and leave a mark, and the heap follows when an M next
// looks at it.
//
// Invariants:
//  (T1) kTimerHeaped: t is in the heap t->ts, exactly once. The bit is set and
//       cleared with both t->ts->mu and t->mu held. While it is set, t->ts is
//       changed only with both held.
//  (T2) kTimerModified: `when` was changed since t's place in the heap was
//       chosen. While it is set, t->ts->minWhenModified is not above `when`,
//       and not 0.
//  (T3) kTimerZombie: t is in the heap but has nothing to do there. Counted in
//       t->ts->zombies. A heap where more than a quarter are zombies is
//       cleaned at the next look.
//  (T4) A heap's wake time (wakeTime) is never later than the earliest `when`
//       of its timers that are not zombies. It may be earlier.
//  (T5) f is called with neither lock held, and t is not touched after the call
//       unless t is in the heap again. So f may free t, stop it or reset it.
//  (T6) A channel's timer is in a heap, other than as a zombie, only while a
//       goroutine is blocked on the channel. (Go does the same since 1.23.)
//
// Order of locks: a channel's, Timers::mu, Timer::mu.
//
// Rejected:
//  - One lock for heap and timers. Stop from other threads would then contend
//    with the P that runs them.
//  - An index in each timer, to remove it at once. Every sift would write to
//    the timers it moves.
//  - A timing wheel. It is no more precise than its ticks, and it must be
//    turned even when nothing is due.
#ifndef RUNTIME_SCHED_TIME_H_
#define RUNTIME_SCHED_TIME_H_

#include <cstdint>

#include "runtime/sys/lock_futex.h"

namespace gump::rt {

struct P;
struct Timers;

// Never: the latest time that there is.
inline constexpr int64_t kMaxWhen = INT64_MAX;
// The longest that a thread asks the kernel to sleep at a time, ns. As in Go.
inline constexpr int64_t kMaxDelay = 1'000'000'000'000'000;

enum TimerState : uint32_t {
  kTimerHeaped = 1,    // (T1)
  kTimerModified = 2,  // (T2)
  kTimerZombie = 4,    // (T3)
  // No handle is left: the thread that takes t out of the heap frees it.
  kTimerDropped = 8,
  kTimerChan = 16,  // part of a TimerChan; constant
  kTimerFake = 32,  // goes by the clock of a bubble (synctest.h); constant
};

// TimerFunc is the function that a timer calls; `when` is the time at which it
// was due. It readies Gs without waking an M for them (goreadyQuiet): the
// caller does that.
// On: g0 or user, m.locks > 0.  P: either.  Locks: none.  Parks: no.
using TimerFunc = void (*)(void* arg, uint64_t seq, int64_t when);

// Timer fills a cache line.
struct Timer {
  // Guards the whole Timer. Forbidden while holding it: everything but a leaf.
  Mutex mu{LockRank::kTimer};
  Atomic<uint32_t> state;  // TimerState; written under mu, peeked at by heaps
  uint32_t blocked = 0;    // of a channel: goroutines that wait on it
  Timers* ts = nullptr;    // (T1)
  int64_t when = 0;        // nanotime, or a bubble's; 0: stopped
  int64_t period = 0;      // ns; 0: once
  TimerFunc f = nullptr;
  void* arg = nullptr;
  // Of a channel: each stop and reset adds 1, under mu and the sendLock.
  uint64_t seq = 0;
};
static_assert(sizeof(Timer) == kCacheLine);

// A place in the heap. `when` is a copy, stale while t is kTimerModified.
struct TimerWhen {
  Timer* timer;
  int64_t when;
};

// Timers starts its own line, because other threads look at it while the P's
// owner runs.
struct alignas(kCacheLine) Timers {
  // Guards the heap. Forbidden while holding it: everything but the mu of its
  // timers, and leaves.
  Mutex mu{LockRank::kTimers};
  Atomic<uint32_t> len;  // of the heap; written under mu
  // Written under the mu of the timer in question.
  Atomic<int32_t> zombies;
  // The smallest `when` in the heap, or 0 if it is empty. Written under mu.
  Atomic<int64_t> minWhenHeap;
  // At most the `when` of any kTimerModified timer; 0 if there is none (T2).
  Atomic<int64_t> minWhenModified;
  TimerWhen* heap ABSL_GUARDED_BY(mu) = nullptr;
  uint32_t cap ABSL_GUARDED_BY(mu) = 0;
  // P::id, for timerpMask; -1 if the heap belongs to no P.
  int32_t id = -1;
  uint32_t skipped = 0;  // used by timersDue, that is, by the P's owner
};

// Unless it says otherwise:
// On: any, m.locks > 0.  P: either.  Locks: takes Timers::mu, Timer::mu.
// Parks: no.

// wakeTime is the time (nanotime) at which an M must look at ts; 0 means never
// (T4).
// Locks: none.
[[nodiscard]] int64_t wakeTime(const Timers* ts);
// timerAdd puts t into the heap, if it should be in one and is in none. If the
// heap must now be looked at earlier than before, returns that time, which is
// t's `when` (see wakeNetPoller). Otherwise returns 0. t may be gone by then.
[[nodiscard]] int64_t timerAdd(Timers* ts, Timer* t);
// timerModify sets t to fire at `when`, and every `period` from then on.
// Returns true if t was pending; its earlier setting then has no effect.
// Locks: also a channel's and its sendLock, sched.lock.
bool timerModify(Timer* t, int64_t when, int64_t period);
// timerStart sets t, which is new and not a channel's, to fire once, at `when`.
// Locks: also sched.lock.
void timerStart(Timer* t, int64_t when);
// timerStop stops t. Returns true if t was pending; f is not called then.
// Returns false if t had stopped or fired; f may still be running.
// Locks: as timerModify.
bool timerStop(Timer* t);
// timerDrop gives up t, to which no handle is left. t is not pending, or is a
// channel's. It is freed (freeTimer) as soon as it is in no heap.
void timerDrop(Timer* t);

// A P's free cells of one kind (timechan.cc).
struct TimerCells {
  void* head = nullptr;
  uint32_t n = 0;
};
// timerCellsFlush gives back the free cells of pp, which is going away.
// On: any.  P: pp.  Locks: takes a leaf.  Parks: no.
void timerCellsFlush(P* pp);

struct TimerCheck {
  int64_t next;  // when an M must look at the heap again; 0: never
  bool ran;      // some timer was due
};
// timersCheck runs the timers of ts that are due. It reads nanotime into *now
// if that is 0 and needed. `tidy` removes zombies if there are many.
// Locks: also f's.
TimerCheck timersCheck(Timers* ts, int64_t* now, bool tidy);
// timersTake moves all timers of src to dst, when the P of src is going away.
// The world is stopped.
// Locks: caller holds sched.lock.
void timersTake(Timers* dst, Timers* src);
// ns by which a timer may be delayed to share a wake-up with later ones. sysmon
// wakes an M for a timer that is much later than that (kTimerLateNS).
inline constexpr int64_t kTogetherNS = 100'000;
// timersTogether returns when an M that sleeps for timers is to wake, if no
// timer that it knows of is due before `first`. It looks at the tops of the
// heaps for timers that are due within kTogetherNS after `first`:
// - If there are none, the result is `first`, so a timer that is alone is not
//   delayed.
// - If there are a few, the result is the time of the latest of them.
// - If there are many, it is kTogetherNS after `first`.
// So timers that are due soon after one another share a wake-up. A wake-up
// costs more than running a timer.
//
// The look is a guess: it leaves out timers with marks, timers further down,
// and heaps that are locked. A wrong guess costs a wake-up, or a delay. The
// result is never before `first`, nor more than kTogetherNS after it.
// Locks: tries Timers::mu.
[[nodiscard]] int64_t timersTogether(int64_t first);
// timersDelay returns for how long, in ns, the calling M is to sleep in the
// poller if no timer that it knows of is due before `first`. The caller has
// stored `first` in sched.pollUntil, and not the time at which the sleep ends:
// - A timer that is added later and is due before `first` breaks the poll.
// - One that is due at `first` or after it does not, and may find the M asleep
//   for up to kTogetherNS after its time, but not longer.
// Locks: tries Timers::mu.
[[nodiscard]] int64_t timersDelay(int64_t first);
// timeSleepUntil is the earliest wakeTime of all Ps, or kMaxWhen if there is
// none.
// Locks: none.
[[nodiscard]] int64_t timeSleepUntil();
// wakeSysmonBy ends sysmon's short sleep if it would last past `when`, the time
// of a timer. At that time sysmon may have to force a goroutine off its P, or
// wake an M. An M calls this when it stops looking at timers. A thread calls it
// when it adds a timer while no M looks.
void wakeSysmonBy(int64_t when);
// wakeNetPoller makes sure that an M looks at the timers at `when`. Call it
// after adding a timer that is earlier than all others of its heap.
// Locks: takes sched.lock.
void wakeNetPoller(int64_t when);
// breakPollAfter wakes the M in the poller if it would sleep past `when`.
// Locks: none.
void breakPollAfter(int64_t when);
// timeAfter is now + ns, at least now and at most kMaxWhen.
// Locks: none.
[[nodiscard]] int64_t timeAfter(int64_t now, int64_t ns);

// timersFirst is the earliest `when` of the timers of ts, or 0 if there are
// only zombies. It is exact if no thread changes them meanwhile.
[[nodiscard]] int64_t timersFirst(Timers* ts);
// timersTakePending takes a pending timer out of the heap of a bubble, for
// funcTimerDiscard. No goroutine may wait on a timer of that bubble. Returns
// nullptr if no timer is pending.
[[nodiscard]] Timer* timersTakePending(Timers* ts);

// timersDueNow tells whether ts has timers that are due.
// Locks: none.
[[nodiscard]] bool timersDueNow(const Timers* ts);
// timersDue tells the owner of ts, now and then, that timers are due: it looks
// at the clock only every 16th time.
// P: the owner of ts.  Locks: none.
[[nodiscard]] bool timersDue(Timers* ts);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_TIME_H_
