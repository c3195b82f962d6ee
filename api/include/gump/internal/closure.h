// Closures: storing a callable with its arguments, describing it to the
// runtime, and calling it.
#ifndef GUMP_INTERNAL_CLOSURE_H_
#define GUMP_INTERNAL_CLOSURE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gump/internal/linkname_go.h"

#pragma GCC visibility push(default)

namespace gump::internal {

// A Nullable callable can be empty: pointers, std::function and similar types.
template <class F>
concept Nullable = std::is_pointer_v<F> || std::is_member_pointer_v<F> ||
    (std::is_class_v<F>&& std::is_constructible_v<F, std::nullptr_t>&& requires(
        const F& f) { static_cast<bool>(f == nullptr); });

// Invoke is std::invoke, which takes a compiler milliseconds for each type. So
// it is used only for pointers to members.
template <class F, class... A>
decltype(auto) Invoke(F&& f, A&&... args) {
  if constexpr (std::is_member_pointer_v<std::remove_cvref_t<F>>) {
    return std::invoke(std::forward<F>(f), std::forward<A>(args)...);
  } else {
    return std::forward<F>(f)(std::forward<A>(args)...);
  }
}

// CalledByName: f(args...) may be called through &T::operator(). That does not
// work if operator() has default arguments, is static, or belongs to a private
// base class.
template <class F, class... A>
concept CalledByName = requires(F&& f, A&&... args) {
  (std::forward<F>(f).*
   (&std::remove_reference_t<F>::operator()))(std::forward<A>(args)...);
};

// CallVisibly calls f in a frame of its own. Without that, the compiler inlines
// a lambda into our thunk, and the lambda has no name in goroutine dumps.
template <class F, class... A>
decltype(auto) CallVisibly(F&& f, A&&... args) {
  if constexpr (CalledByName<F, A...>) {
    auto call = &std::remove_reference_t<F>::operator();
    asm volatile("" : "+m"(call));  // hides the target from the compiler
    return (std::forward<F>(f).*call)(std::forward<A>(args)...);
  } else {
    return internal::Invoke(std::forward<F>(f), std::forward<A>(args)...);
  }
}

// Closure is a callable with its arguments, decay-copied as by std::thread.
template <class F, class... A>
struct Closure {
  // Of returns a closure that is made of f and its arguments.
  template <class... Parts>
  static Closure Of(Parts&&... parts) {
    return {std::tuple<F, A...>(std::forward<Parts>(parts)...)};
  }

  void operator()() {
    std::apply(
        [](auto&&... p) { CallVisibly(std::forward<decltype(p)>(p)...); },
        std::move(parts));
  }

  std::tuple<F, A...> parts;
};

// Most closures have no arguments, and compile faster without a tuple.
template <class F>
struct Closure<F> {
  template <class G>
  static Closure Of(G&& g) {
    return Closure(std::in_place, std::forward<G>(g));
  }

  void operator()() { CallVisibly(std::move(f)); }

  F f;

 private:
  // Without the tag, a copy of a Closure would match.
  template <class G>
  Closure(std::in_place_t, G&& g) : f(std::forward<G>(g)) {}
};

// Disposable holds an F that can be destroyed before its holder. Unlike a
// std::optional it always holds an F at first, and it compiles faster.
template <class F>
class Disposable {
 public:
  template <class G>
  explicit Disposable(std::in_place_t, G&& g) : f_(std::forward<G>(g)) {}
  Disposable(Disposable&& other) noexcept(
      std::is_nothrow_move_constructible_v<F>)
      : held_(other.held_) {
    if (held_) ::new (std::addressof(f_)) F(std::move(other.f_));
  }
  ~Disposable() { reset(); }

  // reset destroys the F, if that has not happened yet.
  void reset() {
    if (std::exchange(held_, false)) f_.~F();
  }
  // Requires: the F is still there.
  F& operator*() { return f_; }

 private:
  union {
    F f_;
  };
  bool held_ = true;
};

// kFitsInG: a C can be stored in the G itself.
template <class C>
inline constexpr bool kFitsInG =
    sizeof(C) <= rt::kClosureSize &&
    alignof(C) <= rt::kClosureAlign&& std::is_nothrow_move_constructible_v<C>;

// kInPlace describes a closure that is stored in the G itself.
template <class C>
inline constexpr rt::FuncType kInPlace = {
    [](void* c) { (*static_cast<C*>(c))(); },
    [](void* c) { static_cast<C*>(c)->~C(); },
    [](void* dst, void* src) noexcept {
      ::new (dst) C(std::move(*static_cast<C*>(src)));
      static_cast<C*>(src)->~C();
    }};

// kOnHeap describes a closure on the heap. The G holds a C*.
template <class C>
inline constexpr rt::FuncType kOnHeap = {
    [](void* c) { (**static_cast<C**>(c))(); },
    [](void* c) { delete *static_cast<C**>(c); },
    [](void* dst, void* src) noexcept {
      *static_cast<C**>(dst) = *static_cast<C**>(src);
    }};

void FatalNilFunc();  // ends the process: "go of nil func value"

// CheckCallable ends the process if f is empty.
template <class F>
void CheckCallable(const F& f) {
  if constexpr (Nullable<F>) {
    if (f == nullptr) FatalNilFunc();
  }
}

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_CLOSURE_H_
