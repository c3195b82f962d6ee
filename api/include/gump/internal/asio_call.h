// Asynchronous operations of asio that a goroutine waits for. The code serves
// both asio and Boost.Asio: Lib is AsioLib or BoostAsioLib, which hold the
// differences. See gump/asio.h.
#ifndef GUMP_INTERNAL_ASIO_CALL_H_
#define GUMP_INTERNAL_ASIO_CALL_H_

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gump/context.h"
#include "gump/go.h"
#include "gump/panic.h"
#include "gump/sync/event.h"

#pragma GCC visibility push(default)

namespace gump::internal {

struct NoContext {};

// AsioToken is the type of gump::use_goroutine and of its other forms.
template <class Ctx = NoContext, class Error = void>
class AsioToken {
 public:
  constexpr AsioToken() = default;
  AsioToken(Ctx ctx, Error* error) : ctx_(std::move(ctx)), error_(error) {}

  // The operation reports its error in ec, and does not throw.
  template <class E>
  requires std::is_void_v<Error> AsioToken<Ctx, E>
  operator[](E& ec) const { return {ctx_, std::addressof(ec)}; }
  // The operation is cancelled when ctx is.
  AsioToken<context::Context, Error> operator()(
      context::Context ctx) const requires std::is_same_v<Ctx, NoContext> {
    return {std::move(ctx), error_};
  }

  const Ctx& ctx() const { return ctx_; }
  Error* error() const { return error_; }

 private:
  [[no_unique_address]] Ctx ctx_{};
  Error* error_ = nullptr;
};

// AsioResults is the type of the results of an operation with these values:
// void, the type of the one value, or a tuple.
template <class... Values>
struct AsioResults {
  using type = std::tuple<Values...>;
};
template <>
struct AsioResults<> {
  using type = void;
};
template <class Value>
struct AsioResults<Value> {
  using type = Value;
};

// AsioCall is an operation, on the stack of the goroutine that waits for it.
// The handler fills it in, on the thread on which asio calls the handler.
//
// Invariants:
//  (C1) done is set exactly once, by the only handler: when it is called, or
//       when it is destroyed without a call. So no goroutine waits for ever
//       because an io_context was destroyed.
//  (C2) The handler sets done last, and does not touch the AsioCall after that:
//       the goroutine may have destroyed it. sync::Event allows this.
template <class Lib, class... Args>
class AsioCall {
 public:
  using Error = typename Lib::Error;

  template <class... A>
  void Complete(A&&... args) {
    args_.emplace(std::forward<A>(args)...);
    done_.Set();
  }
  void Abandon() noexcept { done_.Set(); }
  void Fail(std::exception_ptr e) noexcept { thrown_ = std::move(e); }

  void Wait() noexcept { done_.Wait(); }

  // Take returns the results, or throws. If `error` is not null, it gets the
  // error_code instead.
  decltype(auto) Take(Error* error) {
    if (thrown_ != nullptr) std::rethrow_exception(std::move(thrown_));
    if constexpr (kFirstIs<Error>) {
      const Error e = args_.has_value() ? std::get<0>(*args_) : Lib::Aborted();
      if (error != nullptr) *error = e;
      if (error == nullptr && e) throw typename Lib::SystemError(e);
      return Rest(std::make_index_sequence<sizeof...(Args) - 1>());
    } else {
      if (!args_.has_value()) throw typename Lib::SystemError(Lib::Aborted());
      if constexpr (kFirstIs<std::exception_ptr>) {
        if (auto& e = std::get<0>(*args_)) std::rethrow_exception(std::move(e));
        return Rest(std::make_index_sequence<sizeof...(Args) - 1>());
      } else {
        return All(std::make_index_sequence<sizeof...(Args)>());
      }
    }
  }

 private:
  using Tuple = std::tuple<Args...>;

  template <class T, class First = void, class...>
  static constexpr bool IsFirst() {
    return std::is_same_v<T, First>;
  }
  template <class T>
  static constexpr bool kFirstIs = IsFirst<T, Args...>();

  template <size_t... I>
  auto Rest(std::index_sequence<I...>) {
    using R = typename AsioResults<std::tuple_element_t<I + 1, Tuple>...>::type;
    if constexpr (!std::is_void_v<R>) {
      if (args_.has_value()) return R(std::get<I + 1>(std::move(*args_))...);
      // The handler was never called.
      if constexpr (std::is_default_constructible_v<R>) {
        return R();
      } else {
        throw typename Lib::SystemError(Lib::Aborted());
      }
    }
  }
  template <size_t... I>
  auto All(std::index_sequence<I...>) {
    using R = typename AsioResults<Args...>::type;
    if constexpr (!std::is_void_v<R>) {
      return R(std::get<I>(std::move(*args_))...);
    }
  }

