// A sync::Once, and the results of OnceFunc, OnceValue and OnceValues, run a
// function exactly once.
//
//   sync::Once once;
//   once.Do([] { LoadTables(); });       // the first call runs it, others wait
//
//   auto config = sync::OnceValue([] { return ParseConfig("app.conf"); });
//   Use(config());                       // parsed at the first call, then kept
//
// All may be called from goroutines and from plain threads, several at a time.
//
// Memory ordering: the end of the one run happens before the return of every
// call.
//
// The algorithms are those of Go's sync.Once and sync.OnceFunc.
#ifndef GUMP_SYNC_ONCE_H_
#define GUMP_SYNC_ONCE_H_

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gump/internal/atomic.h"
#include "gump/panic.h"
#include "gump/sync/mutex.h"

#pragma GCC visibility push(default)

namespace gump::sync {

// Once runs one function once. It is never copied or moved. The zero value is
// ready. It may be called from goroutines and from plain threads.
class Once {
 public:
  constexpr Once() noexcept = default;
  Once(const Once&) = delete;
  Once& operator=(const Once&) = delete;

  // Do calls f() if this is the first call of Do on this Once. Later calls do
  // nothing, even if their f is another one. Parks while an earlier call is
  // running its f. An f that throws or calls Goexit counts as run (unlike with
  // std::call_once), and the exception goes to the caller that ran it. An f
  // that calls Do on the same Once deadlocks.
  template <class F>
  void Do(F&& f);

 private:
  void DoSlow(void (*call)(void*), void* f);

  rt::Atomic<uint32_t> done_;  // 1: f has ended. Written with mu_ held.
  Mutex mu_;
};

namespace internal {

template <class F>
struct OnceState;

}  // namespace internal

// OnceFunction is the type that OnceFunc, OnceValue and OnceValues return. It
// is a function object. The first call runs f, and every call returns the
// result of that run. Copies share one run. A call parks while another call is
// running f.
template <class F>
class OnceFunction {
 public:
  using State = internal::OnceState<F>;
  using result_type = std::conditional_t<std::is_void_v<typename State::Raw>,
                                         void, const typename State::Value&>;

  // Holds f, which has not run yet. Throws std::bad_alloc.
  explicit OnceFunction(F f) : state_(std::make_shared<State>(std::move(f))) {}

  // Runs f, or returns the result of its run. If f threw, every call throws the
  // same exception. If f called Goexit, the later calls panic "panic called
  // with nil argument". A returned reference stays valid as long as any copy of
  // this object lives.
  result_type operator()() const;

 private:
  std::shared_ptr<State> state_;
};

// OnceFunc returns a function object whose first call calls f(). Throws
// std::bad_alloc. Never parks.
template <class F>
[[nodiscard]] OnceFunction<std::decay_t<F>> OnceFunc(F&& f) {
  return OnceFunction<std::decay_t<F>>(std::forward<F>(f));
}

// OnceValue is OnceFunc for an f that returns a value. Every call returns that
// value by const reference.
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

template <class F>
inline void Once::Do(F&& f) {
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

namespace internal {

// The type Nothing stands for the value of an f that returns void.
struct Nothing {};

// OnceState is the state that all copies of a OnceFunction share.
template <class F>
struct OnceState {
  using Raw = std::invoke_result_t<F&>;
  using Value =
      std::conditional_t<std::is_void_v<Raw>, Nothing, std::decay_t<Raw>>;

  explicit OnceState(F fn) : f(std::move(fn)) {}

  // run calls f, once, and keeps its value or its exception.
  void run() {
    struct Drop {
      std::optional<F>& f;
      ~Drop() { f.reset(); }  // the captures of f are not needed any more
    } drop{f};
    try {
      if constexpr (std::is_void_v<Raw>) {
        std::invoke(*f);
        value.emplace();
      } else {
        value.emplace(std::invoke(*f));
      }
    } catch (...) {
      error = std::current_exception();  // null for a Goexit, which is not an
      throw;                             // exception
    }
  }

  Once once;
  std::optional<F> f;
  std::optional<Value> value;  // empty: f did not return
  std::exception_ptr error;
};

}  // namespace internal

template <class F>
inline typename OnceFunction<F>::result_type OnceFunction<F>::operator()()
    const {
  State& s = *state_;
  s.once.Do([&s] { s.run(); });
  if (!s.value.has_value()) {
    if (s.error) std::rethrow_exception(s.error);
    panic("panic called with nil argument");
  }
  if constexpr (!std::is_void_v<result_type>) return *s.value;
}

}  // namespace gump::sync

#pragma GCC visibility pop

#endif  // GUMP_SYNC_ONCE_H_
