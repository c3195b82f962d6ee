// A defer runs a function at the end of its scope, however the scope is left.
//
//   mu.Lock();
//   defer _{[&] { mu.Unlock(); }};
//
// The functions of one scope run in reverse order of their definition, as all
// destructors do. (In Go they run at the end of the function, here at the end
// of the block.) They also run when the scope is left by an exception or by
// Goexit.
//
// The function runs on the goroutine or thread that leaves the scope. It may
// park, and it may throw. If the scope is left normally, an exception of the
// function passes to the caller. If the scope is left by an exception, and the
// function throws another, the process ends as in Go. It prints both texts, and
// its exit code is 2:
//   panic: first
//           panic: second
// The first text is known only if the first exception is a gump::panic. For any
// other exception it is "exception", because a destructor cannot reach an
// exception that is unwinding the stack.
#ifndef GUMP_DEFER_H_
#define GUMP_DEFER_H_

// Another library may have defined a macro of this name.
#ifdef defer
#error "defer is a macro here: #undef it before gump/defer.h"
#include "gump/internal/see_the_error_above.h"
#endif

#include <exception>
#include <type_traits>
#include <utility>

#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump {

namespace internal {
// PanicWhileUnwinding ends the process, with the exception being handled as the
// second panic. If a Goexit is being handled, and not an exception, it rethrows
// the Goexit. `uncaught` is the number of exceptions that are unwinding the
// stack.
//
// PanicWhileUnwinding does not return, but is not declared [[noreturn]]. With
// that attribute a compiler may conclude that the handler of the first
// exception is never reached, and drop that handler.
void PanicWhileUnwinding(int uncaught);
}  // namespace internal

// defer holds the function, and calls it when the defer is destroyed. A defer
// cannot be copied or moved, because it belongs to its scope.
template <class F>
class [[nodiscard]] defer {
 public:
  static_assert(std::is_invocable_v<F&>,
                "defer takes a function without arguments");

  // Takes a function that can be called without arguments.
  // Not explicit, so that `defer _ = f;` works too.
  defer(F f) noexcept(  // NOLINT(google-explicit-constructor)
      std::is_nothrow_move_constructible_v<F>)
      : f_(std::move(f)), uncaught_(std::uncaught_exceptions()) {}
  defer(const defer&) = delete;
  defer& operator=(const defer&) = delete;

  // Calls the function. May park and throw, as described above.
  ~defer() noexcept(false) {
    if (const int n = std::uncaught_exceptions(); n > uncaught_) [[unlikely]] {
      try {
        f_();
      } catch (...) {
        internal::PanicWhileUnwinding(n);
      }
      return;
    }
    f_();
  }

 private:
  F f_;
  const int uncaught_;  // exceptions in flight when the scope was entered
};

template <class F>
defer(F) -> defer<F>;

}  // namespace gump

#pragma GCC visibility pop

#endif  // GUMP_DEFER_H_
