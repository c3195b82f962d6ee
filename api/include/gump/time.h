// Time: Sleep, Timer, Ticker, After, Tick, AfterFunc.
//
//   gump::time::Sleep(absl::Milliseconds(10));
//
//   select(Recv(c, [](int v) { ... }),
//          Recv(gump::time::After(absl::Seconds(1)), [] { ... }));  // time out
//
//   gump::time::Ticker ticker = gump::time::NewTicker(1s);
//   for (absl::Time t : ticker.C) { ... }
//
// Durations are absl::Duration or any std::chrono::duration; fractions of a
// nanosecond are rounded up, and what is not above 0 means now. Durations count
// on the monotonic clock: setting the wall clock moves no timer. An infinite
// one, or one of more than 292 years, never ends. Nothing happens before its
// time; how much later depends on when a processor is free.
//
// A channel of time (Timer::C, Ticker::C, After, Tick) delivers the time at
// which it was due. It behaves as unbuffered, Len() and Cap() are 0: a time is
// there to be received from the moment on at which it is due, and no more once
// Stop or Reset has been called. It is never closed.
//
// Timer and Ticker are handles: a copy is the same timer. One that nobody holds
// any more, nor its channel, is gone; there is no need to stop it. (What
// AfterFunc was told to do is done, held or not.)
//
// All functions may be called from goroutines and from plain threads, several
// at a time. None parks, but Sleep. Between one Run and the next functions of
// AfterFunc wait, as goroutines do; plain threads that are in Sleep, or wait
// for a timer's channel, wake all the same.
//
// In a bubble (synctest.h) durations count on the bubble's clock, and channels
// deliver that clock's times.
//
// Memory ordering: the call of AfterFunc, or of Reset, happens before the f
// that it starts.
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
#include "gump/internal/linkname.h"

namespace gump {

namespace internal {

// DurationArg is what functions take that take a duration. As Go's Duration it
// counts ns in 64 bits: fractions are rounded up, so that nothing happens too
// early, and what does not fit is for ever.
class DurationArg {
 public:
  DurationArg(absl::Duration d) : ns_(RoundedUp(d)) {}  // NOLINT: implicit
  template <class Rep, class Period>
  DurationArg(std::chrono::duration<Rep, Period> d)  // NOLINT: implicit
      : ns_(OfChrono(d)) {}

  // INT64_MAX: for ever.
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
    } else {  // finer than ns, or no whole number of them
      const int64_t count = std::in_range<int64_t>(d.count())
                                ? static_cast<int64_t>(d.count())
                                : kForever;
      return RoundedUp(absl::Seconds(Period::num) * count / Period::den);
    }
  }

  int64_t ns_;
};

// FuncTimer is what AfterFunc starts goroutines with. One reference belongs to
// the handles, one to the timer while it is pending, which passes on to the
// goroutine.
class FuncTimer {
 public:
  FuncTimer() = default;
  virtual ~FuncTimer();
  FuncTimer(const FuncTimer&) = delete;
  FuncTimer& operator=(const FuncTimer&) = delete;

  virtual void Call() = 0;
  // Start makes the timer and sets it.
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

// FuncTimerHandle is a counted reference.
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

// Sleep pauses the calling goroutine, or plain thread, for at least d. Returns
// at once if d is not above 0. Parks.
void Sleep(internal::DurationArg d);

// Timer stands for one event: a time to be received from C, or, if it comes
// from AfterFunc, a function to be called; then C is the nil channel. A
// default-constructed Timer is good for nothing but to be assigned to.
class Timer {
 public:
  Timer() noexcept = default;

  recv_chan<absl::Time> C;

  // Stop keeps the timer from firing. True: it does; false: it was stopped
  // before, or has fired: its time has been received, or its f started. Stop
  // does not wait for f. After Stop nothing can be received from C.
  //
  // Panics "time: Stop called on uninitialized Timer".
  bool Stop() const;

  // Reset makes the timer fire after d, whatever it did before. True: it was
  // running, and what it would have done is not done. An f that has started
  // goes on, and may run at the same time as the next.
  //
  // Panics "time: Reset called on uninitialized Timer".
  bool Reset(internal::DurationArg d) const;

 private:
  friend Timer NewTimer(internal::DurationArg d);
  template <class F>
  friend Timer AfterFunc(internal::DurationArg d, F&& f);

  internal::ChanHandle channel_;  // C may be assigned to
  internal::FuncTimerHandle func_;
};

// NewTimer makes a Timer that sends the time to its channel after d. Throws
// std::bad_alloc.
//
//   auto timer = gump::time::NewTimer(absl::Seconds(1));
//   ...
//   if (timer.Stop()) { ... }  // in time
[[nodiscard]] Timer NewTimer(internal::DurationArg d);

// After is NewTimer(d).C: for timeouts in select.
[[nodiscard]] recv_chan<absl::Time> After(internal::DurationArg d);

// AfterFunc makes a Timer that calls f after d, in a goroutine of its own, and
// once more after each Reset. f is decay-copied, and destroyed when it can be
// called no more: in the goroutine, or by whoever stops the timer or gives up
// the last handle. f may stop or reset its own timer. Throws std::bad_alloc,
// and what copying f throws; an f that is null is the fatal error "go of nil
// func value".
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

// Ticker sends the time to C every d, the first time after d. Ticks for which
// nobody has come are left out. A default-constructed one is good for nothing
// but to be assigned to, or stopped.
class Ticker {
 public:
  Ticker() noexcept = default;

  recv_chan<absl::Time> C;

  // Stop ends the ticks: nothing can be received from C. It does not close C.
  void Stop() const;

  // Reset makes the ticks come every d, the next one after d.
  //
  // Panics "non-positive interval for Ticker.Reset", "time: Reset called on
  // uninitialized Ticker".
  void Reset(internal::DurationArg d) const;

 private:
  friend Ticker NewTicker(internal::DurationArg d);

  internal::ChanHandle channel_;
};

// NewTicker makes a Ticker. Panics "non-positive interval for NewTicker";
// throws std::bad_alloc.
[[nodiscard]] Ticker NewTicker(internal::DurationArg d);

// Tick is NewTicker(d).C, or, if d is not above 0, the nil channel.
[[nodiscard]] recv_chan<absl::Time> Tick(internal::DurationArg d);

}  // namespace time
}  // namespace gump

#endif  // GUMP_TIME_H_
