// Timer, After and AfterFunc. runtime/sched/time.h and runtime/wait/timechan.h
// describe the mechanism of timers.
#include "gump/time/timer.h"

#include <new>
#include <utility>

#include "api/time/timer_chan.h"
#include "gump/internal/linkname_go.h"
#include "gump/internal/linkname_time.h"
#include "gump/panic.h"

namespace gump::internal {

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
  chan<absl::Time> c = internal::MakeTimerChan(d.Nanoseconds(), 0);
  Timer t;
  t.channel_ = c;
  t.C = std::move(c);
  return t;
}

recv_chan<absl::Time> After(internal::DurationArg d) {
  return internal::MakeTimerChan(d.Nanoseconds(), 0);
}

}  // namespace gump::time
