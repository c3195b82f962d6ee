// A Thread is a thread of the kernel that many goroutines share, one at a time,
// and that runs nothing else. It is for libraries that must be used from one
// thread: GUIs, OpenGL, an interpreter, a JNI environment.
//
//   gump::runtime::Thread gui("gui");
//   gump::go(gump::GoOptions{.thread = &gui}, [] { DrawLoop(); });
//   int width = gui.Run([] { return QueryWidth(); });
//
// A goroutine of a Thread parks as any other goroutine does, and then another
// goroutine of the Thread runs. Thread-local variables are those of the one
// thread, so its goroutines share them; use gls for a goroutine's own values.
//
// The goroutines of a Thread take turns only where they park or yield. One that
// computes or that blocks in the kernel holds up those that share the Thread,
// and no others. Preemption takes its P, but not its thread.
//
// go(GoOptions{.thread = &t}, f) starts f on the Thread. What f starts by a
// plain go runs anywhere. Timers and context::AfterFunc functions run anywhere,
// too. On a Thread, runtime::LockOSThread and UnlockOSThread count and change
// nothing. A Thread counts against debug::SetMaxThreads.
//
// A goroutine on a Thread is in no runtime::Group, because the Thread itself
// runs one goroutine at a time. So go with both a thread and a group panics,
// and a goroutine that go starts on a Thread does not inherit the group of the
// caller. A goroutine of a group that calls Run is outside of the group until
// Run returns, and so is what it starts there.
#ifndef GUMP_RUNTIME_THREAD_H_
#define GUMP_RUNTIME_THREAD_H_

#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "gump/internal/closure.h"
#include "gump/internal/linkname_thread.h"
#include "gump/internal/spawn.h"

#pragma GCC visibility push(default)

namespace gump::runtime {

// Thread is a handle: a copy is the same thread. The thread ends when the last
// handle is gone and the goroutines on it have ended. To drop a handle never
// blocks. All functions may be called from goroutines and from plain threads.
class Thread {
 public:
  // Starts the thread, and the runtime if need be. Linux keeps the first 15
  // bytes of name, which top, debuggers and goroutine dumps show. Does not
  // park. Throws std::bad_alloc. If the kernel refuses a thread, the thread
  // comes later; see debug::SetMaxThreads for the limit.
  explicit Thread(std::string_view name = {});
  Thread(const Thread& other) noexcept : home_(other.home_) {
    rt::homeRetain(home_);
  }
  Thread& operator=(const Thread& other) noexcept {
    Thread copy(other);
    std::swap(home_, copy.home_);
    return *this;
  }
  ~Thread() { rt::homeRelease(home_); }

  // Run moves the calling goroutine to the thread, calls f, and moves it back.
  // The result is that of f, and what f throws passes through. The goroutine
  // stays the same: its number, its name and its gls values go along. It parks
  // until its turn comes, and again on the way back.
  //   * On the Thread itself, Run only calls f.
  //   * A goroutine of another Thread, or one that has called LockOSThread,
  //     comes back to its own thread.
  //   * On a plain thread, f runs on a new goroutine of the Thread, and the
  //     plain thread waits. If f calls Goexit, that is a fatal error, as
  //     anywhere on a plain thread. If main has ended, the plain thread waits
  //     for the next gump::Run.
  //   * Inside gump::blocking it is a fatal error, because it would park.
  //   * A goroutine of a Group gives the group room while it is away. When it
  //     comes back, it waits until the group has room again.
  // Run holds the Thread, so f may drop the last handle.
  template <class F>
  auto Run(F&& f) -> decltype(f());

  // Name returns the name, cut to 15 bytes.
  std::string_view Name() const { return rt::homeName(home_); }

  friend bool operator==(const Thread& a, const Thread& b) noexcept {
    return a.home_ == b.home_;
  }

 private:
  friend rt::Home* internal::HomeOf(const Thread* thread) noexcept;

  rt::Home* home_;
};

}  // namespace gump::runtime

namespace gump::internal {

// ThreadVisit moves a goroutine to a Thread for a scope.
class ThreadVisit {
 public:
  explicit ThreadVisit(rt::Home* h) noexcept
      : how_(rt::homeEnter(h, &visitor_)) {}
  ~ThreadVisit() {
    if (how_ == rt::HomeVisit::kWent) rt::homeLeave(&visitor_);
  }
  ThreadVisit(const ThreadVisit&) = delete;
  ThreadVisit& operator=(const ThreadVisit&) = delete;

  bool there() const { return how_ != rt::HomeVisit::kPlainThread; }

 private:
  rt::HomeVisitor visitor_;
  const rt::HomeVisit how_;
};

// CallThere calls f. It is not inlined into the caller, which knows addresses
// of the thread-local variables of another thread.
template <class F>
__attribute__((noinline)) auto CallThere(F& f) -> decltype(f()) {
  asm volatile("");
  return CallVisibly(f);
}

// RunForPlainThread calls run(arg) on a new goroutine of h, waits for it, and
// rethrows what it throws.
void RunForPlainThread(rt::Home* h, void (*run)(void*), void* arg);

// RunOnHome is Thread::Run for a plain thread.
template <class R, class F>
R RunOnHome(rt::Home* h, F& f) {
  if constexpr (std::is_void_v<R>) {
    F* call = std::addressof(f);
    RunForPlainThread(
        h, [](void* arg) { CallVisibly(**static_cast<F**>(arg)); }, &call);
  } else if constexpr (std::is_reference_v<R>) {
    std::remove_reference_t<R>* result = nullptr;
    auto g = [&] { result = std::addressof(CallVisibly(f)); };
    RunOnHome<void>(h, g);
    return static_cast<R>(*result);
  } else {
    std::optional<R> result;
    auto g = [&] { result.emplace(CallVisibly(f)); };
    RunOnHome<void>(h, g);
    return std::move(*result);
  }
}

}  // namespace gump::internal

namespace gump::runtime {

template <class F>
auto Thread::Run(F&& f) -> decltype(f()) {
  internal::CheckCallable(f);
  const Thread held(*this);  // f may drop the last handle
  {
    internal::ThreadVisit visit(held.home_);
    if (visit.there()) return internal::CallThere(f);
  }
  return internal::RunOnHome<decltype(f())>(held.home_, f);
}

}  // namespace gump::runtime

#pragma GCC visibility pop

#endif  // GUMP_RUNTIME_THREAD_H_
