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
// park, and it may throw. If the scope is left normally, the exception passes
// to the caller. If another exception is leaving the scope, there are now two,
// and the process ends as in Go, with both:
//   panic: first
//           panic: second
// and exit code 2. The first line has the text of a gump::panic. A destructor
// cannot reach any other exception, which shows as "exception".
#ifndef GUMP_DEFER_H_
#define GUMP_DEFER_H_

#include <exception>
#include <type_traits>
#include <utility>

namespace gump {

namespace internal {
// PanicWhileUnwinding ends the process, with the exception being handled as the
// second panic. If that is not an exception but a Goexit, it rethrows.
// `uncaught` is the number of exceptions that are unwinding the stack. It does
// not return, but is not declared so: a compiler that knows it may conclude
// that the handler of the first exception is never reached, and drop that
// handler.
void PanicWhileUnwinding(int uncaught);
}  // namespace internal

// defer holds the function. It belongs to its scope, so it cannot be copied or
// moved.
template <class F>
class [[nodiscard]] defer {
 public:
  static_assert(std::is_invocable_v<F&>,
                "defer takes a function without arguments");

  // Not explicit, so that `defer _ = f;` works too.
  defer(F f) noexcept(  // NOLINT(google-explicit-constructor)
      std::is_nothrow_move_constructible_v<F>)
      : f_(std::move(f)), uncaught_(std::uncaught_exceptions()) {}
  defer(const defer&) = delete;
  defer& operator=(const defer&) = delete;

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

#endif  // GUMP_DEFER_H_
