// The public interface of timers. runtime/sched/time.h and
// runtime/wait/timechan.h describe their mechanism.
#include "gump/time.h"

#include <new>

#include "gump/panic.h"

namespace gump::internal {

int64_t DurationArg::RoundedUp(absl::Duration d) {
  const int64_t ns = absl::ToInt64Nanoseconds(d);  // saturates, truncates
  const bool fraction = ns >= 0 && ns < kForever && absl::Nanoseconds(ns) < d;
  return fraction ? ns + 1 : ns;
}

namespace {

// The closure of the goroutine is a FuncTimer*, with a reference to it.
constexpr rt::FuncType kCallFuncTimer = {
    [](void* c) { (*static_cast<FuncTimer**>(c))->Call(); },
    [](void* c) { (*static_cast<FuncTimer**>(c))->Unref(); },
    [](void* dst, void* src) noexcept {
      *static_cast<FuncTimer**>(dst) = *static_cast<FuncTimer**>(src);
    }};

}  // namespace

FuncTimer::~FuncTimer() {
  // No reference is left, so it is not pending either.
  if (timer_ != nullptr) rt::funcTimerFree(timer_);
}

void FuncTimer::Start(int64_t ns, uintptr_t pc) {
  timer_ = rt::newFuncTimer(&kCallFuncTimer, this, pc);
  if (timer_ == nullptr) throw std::bad_alloc();
  // One reference is the caller's, and one is the timer's. Both are counted
  // before it may fire.
  refs_.store(2, rt::relaxed);  // no other thread knows this object yet
  rt::funcTimerStart(timer_, ns);
}

bool FuncTimer::Stop() {
  if (!rt::funcTimerStop(timer_)) return false;
  Unref();  // the timer's
  return true;
}

bool FuncTimer::Reset(int64_t ns) {
  Ref();  // the timer's; counted first, because the timer may fire at once
  if (!rt::funcTimerReset(timer_, ns)) return false;
  Unref();  // the timer had a reference already
  return true;
}

// The caller's reference keeps it above 0; nothing is published.
void FuncTimer::Ref() { refs_.add(1, rt::relaxed); }

void FuncTimer::Unref() {
  // Release: orders our use of f before its destruction. Acquire: orders the
  // use by all others before it. The holder of the only reference need not
  // count down, because there is no other reference to copy.
  if (refs_.load(rt::acquire) == 1 ||
      refs_.add(static_cast<uint32_t>(-1), rt::acq_rel) == 0) {
    delete this;
  }
}

}  // namespace gump::internal

namespace gump::time {

namespace {

void EncodeTime(void* elem, int64_t unix_nanos) {
  ::new (elem) absl::Time(absl::FromUnixNanos(unix_nanos));
}

// MakeTimerChan makes a channel that receives the time after ns, and then every
// period, unless the period is 0.
chan<absl::Time> MakeTimerChan(int64_t ns, int64_t period) {
  rt::Hchan* c = rt::newTimerChan(&internal::kElemType<absl::Time>, EncodeTime);
  if (c == nullptr) throw std::bad_alloc();
  rt::timerChanReset(c, ns, period);
  return chan<absl::Time>(c);
}

}  // namespace

void Sleep(internal::DurationArg d) { rt::timeSleep(d.Nanoseconds()); }

bool Timer::Stop() const {
  if (func_.get() != nullptr) return func_.get()->Stop();
  if (!channel_) panic("time: Stop called on uninitialized Timer");
  return rt::timerChanStop(channel_.raw());
}

bool Timer::Reset(internal::DurationArg d) const {
  if (func_.get() != nullptr) return func_.get()->Reset(d.Nanoseconds());
  if (!channel_) panic("time: Reset called on uninitialized Timer");
  return rt::timerChanReset(channel_.raw(), d.Nanoseconds(), 0);
}

Timer NewTimer(internal::DurationArg d) {
  chan<absl::Time> c = MakeTimerChan(d.Nanoseconds(), 0);
  Timer t;
  t.channel_ = c;
  t.C = std::move(c);
  return t;
}

recv_chan<absl::Time> After(internal::DurationArg d) {
  return MakeTimerChan(d.Nanoseconds(), 0);
}

void Ticker::Stop() const {
  if (channel_) rt::timerChanStop(channel_.raw());
}

void Ticker::Reset(internal::DurationArg d) const {
  const int64_t ns = d.Nanoseconds();
  if (ns <= 0) panic("non-positive interval for Ticker.Reset");
  if (!channel_) panic("time: Reset called on uninitialized Ticker");
  rt::timerChanReset(channel_.raw(), ns, ns);
}

Ticker NewTicker(internal::DurationArg d) {
  const int64_t ns = d.Nanoseconds();
  if (ns <= 0) panic("non-positive interval for NewTicker");
  chan<absl::Time> c = MakeTimerChan(ns, ns);
  Ticker t;
  t.channel_ = c;
  t.C = std::move(c);
  return t;
}

recv_chan<absl::Time> Tick(internal::DurationArg d) {
  if (d.Nanoseconds() <= 0) return {};
  return NewTicker(d).C;
}

}  // namespace gump::time
