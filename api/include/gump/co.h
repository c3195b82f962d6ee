// A co::task is a C++20 coroutine that can wait for goroutines, and they for
// it.
//
//   co::task<int> Total(chan<int> c) {
//     int sum = 0;
//     while (std::optional<int> v = co_await co::Recv(c)) sum += *v;
//     co_return sum;
//   }
//
//   int total = co::Wait(Total(c));   // a goroutine parks, a thread blocks
//
// One rule: a coroutine that gumption resumes runs on a goroutine. So it may
// call any function that blocks: Lock, Read, select, a C library in blocking().
// It blocks that goroutine, and no thread.
//
// A coroutine begins on the caller of Wait, or of the coroutine that awaits it.
// It stays there until an awaitable makes it wait. It then returns to its
// caller, as every coroutine does, and later continues on a goroutine. With the
// awaitables of another library it continues where that library resumes it.
//
// Costs. A task is one allocation, its frame. A receive, a send or a sleep that
// need not wait allocates nothing. A receive or a send that waits takes a
// goroutine: the one on which the coroutine ran, if only tasks are on its
// stack, or else a new one. A sleep that waits needs no goroutine, only a
// timer. The stack does not grow with the length of a chain of tasks, with
// every compiler and every option. To destroy a chain that waits takes stack
// for each of its tasks.
//
// Coroutines of other libraries may await everything here, and tasks may await
// what other libraries offer. Such a library resumes a task on top of its own
// stack. If a task awaits such awaitables in a loop, and each is resumed at
// once, the stack grows with each turn. It does not grow if the loop itself
// awaits, the awaitable returns a handle from await_suspend, and the compiler
// makes tail calls.
//
// Destruction. A coroutine may be destroyed while it waits. This cancels the
// operation at once: a receive takes no value any more, and a send delivers
// none. If the operation has happened already, but the coroutine is not resumed
// yet, it stays done. The value of a cancelled send, or a value that was
// received then, is destroyed soon afterwards, on the goroutine that waited. A
// function that co::Go has started continues, and its result is dropped.
// Requires: the coroutine is not resumed while it is destroyed. If gumption has
// resumed it, that is the fatal error "co: coroutine destroyed while it runs".
// So an owner that must be able to stop a receive should rather give the
// coroutine a context, and select:
//
//   gump::select(gump::Recv(c, [&](int v) { ... }),
//                gump::Recv(ctx.Done(), [&] { stop = true; }));
//
// A coroutine that calls runtime::Goexit ends the goroutine of Wait, if it runs
// there. Elsewhere it is the fatal error "co: Goexit in a coroutine", because
// the coroutine that awaits it would wait for ever. That is so where this
// header resumes the coroutine. Where another library resumes it, Goexit ends
// the goroutine on which that happens, and no one is told.
//
// In a bubble of synctest, waiting counts as durably blocked. Requires: a
// coroutine that waits in a bubble is destroyed, and ends, in that bubble.
//
// All functions may be called from goroutines and from plain threads. After Run
// has returned, a coroutine that waits continues in the next Run.
//
// Memory ordering: all that a coroutine did before it suspended happens before
// its next step, on any goroutine. The end of a task happens before the step of
// the coroutine that awaits it, and before the return of Wait. A receive or a
// send orders memory as that of the channel.
#ifndef GUMP_CO_H_
#define GUMP_CO_H_

#ifdef __cpp_impl_coroutine  // otherwise closure.h says which standard it needs
#include <coroutine>
#endif
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/base/attributes.h"
#include "gump/internal/closure.h"
#include "gump/internal/co_loop.h"
#include "gump/internal/co_ops.h"
#include "gump/internal/co_task.h"
#include "gump/internal/duration_arg.h"
#include "gump/internal/select_case.h"

#pragma GCC visibility push(default)

namespace gump::co {

// task is a coroutine that gives a T, which may be void or a reference. It is
// lazy: nothing of it runs before it is awaited. It is awaited once, as an
// rvalue:
//
//   int n = co_await Count(c);
//   co::task<int> t = Count(c);
//   int m = co_await std::move(t);
//
// An exception that leaves the coroutine is thrown by the co_await, or by Wait.
// To await an empty task is the panic "co: task is awaited twice, or was moved
// from". To call a coroutine throws std::bad_alloc if there is no memory for
// its frame.
//
// The arguments of a coroutine are copied into its frame, but a reference stays
// a reference. What it refers to must live until the task has ended. The same
// is true of a lambda's captures: the lambda must outlive the task.
//
// Thread safety: one goroutine or thread at a time uses a task.
template <class T = void>
class [[nodiscard]] task {
  static_assert(std::is_void_v<T> || std::is_lvalue_reference_v<T> ||
                    (std::is_object_v<T> && std::is_move_constructible_v<T>),
                "gump::co::task<T>: T must be void, a movable type, or an "
                "lvalue reference");

