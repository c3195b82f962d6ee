// rate::Limiter. Times and durations are in ns. kForever stands for a time that
// never comes, and for values that do not fit. Sums saturate.
//
// No thread refills the bucket. Each call computes the tokens that have flown
// in since last_. A negative number of tokens means that waiters hold
// reservations for tokens still to come. The clock is read under mu_. If it
// were not, last_ could go back, and the tokens since then would flow in a
// second time.
#include "gump/rate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gump/internal/linkname_synctest.h"
#include "gump/internal/linkname_time.h"
#include "gump/select.h"
#include "gump/synctest.h"

namespace gump::rate {

namespace {

constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

int64_t Plus(int64_t a, int64_t b) {
  int64_t sum;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b > 0 ? kForever : std::numeric_limits<int64_t>::min();
}

int64_t Minus(int64_t a, int64_t b) {
  int64_t difference;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return b < 0 ? kForever : std::numeric_limits<int64_t>::min();
}

// TimeOf returns the time in which `tokens` flow in at rate `limit`.
int64_t TimeOf(double tokens, double limit) {
  if (limit <= 0) return kForever;
  const double ns = tokens / limit * 1e9;
  // 2^63 is the smallest double that does not fit.
  return ns >= 0x1p63 ? kForever : static_cast<int64_t>(ns);
}

// TokensOf returns the number of tokens that flow in during ns.
double TokensOf(int64_t ns, double limit) {
  if (limit <= 0) return 0;
  limit = std::min(limit, Inf);  // 0 times infinity is not a number
  // Seconds and the rest separately, because a double does not hold the ns of
  // more than 104 days.
  return static_cast<double>(ns / 1'000'000'000) * limit +
         static_cast<double>(ns % 1'000'000'000) * limit / 1e9;
}

absl::Duration DurationOf(int64_t ns) {
  return ns == kForever ? absl::InfiniteDuration() : absl::Nanoseconds(ns);
}

int64_t NanosOf(absl::Time t) { return absl::ToUnixNanos(t); }  // saturates

}  // namespace

double Every(gump::internal::DurationArg interval) {
  if (interval.duration() <= absl::ZeroDuration()) return Inf;
  return 1 / absl::ToDoubleSeconds(interval.duration());
}

absl::Duration Reservation::Delay() const {
  if (!ok_) return absl::InfiniteDuration();
  return DurationOf(std::max<int64_t>(
      0, time_to_act_ == kForever ? kForever
                                  : Minus(time_to_act_, limiter_->Now())));
}

absl::Duration Reservation::DelayFrom(absl::Time now) const {
  if (!ok_ || time_to_act_ == kForever) return absl::InfiniteDuration();
  return DurationOf(std::max<int64_t>(0, Minus(time_to_act_, NanosOf(now))));
}

void Reservation::Cancel() {
  if (!ok_) return;
  std::scoped_lock hold(limiter_->mu_);
  limiter_->GiveBack(this, limiter_->Now());
}

void Reservation::CancelAt(absl::Time now) {
  if (!ok_) return;
  std::scoped_lock hold(limiter_->mu_);
  limiter_->GiveBack(this, NanosOf(now));
}

Limiter::Limiter(double per_second, int burst)
    : clock_offset_(absl::GetCurrentTimeNanos() - rt::monotonicNanos()),
      limit_(per_second),
      burst_(burst),
      tokens_(burst) {}

int64_t Limiter::Now() const noexcept {
  if (rt::currentBubble() != 0) return rt::bubbleNanos();  // synctest's clock
  return rt::monotonicNanos() + clock_offset_;
}

double Limiter::Limit() const {
  std::scoped_lock hold(mu_);
  return limit_;
}

int Limiter::Burst() const {
  std::scoped_lock hold(mu_);
  return burst_;
}

double Limiter::Tokens() const {
  std::scoped_lock hold(mu_);
  return Advance(Now());
}

double Limiter::TokensAt(absl::Time now) const {
  std::scoped_lock hold(mu_);
  return Advance(NanosOf(now));
}

bool Limiter::AllowN(int n) {
  std::scoped_lock hold(mu_);
  return Take(Now(), n, 0).ok_;
}

bool Limiter::AllowN(absl::Time now, int n) {
  std::scoped_lock hold(mu_);
  return Take(NanosOf(now), n, 0).ok_;
}

Reservation Limiter::ReserveN(int n) {
  std::scoped_lock hold(mu_);
  return Take(Now(), n, kForever);
}

Reservation Limiter::ReserveN(absl::Time now, int n) {
  std::scoped_lock hold(mu_);
  return Take(NanosOf(now), n, kForever);
}

void Limiter::SetLimit(double per_second) {
  std::scoped_lock hold(mu_);
  Refill(Now());
  limit_ = per_second;
}

void Limiter::SetLimitAt(absl::Time now, double per_second) {
  std::scoped_lock hold(mu_);
  Refill(NanosOf(now));
  limit_ = per_second;
}

void Limiter::SetBurst(int burst) {
  std::scoped_lock hold(mu_);
  Refill(Now());
  burst_ = burst;
}

void Limiter::SetBurstAt(absl::Time now, int burst) {
  std::scoped_lock hold(mu_);
  Refill(NanosOf(now));
  burst_ = burst;
}

// Advance returns the number of tokens at `now`. mu_ is held.
double Limiter::Advance(int64_t now) const noexcept {
  const int64_t elapsed = now < last_ ? 0 : Minus(now, last_);
  return std::min(tokens_ + TokensOf(elapsed, limit_),
                  static_cast<double>(burst_));
}

// Refill brings the bucket up to `now`. mu_ is held.
void Limiter::Refill(int64_t now) noexcept {
  tokens_ = Advance(now);
  last_ = now;
}

// Take takes n tokens if they will be there within max_wait from `now` on. mu_
// is held.
Reservation Limiter::Take(int64_t now, int n, int64_t max_wait) {
  Reservation r;
  r.limiter_ = this;
  r.limit_ = limit_;
  if (limit_ >= Inf) {
    r.ok_ = true;  // it took nothing
    r.time_to_act_ = now;
    return r;
  }
  const double tokens = Advance(now) - n;
  const int64_t wait = tokens < 0 ? TimeOf(-tokens, limit_) : 0;
  r.ok_ = n <= burst_ && wait <= max_wait;
  if (!r.ok_) return r;
  r.tokens_ = n;
  r.time_to_act_ = wait == kForever ? kForever : Plus(now, wait);
  last_ = now;
  tokens_ = tokens;
  last_event_ = r.time_to_act_;
  return r;
}

// GiveBack cancels *r at `now`. It gives back the tokens of *r, less those that
// were reserved after *r. The times of those later reservations assume that the
// tokens of *r are used. mu_ is held.
void Limiter::GiveBack(Reservation* r, int64_t now) {
  const int tokens = std::exchange(r->tokens_, 0);
  if (limit_ >= Inf || tokens == 0 || r->time_to_act_ < now) return;
  // The difference is below 0 if the rate was raised since, or if the time was
  // set back.
  const int64_t later =
      std::max<int64_t>(0, Minus(last_event_, r->time_to_act_));
  const double restored = tokens - TokensOf(later, r->limit_);
  if (restored <= 0) return;
  tokens_ = std::min(Advance(now) + restored, static_cast<double>(burst_));
  last_ = now;
  if (r->time_to_act_ != last_event_) return;
  const int64_t wait = TimeOf(tokens, r->limit_);
  const int64_t previous = Minus(r->time_to_act_, wait);
  if (previous >= now) last_event_ = previous;
}

absl::Status Limiter::WaitN(const context::Context& ctx, int n) {
  mu_.Lock();
  const int burst = burst_;
  const bool limited = limit_ < Inf;
  mu_.Unlock();
  if (n > burst && limited) {
    return absl::InvalidArgumentError(
        absl::StrCat("rate: Wait(n=", n, ") exceeds limiter's burst ", burst));
  }
  if (absl::Status s = ctx.Err(); !s.ok()) return s;
  const recv_chan<void> done = ctx.Done();  // before Take, because it may throw
  mu_.Lock();
  const int64_t now = Now();
  const int64_t max_wait = absl::ToInt64Nanoseconds(  // saturates
      internal::ContextTimeLeft(internal::ContextAccess::ref(ctx).get()));
  Reservation r = Take(now, n, max_wait);
  mu_.Unlock();
  if (!r.ok_) {
    return absl::DeadlineExceededError(
        absl::StrCat("rate: Wait(n=", n, ") would exceed context deadline"));
  }
  if (r.time_to_act_ <= now) return absl::OkStatus();
  // Gives the tokens back when WaitN ends, also by an exception, unless the
  // wait has succeeded.
  struct CancelAtEnd {
    Reservation* r;
    ~CancelAtEnd() {
      if (r != nullptr) r->Cancel();
    }
  } at_end{&r};
  const time::Timer timer = time::NewTimer(
      r.time_to_act_ == kForever ? absl::InfiniteDuration()
                                 : absl::Nanoseconds(r.time_to_act_ - now));
  select(Recv(timer.C, [&] { at_end.r = nullptr; }), Recv(done, [] {}));
  return at_end.r == nullptr ? absl::OkStatus() : ctx.Err();
}

}  // namespace gump::rate
