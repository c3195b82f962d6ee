// sync::Once, OnceFunc, OnceValue, OnceValues: things that happen exactly once.
//
//   sync::Once once;
//   once.Do([] { LoadTables(); });       // the first call runs it, others wait
//
//   auto config = sync::OnceValue([] { return ParseConfig("app.conf"); });
//   Use(config());                       // parsed at the first call, kept
//
// Memory ordering: the end of the one execution happens before the return of
// any call.
//
// The algorithms are those of Go's sync.Once and sync.OnceFunc.
#ifndef GUMP_ONCE_H_
#define GUMP_ONCE_H_

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gump/internal/linkname.h"
#include "gump/mutex.h"
#include "gump/panic.h"

namespace gump::sync {

// Once runs one function once. Never copied or moved; the zero value is ready.
// It may be called from goroutines and from plain threads.
class Once {
 public:
  constexpr Once() noexcept = default;
  Once(const Once&) = delete;
  Once& operator=(const Once&) = delete;

  // Do calls f() if this is the first call of Do on this Once, whatever f was
  // given to the others. It returns when f has, also if another goroutine is
  // running it; then it parks. An f that throws or calls Goexit counts as done
  // (unlike std::call_once), and the exception goes to the one who called it.
  // An f that calls Do on the same Once deadlocks.
  template <class F>
  void Do(F&& f) {
    // Acquire: pairs with the release in DoSlow.
    if (done_.load(rt::acquire) != 0) [[likely]] {
      return;
    }
    using Callable = std::remove_reference_t<F>;
    if constexpr (std::is_function_v<Callable>) {
      Do(&f);
    } else {
      DoSlow(
          [](void* p) {
            std::invoke(std::forward<F>(*static_cast<Callable*>(p)));
          },
          const_cast<std::remove_const_t<Callable>*>(std::addressof(f)));
    }
  }

 private:
  void DoSlow(void (*call)(void*), void* f);

  rt::Atomic<uint32_t> done_;  // 1: f has ended. Written with mu_ held.
  Mutex mu_;
};

namespace internal {

// What an f that returns void yields.
struct Nothing {};

// OnceState is what the copies of a OnceFunction share.
template <class F>
struct OnceState {
  using Raw = std::invoke_result_t<F&>;
  using Value =
      std::conditional_t<std::is_void_v<Raw>, Nothing, std::decay_t<Raw>>;

  explicit OnceState(F fn) : f(std::move(fn)) {}

  // run is what the first call does.
  void run() {
    struct Drop {
      std::optional<F>& f;
      ~Drop() { f.reset(); }  // what f holds is not needed any more
    } drop{f};
    try {
      if constexpr (std::is_void_v<Raw>) {
        std::invoke(*f);
        value.emplace();
      } else {
        value.emplace(std::invoke(*f));
      }
    } catch (...) {
      error = std::current_exception();  // null if it is not an exception but
      throw;                             // a Goexit
    }
  }

  Once once;
  std::optional<F> f;
  std::optional<Value> value;  // empty: f did not return
  std::exception_ptr error;
};

}  // namespace internal

// OnceFunction is what OnceFunc, OnceValue and OnceValues return: a function
// object whose first call runs f and whose every call has its result. Copies
// share one execution. May be called from goroutines and from plain threads;
// a call parks while another runs f.
template <class F>
class OnceFunction {
 public:
  using State = internal::OnceState<F>;
  using result_type = std::conditional_t<std::is_void_v<typename State::Raw>,
                                         void, const typename State::Value&>;

  explicit OnceFunction(F f) : state_(std::make_shared<State>(std::move(f))) {}

  // The call. If f threw, every call throws the same exception; if f called
  // Goexit, the later calls panic. A reference that is returned lives as long
  // as any copy of this object.
  result_type operator()() const {
    State& s = *state_;
    s.once.Do([&s] { s.run(); });
    if (!s.value.has_value()) {
      if (s.error) std::rethrow_exception(s.error);
      panic("panic called with nil argument");
    }
    if constexpr (!std::is_void_v<result_type>) return *s.value;
  }

 private:
  std::shared_ptr<State> state_;
};

// OnceFunc returns a function object that calls f() once, at its first call.
template <class F>
[[nodiscard]] OnceFunction<std::decay_t<F>> OnceFunc(F&& f) {
  return OnceFunction<std::decay_t<F>>(std::forward<F>(f));
}

// OnceValue is OnceFunc for an f that returns a value, which every call returns
// by const reference.
template <class F>
[[nodiscard]] OnceFunction<std::decay_t<F>> OnceValue(F&& f) {
  static_assert(!std::is_void_v<std::invoke_result_t<std::decay_t<F>&>>,
                "OnceValue needs a function that returns a value; for one that "
                "returns nothing there is OnceFunc");
  return OnceFunction<std::decay_t<F>>(std::forward<F>(f));
}

// OnceValues is OnceValue for an f that returns a std::pair or a std::tuple:
//   const auto& [file, error] = open_once();
template <class F>
[[nodiscard]] OnceFunction<std::decay_t<F>> OnceValues(F&& f) {
  using Value = std::decay_t<std::invoke_result_t<std::decay_t<F>&>>;
  static_assert(
      requires { std::tuple_size<Value>::value; },
      "OnceValues needs a function that returns a pair or a tuple");
  return OnceFunction<std::decay_t<F>>(std::forward<F>(f));
}

}  // namespace gump::sync

#endif  // GUMP_ONCE_H_
