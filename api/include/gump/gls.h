// A gls is a variable of which every goroutine has its own value.
//
//   gump::gls<int> depth{0};
//   void Visit(const Node& n) {
//     ++*depth;                       // this goroutine's own
//     defer _{[] { --*depth; }};
//     …
//   }
//
// A gls is the thread_local variable of goroutines. (A thread_local itself is
// of little use in a goroutine, because a call that parks may return on another
// thread.) Each goroutine, and each plain thread, has its own value. The value
// is made from the initial value at its first use. When the goroutine or thread
// ends, its values are destroyed in reverse order of first use. A goroutine of
// WaitGroup::Go or ErrGroup::Go destroys them before it counts as done, so they
// are gone when Wait returns.
//
// An access searches a short list, newest first. That is fast for a handful of
// variables, but not for thousands. An access never waits. The first access of
// a goroutine makes the value, and so may allocate. It throws std::bad_alloc if
// there is no memory, and any exception thrown by making the value.
//
// A gls is usually a global. If it is destroyed before a goroutine that used it
// has ended, that goroutine's value lives until the goroutine ends.
#ifndef GUMP_GLS_H_
#define GUMP_GLS_H_

// Another library may have defined a macro of this name.
#ifdef gls
#error "gls is a macro here: #undef it before gump/gls.h"
#include "gump/internal/see_the_error_above.h"
#endif

#include <concepts>
#include <functional>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "gump/internal/linkname_gls.h"

#pragma GCC visibility push(default)

namespace gump {

namespace internal {
// NewGlsKey returns a key that no gls has had before. Keys are never reused,
// because values may outlive their gls.
const void* NewGlsKey() noexcept;
}  // namespace internal

// gls<T> is a variable of which every goroutine has its own value. It cannot be
// copied or moved. All functions may be called from goroutines and from plain
// threads. None parks, unless making a value does.
template <class T>
class gls {
 public:
  // Each goroutine's value starts as T().
  gls() requires std::default_initializable<T> : make_([] { return new T(); }) {
  }
  // Each goroutine's value starts as a copy of init.
  explicit gls(T init) requires std::copy_constructible<T>
      : make_([init = std::move(init)] { return new T(init); }) {}
  // Each goroutine's value starts as the result of f(), called on that
  // goroutine. Requires: f is copyable.
  template <class F>
  requires(std::is_invocable_r_v<T, F&> &&
           !std::convertible_to<F, T>) explicit gls(F f)
      : make_([f = std::move(f)]() mutable { return new T(f()); }) {}
  gls(const gls&) = delete;
  gls& operator=(const gls&) = delete;

  // Returns the value of the current goroutine. The reference is valid until
  // that goroutine ends, and destroys its values. The first call makes the
  // value, and throws as described above.
  T& operator*() const { return *get(); }
  T* operator->() const { return get(); }

  // get returns the address of the current goroutine's value. It makes the
  // value and throws as the operators do.
  T* get() const {
    if (void* p = rt::glsGet(key_)) [[likely]] {
      return static_cast<T*>(p);
    }
    std::unique_ptr<T> value(make_());
    if (void* p = rt::glsGet(key_)) return static_cast<T*>(p);  // set by make_
    if (!rt::glsSet(key_, value.get(),
                    [](void* p) { delete static_cast<T*>(p); })) {
      throw std::bad_alloc();
    }
    return value.release();
  }

 private:
  const void* const key_ = internal::NewGlsKey();
  const std::function<T*()> make_;
};

}  // namespace gump

#pragma GCC visibility pop

#endif  // GUMP_GLS_H_
