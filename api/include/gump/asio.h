// The completion token use_goroutine lets a goroutine wait for an asynchronous
// operation of asio or Boost.Asio.
//
//   asio::io_context io;
//   auto work = asio::make_work_guard(io);
//   std::thread loop([&] { io.run(); });
//
//   // in a goroutine
//   asio::ip::tcp::socket s(io);
//   s.async_connect(server, use_goroutine);  // parks; throws system_error
//   asio::async_write(s, asio::buffer("PING\r\n"sv), use_goroutine);
//   std::string line;
//   std::error_code ec;
//   asio::async_read_until(s, asio::dynamic_buffer(line), '\n',
//                          use_goroutine[ec]);
//   asio::post(goroutines, [] { /* runs on a goroutine */ });
//
//   work.reset();
//   loop.join();
//
// A function that is given use_goroutine starts the operation, parks until it
// completes, and returns its results: nothing, the one value, or a std::tuple.
// A plain thread blocks. There are three forms, for every operation:
//   * use_goroutine throws system_error if the operation fails. An operation
//     that completes with a std::exception_ptr rethrows it.
//   * use_goroutine[ec] puts the error_code into ec instead.
//   * use_goroutine(ctx), and use_goroutine(ctx)[ec], cancel the operation when
//     the context is cancelled. The error is then operation_aborted, unless the
//     operation has completed before.
//
// asio keeps a thread of its own, which calls io_context::run. That thread must
// be a plain thread. A goroutine may move to another thread while it waits, and
// asio notes in thread-local variables which io_context a thread runs. So
// handlers of asio never run on goroutines, unless they are posted to
// `goroutines`. A handler on asio's thread must not park, because all other
// operations wait for it. A Send to a channel with room, or a call of go, does
// not park.
//
// Thread safety. With use_goroutine and use_goroutine[ec], the goroutine itself
// starts the operation, as a thread does with asio::use_future. So one
// goroutine at a time uses an object of asio. With a context, the executor of
// the object starts the operation and cancels it. Until the operation has
// completed, the executor uses the goroutine's arguments. The executor must run
// one function at a time: that of an io_context with one thread, or a strand.
// Requires: the objects and the io_context live until the operation completes.
// If an io_context is destroyed with its handlers all the same, the operation
// completes with operation_aborted, so that no goroutine waits for ever. A
// goroutine that owns an object of that io_context may not go on then, and the
// context of an operation may not be cancelled any more. A handler must not use
// use_goroutine on the only thread of its io_context, as it would wait for
// itself.
//
// In a bubble of synctest, do not use use_goroutine: no other thread may wake a
// goroutine of the bubble.
//
// This header is not part of gump/gump.h. It serves one of two libraries:
//   * Boost.Asio, where asio is called boost::asio, if the source has included
//     it before, or has defined GUMP_USE_BOOST_ASIO, or if asio without Boost
//     is not installed;
//   * asio without Boost otherwise.
// One source cannot include both, because they clash. The header works with
// asio 1.18 and Boost 1.74, and later versions. use_goroutine(ctx) needs asio
// 1.19 or Boost 1.77.
//
// Memory ordering: the start of an operation happens before its completion in
// asio's thread, and that happens before the return to the goroutine.
#ifndef GUMP_ASIO_H_
#define GUMP_ASIO_H_

#include <type_traits>
#include <utility>

#include "gump/go.h"
#include "gump/internal/asio_call.h"

#if defined(BOOST_ASIO_VERSION) || defined(GUMP_USE_BOOST_ASIO) || \
    !__has_include(<asio/version.hpp>) && __has_include(<boost/asio/version.hpp>)
#include "gump/internal/asio_boost.h"
#define GUMP_ASIO_FOUND 1
#elif __has_include(<asio/version.hpp>)
#include "gump/internal/asio_standalone.h"
#define GUMP_ASIO_FOUND 1
#endif

#if defined(GUMP_ASIO_FOUND)
#pragma GCC visibility push(default)

namespace gump {

// use_goroutine is the completion token described above. Its operators [] and
// () make the other forms. The error_code of [] must live until the operation
// completes.
//
//   size_t n = s.async_read_some(buffer, use_goroutine(ctx));
inline constexpr internal::AsioToken<> use_goroutine = {};

// GoroutineExecutor is the type of `goroutines`. All its objects are equal. It
// never blocks, and never calls a function in place. Blocking is asio's type
// for that property, execution::blocking_t.
template <class Blocking>
class GoroutineExecutor {
 public:
  // Starts f on a goroutine, as go does. Does not park. asio calls it, on any
  // thread.
  template <class F>
  void execute(F&& f) const {
    gump::go(std::forward<F>(f));
  }

  // Tells asio that functions are never called before execute returns.
  static constexpr Blocking query(Blocking) noexcept {
    return typename Blocking::never_t();
  }

  friend constexpr bool operator==(const GoroutineExecutor&,
                                   const GoroutineExecutor&) noexcept = default;
};

// goroutines is an executor for asio::post, asio::defer and asio::dispatch, and
// for bind_executor. Each function runs on a goroutine of its own, so it may
// park. The functions run in no particular order. The executor has no execution
// context, so no object of asio can be made with it. Requires: it is not put
// into an asio::strand, which keeps thread-local notes while a function runs.
// Use a sync::Mutex instead.
//
//   s.async_read_some(buffer, asio::bind_executor(goroutines, handler));
constexpr GoroutineExecutor<internal::AsioBlocking> goroutines = {};

// AsyncGo starts f() on a goroutine, for a program that waits in asio. The
// completion signature is void(std::exception_ptr, R) if f returns an R, and
// void(std::exception_ptr) if f returns nothing. `token` may be a handler, or
// any completion token, such as asio::use_awaitable and asio::use_future. The
// handler is posted to its associated executor, which is `executor` unless
// bind_executor says otherwise. An exception that leaves f reaches the handler
// as the exception_ptr, beside a default-constructed R.
//
//   gump::AsyncGo(io.get_executor(), [] { return Ask(); },
//                 [](std::exception_ptr e, std::string answer) { ... });
//
// AsyncGo does not park, and may be called from any thread. On a plain thread
// without Run it starts the runtime, as go does. f is decay-copied, and
// destroyed before the handler is posted. Until the handler is posted, its
// executor counts as having work, so io_context::run does not return. If f
// calls Goexit, the handler gets the panic "asio: function of AsyncGo called
// Goexit". Panics as go does if no goroutine can be started. If Run returns
// before f does, the handler is not called, and the executor has work for ever.
// Requires: the io_context lives until the handler was called. R is
// default-constructible.
template <class Executor, class F, class Token>
auto AsyncGo(const Executor& executor, F&& f, Token&& token) {
  using Fn = std::decay_t<F>;
  using R = std::decay_t<decltype(std::declval<Fn&>()())>;
  static_assert(std::is_void_v<R> || std::is_default_constructible_v<R>,
                "gump::AsyncGo: the result must be default-constructible");
  using Lib = internal::AsioLibOf<Executor>;
  return Lib::template Initiate<typename internal::AsioSignature<R>::type>(
      internal::AsioStart<Lib, Fn>(), token, executor, Fn(std::forward<F>(f)));
}

}  // namespace gump

#pragma GCC visibility pop
#endif

#endif  // GUMP_ASIO_H_
