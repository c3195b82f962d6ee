// The handlers of a select: finding out which arguments a callable takes, and
// calling it. gump/select.h says which it may take.
#ifndef GUMP_INTERNAL_SELECT_HANDLER_H_
#define GUMP_INTERNAL_SELECT_HANDLER_H_

#include <functional>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump::internal {

// Wants is the kind of arguments that a handler takes.
enum class Wants { kNothing, kValue, kValueAndOk, kOptional, kOk };

// ArgsOf is the parameter list of a callable with a single signature. For other
// callables, such as generic lambdas, it is void.
template <class F>
struct ArgsOf {
  using type = void;
};
template <class R, class... A>
struct ArgsOf<R (*)(A...)> {
  using type = std::tuple<A...>;
};
template <class R, class... A>
struct ArgsOf<R (*)(A...) noexcept> : ArgsOf<R (*)(A...)> {};
template <class F, class R, class... A>
struct ArgsOf<R (F::*)(A...)> : ArgsOf<R (*)(A...)> {};
template <class F, class R, class... A>
struct ArgsOf<R (F::*)(A...) const> : ArgsOf<R (*)(A...)> {};
template <class F, class R, class... A>
struct ArgsOf<R (F::*)(A...) noexcept> : ArgsOf<R (*)(A...)> {};
template <class F, class R, class... A>
struct ArgsOf<R (F::*)(A...) const noexcept> : ArgsOf<R (*)(A...)> {};
template <class F>
requires requires { &F::operator(); }
struct ArgsOf<F> : ArgsOf<decltype(&F::operator())> {};

// WantsOfArgs is the kind of arguments that a parameter list asks for.
template <class T, class Args>
struct WantsOfArgs;
template <class T>
struct WantsOfArgs<T, std::tuple<>> {
  static constexpr Wants kWants = Wants::kNothing;
};
template <class T, class A>
struct WantsOfArgs<T, std::tuple<A>> {
  static constexpr Wants kWants =
      std::is_same_v<std::remove_cvref_t<A>, std::optional<T>>
          ? Wants::kOptional
          : Wants::kValue;
};
template <class A>
struct WantsOfArgs<void, std::tuple<A>> {
  static constexpr Wants kWants = Wants::kOk;
};
template <class T, class A, class B>
struct WantsOfArgs<T, std::tuple<A, B>> {
  static constexpr Wants kWants = Wants::kValueAndOk;
};

// HandlerWants returns the kind for a handler H of a channel of T. A handler
// without a single signature is asked which calls it accepts.
template <class T, class H>
constexpr Wants HandlerWants() {
  using Args = typename ArgsOf<H>::type;
  if constexpr (!std::is_void_v<Args>) {
    return WantsOfArgs<T, Args>::kWants;
  } else if constexpr (std::is_void_v<T>) {
    return std::is_invocable_v<H&> ? Wants::kNothing : Wants::kOk;
  } else if constexpr (std::is_invocable_v<H&, T>) {
    return Wants::kValue;
  } else if constexpr (std::is_invocable_v<H&, T, bool>) {
    return Wants::kValueAndOk;
  } else {
    return Wants::kNothing;
  }
}

// Deliver calls the handler with the arguments that it takes. v is nullptr if
// the channel is closed and drained.
template <class T, class H>
void Deliver(H& handler, T* v) {
  constexpr Wants kWants = HandlerWants<T, H>();
  if constexpr (kWants == Wants::kNothing) {
    std::invoke(handler);
  } else if constexpr (kWants == Wants::kOptional) {
    std::optional<T> arg;
    if (v != nullptr) arg.emplace(std::move(*v));
    std::invoke(handler, std::move(arg));
  } else {
    static_assert(std::is_default_constructible_v<T>,
                  "a handler that takes T gets T{} when the channel is closed; "
                  "this T cannot be made so: take std::optional<T>");
    auto call = [&](T&& arg) {
      if constexpr (kWants == Wants::kValue) {
        std::invoke(handler, std::move(arg));
      } else {
        std::invoke(handler, std::move(arg), v != nullptr);
      }
    };
    v != nullptr ? call(std::move(*v)) : call(T{});
  }
}

// NoHandler is the handler of a case that was made without one.
struct NoHandler {
  void operator()() const {}
};
// A Handler is any callable. A pointer to an object is not one, but a variable
// to receive into.
template <class H>
concept Handler =
    !std::is_pointer_v<H> || std::is_function_v<std::remove_pointer_t<H>>;

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_SELECT_HANDLER_H_
