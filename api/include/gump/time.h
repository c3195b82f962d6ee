// Package time pauses goroutines, and makes events happen at a given time.
//
//   gump/time/sleep.h    Sleep
//   gump/time/timer.h    Timer, NewTimer, After, AfterFunc
//   gump/time/ticker.h   Ticker, NewTicker, Tick
//
// Durations are absl::Duration or any std::chrono::duration. Fractions of a
// nanosecond are rounded up. A duration that is not above 0 means now. A
// duration that is infinite, or above 292 years, never ends. Durations are
// measured on the monotonic clock, so setting the wall clock moves no timer.
// Nothing happens before its time. How much later it happens depends on when a
// processor is free.
//
// A channel of time is Timer::C, Ticker::C, or the result of After or Tick. It
// delivers the time at which its timer was due. It behaves as an unbuffered
// channel: Len() and Cap() are 0. A time can be received from the moment at
// which it is due until Stop or Reset is called. The channel is never closed.
//
// Timer and Ticker are handles: a copy is the same timer. A timer is freed when
// neither the timer nor its channel has a handle any more, so there is no need
// to stop it.
//
// All functions may be called from goroutines and from plain threads, several
// at a time. Only Sleep parks.
//
// In a bubble (synctest.h), durations are measured on the bubble's clock, and
// channels deliver the times of that clock.
//
// Source: package time of Go 1.23.
#ifndef GUMP_TIME_H_
#define GUMP_TIME_H_

#include "gump/time/sleep.h"   // IWYU pragma: export
#include "gump/time/ticker.h"  // IWYU pragma: export
#include "gump/time/timer.h"   // IWYU pragma: export

#endif  // GUMP_TIME_H_
