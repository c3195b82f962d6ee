// A goroutine is a function that runs concurrently with the others; many share
// a thread. go starts one, Run starts the first, and blocking calls a function
// that is known to block in the kernel.
//
//   int main() {
//     return gump::Run([] {
//       auto c = gump::make_chan<int>();
//       gump::go([c] { c.Send(42); });
//       std::printf("%d\n", *c.Recv());
//     });
//   }
//
// This header also gives defer, panic and gls: it includes gump/defer.h,
// gump/panic.h and gump/gls.h.
//
// A plain thread is a thread that the program made itself, for example by
// std::thread. All functions may be called from goroutines and from plain
// threads, except Run. Only a plain thread may call Run, and main starts on
// that thread.
//
// exit, quick_exit and _exit may be called anywhere. Goroutines continue until
// the process is gone, so exit handlers and static destructors may use them.
// Handlers and destructors that run after Run has returned may use only
// functions that need no goroutine.
//
// A child of fork may exec and exit, and may call functions that do not wait. A
// call that needs goroutines ends the child with a sentence on standard error
// and exit code 2.
//
// Memory ordering: a call of go happens before its f begins. The end of f is
// not synchronized with anything; use a channel or a WaitGroup to observe it. A
// call of Run happens before main begins, and the return of main happens before
// the return of Run.
#ifndef GUMP_GO_H_
#define GUMP_GO_H_

// Another library may have defined a macro of such a name.
#if defined(go) || defined(blocking)
#error "go or blocking is a macro here: #undef it before gump/go.h"
#include "gump/internal/see_the_error_above.h"
#endif

#include <atomic>  // IWYU pragma: keep: programs have always found it here
#include <cstddef>
#include <cstring>  // IWYU pragma: keep: as above
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "gump/defer.h"  // IWYU pragma: export
#include "gump/gls.h"    // IWYU pragma: export
#include "gump/internal/arch.h"
#include "gump/internal/closure.h"
#include "gump/internal/linkname_go.h"
#include "gump/internal/spawn.h"
#include "gump/internal/syscall_scope.h"
#include "gump/panic.h"  // IWYU pragma: export
#include "gump/runtime/group.h"

#pragma GCC visibility push(default)

