// gump/asio.h for asio without Boost. Without asio this header is empty. The
// headers of Boost 1.74 need others before them, so ours come first.
#ifndef GUMP_INTERNAL_ASIO_STANDALONE_H_
#define GUMP_INTERNAL_ASIO_STANDALONE_H_

#include "gump/internal/asio_call.h"

#if __has_include(<asio/version.hpp>)

#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/error.hpp>
#include <asio/error_code.hpp>
#include <asio/execution.hpp>
#include <asio/execution_context.hpp>
#include <asio/post.hpp>
#include <asio/prefer.hpp>
#include <asio/query.hpp>
#include <asio/system_error.hpp>
#include <asio/version.hpp>
#include <concepts>
#include <type_traits>
#include <utility>

#if ASIO_VERSION >= 101900
#include <asio/cancellation_signal.hpp>
#endif

#pragma GCC visibility push(default)

namespace gump::internal {

struct AsioLib {
  using Error = asio::error_code;
  using SystemError = asio::system_error;
  static Error Aborted() { return asio::error::operation_aborted; }

#if ASIO_VERSION >= 101900
  static constexpr bool kCancels = true;
  using CancellationSignal = asio::cancellation_signal;
  using CancellationSlot = asio::cancellation_slot;
  static void EmitAll(CancellationSignal& s) {
    s.emit(asio::cancellation_type::all);
  }
#else
  static constexpr bool kCancels = false;
#endif

  template <class T>
  static auto ExecutorOf(const T& t) {
    return asio::get_associated_executor(t);
  }
  template <class T, class Executor>
  static auto ExecutorOf(const T& t, const Executor& otherwise) {
    return asio::get_associated_executor(t, otherwise);
  }
  template <class Executor>
  static auto Tracked(const Executor& executor) {
    return asio::prefer(executor, asio::execution::outstanding_work.tracked);
  }
  template <class Signature, class Init, class Token, class... A>
  static auto Initiate(Init&& init, Token& token, A&&... args) {
    return asio::async_initiate<Token, Signature>(
        std::forward<Init>(init), token, std::forward<A>(args)...);
  }
  template <class Executor, class F>
  static void Post(const Executor& executor, F&& f) {
    asio::post(executor, std::forward<F>(f));
  }
};

using AsioBlocking = asio::execution::blocking_t;

// AsioLibOf names the library of an Executor.
template <class Executor>
requires std::convertible_to<decltype(asio::query(
                                 std::declval<const Executor&>(),
                                 asio::execution::context)),
                             asio::execution_context&>
using AsioLibOf = AsioLib;

}  // namespace gump::internal

#pragma GCC visibility pop

template <class Ctx, class Error, class R, class... Args>
class asio::async_result<gump::internal::AsioToken<Ctx, Error>, R(Args...)>
    : public gump::internal::AsioResult<gump::internal::AsioLib,
                                        gump::internal::AsioToken<Ctx, Error>,
                                        std::decay_t<Args>...> {};

#endif  // asio

#endif  // GUMP_INTERNAL_ASIO_STANDALONE_H_
