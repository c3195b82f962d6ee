// Channels of time: what a channel and its timer do to each other.
//
// The channel has one slot, but shows itself as unbuffered: a value is put
// there only for somebody who waits or has come to receive. Nobody waiting, the
// timer is in no heap, and costs nothing until it is looked at; a receive first
// does what the timer would have done by then (timerRunIfDue).
//
// Invariants:
//  (C1) seq changes with mu and sendLock held; a value is sent with sendLock
//       held, if seq is what it was when the timer was found due. So after a
//       stop or a reset, which also empty the slot under sendLock, no value
//       from before can be received.
//  (C2) sending: the timer (of one shot) was found due under the present seq,
//       but its value is not sent yet, and a stop or reset may still forbid it:
//       then it has won. Set under mu, cleared under the sendLock.
//  (C3) A timer in a heap that is no zombie, or whose value is being sent,
//       implies a reference to the channel. So when the last one goes, the
//       timer is at most a zombie, and the cell is freed, at once or when it is
//       taken out of the heap.
//  (C4) Ticks are sent in the order in which they were due: of two threads that
//       have found one each, the earlier's is lost if it comes to the sendLock
//       after the later's.
//
// Order of locks: sendLock, the channel's, Timers::mu, Timer::mu; and sendLock,
// Timer::mu.
#ifndef RUNTIME_TIMECHAN_H_
#define RUNTIME_TIMECHAN_H_

#include <cstdint>

#include "runtime/chan.h"
#include "runtime/time.h"

namespace gump::rt {

// TimerChan is a channel of time in one cell, type-stable as a G.
struct TimerChan {
  Hchan c;
  Timer t;
  Mutex sendLock{LockRank::kTimerSend};
  bool sending = false;  // (C2)
  // (C4), when it was due, since the last reset; sendLock
  int64_t lastSent = 0;
  // Writes the time to a slot: ns since the Unix epoch.
  void (*encode)(void* elem, int64_t unixNanos) = nullptr;
  alignas(16) unsigned char slot[16] = {};
};
static_assert(sizeof(TimerChan) <= 256);

inline TimerChan* timerChanOf(Hchan* c) {
  return reinterpret_cast<TimerChan*>(c);  // its first member
}

// FuncTimer is what AfterFunc has.
struct FuncTimer {
  Timer t;
  const FuncType* ft = nullptr;
  void* closure = nullptr;
  uintptr_t pc = 0;
  uint32_t bubble = 0;  // Bubble::id, or 0; constant
};
static_assert(sizeof(FuncTimer) <= 128);

// Unless it says otherwise:
// On: any, m.locks > 0.  P: either.  Locks: takes Timers::mu, Timer::mu.
// Parks: no.

// freeTimer gives back the cell that t is a part of.
// Locks: takes a leaf.
void freeTimer(Timer* t);

// funcTimerDiscard starts a goroutine in the caller's bubble, from whose heap t
// was taken, that destroys t's function uncalled.
// Locks: as newprocTimer.
void funcTimerDiscard(Timer* t);

// ---- For time.cc; t is a channel's ------------------------------------------

// timerChanBegin announces a send.
// Locks: caller holds t's mu.
void timerChanBegin(Timer* t);
// timerChanSend sends, or finds that it may not.
// Locks: takes the sendLock and the channel's.
void timerChanSend(Timer* t, TimerFunc f, uint64_t seq, int64_t when);
// timerChanLock and timerChanUnlock enclose a change; the second empties the
// slot. True: there was a value.
// Locks: the first takes the sendLock, the second the channel's, and releases
// both.
void timerChanLock(Timer* t);
bool timerChanUnlock(Timer* t);
// timerChanForget forbids the sends under way. True: of a timer of one shot,
// which is still pending then.
// Locks: caller holds the sendLock and t's mu.
bool timerChanForget(Timer* t);

// ---- For chan.cc and select.cc ----------------------------------------------

// timerBlock says that somebody is about to wait on t's channel, which he has
// locked; timerUnblock that he does not any more.
// Locks: timerBlock also takes sched.lock.
void timerBlock(Timer* t);
void timerUnblock(Timer* t);
// timerRunIfDue does what t would have done by now, had it been in a heap.
// True: it was due.
// Locks: takes Timer::mu, the sendLock, the channel's, sched.lock.
bool timerRunIfDue(Timer* t);

// timerChanFree gives up c, whose last reference has gone, and its timer.
// On: any.  P: either.  Locks: as timerDrop.  Parks: no.
void timerChanFree(Hchan* c);

}  // namespace gump::rt

#endif  // RUNTIME_TIMECHAN_H_