  std::optional<Tuple> args_;
  std::exception_ptr thrown_;  // by the initiating function
  sync::Event done_{sync::Event::Mode::kManual};
};

// AsioHandler is the completion handler of a call. asio moves it, and destroys
// it without a call if it destroys the operation.
template <class Lib, class... Args>
class AsioHandler {
 public:
  using Call = AsioCall<Lib, Args...>;
  explicit AsioHandler(Call* call) noexcept : call_(call) {}
  AsioHandler(AsioHandler&& o) noexcept
      : call_(std::exchange(o.call_, nullptr)) {}
  AsioHandler& operator=(AsioHandler&&) = delete;
  ~AsioHandler() {
    if (call_ != nullptr) call_->Abandon();
  }

  template <class... A>
  void operator()(A&&... args) {
    call_->Complete(std::forward<A>(args)...);
    call_ = nullptr;  // after it, in case a copy of an argument throws
  }

 private:
  Call* call_;
};

// AsioCancel is what a call and the cancellation of its context share. Only
// functions on the executor of the operation (X) touch it, except for `posted`,
// and for `ended` if the handler is destroyed elsewhere: by a Post that throws.
// There are three of them, and X runs one at a time:
//   * the initiating function, which fills the slot of the signal;
//   * the handler;
//   * a function that the cancellation of the context posts to X.
// The signal is emitted between the first two, so nothing is lost if the
// context is cancelled before the operation starts. `posted` is set when the
// third function is in the queue of X. The goroutine waits for that if the
// cancellation has begun, so no function of ours posts to X after the call.
template <class Lib>
struct AsioCancel {
  typename Lib::CancellationSignal signal;
  bool started = false;
  std::atomic<bool> ended = false;
  bool wanted = false;  // the context is cancelled
  sync::Event posted{sync::Event::Mode::kManual};

  void EmitIfDue() {
    if (wanted && started && !ended) Lib::EmitAll(signal);
  }
};

// AsioCancelHandler is the completion handler of a call with a context.
template <class Lib, class... Args>
class AsioCancelHandler : public AsioHandler<Lib, Args...> {
 public:
  using cancellation_slot_type = typename Lib::CancellationSlot;
  AsioCancelHandler(AsioCall<Lib, Args...>* call,
                    std::shared_ptr<AsioCancel<Lib>> cancel) noexcept
      : AsioHandler<Lib, Args...>(call), cancel_(std::move(cancel)) {}

  AsioCancelHandler(AsioCancelHandler&&) noexcept = default;
  // An operation that drops its handler without a call has ended, too.
  ~AsioCancelHandler() {
    if (cancel_ != nullptr) cancel_->ended = true;
  }

  cancellation_slot_type get_cancellation_slot() const noexcept {
    return cancel_->signal.slot();
  }
  template <class... A>
  void operator()(A&&... args) {
    cancel_->ended = true;
    AsioHandler<Lib, Args...>::operator()(std::forward<A>(args)...);
  }

 private:
  std::shared_ptr<AsioCancel<Lib>> cancel_;
};

// SetAtEnd sets an Event when it is destroyed.
class SetAtEnd {
 public:
  explicit SetAtEnd(sync::Event* e) noexcept : e_(e) {}
  SetAtEnd(SetAtEnd&& o) noexcept : e_(std::exchange(o.e_, nullptr)) {}
  SetAtEnd& operator=(SetAtEnd&&) = delete;
  ~SetAtEnd() {
    if (e_ != nullptr) e_->Set();
  }

 private:
  sync::Event* e_;
};

// AsioInitiation calls `start` on the executor of an operation. `returned` is
// set last, even if the executor destroys the AsioInitiation without a call.
// The goroutine waits for it, because `start` uses its stack.
template <class Handler, class Start>
struct AsioInitiation {
  SetAtEnd returned;  // destroyed after the handler
  Handler handler;
  Start start;
  void operator()() { start(std::move(handler)); }
};

// AsioResult does the work of asio's async_result: it starts an operation and
// waits for it.
template <class Lib, class Token, class... Args>
class AsioResult {
 public:
  using Call = AsioCall<Lib, Args...>;
  using return_type = decltype(std::declval<Call&>().Take(
      static_cast<typename Lib::Error*>(nullptr)));

  template <class Init, class... A>
  static return_type initiate(Init&& init, const Token& token, A&&... args) {
    Call call;
    if constexpr (std::is_same_v<decltype(token.ctx()), const NoContext&>) {
      std::forward<Init>(init)(AsioHandler<Lib, Args...>(&call),
                               std::forward<A>(args)...);
      call.Wait();
    } else {
      static_assert(Lib::kCancels,
                    "gump/asio.h: this version cannot cancel single "
                    "operations (asio can since 1.19, Boost since 1.77); use "
                    "context::AfterFunc and cancel() of the object");
      RunWithContext(call, token.ctx(), std::forward<Init>(init),
                     std::forward<A>(args)...);
    }
    return call.Take(static_cast<typename Lib::Error*>(token.error()));
  }

