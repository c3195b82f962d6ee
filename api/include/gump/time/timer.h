// A time::Timer stands for one event at a given time: a value on a channel, or
// the call of a function.
//
//   select(Recv(c, [](int v) { ... }),
//          Recv(gump::time::After(absl::Seconds(1)), [] { ... }));  // time out
//
//   auto timer = gump::time::NewTimer(absl::Seconds(1));
//   ...
//   if (timer.Stop()) { ... }  // in time
//
//   gump::time::AfterFunc(absl::Seconds(1), [c] { c.Close(); });
//
// gump/time.h says what a duration means, and how a channel of time behaves.
//
// A function given to AfterFunc is called whether or not a handle exists.
// Between one Run and the next, no such function is called, because no
// goroutine runs. Plain threads that wait for a timer's channel still wake on
// time.
//
// All functions may be called from goroutines and from plain threads, several
// at a time. None parks.
//
// Memory ordering: the call of AfterFunc, or of Reset, happens before the call
// of f that it causes.
#ifndef GUMP_TIME_TIMER_H_
#define GUMP_TIME_TIMER_H_

#include <memory>
#include <type_traits>
#include <utility>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/internal/arch.h"
#include "gump/internal/closure.h"
#include "gump/internal/duration_arg.h"
#include "gump/internal/func_timer.h"

#pragma GCC visibility push(default)

namespace gump::time {

// Timer stands for one event: a time to be received from C. For a Timer from
// AfterFunc, the event is a call of its function, and C is the nil channel. A
// default-constructed Timer can only be assigned to. A Timer is a handle: a
// copy is the same timer.
class Timer {
 public:
  Timer() noexcept = default;

  // C delivers the time at which the timer was due.
  recv_chan<absl::Time> C;

  // Stop keeps the timer from firing. Returns true if this call stopped the
  // timer. Returns false if the timer was stopped before or has fired, which
  // means that its time was received or its f has started. Stop does not wait
  // for f. After Stop nothing can be received from C.
  //
  // Panics "time: Stop called on uninitialized Timer".
  bool Stop() const;

  // Reset makes the timer fire after d, whatever its state was before. Returns
  // true if the timer was running; its earlier event then does not happen. An f
  // that has started continues, and may run at the same time as the next call
  // of f.
  //
  // Panics "time: Reset called on uninitialized Timer".
  bool Reset(internal::DurationArg d) const;

 private:
  friend Timer NewTimer(internal::DurationArg d);
  template <class F>
  friend Timer AfterFunc(internal::DurationArg d, F&& f);

  recv_chan<absl::Time> channel_;  // kept because C may be assigned to
  internal::FuncTimerHandle func_;
};

// NewTimer makes a Timer that sends the time to its channel after d. Throws
// std::bad_alloc.
[[nodiscard]] Timer NewTimer(internal::DurationArg d);

// After returns NewTimer(d).C, for timeouts in select. Throws std::bad_alloc.
[[nodiscard]] recv_chan<absl::Time> After(internal::DurationArg d);

// AfterFunc makes a Timer that calls f after d, in a goroutine of its own. Each
// Reset makes it call f once more. f may stop or reset its own timer.
//
// f is decay-copied. It is destroyed when it cannot be called any more: when no
// handle exists, and the timer is stopped or the last call of f has returned.
//
// Throws std::bad_alloc, and any exception thrown by copying f. A null f is the
// fatal error "go of nil func value".
template <class F>
__attribute__((always_inline)) inline Timer AfterFunc(internal::DurationArg d,
                                                      F&& f) {
  using Block = internal::FuncTimerOf<std::decay_t<F>>;
  internal::CheckCallable(f);
  Timer t;
  t.func_ =
      internal::FuncTimerHandle(new Block(std::decay_t<F>(std::forward<F>(f))));
  t.func_.get()->Start(d.Nanoseconds(), rt::callerPC());
  return t;
}

}  // namespace gump::time

#pragma GCC visibility pop

#endif  // GUMP_TIME_TIMER_H_
