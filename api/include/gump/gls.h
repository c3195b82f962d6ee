// gls: goroutine-local variables.
//
//   gump::gls<int> depth{0};
//   void Visit(const Node& n) {
//     ++*depth;                       // this goroutine's own
//     defer _{[] { --*depth; }};
//     …
//   }
//
// What thread_local is to a thread. (A thread_local itself is of little use in
// a goroutine: it may come back from any call that parks on another thread.)
// Each goroutine, and each plain thread, has its own value, made from the
// initial value when it is first used and destroyed, in reverse order of first
// use, when the goroutine or thread ends.
//
// Access searches a short list, newest first: fine for a handful of variables,
// not for thousands. It never waits. Access may allocate the first time, and
// throws std::bad_alloc then if there is no memory, or what making the value
// throws.
//
// A gls is usually a global. If it is destroyed before a goroutine that used
// it, that goroutine's value lives on until the goroutine ends.
#ifndef GUMP_GLS_H_
#define GUMP_GLS_H_

#include <concepts>
#include <functional>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "gump/internal/linkname.h"

namespace gump {

namespace internal {
// NewGlsKey returns a key that no gls has had before. Keys are never used
// again, because values may outlive their gls.
const void* NewGlsKey() noexcept;
}  // namespace internal

// gls<T> is a variable of which every goroutine has its own. Not copied or
// moved. Any function may be called from goroutines and from plain threads.
template <class T>
class gls {
 public:
  // Each goroutine's value starts as T().
  gls() requires std::default_initializable<T> : make_([] { return new T(); }) {
  }
  // Each goroutine's value starts as a copy of init.
  explicit gls(T init) requires std::copy_constructible<T>
      : make_([init = std::move(init)] { return new T(init); }) {}
  // Each goroutine's value starts as what f() returns, called there. f must be
  // copyable.
  template <class F>
  requires(std::is_invocable_r_v<T, F&> &&
           !std::convertible_to<F, T>) explicit gls(F f)
      : make_([f = std::move(f)]() mutable { return new T(f()); }) {}
  gls(const gls&) = delete;
  gls& operator=(const gls&) = delete;

  // The value of the current goroutine. The reference is good until it ends.
  T& operator*() const { return *get(); }
  T* operator->() const { return get(); }

  // get is the address of the current goroutine's value.
  T* get() const {
    if (void* p = rt::glsGet(key_)) [[likely]] {
      return static_cast<T*>(p);
    }
    std::unique_ptr<T> value(make_());
    if (void* p = rt::glsGet(key_)) return static_cast<T*>(p);  // by make_
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

#endif  // GUMP_GLS_H_
