// FuncTimer: the timers of AfterFunc, which start goroutines.
#ifndef GUMP_INTERNAL_FUNC_TIMER_H_
#define GUMP_INTERNAL_FUNC_TIMER_H_

#include <cstdint>
#include <utility>

#include "gump/internal/atomic.h"
#include "gump/internal/closure.h"
#include "gump/internal/linkname_time.h"

#pragma GCC visibility push(default)

namespace gump::internal {

// FuncTimer is the timer with which AfterFunc starts goroutines. Each handle
// owns one reference. The timer itself owns one while it is pending. When it
// fires, it passes that reference to the goroutine.
class FuncTimer {
 public:
  FuncTimer() = default;
  virtual ~FuncTimer();
  FuncTimer(const FuncTimer&) = delete;
  FuncTimer& operator=(const FuncTimer&) = delete;

  // Call calls the function of AfterFunc, on the goroutine that the timer
  // started.
  virtual void Call() = 0;
  // Start makes the timer and sets it to fire after ns nanoseconds. Throws
  // std::bad_alloc.
  void Start(int64_t ns, uintptr_t pc);
  // Stop and Reset do the work of those of time::Timer.
  bool Stop();
  bool Reset(int64_t ns);
  // Ref adds a reference, and Unref gives one up. The last Unref deletes the
  // timer.
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

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_FUNC_TIMER_H_
