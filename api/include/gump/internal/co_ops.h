// The awaitables of gump/co.h: receives, sends, sleeps, and functions on
// goroutines. Each is a small movable value. Its operator co_await makes an
// awaiter, which stays in the frame of the coroutine.
#ifndef GUMP_INTERNAL_CO_OPS_H_
#define GUMP_INTERNAL_CO_OPS_H_

#include <coroutine>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "gump/internal/chan_element.h"
#include "gump/internal/chan_handle.h"
#include "gump/internal/chan_ops.h"
#include "gump/internal/co_loop.h"
#include "gump/internal/co_task.h"
#include "gump/internal/func_timer.h"
#include "gump/internal/select_case.h"

#pragma GCC visibility push(default)

namespace gump::internal {

// CoSends: a U may be sent to a C.
template <class C, class U>
concept CoSends = SendsValue<std::remove_cvref_t<C>> &&
    std::is_constructible_v<ValueOf<std::remove_cvref_t<C>>, U &&>;

// CoHeld is how an awaitable keeps its channel: a reference to an lvalue, or
// else a handle.
template <class C>
using CoHeld =
    std::conditional_t<std::is_lvalue_reference_v<C>,
                       const std::remove_cvref_t<C>&, std::remove_cvref_t<C>>;

// CoRetain returns a handle of its own to the channel.
inline ChanHandle CoRetain(rt::Hchan* c) {
  if (c != nullptr) rt::chanRetain(c);
  return ChanHandle(c);
}

// ---- Receive ----------------------------------------------------------------

// CoReceived is room for the value of a receive, which may have none.
template <class T>
class CoReceived {
 public:
  // Try receives a value if it need not wait. Called once, and first.
  rt::ChanResult Try(rt::Hchan* c) {
    return RecvOptional(c, value_, /*block=*/false);
  }
  void Set(T&& v) { value_.emplace(std::move(v)); }
  std::optional<T> Take() { return std::move(value_); }

 private:
  std::optional<T> value_;
};
// A plain value is written and read by itself, as in ChanRecv.
template <class T>
requires kCheapToMake<T>
class CoReceived<T> {
 public:
  rt::ChanResult Try(rt::Hchan* c) {
    const rt::ChanResult r =
        rt::chanrecv(c, std::addressof(slot_.value), /*block=*/false);
    has_ = r == rt::ChanResult::kOk;
    return r;
  }
  void Set(T&& v) {
    ::new (std::addressof(slot_.value)) T(v);
    has_ = true;
  }
  std::optional<T> Take() {
    if (!has_) return std::nullopt;
    return std::optional<T>(std::in_place, slot_.value);
  }

 private:
  RawSlot<T> slot_;
  bool has_;
};

template <class T>
class CoRecvAwaiter : public CoSuspended {
 public:
  using gump_co_native = void;
  explicit CoRecvAwaiter(rt::Hchan* c) : c_(c) {}

  bool await_ready() { return value_.Try(c_) != rt::ChanResult::kWouldBlock; }
  template <class P>
  __attribute__((noinline)) void await_suspend(std::coroutine_handle<P> h) {
    Attach(h);
    Begin(Op{CoRetain(c_), this});
  }
  std::optional<T> await_resume() {
    Resumed();
    return value_.Take();
  }

 private:
  // Op runs on the goroutine that waits. (W1)
  struct Op {
    static constexpr bool kInLoop = true;
    ChanHandle c;
    CoRecvAwaiter* awaiter;

    void Run(CoLoop& loop) {
      RawSlot<T> slot;
      const rt::ChanResult r = loop.wait().Do(
          c.get(), std::addressof(slot.value), rt::SelectDir::kRecv);
      const bool claimed =
          r != rt::ChanResult::kWouldBlock && loop.wait().Claim();
      if (r == rt::ChanResult::kOk) {
        SlotGuard<T> guard{slot};
        if (claimed) awaiter->value_.Set(std::move(slot.value));
      }
      if (claimed) awaiter->ResumeIn(loop);
    }
  };

  rt::Hchan* c_;
  CoReceived<T> value_;
};

template <>
class CoRecvAwaiter<void> : public CoSuspended {
 public:
  using gump_co_native = void;
  explicit CoRecvAwaiter(rt::Hchan* c) : c_(c) {}

