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

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/internal/arch.h"
#include "gump/internal/atomic.h"
#include "gump/internal/linkname_time.h"

namespace gump {

namespace internal {

// DurationArg is the parameter type of functions that take a duration. Like
// Go's Duration, it counts nanoseconds in 64 bits. Fractions are rounded up, so
// that nothing happens too early. A duration that does not fit means for ever.
class DurationArg {
 public:
  DurationArg(absl::Duration d) : ns_(RoundedUp(d)) {}  // NOLINT: implicit
  template <class Rep, class Period>
  DurationArg(std::chrono::duration<Rep, Period> d)  // NOLINT: implicit
      : ns_(OfChrono(d)) {}

  // Returns INT64_MAX for a duration that never ends.
  int64_t Nanoseconds() const { return ns_; }
  absl::Duration duration() const {
    return ns_ == kForever ? absl::InfiniteDuration() : absl::Nanoseconds(ns_);
  }

 private:
  static constexpr int64_t kSecond = 1'000'000'000;
  static constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

  static int64_t RoundedUp(absl::Duration d);
  template <class Rep, class Period>
  static int64_t OfChrono(std::chrono::duration<Rep, Period> d) {
    if constexpr (!std::is_integral_v<Rep>) {
      using Seconds = std::chrono::duration<double>;
      return RoundedUp(
          absl::Seconds(std::chrono::duration_cast<Seconds>(d).count()));
    } else if constexpr (kSecond % Period::den == 0) {
      constexpr int64_t kUnit = Period::num * (kSecond / Period::den);
      int64_t ns;
      if (!__builtin_mul_overflow(d.count(), kUnit, &ns)) return ns;
      return d.count() < 0 ? -kForever : kForever;
    } else {  // finer than ns, or not a whole number of them
      const int64_t count = std::in_range<int64_t>(d.count())
                                ? static_cast<int64_t>(d.count())
                                : kForever;
      return RoundedUp(absl::Seconds(Period::num) * count / Period::den);
    }
  }

  int64_t ns_;
};

// FuncTimer is the timer with which AfterFunc starts goroutines. Each handle
// owns one reference. The timer itself owns one while it is pending, and passes
// that one to the goroutine.
class FuncTimer {
 public:
  FuncTimer() = default;
  virtual ~FuncTimer();
  FuncTimer(const FuncTimer&) = delete;
  FuncTimer& operator=(const FuncTimer&) = delete;

  virtual void Call() = 0;
  // Start makes the timer and sets it to fire after ns nanoseconds.
  void Start(int64_t ns, uintptr_t pc);
  bool Stop();
  bool Reset(int64_t ns);
  void Ref();
  void Unref();

 private:
  rt::FuncTimer* timer_ = nullptr;
  rt::Atomic<uint32_t> refs_{1};
};

template <class F>
class FuncTimerOf final : public FuncTimer {
 public:
  explicit FuncTimerOf(F f) : f_(std::move(f)) {}
  void Call() override { CallVisibly(f_); }

 private:
  F f_;
};

// FuncTimerHandle is a counted reference to a FuncTimer.
class FuncTimerHandle {
 public:
  FuncTimerHandle() noexcept = default;
  explicit FuncTimerHandle(FuncTimer* adopted) noexcept : t_(adopted) {}
  FuncTimerHandle(const FuncTimerHandle& o) noexcept : t_(o.t_) {
    if (t_ != nullptr) t_->Ref();
  }
  FuncTimerHandle(FuncTimerHandle&& o) noexcept
      : t_(std::exchange(o.t_, nullptr)) {}
  FuncTimerHandle& operator=(FuncTimerHandle o) noexcept {
    std::swap(t_, o.t_);
    return *this;
  }
  ~FuncTimerHandle() {
    if (t_ != nullptr) t_->Unref();
  }
  FuncTimer* get() const noexcept { return t_; }

 private:
  FuncTimer* t_ = nullptr;
};

}  // namespace internal

namespace time {

// Sleep pauses the calling goroutine or plain thread. Parks until at least d
// has passed. Returns at once if d is not above 0.
void Sleep(internal::DurationArg d);

// Timer stands for one event: a time to be received from C. For a Timer from
// AfterFunc, the event is a call of its function, and C is the nil channel. A
// default-constructed Timer can only be assigned to.
class Timer {
 public:
  Timer() noexcept = default;

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
//
//   auto timer = gump::time::NewTimer(absl::Seconds(1));
//   ...
//   if (timer.Stop()) { ... }  // in time
[[nodiscard]] Timer NewTimer(internal::DurationArg d);

// After returns NewTimer(d).C, for timeouts in select. Throws std::bad_alloc.
[[nodiscard]] recv_chan<absl::Time> After(internal::DurationArg d);

// AfterFunc makes a Timer that calls f after d, in a goroutine of its own, and
// once more after each Reset. f may stop or reset its own timer.
//
// f is decay-copied. It is destroyed when it cannot be called any more: on its
// goroutine, or by the call that stops the timer or drops the last handle.
//
// Throws std::bad_alloc, and any exception thrown by copying f. A null f is the
// fatal error "go of nil func value".
//
//   gump::time::AfterFunc(absl::Seconds(1), [c] { c.Close(); });
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

// Ticker sends the time to C every d, the first time after d. A tick is dropped
// if the one before it has not been received yet. A default-constructed Ticker
// can only be assigned to or stopped.
class Ticker {
 public:
  Ticker() noexcept = default;

  recv_chan<absl::Time> C;

  // Stop ends the ticks: after it nothing can be received from C. It does not
  // close C.
  void Stop() const;

  // Reset makes the ticks come every d, the next one after d.
  //
  // Panics "non-positive interval for Ticker.Reset" and "time: Reset called on
  // uninitialized Ticker".
  void Reset(internal::DurationArg d) const;

 private:
  friend Ticker NewTicker(internal::DurationArg d);

  recv_chan<absl::Time> channel_;
};

// NewTicker makes a Ticker that ticks every d. Panics "non-positive interval
// for NewTicker". Throws std::bad_alloc.
[[nodiscard]] Ticker NewTicker(internal::DurationArg d);

// Tick returns NewTicker(d).C, or the nil channel if d is not above 0. Throws
// std::bad_alloc.
[[nodiscard]] recv_chan<absl::Time> Tick(internal::DurationArg d);

}  // namespace time
}  // namespace gump

#endif  // GUMP_TIME_H_
