// Hooks: clients that know nothing of goroutines park in them.
//
//   for (int i = 0; i < 1000; i++) {
//     all.Go([] {
//       gump::hooks::Scope scope;
//       Client c("127.0.0.1");          // any client, unmodified
//       c.Query("SELECT pg_sleep(1)");  // parks in poll
//     });
//   }
//
// Inside a Scope, calls of libc that would block the thread park the goroutine:
// recv, send, read, write, connect, accept, poll, select, sleep, getaddrinfo,
// waits for condition variables, and more. docs/hooks.md lists them. So a
// thousand goroutines that wait in a client of a database share a handful of
// threads. The client may be in C or in C++, linked or loaded by dlopen.
//
// A goroutine with a Scope lives on one of a few threads, the homes, until the
// Scope ends. It never changes its home. So errno, thread-local variables and
// the locks of pthread work in the client as they do on a thread. But the
// goroutines of a home share the thread-local variables.
//
// If a goroutine would park while it holds a lock of pthread, its thread waits
// with it. So no goroutine waits for a lock whose holder waits for the same
// thread. Locks that pthread does not know (Abseil's, std::counting_semaphore,
// a futex of one's own) are not seen: do not hold one of these over a call that
// waits.
//
// The program must be linked with the target gump::hooks, or be started with
// libgump_interpose.so in LD_PRELOAD. Otherwise, and with GODEBUG=hooks=0, all
// of this does nothing, and calls block as they do without it. The same holds
// on plain threads, in bubbles of synctest, in gump::blocking, in a child of
// fork, and with ThreadSanitizer.
#ifndef GUMP_HOOKS_H_
#define GUMP_HOOKS_H_

#include <cstddef>
#include <type_traits>
#include <utility>

#include "gump/internal/arch.h"
#include "gump/internal/closure.h"
#include "gump/internal/linkname_thread.h"
#include "gump/internal/spawn.h"

#pragma GCC visibility push(default)

namespace gump::hooks {

// Scope makes the calls of the calling goroutine park, from its construction to
// its destruction. Both park: the goroutine moves to a home and back, which
// takes some microseconds. So a Scope is for work of 100 µs or more. Scopes may
// be nested; the inner ones do nothing.
//
// The goroutine is in no runtime::Group meanwhile. A goroutine of a
// runtime::Thread, or one that has called LockOSThread, comes back to its own
// thread at the end.
//
// A pthread lock that is taken inside of a Scope must be given back inside. A
// function that makes a Scope must not use errno, or another thread-local
// variable, both outside and inside of it: compilers take its address to be the
// same in a whole function. Hooked and Go have no such trap.
class Scope {
 public:
  Scope() noexcept;
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  rt::HomeVisitor visitor_;
  rt::Home* home_ = nullptr;  // nullptr: the goroutine has not moved
  int number_ = 0;
};

// Off makes the calls of the calling goroutine block, inside of a Scope, until
// its destruction. Other goroutines of the same home wait meanwhile. Does not
// park.
class Off {
 public:
  Off() noexcept;
  ~Off();
  Off(const Off&) = delete;
  Off& operator=(const Off&) = delete;
};

// SetThreads sets how many homes there are, at least 1 and at most 64. The
// default is GOMAXPROCS, but at least 4. Goroutines that have a home keep it. A
// home is made when it is needed, and its thread stays. It may be called from
// any thread, and does not park.
void SetThreads(int n) noexcept;

}  // namespace gump::hooks

namespace gump::internal {

// Hooked functions are not inlined into a function that knows addresses of the
// thread-local variables of another thread.
template <class F>
__attribute__((noinline)) auto CallHooked(F& f) -> decltype(f()) {
  asm volatile("");
  return CallVisibly(f);
}

// BeginHooked makes the calls of this thread park. EndHooked is called when a
// goroutine leaves it.
void BeginHooked() noexcept;
void EndHooked() noexcept;

// HomeTicket is a goroutine's place on a home, until it is destroyed.
class HomeTicket {
 public:
  HomeTicket() noexcept;
  HomeTicket(HomeTicket&& o) noexcept
      : home_(std::exchange(o.home_, nullptr)), number_(o.number_) {}
  ~HomeTicket();

  // The home, or nullptr if goroutines cannot be hooked here.
  rt::Home* home() const { return home_; }

 private:
  rt::Home* home_ = nullptr;
  int number_ = 0;
};

// HookedCall calls f on a home.
template <class F>
class HookedCall {
 public:
  HookedCall(HomeTicket ticket, F f)
      : ticket_(std::move(ticket)), f_(std::move(f)) {}

  void operator()() {
    if (ticket_.home() == nullptr) {
      CallVisibly(f_);
      return;
    }
    struct Hooked {
      Hooked() { BeginHooked(); }
      ~Hooked() { EndHooked(); }
    };
    const Hooked here;
    CallHooked(f_);
  }

 private:
  HomeTicket ticket_;
  F f_;
};

}  // namespace gump::internal

namespace gump::hooks {

// Hooked calls f inside of a Scope, and returns what f returns. What f throws
// passes through.
//
//   Result r = gump::hooks::Hooked([&] { return c.Query(sql); });
template <class F>
auto Hooked(F&& f) -> decltype(f()) {
  const Scope scope;
  return internal::CallHooked(f);
}

// Go starts a goroutine that calls f() inside of a Scope. It has the 1 MiB of
// stack that clients expect of a thread, and starts on its home, so the moves
// of a Scope are saved. Otherwise it is like go(f).
template <class F>
__attribute__((always_inline)) inline void Go(F&& f) {
  constexpr size_t kStack = size_t{1} << 20;
  internal::CheckCallable(f);
  internal::HomeTicket ticket;
  rt::SpawnOptions o;
  o.stack_size = kStack;
  o.thread = ticket.home();
  using Call = internal::HookedCall<std::decay_t<F>>;
  internal::Spawn<internal::Closure<Call>>(
      &o, rt::callerPC(), Call(std::move(ticket), std::forward<F>(f)));
}

}  // namespace gump::hooks

namespace gump {
// gump::hooked is hooks::Hooked.
template <class F>
auto hooked(F&& f) -> decltype(f()) {
  return hooks::Hooked(std::forward<F>(f));
}
}  // namespace gump

#pragma GCC visibility pop

#endif  // GUMP_HOOKS_H_