 public:
  using value_type = T;
  using promise_type = internal::CoTaskPromise<T>;  // for the compiler
  using gump_co_native = void;                      // for the library itself

  task() noexcept = default;  // empty
  task(task&& o) noexcept : h_(std::exchange(o.h_, nullptr)) {}
  task& operator=(task&& o) noexcept {
    task moved(std::move(o));
    std::swap(h_, moved.h_);
    return *this;
  }
  // Destroys the coroutine, if it was not awaited.
  ~task() {
    if (h_) h_.destroy();
  }

  // Returns false if the task is empty: default-constructed, awaited, or moved
  // from.
  explicit operator bool() const noexcept { return static_cast<bool>(h_); }

  // Starts the task. The awaiting coroutine continues when the task has ended.
  auto operator co_await() && noexcept {
    return internal::CoTaskAwaiter<T>(std::exchange(h_, nullptr));
  }
  void operator co_await() & = delete;  // awaited once: co_await std::move(t)

 private:
  friend promise_type;
  explicit task(std::coroutine_handle<promise_type> h) noexcept : h_(h) {}
  std::coroutine_handle<promise_type> h_;
};

// Go(f) starts f() on a new goroutine when it is awaited, and gives the result
// of f. The coroutine continues on that goroutine. An exception thrown by f is
// thrown by the co_await. f is decay-copied, and destroyed before the coroutine
// continues. If f calls Goexit, the co_await panics "co: function of Go called
// Goexit". An empty f is the fatal error "go of nil func value". The co_await
// panics if no goroutine can be started. It throws std::bad_alloc if there is
// no memory.
//
//   std::string text = co_await co::Go([&] { return ReadAll(file); });
//
// co_await co::Go([] {}) moves a coroutine to a goroutine.
template <class F>
[[nodiscard]] auto Go(F&& f) {
  internal::CheckCallable(f);
  return internal::CoGo<std::decay_t<F>>(std::in_place, std::forward<F>(f));
}

// Recv(c) receives from c, which is a chan or a recv_chan. co_await gives a
// std::optional<T>, as c.Recv() does: nullopt if c is closed and drained. On a
// chan<void> it gives a bool. If there is no value yet, the coroutine suspends.
//
// An lvalue c is borrowed: it must outlive the co_await. If the coroutine has
// to wait, the co_await panics if no goroutine can be started. It throws
// std::bad_alloc if there is no memory.
template <class C>
requires internal::ReceivesFrom<std::remove_cvref_t<C>>
[[nodiscard]] auto Recv(C&& c ABSL_ATTRIBUTE_LIFETIME_BOUND) {
  return internal::CoRecv<internal::CoHeld<C>>(std::forward<C>(c));
}

// Send(c, v) sends v to c, which is a chan or a send_chan. Send(c) is for a
// chan<void>. If there is no room and no receiver, the coroutine suspends.
// co_await panics "send on closed channel". For c, and for the other errors,
// see Recv. v is copied, or moved if it is an rvalue.
template <class C, class U>
requires internal::CoSends<C, U>
[[nodiscard]] auto Send(C&& c ABSL_ATTRIBUTE_LIFETIME_BOUND, U&& v) {
  return internal::CoSend<internal::CoHeld<C>>(std::forward<C>(c),
                                               std::forward<U>(v));
}
template <class C>
requires internal::SendsNothing<std::remove_cvref_t<C>>
[[nodiscard]] auto Send(C&& c ABSL_ATTRIBUTE_LIFETIME_BOUND) {
  return internal::CoSendNothing<internal::CoHeld<C>>(std::forward<C>(c));
}

// Sleep(d) suspends the coroutine until at least d has passed. It is ready at
// once if d is not above 0. While it sleeps, it has neither a goroutine nor a
// stack. co_await throws std::bad_alloc if there is no memory.
[[nodiscard]] inline auto Sleep(internal::DurationArg d) {
  return internal::CoSleep(d.Nanoseconds());
}

// Wait runs a task, or awaits any other awaitable, and returns its result.
// Parks until that is there; a plain thread blocks. An exception passes
// through. The task begins on the caller. Panics as co_await does.
//
//   auto [a, b] = co::Wait(Fetch(url));
template <class A>
auto Wait(A&& awaitable) -> internal::CoWaitResult<A> {
  return internal::CoWaitFor(std::forward<A>(awaitable));
}

}  // namespace gump::co

namespace gump::internal {

template <class T>
co::task<T> CoTaskPromise<T>::get_return_object() noexcept {
  return co::task<T>(std::coroutine_handle<CoTaskPromise>::from_promise(*this));
}
inline co::task<void> CoTaskPromise<void>::get_return_object() noexcept {
  return co::task<void>(
      std::coroutine_handle<CoTaskPromise>::from_promise(*this));
}

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_CO_H_
