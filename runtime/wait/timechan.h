// Channels of time: how a channel and its timer act on each other.
//
// The channel has one slot but appears unbuffered: a value is put there only
// for a goroutine that waits, or that has come to receive. While no goroutine
// waits, the timer is in no heap, and costs nothing until a goroutine looks at
// it. A receive first does what the timer would have done by then
// (timerRunIfDue).
//
// Invariants:
//  (C1) seq changes with mu and sendLock held. A value is sent with sendLock
//       held, and only if seq is what it was when the timer was found due. A
//       stop or a reset also empties the slot under sendLock. So after a stop
//       or a reset, no older value can be received.
//  (C2) sending: the timer, which is a one-shot, was found due under the
//       present seq, but its value is not sent yet. A stop or reset may still
//       prevent the send. The timer then counts as still pending. Set under mu,
//       cleared under the sendLock.
//  (C3) There is a reference to the channel while the timer is in a heap and
//       has not been stopped, and while its value is being sent. So when the
//       last reference goes, the timer is at most a zombie. Its cell is freed
//       at once, or when the timer is taken out of the heap.
//  (C4) Ticks are sent in the order in which they were due. If two threads have
//       found one tick each, the earlier tick is lost if its thread gets the
//       sendLock after the other's.
//
// Order of locks: sendLock, the channel's, Timers::mu, Timer::mu; also
// sendLock, Timer::mu.
#ifndef RUNTIME_WAIT_TIMECHAN_H_
#define RUNTIME_WAIT_TIMECHAN_H_

#include <cstdint>

#include "runtime/sched/time.h"
#include "runtime/wait/chan.h"

namespace gump::rt {

// TimerChan is a channel of time in one cell. It is type-stable, as a G is.
struct TimerChan {
  Hchan c;
  Timer t;
  Mutex sendLock{LockRank::kTimerSend};
  bool sending = false;  // (C2)
  // The due time of the last value that was sent (C4), or 0 if none was sent
  // since the last reset or stop. Under sendLock.
  int64_t lastSent = 0;
  // Writes the time, in ns since the Unix epoch, to a slot.
  void (*encode)(void* elem, int64_t unixNanos) = nullptr;
  alignas(16) unsigned char slot[16] = {};
};
static_assert(sizeof(TimerChan) <= 256);

inline TimerChan* timerChanOf(Hchan* c) {
  return reinterpret_cast<TimerChan*>(c);  // its first member
}

// CellTimer begins each TimerCell.
struct CellTimer {
  Timer t;
  // Group::id, with a reference, or 0; constant. The goroutines that the timer
  // starts belong to it.
  uint32_t group = 0;
};

// FuncTimer is the timer of AfterFunc.
struct FuncTimer : CellTimer {
  uint32_t bubble = 0;  // Bubble::id, or 0; constant
  const FuncType* ft = nullptr;
  void* closure = nullptr;
  uintptr_t pc = 0;
};

// TimerCell has room for a Timer that is not a channel's, and for what belongs
// to it: a FuncTimer, or the WaitTimer of sema_timed.cc.
struct alignas(kCacheLine) TimerCell {
  unsigned char room[128];
};
static_assert(sizeof(FuncTimer) <= sizeof(TimerCell));

// cellOf returns the CellTimer whose first member t is.
inline CellTimer* cellOf(Timer* t) { return reinterpret_cast<CellTimer*>(t); }

// Unless it says otherwise:
// On: any, m.locks > 0.  P: either.  Locks: takes Timers::mu, Timer::mu.
// Parks: no.

// allocTimerCell returns a TimerCell, or nullptr if there is no memory. pp is
// the caller's P, or nullptr.
// P: pp.  Locks: takes a leaf, kMem.
[[nodiscard]] void* allocTimerCell(P* pp);
// freeTimer gives back the cell that t is a part of.
// Locks: takes a leaf.
void freeTimer(Timer* t);

// funcTimerDiscard starts a goroutine in the caller's bubble that destroys t's
// function without calling it. t was taken from the bubble's heap.
// Locks: as newprocTimer.
void funcTimerDiscard(Timer* t);

// ---- For time.cc; t is a channel's ------------------------------------------

// timerChanBegin announces a send.
// Locks: caller holds t's mu.
void timerChanBegin(Timer* t);
// timerChanSend sends the value, unless a stop or reset or a later tick has
// forbidden it.
// Locks: takes the sendLock and the channel's.
void timerChanSend(Timer* t, TimerFunc f, uint64_t seq, int64_t when);
// timerChanLock and timerChanUnlock enclose a change. timerChanUnlock also
// empties the slot, and returns true if it held a value.
// Locks: timerChanLock takes the sendLock. timerChanUnlock takes the channel's,
// and releases both.
void timerChanLock(Timer* t);
bool timerChanUnlock(Timer* t);
// timerChanForget forbids the sends that are under way. Returns true if one of
// them is that of a one-shot timer, which then counts as still pending.
// Locks: caller holds the sendLock and t's mu.
bool timerChanForget(Timer* t);

// ---- For chan.cc and select.cc ----------------------------------------------

// timerBlock says that a goroutine is about to wait on t's channel, which it
// has locked. timerUnblock says that the goroutine no longer waits.
// Locks: timerBlock also takes sched.lock.
void timerBlock(Timer* t);
void timerUnblock(Timer* t);
// timerRunIfDue does what t would have done by now if it had been in a heap.
// Returns true if t was due.
// Locks: takes Timer::mu, the sendLock, the channel's, sched.lock.
bool timerRunIfDue(Timer* t);

// timerChanFree gives up c and its timer. The last reference to c is gone.
// On: any.  P: either.  Locks: as timerDrop.  Parks: no.
void timerChanFree(Hchan* c);

}  // namespace gump::rt

#endif  // RUNTIME_WAIT_TIMECHAN_H_
