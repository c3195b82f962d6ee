// Starting goroutines: Run, go, blocking.
//
//   int main() {
//     return gump::Run([] {
//       auto c = gump::make_chan<int>();
//       gump::go([c] { c.Send(42); });
//       std::printf("%d\n", *c.Recv());
//     });
//   }
//
// All functions may be called from goroutines and from plain threads, but for
// Run, which turns a plain thread into the one that main runs on at first.
//
// exit, quick_exit and _exit may be called anywhere; goroutines go on until the
// process is gone, so handlers of exit and static destructors may use them.
// Those that run after Run has returned may use only what needs no goroutine. A
// child of fork may exec and exit, and use what does not wait; a call that
// needs goroutines ends it with a sentence on standard error and exit code 2.
//
// Memory ordering: a call of go happens before its f begins; that f ends
// happens before nothing, unless the program says so by other means. A call of
// Run happens before main begins, and the return of main before that of Run.
#ifndef GUMP_GO_H_
#define GUMP_GO_H_

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gump/internal/linkname.h"
#include "gump/panic.h"

namespace gump {

// GoOptions is what go() may be told about the goroutine it starts.
struct GoOptions {
  // Bytes of stack. 0: the default, 256 KiB of address space (more in builds
  // with sanitizers or without optimisation), of which only what is used costs
  // memory. Less than 16 KiB is rounded up to that, more than 1 GiB, or than
  // debug::SetMaxStack allows, down.
  size_t stack_size = 0;
  // Shown in goroutine dumps, its first 47 bytes; copied.
  std::string_view name = {};
};

namespace internal {

// Nullable callables can be empty: pointers, std::function and its like.
template <class F>
concept Nullable = std::is_pointer_v<F> || std::is_member_pointer_v<F> ||
    (std::is_class_v<F>&& std::is_constructible_v<F, std::nullptr_t>&& requires(
        const F& f) { static_cast<bool>(f == nullptr); });

// CalledByName: f(args...) may go by way of &T::operator(). Not so if that has
// default arguments, is static, or belongs to a private base class.
template <class F, class... A>
concept CalledByName = requires {
  requires std::is_invocable_v<
      decltype(&std::remove_reference_t<F>::operator()), F, A...>;
};

// CallVisibly calls f in a frame of its own: a lambda that is inlined into our
// thunk has no name in goroutine dumps.
template <class F, class... A>
decltype(auto) CallVisibly(F&& f, A&&... args) {
  if constexpr (CalledByName<F, A...>) {
    auto call = &std::remove_reference_t<F>::operator();
    asm volatile("" : "+m"(call));  // the compiler no longer knows which
    return std::invoke(call, std::forward<F>(f), std::forward<A>(args)...);
  } else {
    return std::invoke(std::forward<F>(f), std::forward<A>(args)...);
  }
}

// Closure is a callable with its decayed arguments, as std::thread keeps them.
template <class F, class... A>
struct Closure {
  std::tuple<F, A...> parts;

