// A rate::Limiter is a token bucket, which limits how often events may happen.
//
//   rate::Limiter limiter(10, 3);         // 10 a second, at most 3 at once
//   while (limiter.Wait(ctx).ok()) Poll();     // slow down
//   if (!limiter.Allow()) return TooBusy();    // or turn away
//
// The bucket holds up to Burst() tokens and starts full. Limit() tokens a
// second flow in, evenly. An event takes one token, or n. Allow does not wait:
// without a token there is no event. Wait waits for a token. Reserve takes
// tokens that have yet to flow in, and says when they will be there. Callers
// that come later get their tokens after these.
//
// A rate of rate::Inf, or more, allows everything, whatever the burst. At any
// other rate, a burst of 0 allows nothing. A rate of 0 or less gives out the
// tokens in the bucket, and then no more.
//
// A Limiter reads the wall clock when it is made. From then on it counts on the
// monotonic clock, so setting the wall clock has no effect. The functions that
// take a time are for programs and tests with a clock of their own. A call may
// give an earlier time than the call before it. The Limiter then continues from
// that time, and adds no tokens for this step.
//
// In a bubble (synctest.h) the bubble's clock counts instead. Requires: a
// Limiter is used only in one bubble, or only outside of bubbles.
//
// A Limiter is never copied or moved. All functions may be called from
// goroutines and from plain threads, several at a time. Only Wait and WaitN
// park for long; the others may wait for a mutex that is held for a few
// instructions.
//
// Source: golang.org/x/time/rate.
#ifndef GUMP_RATE_H_
#define GUMP_RATE_H_

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gump/context.h"
#include "gump/sync/mutex.h"
#include "gump/time.h"

#pragma GCC visibility push(default)

namespace gump::rate {

class Reservation;

// Limiter is the token bucket described above.
class Limiter {
 public:
  // Makes a Limiter with a full bucket. per_second is the rate, in events (or
  // tokens) a second. burst is the size of the bucket, in tokens.
  Limiter(double per_second, int burst);
  Limiter(const Limiter&) = delete;
  Limiter& operator=(const Limiter&) = delete;

  // Limit returns the rate, in events a second. Burst returns the size of the
  // bucket.
  [[nodiscard]] double Limit() const;
  [[nodiscard]] int Burst() const;
  // Tokens returns the number of tokens in the bucket now, and TokensAt the
  // number at `now`. It is below 0 if tokens that have yet to flow in are
  // reserved.
  [[nodiscard]] double Tokens() const;
  [[nodiscard]] double TokensAt(absl::Time now) const;

  // Allow returns true, and takes a token, if an event may happen now.
  // Otherwise it returns false and takes none. AllowN does so for n events at
  // once, now or at `now`.
  [[nodiscard]] bool Allow() { return AllowN(1); }
  [[nodiscard]] bool AllowN(int n);
  [[nodiscard]] bool AllowN(absl::Time now, int n);

  // Reserve takes the token of one event, even if the token has yet to flow in.
  // The result says when the event may happen. ReserveN does so for n events.
  //
  //   rate::Reservation r = limiter.Reserve();
  //   if (!r.OK()) return;                       // the burst is 0
  //   time::Sleep(r.Delay());
  //   Act();
  [[nodiscard]] Reservation Reserve();
  [[nodiscard]] Reservation ReserveN(int n);
  [[nodiscard]] Reservation ReserveN(absl::Time now, int n);

  // Wait takes the token of one event. Parks until the event may happen or ctx
  // is done. WaitN does so for n events. Throws std::bad_alloc. An error takes
  // no token:
  //   * InvalidArgument "rate: Wait(n=5) exceeds limiter's burst 3";
  //   * DeadlineExceeded "rate: Wait(n=5) would exceed context deadline", at
  //     once;
  //   * ctx.Err().
  [[nodiscard]] absl::Status Wait(const context::Context& ctx) {
    return WaitN(ctx, 1);
  }
  [[nodiscard]] absl::Status WaitN(const context::Context& ctx, int n);

  // SetLimit and SetLimitAt change the rate, and SetBurst and SetBurstAt the
  // size of the bucket, now or at `now`. Earlier reservations keep their times.
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
  mutable sync::Mutex mu_;      // guards the members below
  double limit_;
  int burst_;
  double tokens_;           // in the bucket at last_
  int64_t last_ = 0;        // when tokens_ was brought up to date
  int64_t last_event_ = 0;  // the latest time at which an event may happen
};

// Inf is the rate that allows everything.
inline constexpr double Inf = std::numeric_limits<double>::max();

// Every returns the rate, in events a second, of one event per interval.
// Returns Inf if the interval is not above 0. Does not park.
[[nodiscard]] double Every(gump::internal::DurationArg interval);

// Reservation is the result of ReserveN: it says when these events may happen.
// It is a value that refers to its Limiter. Several goroutines may use copies.
// Requires: the Limiter outlives the Reservation.
class Reservation {
 public:
  // OK returns false if the events can never happen, because there are more of
  // them than the burst allows. Delay is then infinite, and Cancel does
  // nothing.
  [[nodiscard]] bool OK() const noexcept { return ok_; }

  // Delay returns how long to wait, counted from now, before the events may
  // happen. DelayFrom counts from `now`. 0 means that they may happen at once.
  // Infinite means that they can never happen at the rate that the Limiter had
  // when it made the reservation. A later change of the rate does not alter the
  // result.
  [[nodiscard]] absl::Duration Delay() const;
  [[nodiscard]] absl::Duration DelayFrom(absl::Time now) const;

  // Cancel declares that the events will not happen, as of now, and CancelAt as
  // of `now`. The tokens go back to the bucket, except those on which later
  // reservations depend. Cancel does nothing if the time of the events has
  // passed, or if it was called before. Requires: only one of the copies is
  // cancelled.
  void Cancel();
  void CancelAt(absl::Time now);

 private:
  friend class Limiter;
  Limiter* limiter_ = nullptr;
  bool ok_ = false;
  int tokens_ = 0;           // that Cancel may give back
  int64_t time_to_act_ = 0;  // in ns of the Limiter's clock, as all times
  double limit_ = 0;         // the rate when the reservation was made
};

inline Reservation Limiter::Reserve() { return ReserveN(1); }

}  // namespace gump::rate

#pragma GCC visibility pop

#endif  // GUMP_RATE_H_
