// Time: Sleep, Timer, Ticker, After, Tick and AfterFunc.
//
//   gump::time::Sleep(absl::Milliseconds(10));
//
//   select(Recv(c, [](int v) { ... }),
//          Recv(gump::time::After(absl::Seconds(1)), [] { ... }));  // time out
//
//   gump::time::Ticker ticker = gump::time::NewTicker(1s);
//   for (absl::Time t : ticker.C) { ... }
//
// Durations are absl::Duration or any std::chrono::duration. Fractions of a
// nanosecond are rounded up. A duration that is not above 0 means now. A
// duration that is infinite, or above 292 years, never ends. Durations are
// measured on the monotonic clock, so setting the wall clock moves no timer.
// Nothing happens before its time. How much later it happens depends on when a
// processor is free.
//
// A channel of time (Timer::C, Ticker::C, After, Tick) delivers the time at
// which it was due. It behaves as an unbuffered channel: Len() and Cap() are 0.
// A time can be received from the moment at which it is due until Stop or Reset
// is called. The channel is never closed.
//
// Timer and Ticker are handles: a copy is the same timer. A timer is freed when
// neither it nor its channel has a handle any more, so there is no need to stop
// it. A function given to AfterFunc is called whether or not a handle exists.
//
// All functions may be called from goroutines and from plain threads, several
// at a time. Only Sleep parks. Between one Run and the next, functions given to
// AfterFunc wait, as goroutines do. Plain threads that are in Sleep, or wait
// for a timer's channel, still wake on time.
//
// In a bubble (synctest.h), durations are measured on the bubble's clock, and
// channels deliver the times of that clock.
//
// Memory ordering: the call of AfterFunc, or of Reset, happens before the call
// of f that it causes.
//
// Source: package time of Go 1.23.
#ifndef GUMP_TIME_H_
#define GUMP_TIME_H_

#include "gump/time/sleep.h"   // IWYU pragma: export
#include "gump/time/ticker.h"  // IWYU pragma: export
#include "gump/time/timer.h"   // IWYU pragma: export

#endif  // GUMP_TIME_H_
