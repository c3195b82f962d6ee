// The promise of co::task and the awaiters of tasks and of other libraries'
// awaitables. co_loop.h says how coroutines transfer to each other.
//
// Every await_suspend is noinline. A compiler that inlines it into the
// coroutine may keep its local variables in the frame, which another thread may
// free meanwhile (LLVM's issue 56301).
#ifndef GUMP_INTERNAL_CO_TASK_H_
#define GUMP_INTERNAL_CO_TASK_H_

#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "gump/internal/co_loop.h"

#pragma GCC visibility push(default)

namespace gump {

namespace co {
template <class T>
class task;
}  // namespace co

namespace internal {

// ---- Results ----------------------------------------------------------------

// CoResult is room for the result of a coroutine or a function: nothing yet, a
// value, or an exception. A reference is kept as a pointer.
template <class T>
class CoResult {
 public:
  CoResult() noexcept {}
  CoResult(const CoResult&) = delete;
  CoResult& operator=(const CoResult&) = delete;
  ~CoResult() {
    if (state_ == State::kValue) value_.~Stored();
    if (state_ == State::kError) error_.~exception_ptr();
  }

  // Set and SetError are called once in all. Set may throw as the constructor
  // of the value does, and then leaves the result empty.
  template <class... U>
  void Set(U&&... v) {
    if constexpr (std::is_reference_v<T>) {
      ::new (std::addressof(value_)) Stored(std::addressof(v)...);
    } else {
      ::new (std::addressof(value_)) Stored(std::forward<U>(v)...);
    }
    state_ = State::kValue;
  }
  void SetError(std::exception_ptr e) noexcept {
    ::new (std::addressof(error_)) std::exception_ptr(std::move(e));
    state_ = State::kError;
  }
  // MoveFrom moves the result of `o`, which is not empty, to here. An exception
  // that the move constructor throws becomes the result.
  void MoveFrom(CoResult& o) noexcept {
    if (o.state_ == State::kError) {
      SetError(std::move(o.error_));
      return;
    }
    try {
      ::new (std::addressof(value_)) Stored(std::move(o.value_));
      state_ = State::kValue;
    } catch (...) {
      SetError(std::current_exception());
    }
  }
  // Take moves the value out, or throws the exception.
  T Take() {
    if (state_ == State::kError) [[unlikely]]
      std::rethrow_exception(std::move(error_));
    if constexpr (std::is_reference_v<T>) {
      return static_cast<T>(*value_);
    } else if constexpr (!std::is_void_v<T>) {
      return std::move(value_);
    }
  }

 private:
  enum class State : uint8_t { kEmpty, kValue, kError };
  struct Nothing {};
  using Pointer = std::add_pointer_t<std::remove_reference_t<T>>;
  using Stored = std::conditional_t<
      std::is_void_v<T>, Nothing,
      std::conditional_t<std::is_reference_v<T>, Pointer, T>>;
  State state_ = State::kEmpty;
  union {
    Stored value_;
    std::exception_ptr error_;
  };
};

// ---- Awaitables of others ---------------------------------------------------

// kCoNative: the awaitable follows (C1) and needs no CoForeign.
template <class A>
inline constexpr bool kCoNative = requires {
  typename A::gump_co_native;
};

template <class A>
concept CoMemberAwait = requires(A&& a) {
  static_cast<A&&>(a).operator co_await();
};
template <class A>
concept CoFreeAwait = requires(A&& a) {
  operator co_await(static_cast<A&&>(a));
};

// CoAwaiterOf returns the awaiter of an awaitable, as co_await finds it.
template <class A>
decltype(auto) CoAwaiterOf(A&& a) {
  if constexpr (CoMemberAwait<A>) {
    return static_cast<A&&>(a).operator co_await();
  } else if constexpr (CoFreeAwait<A>) {
    return operator co_await(static_cast<A&&>(a));
  } else {
    return static_cast<A&&>(a);
  }
}
template <class A>
using CoAwaitResult = decltype(CoAwaiterOf(std::declval<A>()).await_resume());

// CoForeign is the awaiter of an awaitable that is not ours, in a task.
template <class A>
class CoForeign {
 public:
  explicit CoForeign(A&& a) : awaiter_(CoAwaiterOf(std::forward<A>(a))) {}
  CoForeign(const CoForeign&) = delete;
  CoForeign& operator=(const CoForeign&) = delete;

  bool await_ready() { return static_cast<bool>(awaiter_.await_ready()); }

  template <class P>
  __attribute__((noinline)) auto await_suspend(std::coroutine_handle<P> h) {
    // (C2): clear the pointer first, because from here on any thread may resume
    // the coroutine. Unless the coroutine does not suspend: then the pointer is
    // still right.
    CoLoop* const loop = std::exchange(h.promise().loop, nullptr);
    using Result = decltype(awaiter_.await_suspend(h));
    if constexpr (std::is_void_v<Result>) {
      Suspend(h, loop);
    } else if constexpr (std::is_same_v<Result, bool>) {
      const bool suspends = Suspend(h, loop);
      if (!suspends) h.promise().loop = loop;
      return suspends;
    } else {
      // The compiler transfers to the coroutine that the awaiter names, as it
      // would without this class. That coroutine may be h, or a new one at the
      // address where h was. We cannot tell, so the pointer stays null.
      return std::coroutine_handle<>(Suspend(h, loop));
    }
  }

