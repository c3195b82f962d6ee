// rate::Limiter: a token bucket, which says how often things may happen.
//
//   rate::Limiter limiter(10, 3);         // 10 a second, at most 3 at once
//   while (limiter.Wait(ctx).ok()) Poll();     // slow down
//   if (!limiter.Allow()) return TooBusy();    // or turn away
//
// The bucket holds up to Burst() tokens, full at first; Limit() tokens a second
// flow in, evenly. An event takes one token, or n. Allow does not wait: no
// token, no event. Wait waits for one. Reserve takes tokens that are still to
// come and says when they will be there; those who come later wait behind.
//
// A rate of rate::Inf, or more, allows everything, whatever the burst. A burst
// of 0 allows nothing else. A rate of 0 or less gives what is in the bucket and
// then no more.
//
// Time is the wall clock's when the Limiter was made, counted on from there by
// the monotonic clock: setting the wall clock moves nothing. The functions that
// take a time are for programs and tests with a clock of their own; a time
// before one that the Limiter has seen takes it back there, without tokens.
// In a bubble of synctest.h the bubble's clock counts instead; so use a Limiter
// either inside or outside.
//
// Never copied or moved. All functions may be called from goroutines and from
// plain threads; only Wait and WaitN park for long.
//
// Source: golang.org/x/time/rate.
#ifndef GUMP_RATE_H_
#define GUMP_RATE_H_

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gump/context.h"
#include "gump/mutex.h"
#include "gump/time.h"

namespace gump::rate {

// Inf is the rate that allows everything.
inline constexpr double Inf = std::numeric_limits<double>::max();

// Every is the rate, in events a second, of one event per interval; Inf if that
// is not above 0.
[[nodiscard]] double Every(gump::internal::DurationArg interval);

class Limiter;

// Reservation says from when on events may happen that ReserveN was asked for.
// A value; refers to its Limiter, which must outlive it. Thread-compatible:
// several goroutines may use copies.
class Reservation {
 public:
  // OK tells whether the events can happen at all: there are not more of them
  // than the burst. If not, Delay is infinite, and Cancel does nothing.
  [[nodiscard]] bool OK() const noexcept { return ok_; }

  // Delay is how long to wait from now on, or from `now` on; 0: they may happen
  // at once; infinite: not before somebody changes the rate.
  [[nodiscard]] absl::Duration Delay() const;
  [[nodiscard]] absl::Duration DelayFrom(absl::Time now) const;

  // Cancel says that the events will not happen, and gives the tokens back, as
  // far as nobody who reserved later counts on them; at `now`. When their time
  // has come it does nothing, and neither does a second Cancel. To be called on
  // one of the copies only.
  void Cancel();
  void CancelAt(absl::Time now);

 private:
  friend class Limiter;
  Limiter* limiter_ = nullptr;
  bool ok_ = false;
  int tokens_ = 0;           // that Cancel may give back
  int64_t time_to_act_ = 0;  // as all times in ns of the Limiter's clock
  double limit_ = 0;         // when it was made
};

// Limiter is described above.
class Limiter {
 public:
  // per_second: events, or tokens, a second. burst: size of the bucket.
  Limiter(double per_second, int burst);
  Limiter(const Limiter&) = delete;
  Limiter& operator=(const Limiter&) = delete;

  // The rate, in events a second, and the size of the bucket.
  [[nodiscard]] double Limit() const;
  [[nodiscard]] int Burst() const;
  // Tokens is how many tokens there are now, or at `now`; below 0 if tokens to
  // come are reserved.
  [[nodiscard]] double Tokens() const;
  [[nodiscard]] double TokensAt(absl::Time now) const;

  // Allow tells whether an event may happen now, and if so takes its token;
  // AllowN does so for n at once, now or at `now`.
  [[nodiscard]] bool Allow() { return AllowN(1); }
  [[nodiscard]] bool AllowN(int n);
  [[nodiscard]] bool AllowN(absl::Time now, int n);

  // Reserve takes the token of an event, which may have to wait for it;
  // ReserveN those of n.
  //
  //   rate::Reservation r = limiter.Reserve();
  //   if (!r.OK()) return;                       // never: see Burst
  //   time::Sleep(r.Delay());
  //   Act();
  [[nodiscard]] Reservation Reserve() { return ReserveN(1); }
  [[nodiscard]] Reservation ReserveN(int n);
  [[nodiscard]] Reservation ReserveN(absl::Time now, int n);

  // Wait takes the token of an event and waits until it may happen; WaitN does
  // so for n. Parks. Errors, which take nothing: InvalidArgument "rate:
  // Wait(n=5) exceeds limiter's burst 3"; DeadlineExceeded "rate: Wait(n=5)
  // would exceed context deadline", at once; ctx.Err(). Throws std::bad_alloc.
  [[nodiscard]] absl::Status Wait(const context::Context& ctx) {
    return WaitN(ctx, 1);
  }
  [[nodiscard]] absl::Status WaitN(const context::Context& ctx, int n);

  // SetLimit and SetBurst change the rate and the size of the bucket, now or at
  // `now`. Those who have reserved already keep their times.
  void SetLimit(double per_second);
  void SetLimitAt(absl::Time now, double per_second);
  void SetBurst(int burst);
  void SetBurstAt(absl::Time now, int burst);

 private:
  friend class Reservation;

  int64_t Now() const noexcept;
  double Advance(int64_t now) const noexcept;
  void Refill(int64_t now) noexcept;
  Reservation Take(int64_t now, int n, int64_t max_wait);
  void GiveBack(Reservation* r, int64_t now);

  const int64_t clock_offset_;  // wall clock minus monotonic clock
  mutable sync::Mutex mu_;      // guards what follows
  double limit_;
  int burst_;
  double tokens_;           // in the bucket at last_
  int64_t last_ = 0;        // when tokens_ was brought up to date
  int64_t last_event_ = 0;  // the latest time at which an event may happen
};

}  // namespace gump::rate

#endif  // GUMP_RATE_H_