 private:
  template <class Init, class... A>
  static void RunWithContext(Call& call, const context::Context& ctx,
                             Init&& init, A&&... args) {
    static_assert(
        requires { typename std::decay_t<Init>::executor_type; },
        "gump/asio.h: use_goroutine(ctx) starts and cancels an "
        "operation on its executor, so it must be given to an "
        "operation of an object, and not through an adapter such as "
        "redirect_error: write use_goroutine(ctx)[ec]");
    const auto executor = Lib::ExecutorOf(init);
    auto cancel = std::make_shared<AsioCancel<Lib>>();
    sync::Event returned(sync::Event::Mode::kManual);
    using Handler = AsioCancelHandler<Lib, Args...>;
    auto start = [&, cancel](Handler&& handler) {
      try {
        std::forward<Init>(init)(std::move(handler), std::forward<A>(args)...);
      } catch (...) {
        call.Fail(std::current_exception());
        cancel->ended = true;
      }
      cancel->started = true;
      cancel->EmitIfDue();
    };
    const context::StopFunc stop = context::AfterFunc(ctx, [cancel, &executor] {
      Lib::Post(executor, [cancel] {
        cancel->wanted = true;
        cancel->EmitIfDue();
      });
      cancel->posted.Set();
    });
    try {
      Lib::Post(executor, AsioInitiation<Handler, decltype(start)>{
                              SetAtEnd(&returned), Handler(&call, cancel),
                              std::move(start)});
    } catch (...) {  // it has destroyed the handler
      call.Fail(std::current_exception());
    }
    call.Wait();
    returned.Wait();
    if (!stop()) cancel->posted.Wait();
  }
};

// AsioOutcome is the result of a function on a goroutine.
template <class R>
struct AsioOutcome {
  std::exception_ptr error;
  R value{};

  template <class F>
  void Call(F& f) {
    value = CallVisibly(std::move(f));
  }
  template <class Handler>
  void Give(Handler& handler) {
    std::move(handler)(std::move(error), std::move(value));
  }
};
template <>
struct AsioOutcome<void> {
  std::exception_ptr error;

  template <class F>
  void Call(F& f) {
    CallVisibly(std::move(f));
  }
  template <class Handler>
  void Give(Handler& handler) {
    std::move(handler)(std::move(error));
  }
};

template <class R>
struct AsioSignature {
  using type = void(std::exception_ptr, R);
};
template <>
struct AsioSignature<void> {
  using type = void(std::exception_ptr);
};

// AsioJob is a function on a goroutine that reports to a handler. `io` and
// `work` keep the executors of the program and of the handler from running out
// of work until the handler is posted.
template <class Lib, class F, class Handler, class Io, class Work>
class AsioJob {
 public:
  using R = std::decay_t<decltype(std::declval<F&>()())>;
  AsioJob(F&& f, Handler handler, Io io, Work work)
      : f_(std::in_place, std::move(f)),
        handler_(std::move(handler)),
        io_(std::move(io)),
        work_(std::move(work)) {}

  void operator()() {
    AsioOutcome<R> outcome;
    try {
      outcome.Call(*f_);
    } catch (...) {
      outcome.error = std::current_exception();
      if (outcome.error == nullptr) {  // Goexit
        outcome.error = std::make_exception_ptr(
            PanicError("asio: function of AsyncGo called Goexit"));
        Report(std::move(outcome));
        throw;
      }
    }
    Report(std::move(outcome));
  }

 private:
  // Report posts the handler. f is destroyed before. When the handler has run,
  // the io_context may be gone. So the handler waits until this goroutine has
  // left asio, which signals its thread last, and has given up the executors.
  // That wait is short, and in any kind of thread, so it does not park.
  void Report(AsioOutcome<R>&& outcome) {
    f_.reset();
    auto left = std::make_shared<std::atomic<bool>>(false);
    Lib::Post(*work_, [handler = std::move(handler_),
                       outcome = std::move(outcome), left]() mutable {
      left->wait(false, std::memory_order_acquire);
      outcome.Give(handler);
    });
    work_.reset();
    io_.reset();
    left->store(true, std::memory_order_release);
    left->notify_one();
  }

  Disposable<F> f_;
  Handler handler_;
  std::optional<Io> io_;
  std::optional<Work> work_;
};

// AsioStart is the initiating function of AsyncGo.
template <class Lib, class F>
struct AsioStart {
  template <class Handler, class Executor>
  void operator()(Handler&& handler, const Executor& io, F&& f) const {
    auto work = Lib::Tracked(Lib::ExecutorOf(handler, io));
    auto tracked = Lib::Tracked(io);
    using Job = AsioJob<Lib, F, std::decay_t<Handler>, decltype(tracked),
                        decltype(work)>;
    gump::go(Job(std::move(f), std::forward<Handler>(handler),
                 std::move(tracked), std::move(work)));
  }
};

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_ASIO_CALL_H_