  decltype(auto) await_resume() { return awaiter_.await_resume(); }

 private:
  template <class P>
  decltype(auto) Suspend(std::coroutine_handle<P> h, CoLoop* loop) {
    try {
      return awaiter_.await_suspend(h);
    } catch (...) {
      h.promise().loop = loop;  // the coroutine continues here
      throw;
    }
  }

  decltype(CoAwaiterOf(std::declval<A>())) awaiter_;
};

// ---- Promises ---------------------------------------------------------------

struct CoFinal {
  bool await_ready() noexcept { return false; }
  template <class P>
  __attribute__((noinline)) void await_suspend(
      std::coroutine_handle<P> h) noexcept {
    CoEnd(h.promise());
  }
  void await_resume() noexcept {}
};

template <class T>
struct CoPromiseOfResult : CoPromise {
  CoResult<T> result;

  std::suspend_always initial_suspend() noexcept { return {}; }
  CoFinal final_suspend() noexcept { return {}; }
  void unhandled_exception() {
    std::exception_ptr e = std::current_exception();
    // A Goexit is no C++ exception, and must go on.
    if (e == nullptr) throw;
    result.SetError(std::move(e));
  }

  template <class A>
  requires kCoNative<std::remove_cvref_t<A>> A && await_transform(A&& a)
  noexcept { return static_cast<A&&>(a); }
  template <class A>
  requires(!kCoNative<std::remove_cvref_t<A>>) CoForeign<A> await_transform(
      A&& a) {
    return CoForeign<A>(std::forward<A>(a));
  }
};

template <class T>
struct CoTaskPromise final : CoPromiseOfResult<T> {
  co::task<T> get_return_object() noexcept;
  template <class U = T>
  requires std::is_constructible_v<T, U&&>
  void return_value(U&& v) { this->result.Set(std::forward<U>(v)); }
};
template <>
struct CoTaskPromise<void> final : CoPromiseOfResult<void> {
  co::task<void> get_return_object() noexcept;
  void return_void() noexcept { result.Set(); }
};

// ---- Awaiting a task --------------------------------------------------------

// CoTaskAwaiter owns a task that is awaited, until the end of the expression.
template <class T>
class CoTaskAwaiter {
 public:
  using Handle = std::coroutine_handle<CoTaskPromise<T>>;
  explicit CoTaskAwaiter(Handle h) noexcept : task_(h) {}
  CoTaskAwaiter(const CoTaskAwaiter&) = delete;
  CoTaskAwaiter& operator=(const CoTaskAwaiter&) = delete;
  ~CoTaskAwaiter() {
    if (task_) task_.destroy();
  }

  bool await_ready() {
    if (!task_) [[unlikely]]
      PanicSpentTask();
    return false;
  }
  template <class P>
  __attribute__((noinline)) bool await_suspend(std::coroutine_handle<P> h) {
    CoPromise& task = task_.promise();
    CoPromise* const parent = CoPromiseOf(h);
    task.continuation = h;
    task.parent = parent;
    if (parent != nullptr && parent->loop != nullptr) [[likely]] {
      return !parent->loop->RunAbove(task_, &task, h);
    }
    return !CoStart(task_, &task, h, parent);
  }
  T await_resume() { return task_.promise().result.Take(); }

  // Wait runs the task, and blocks the caller until it has ended.
  T Wait() {
    if (!task_) PanicSpentTask();
    CoLoop mine(CoLoop::Where::kUnknown);
    CoWaiter waiter(&mine);
    waiter.wg.Add(1);
    CoPromise& task = task_.promise();
    task.waiter = &waiter;
    mine.Next(task_, &task);
    mine.RunUnguarded();
    if (!waiter.done) waiter.wg.Wait();
    return task_.promise().result.Take();
  }

 private:
  Handle task_;
};

// ---- Wait -------------------------------------------------------------------

// CoWaitResult is the result of awaiting an A, without an rvalue reference,
// which might refer to something that is gone.
template <class R>
using CoUnrvalue =
    std::conditional_t<std::is_rvalue_reference_v<R>,
                       std::remove_cv_t<std::remove_reference_t<R>>, R>;
template <class A>
using CoWaitResult = CoUnrvalue<CoAwaitResult<A&&>>;

template <class A>
co::task<CoWaitResult<A>> CoTaskOf(A&& a) {
  if constexpr (std::is_void_v<CoWaitResult<A>>) {
    co_await std::forward<A>(a);
  } else {
    co_return co_await std::forward<A>(a);
  }
}

template <class T>
T CoWaitFor(co::task<T>&& t) {
  return std::move(t).operator co_await().Wait();
}
template <class A>
CoWaitResult<A> CoWaitFor(A&& a) {
  return CoWaitFor(CoTaskOf(std::forward<A>(a)));
}

}  // namespace internal
}  // namespace gump

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_CO_TASK_H_