  bool await_ready() {
    result_ = rt::chanrecv(c_, nullptr, /*block=*/false);
    return result_ != rt::ChanResult::kWouldBlock;
  }
  template <class P>
  __attribute__((noinline)) void await_suspend(std::coroutine_handle<P> h) {
    Attach(h);
    Begin(Op{CoRetain(c_), this});
  }
  bool await_resume() {
    Resumed();
    return result_ == rt::ChanResult::kOk;
  }

 private:
  struct Op {
    static constexpr bool kInLoop = true;
    ChanHandle c;
    CoRecvAwaiter* awaiter;

    void Run(CoLoop& loop) {
      const rt::ChanResult r =
          loop.wait().Do(c.get(), nullptr, rt::SelectDir::kRecv);
      if (r == rt::ChanResult::kWouldBlock || !loop.wait().Claim()) return;
      awaiter->result_ = r;
      awaiter->ResumeIn(loop);
    }
  };

  rt::Hchan* c_;
  rt::ChanResult result_ = rt::ChanResult::kWouldBlock;
};

// CoRecv is the result of co::Recv. C is a channel, or a reference to one.
template <class C>
class CoRecv {
 public:
  using gump_co_native = void;
  explicit CoRecv(C c) : c_(static_cast<C&&>(c)) {}
  auto operator co_await() const noexcept {
    return CoRecvAwaiter<ValueOf<std::remove_cvref_t<C>>>(c_.raw());
  }

 private:
  C c_;
};

// ---- Send -------------------------------------------------------------------

// CoSendAwaiter sends a T, or nothing if T is void. The value is in the
// awaitable until the coroutine suspends.
template <class T>
class CoSendAwaiter : public CoSuspended {
 public:
  using gump_co_native = void;
  CoSendAwaiter(rt::Hchan* c, T* value) : c_(c), value_(value) {}

  bool await_ready() { return ChanTrySend(c_, value_); }
  template <class P>
  __attribute__((noinline)) void await_suspend(std::coroutine_handle<P> h) {
    Attach(h);
    if constexpr (std::is_void_v<T>) {
      Begin(Op{CoRetain(c_), this, {}});
    } else {
      Begin(Op{CoRetain(c_), this, std::move(*value_)});
    }
  }
  void await_resume() {
    Resumed();
    if (closed_) [[unlikely]]
      PanicSendOnClosedChannel();
  }

 private:
  struct Nothing {};
  struct Op {
    static constexpr bool kInLoop = true;
    ChanHandle c;
    CoSendAwaiter* awaiter;
    [[no_unique_address]] std::conditional_t<std::is_void_v<T>, Nothing, T>
        value;

    void Run(CoLoop& loop) {
      void* elem = nullptr;
      if constexpr (!std::is_void_v<T>) elem = std::addressof(value);
      const rt::ChanResult r =
          loop.wait().Do(c.get(), elem, rt::SelectDir::kSend);
      if (r == rt::ChanResult::kWouldBlock || !loop.wait().Claim()) return;
      awaiter->closed_ = r == rt::ChanResult::kClosed;
      awaiter->ResumeIn(loop);
    }
  };

  rt::Hchan* c_;
  T* value_;
  bool closed_ = false;
};

// CoSend is the result of co::Send.
template <class C>
class CoSend {
 public:
  using gump_co_native = void;
  using T = ValueOf<std::remove_cvref_t<C>>;
  template <class U>
  CoSend(C c, U&& v) : c_(static_cast<C&&>(c)), value_(std::forward<U>(v)) {}
  auto operator co_await() && {
    if (std::exchange(spent_, true)) PanicSpentAwaitable();
    return CoSendAwaiter<T>(c_.raw(), std::addressof(value_));
  }
  void operator co_await() & = delete;  // a value is sent once: std::move it

 private:
  C c_;
  T value_;
  bool spent_ = false;
};
template <class C>
class CoSendNothing {
 public:
  using gump_co_native = void;
  explicit CoSendNothing(C c) : c_(static_cast<C&&>(c)) {}
  auto operator co_await() const noexcept {
    return CoSendAwaiter<void>(c_.raw(), nullptr);
  }

