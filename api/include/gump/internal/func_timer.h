// FuncTimer: the timers of AfterFunc, which start goroutines.
#ifndef GUMP_INTERNAL_FUNC_TIMER_H_
#define GUMP_INTERNAL_FUNC_TIMER_H_

#include <cstdint>
#include <utility>

#include "gump/internal/atomic.h"
#include "gump/internal/closure.h"
#include "gump/internal/linkname_time.h"

namespace gump::internal {

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

}  // namespace gump::internal

#endif  // GUMP_INTERNAL_FUNC_TIMER_H_