namespace gump {

// GoOptions holds the options of go for the goroutine that it starts.
struct GoOptions {
  // The stack size in bytes. 0 means the default: 256 KiB of address space, or
  // more in programs with ASan or TSan, and in builds without optimisation.
  // Only the part in use costs memory. A size below 16 KiB is raised to 16 KiB.
  // A size above the limit of debug::SetMaxStack, which is 1 GiB at start, is
  // lowered to that limit.
  size_t stack_size = 0;
  // A name for goroutine dumps. They show its first 47 bytes as the label
  // `name`, as in `goroutine 7 [chan receive] {name: pump}:`. go copies it.
  std::string_view name = {};
  // The Thread on which the goroutine runs (gump/runtime/thread.h). go needs
  // the handle only during the call. nullptr means that any thread may run it.
  // A goroutine on a Thread is in no group.
  runtime::Thread* thread = nullptr;
  // The group that limits how many goroutines run at a time
  // (gump/runtime/group.h).
  // nullptr means the group of the caller, if it is in one. go uses the pointer
  // only during the call. go panics "runtime: goroutine of both a Thread and a
  // group" if `thread` is not nullptr either.
  runtime::Group* group = nullptr;
};

namespace internal {

// MakeSpawnOptions returns what the runtime needs of options. `name` is a copy
// of options.name.
inline rt::SpawnOptions MakeSpawnOptions(const GoOptions& options,
                                         const char* name) {
  if (options.thread != nullptr && options.group != nullptr) {
    PanicThreadAndGroup();
  }
  rt::SpawnOptions o;
  o.stack_size = options.stack_size;
  o.name = name;
  o.thread = HomeOf(options.thread);
  if (options.group != nullptr) o.group = GroupNumber(*options.group);
  return o;
}

}  // namespace internal

// go starts a goroutine that calls f(args...). The callable and its arguments
// are decay-copied, as by std::thread, and may be move-only. They are
// destroyed on the goroutine when it ends. A closure of up to 64 bytes costs no
// allocation.
//
// f begins with the floating-point modes of the thread of Run; see Run.
//
// go never parks. It may be called from goroutines and from plain threads. On a
// plain thread without Run, it starts the runtime in the background. The new
// goroutine runs next on the caller's P, as soon as the caller blocks, yields
// or ends. Another P may run it earlier. If the caller is a plain thread, which
// has no P, the goroutine goes to the global queue.
//
// Panics if there is no memory for a goroutine; the runtime stays usable. An
// empty std::function or a null pointer is the fatal error "go of nil func
// value". An exception that leaves f ends the process with a panic report.
//
//   gump::go([&] { c.Send(compute()); });
//
// Source: Go's newproc. Unlike in Go, the goroutine gets its stack when it
// first runs.
template <class F, class... A>
requires(!std::is_same_v<std::decay_t<F>, GoOptions>)
    __attribute__((always_inline)) inline void go(F&& f, A&&... args) {
  internal::CheckCallable(f);
  internal::Spawn<internal::Closure<std::decay_t<F>, std::decay_t<A>...>>(
      nullptr, rt::callerPC(), std::forward<F>(f), std::forward<A>(args)...);
}

// go(options, f, args...) is go with options. Throws std::bad_alloc if there is
// no memory to copy the name.
//
//   gump::go(gump::GoOptions{.stack_size = 1 << 20, .name = "parser"},
//            Parse, text);
template <class F, class... A>
__attribute__((always_inline)) inline void go(GoOptions options, F&& f,
                                              A&&... args) {
  internal::CheckCallable(f);
  std::unique_ptr<char, internal::Free> name(internal::CopyName(options.name));
  const rt::SpawnOptions o = internal::MakeSpawnOptions(options, name.get());
  internal::Spawn<internal::Closure<std::decay_t<F>, std::decay_t<A>...>>(
      &o, rt::callerPC(), std::forward<F>(f), std::forward<A>(args)...);
  (void)name.release();  // the goroutine owns it now
}

// Run makes the calling thread m0 and calls main on goroutine 1, with a stack
// as large as a thread's. It returns once main has returned. The result is
// main's int, or 0 for a void main. Run blocks the calling thread.
//
// After main has returned, no goroutine is scheduled. The remaining goroutines
// are abandoned, as when Go's main returns. They continue if Run is called
// again. Plain threads can still use channels, locks, timers, files and
// sockets, and get a free Mutex at once. A plain thread that needs an abandoned
// goroutine waits for another Run. It needs one if it waits for:
//   * a value or a signal that the goroutine would send;
//   * a name that the goroutine would look up;
//   * a lock that the goroutine holds;
//   * an RWMutex that the goroutine waits to write to.
// When all threads of the process wait, and none of them waits for a timer or a
// socket, the process ends with the fatal error "all goroutines are asleep -
// deadlock!".
//
// main is called in place, by reference, and need not be copyable. main may
// change threads unless it is locked to the thread of Run. It is locked if it
// calls runtime::LockOSThread as its first action, or if the caller of Run has
// called it.
//
// Goroutines that begin during Run have the floating-point modes with which the
// calling thread called it: the rounding mode, flush-to-zero, the exceptions
// that trap, the precision of the x87. The modes that -ffast-math sets are
// among them. In a program that does not call Run, the first thread that needs
// the runtime counts. A goroutine that changes its modes keeps them when it
// parks and when it is preempted, and changes those of no other goroutine.
//
//   std::fesetround(FE_UPWARD);
//   gump::Run([] { Compute(); });  // rounds up
//
// Panics "gump::Run called while another Run is active" if a Run is active, or
// if called from a goroutine. An exception that leaves main ends the process
// with a panic report. For a Goexit in main, see runtime::Goexit.
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
  C c = C::Of(body);
  if (!rt::runMain(&internal::kInPlace<C>, &c, rt::callerPC())) {
    internal::PanicRunActive();
  }
  return result;
}

// blocking calls f, which is known to block in the kernel, and returns the
// result of f. While f blocks, other goroutines run in place of this one. f
// runs on this goroutine's stack and thread.
//
// Requires: f does not park. If an operation in f has to wait, for example for
// a channel or a lock, that is a fatal error. f may start goroutines, wake
// others, and call blocking itself.
//
// An exception thrown by f passes through. blocking may park after f has
// returned. On a plain thread it only calls f.
//
//   ssize_t n = gump::blocking([&] { return ::read(fd, buf, sizeof buf); });
template <class F>
auto blocking(F&& f) -> decltype(f()) {
  internal::SyscallScope scope;
  return std::forward<F>(f)();
}

}  // namespace gump

#pragma GCC visibility pop

#endif  // GUMP_GO_H_
