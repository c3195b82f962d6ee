// rate::Limiter. Times and durations are in ns; kForever stands for both "not
// foreseeable" and what does not fit, and sums saturate.
//
// The bucket is not refilled by anybody: who looks at it works out what has
// flown in since last_. Tokens below 0 are promised to those who wait.
#include "gump/rate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gump/internal/linkname.h"
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

// TimeOf is how long `tokens` take to flow in at that rate.
int64_t TimeOf(double tokens, double limit) {
  if (limit <= 0) return kForever;
  const double ns = tokens / limit * 1e9;
  // 2^63 is the least double that does not fit.
  return ns >= 0x1p63 ? kForever : static_cast<int64_t>(ns);
}

// TokensOf is how many tokens flow in during ns.
double TokensOf(int64_t ns, double limit) {
  if (limit <= 0) return 0;
  // Apart, because a double does not hold the ns of more than 104 days.
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

void Reservation::Cancel() const {
  if (ok_) limiter_->GiveBack(*this, limiter_->Now());
}

void Reservation::CancelAt(absl::Time now) const {
  if (ok_) limiter_->GiveBack(*this, NanosOf(now));
}

Limiter::Limiter(double per_second, int burst)
    : clock_offset_(absl::GetCurrentTimeNanos() - rt::monotonicNanos()),
      limit_(per_second),
      burst_(burst),
      tokens_(burst) {}

int64_t Limiter::Now() const noexcept {
  if (rt::currentBubble() != 0) return rt::bubbleNanos();  // of synctest
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

bool Limiter::AllowN(int n) { return Take(Now(), n, 0).ok_; }

bool Limiter::AllowN(absl::Time now, int n) {
  return Take(NanosOf(now), n, 0).ok_;
}

Reservation Limiter::ReserveN(int n) { return Take(Now(), n, kForever); }

Reservation Limiter::ReserveN(absl::Time now, int n) {
  return Take(NanosOf(now), n, kForever);
}

void Limiter::SetLimit(double per_second) {
  SetLimitAt(absl::FromUnixNanos(Now()), per_second);
}

void Limiter::SetLimitAt(absl::Time now, double per_second) {
  std::scoped_lock hold(mu_);
  tokens_ = Advance(NanosOf(now));
  last_ = NanosOf(now);
  limit_ = per_second;
}

void Limiter::SetBurst(int burst) {
  SetBurstAt(absl::FromUnixNanos(Now()), burst);
}

void Limiter::SetBurstAt(absl::Time now, int burst) {
  std::scoped_lock hold(mu_);
  tokens_ = Advance(NanosOf(now));
  last_ = NanosOf(now);
  burst_ = burst;
}

// Advance is the number of tokens at `now`. mu_ is held.
double Limiter::Advance(int64_t now) const noexcept {
  const int64_t elapsed = now < last_ ? 0 : Minus(now, last_);
  return std::min(tokens_ + TokensOf(elapsed, limit_),
                  static_cast<double>(burst_));
}

// Take takes n tokens if they will be there within max_wait from `now` on.
Reservation Limiter::Take(int64_t now, int n, int64_t max_wait) {
  std::scoped_lock hold(mu_);
  Reservation r;
  r.limiter_ = this;
  r.limit_ = limit_;
  if (limit_ >= Inf) {
    r.ok_ = true;
    r.tokens_ = n;
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

// GiveBack cancels r at `now`. Tokens that were reserved after r stay taken:
// who reserved them has been told a time that counts on r's being used.
void Limiter::GiveBack(const Reservation& r, int64_t now) {
  std::scoped_lock hold(mu_);
  if (limit_ >= Inf || r.tokens_ == 0 || r.time_to_act_ < now) return;
  const int64_t later = Minus(last_event_, r.time_to_act_);
  const double restored = r.tokens_ - TokensOf(later, r.limit_);
  if (restored <= 0) return;
  tokens_ = std::min(Advance(now) + restored, static_cast<double>(burst_));
  last_ = now;
  if (r.time_to_act_ != last_event_) return;
  const int64_t wait = TimeOf(r.tokens_, r.limit_);
  const int64_t previous = Minus(r.time_to_act_, wait);
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
  int64_t max_wait = kForever;
  const int64_t now = Now();
  if (const std::optional<absl::Time> deadline = ctx.Deadline()) {
    // On the wall clock as it is now, unlike ours. Saturates.
    max_wait = absl::ToInt64Nanoseconds(*deadline - synctest::Now());
  }
  const Reservation r = Take(now, n, max_wait);
  if (!r.ok_) {
    return absl::DeadlineExceededError(
        absl::StrCat("rate: Wait(n=", n, ") would exceed context deadline"));
  }
  if (r.time_to_act_ <= now) return absl::OkStatus();
  const time::Timer timer = time::NewTimer(
      r.time_to_act_ == kForever ? absl::InfiniteDuration()
                                 : absl::Nanoseconds(r.time_to_act_ - now));
  const recv_chan<void> done = ctx.Done();
  bool in_time = false;
  select(Recv(timer.C, [&] { in_time = true; }), Recv(done, [] {}));
  if (in_time) return absl::OkStatus();
  r.Cancel();
  return ctx.Err();
}

}  // namespace gump::rate