 private:
  C c_;
};

// ---- Sleep ------------------------------------------------------------------

class CoSleepAwaiter;

// CoTimer is the timer of a sleep. The coroutine has a reference while it
// waits.
class CoTimer final : public FuncTimer {
 public:
  explicit CoTimer(CoSleepAwaiter* awaiter) : awaiter_(awaiter) {
    claim_.Arm();
  }
  void Call() override;
  void Cancel() {
    if (!Stop()) claim_.Cancel();  // it has fired, and Call claims
  }

 private:
  CoSleepAwaiter* awaiter_;
  CoClaim claim_;
};

class CoSleepAwaiter {
 public:
  using gump_co_native = void;
  explicit CoSleepAwaiter(int64_t ns) : ns_(ns) {}
  CoSleepAwaiter(const CoSleepAwaiter&) = delete;
  CoSleepAwaiter& operator=(const CoSleepAwaiter&) = delete;
  ~CoSleepAwaiter() {
    if (timer_ != nullptr) [[unlikely]]
      Cancel();
  }

  bool await_ready() const noexcept { return ns_ <= 0; }
  template <class P>
  __attribute__((noinline)) void await_suspend(std::coroutine_handle<P> h) {
    handle_ = h;
    promise_ = CoPromiseOf(h);
    Begin();
  }
  void await_resume() noexcept {
    if (timer_ != nullptr) std::exchange(timer_, nullptr)->Unref();
  }

 private:
  friend class CoTimer;
  void Begin();
  void Cancel();

  int64_t ns_;
  CoTimer* timer_ = nullptr;  // while the coroutine waits
  std::coroutine_handle<> handle_;
  CoPromise* promise_ = nullptr;
};

// CoSleep is the result of co::Sleep.
class CoSleep {
 public:
  using gump_co_native = void;
  explicit CoSleep(int64_t ns) noexcept : ns_(ns) {}
  auto operator co_await() const noexcept { return CoSleepAwaiter(ns_); }

 private:
  int64_t ns_;
};

// ---- Go ---------------------------------------------------------------------

template <class F>
class CoGoAwaiter : public CoSuspended {
 public:
  using gump_co_native = void;
  using R = std::invoke_result_t<F>;
  explicit CoGoAwaiter(F* f) : f_(f) {}

  bool await_ready() const noexcept { return false; }
  template <class P>
  __attribute__((noinline)) void await_suspend(std::coroutine_handle<P> h) {
    Attach(h);
    Begin(Op{this, Disposable<F>(std::in_place, std::move(*f_))});
  }
  R await_resume() {
    Resumed();
    if (goexit_) [[unlikely]]
      PanicGoexitInGo();
    return result_.Take();
  }

 private:
  struct Op {
    static constexpr bool kInLoop = false;  // a goroutine of its own
    CoGoAwaiter* awaiter;
    Disposable<F> f;  // reset after a Goexit

    void Run(CoLoop& loop) {
      CoResult<R> result;
      try {
        if constexpr (std::is_void_v<R>) {
          CallVisibly(*std::move(f));
          result.Set();
        } else {
          result.Set(CallVisibly(*std::move(f)));
        }
      } catch (...) {
        std::exception_ptr e = std::current_exception();
        if (e == nullptr) {
          GoOnElsewhere(loop);
          throw;
        }
        result.SetError(std::move(e));
      }
      if (!loop.wait().Claim()) return;
      awaiter->result_.MoveFrom(result);
      awaiter->ResumeIn(loop);
    }
    // GoOnElsewhere resumes the coroutine on another goroutine, because this
    // one ends by Goexit.
    void GoOnElsewhere(CoLoop& loop) {
      f.reset();
      if (!loop.wait().Claim()) return;
      awaiter->goexit_ = true;
      gump::go([awaiter = awaiter] {
        CoLoop other(CoLoop::Where::kGoroutine);
        awaiter->ResumeIn(other);
        other.Run();
      });
    }
  };

  F* f_;
  bool goexit_ = false;
  CoResult<R> result_;
};

// CoGo is the result of co::Go.
template <class F>
class CoGo {
 public:
  using gump_co_native = void;
  template <class G>
  explicit CoGo(std::in_place_t, G&& f) : f_(std::forward<G>(f)) {}
  auto operator co_await() && {
    if (std::exchange(spent_, true)) PanicSpentAwaitable();
    return CoGoAwaiter<F>(std::addressof(f_));
  }
  void operator co_await() & = delete;  // f is called once: std::move it

 private:
  F f_;
  bool spent_ = false;
};

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_CO_OPS_H_