  void operator()() {
    std::apply(
        [](auto&&... p) { CallVisibly(std::forward<decltype(p)>(p)...); },
        std::move(parts));
  }
};

template <class C>
inline constexpr bool kFitsInG =
    sizeof(C) <= rt::kClosureSize &&
    alignof(C) <= rt::kClosureAlign&& std::is_nothrow_move_constructible_v<C>;

// Closures that live in the G itself.
template <class C>
inline constexpr rt::FuncType kInPlace = {
    [](void* c) { (*static_cast<C*>(c))(); },
    [](void* c) { static_cast<C*>(c)->~C(); },
    [](void* dst, void* src) noexcept {
      ::new (dst) C(std::move(*static_cast<C*>(src)));
      static_cast<C*>(src)->~C();
    }};

// Closures on the heap: the G holds a C*.
template <class C>
inline constexpr rt::FuncType kOnHeap = {
    [](void* c) { (**static_cast<C**>(c))(); },
    [](void* c) { delete *static_cast<C**>(c); },
    [](void* dst, void* src) noexcept {
      *static_cast<C**>(dst) = *static_cast<C**>(src);
    }};

[[noreturn]] void PanicNoStack();
void FatalNilFunc();
[[noreturn]] void PanicRunActive();
char* CopyName(std::string_view name);
struct Free {
  void operator()(char* p) const { std::free(p); }
};

template <class F>
void CheckCallable(const F& f) {
  if constexpr (Nullable<F>) {
    if (f == nullptr) FatalNilFunc();
  }
}

template <class C, class... Parts>
__attribute__((always_inline)) inline void Spawn(
    const rt::SpawnOptions* options, uintptr_t pc, Parts&&... parts) {
  rt::SpawnResult result;
  if constexpr (kFitsInG<C>) {
    alignas(C) unsigned char raw[sizeof(C)];
    C* c = ::new (raw) C{{std::forward<Parts>(parts)...}};
    result = rt::newproc(&kInPlace<C>, c, options, pc);
    if (result != rt::SpawnResult::kOk) c->~C();
  } else {
    auto c = std::make_unique<C>(C{{std::forward<Parts>(parts)...}});
    C* raw = c.get();
    result = rt::newproc(&kOnHeap<C>, &raw, options, pc);
    if (result == rt::SpawnResult::kOk) (void)c.release();
  }
  if (result != rt::SpawnResult::kOk) PanicNoStack();
}

}  // namespace internal

// go starts a goroutine that calls f(args...). The callable and its arguments
// are decay-copied into it, as std::thread does, and may be move-only; they are
// destroyed on the goroutine when it ends. Closures of up to 64 bytes cost no
// allocation.
//
// go never parks and may be called from goroutines and plain threads; on a
// plain thread without Run it starts the runtime in the background. The new
// goroutine runs next on this P, as soon as the caller blocks, yields or ends,
// or earlier on another.
//
// Panics when there is no memory for a goroutine (after which the runtime stays
// usable); an empty std::function or null pointer is the fatal error "go of nil
// func value". An exception that leaves f ends the process with a panic report.
//
//   gump::go([&] { c.Send(compute()); });
//
// Source: Go's newproc; the stack is bound when the goroutine first runs.
template <class F, class... A>
requires(!std::is_same_v<std::decay_t<F>, GoOptions>)
    __attribute__((always_inline)) inline void go(F&& f, A&&... args) {
  internal::CheckCallable(f);
  internal::Spawn<internal::Closure<std::decay_t<F>, std::decay_t<A>...>>(
      nullptr, rt::callerPC(), std::forward<F>(f), std::forward<A>(args)...);
}

// As above, with options. Throws std::bad_alloc if there is no memory to copy
// the name.
//
//   gump::go(gump::GoOptions{.stack_size = 1 << 20, .name = "parser"},
//            Parse, text);
template <class F, class... A>
__attribute__((always_inline)) inline void go(GoOptions options, F&& f,
                                              A&&... args) {
  internal::CheckCallable(f);
  rt::SpawnOptions o;
  o.stack_size = options.stack_size;
  std::unique_ptr<char, internal::Free> name(internal::CopyName(options.name));
  o.name = name.get();
  internal::Spawn<internal::Closure<std::decay_t<F>, std::decay_t<A>...>>(
      &o, rt::callerPC(), std::forward<F>(f), std::forward<A>(args)...);
  (void)name.release();  // it is the goroutine's
}

// Run makes the calling thread m0, calls main on goroutine 1, with a stack as
// large as a thread's, and returns main's int (0 for a void main) once main has
// returned. From then on no goroutine is scheduled: those left over are
// abandoned, as when Go's main returns, and go on if Run is called again. Plain
// threads go on using channels, locks, timers, files and sockets. One that
// needs a goroutine waits for another Run: for a value, a name or a signal that
// it would send, a lock that it holds, an RWMutex that it waits to write to. A
// free Mutex it gets at once. When all threads of the process wait, and none
// for a timer or a socket, that is the fatal error "all goroutines are asleep -
// deadlock!".
//
// main is called in place, by reference, and need not be copyable. It may
// change threads, unless it calls runtime::LockOSThread, which keeps it on that
// of Run if it is the first thing it does, or if the caller of Run has. Blocks
// the thread. Panics if a Run is active already, or if called from a goroutine:
// "gump::Run called while another Run is active". An exception that leaves main
// ends the process with a panic report; a Goexit in it, see runtime::Goexit.
template <class F>
__attribute__((always_inline)) inline int Run(F&& main) {
  internal::CheckCallable(main);
  int result = 0;
  auto body = [&] {
    if constexpr (std::is_void_v<std::invoke_result_t<F&>>) {
      internal::CallVisibly(main);
    } else {
      result = internal::CallVisibly(main);
    }
  };
  using C = internal::Closure<decltype(body)>;
  C c{{body}};
  if (!rt::runMain(&internal::kInPlace<C>, &c, rt::callerPC())) {
    internal::PanicRunActive();
  }
  return result;
}

namespace internal {
// SyscallScope brackets a declared system call.
class SyscallScope {
 public:
  SyscallScope() { rt::entersyscall(); }
  ~SyscallScope() { rt::exitsyscall(); }
  SyscallScope(const SyscallScope&) = delete;
  SyscallScope& operator=(const SyscallScope&) = delete;
};
}  // namespace internal

// blocking calls f, which is known to block in the kernel, and returns what it
// returns. While it blocks, other goroutines run in this one's place. f runs
// here, on this goroutine's stack and thread; it must not park: what would have
// to wait, for a channel or a lock say, is a fatal error. It may start
// goroutines, wake others, and call blocking itself. What it throws passes
// through. May park when f has returned. On a plain thread it only calls f.
//
//   ssize_t n = gump::blocking([&] { return ::read(fd, buf, sizeof buf); });
template <class F>
auto blocking(F&& f) -> decltype(f()) {
  internal::SyscallScope scope;
  return std::forward<F>(f)();
}

}  // namespace gump

#endif  // GUMP_GO_H_
