// gump/asio.h for Boost.Asio. Without Boost.Asio this header is empty. The
// headers of Boost 1.74 need others before them, so ours come first.
#ifndef GUMP_INTERNAL_ASIO_BOOST_H_
#define GUMP_INTERNAL_ASIO_BOOST_H_

#include "gump/internal/asio_call.h"

#if __has_include(<boost/asio/version.hpp>)

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/execution.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/version.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>
#include <concepts>
#include <type_traits>
#include <utility>

#if BOOST_ASIO_VERSION >= 101900
#include <boost/asio/cancellation_signal.hpp>
#endif

#pragma GCC visibility push(default)

namespace gump::internal {

struct BoostAsioLib {
  using Error = boost::system::error_code;
  using SystemError = boost::system::system_error;
  static Error Aborted() { return boost::asio::error::operation_aborted; }

#if BOOST_ASIO_VERSION >= 101900
  static constexpr bool kCancels = true;
  using CancellationSignal = boost::asio::cancellation_signal;
  using CancellationSlot = boost::asio::cancellation_slot;
  static void EmitAll(CancellationSignal& s) {
    s.emit(boost::asio::cancellation_type::all);
  }
#else
  static constexpr bool kCancels = false;
#endif

  template <class T>
  static auto ExecutorOf(const T& t) {
    return boost::asio::get_associated_executor(t);
  }
  template <class T, class Executor>
  static auto ExecutorOf(const T& t, const Executor& otherwise) {
    return boost::asio::get_associated_executor(t, otherwise);
  }
  template <class Executor>
  static auto Tracked(const Executor& executor) {
    return boost::asio::prefer(
        executor, boost::asio::execution::outstanding_work.tracked);
  }
  template <class Signature, class Init, class Token, class... A>
  static auto Initiate(Init&& init, Token& token, A&&... args) {
    return boost::asio::async_initiate<Token, Signature>(
        std::forward<Init>(init), token, std::forward<A>(args)...);
  }
  template <class Executor, class F>
  static void Post(const Executor& executor, F&& f) {
    boost::asio::post(executor, std::forward<F>(f));
  }
};

using AsioBlocking = boost::asio::execution::blocking_t;

// AsioLibOf names the library of an Executor.
template <class Executor>
requires std::convertible_to<decltype(boost::asio::query(
                                 std::declval<const Executor&>(),
                                 boost::asio::execution::context)),
                             boost::asio::execution_context&>
using AsioLibOf = BoostAsioLib;

}  // namespace gump::internal

#pragma GCC visibility pop

template <class Ctx, class Error, class R, class... Args>
class boost::asio::async_result<gump::internal::AsioToken<Ctx, Error>,
                                R(Args...)>
    : public gump::internal::AsioResult<gump::internal::BoostAsioLib,
                                        gump::internal::AsioToken<Ctx, Error>,
                                        std::decay_t<Args>...> {};

#endif  // Boost.Asio

#endif  // GUMP_INTERNAL_ASIO_BOOST_H_
