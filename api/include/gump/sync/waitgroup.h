// A sync::WaitGroup waits for a number of goroutines to finish.
//
//   sync::WaitGroup wg;
//   for (const std::string& url : urls) {
//     wg.Go([&url] { Fetch(url); });
//   }
//   wg.Wait();   // all have returned; may park
//
// A WaitGroup is a counter. Add raises it, Done lowers it by one, and Wait
// waits until it is zero. A WaitGroup takes 24 bytes and is never copied or
// moved. The zero value is ready. It may be destroyed as soon as every Wait
// has returned, even while the Done that released them has not returned yet.
//
// Requires: an Add that raises the counter from zero happens before the Wait
// that waits for it. A WaitGroup is used again only after every Wait of the
// previous round has returned. Violations that are noticed are panics:
//   "sync: negative WaitGroup counter"
//   "sync: WaitGroup misuse: Add called concurrently with Wait"
//   "sync: WaitGroup is reused before previous Wait has returned"
//
// If the counter is raised from zero inside a bubble of synctest, the WaitGroup
// belongs to that bubble until the counter is zero again. During this time a
// call of Add, Done or Go from outside the bubble is a fatal error. So is such
// a call from inside a bubble if the counter was raised outside:
//   "sync: WaitGroup.Add called from inside and outside synctest bubble"
//   "sync: WaitGroup.Add called from multiple synctest bubbles"
//
// Memory ordering: a Done happens before the return of every Wait that it
// releases.
//
// The algorithm is that of Go's sync.WaitGroup; see api/sync/waitgroup.cc.
#ifndef GUMP_SYNC_WAITGROUP_H_
#define GUMP_SYNC_WAITGROUP_H_

#include <cstdint>
#include <type_traits>
#include <utility>

#include "gump/go.h"
#include "gump/internal/atomic.h"
#include "gump/internal/closure.h"
#include "gump/internal/linkname_sync.h"
#include "gump/internal/linkname_synctest.h"

#pragma GCC visibility push(default)

namespace gump::sync {

// WaitGroup is the counter described above. All functions may be called from
// goroutines and from plain threads.
class WaitGroup {
 public:
  constexpr WaitGroup() noexcept = default;
  WaitGroup(const WaitGroup&) = delete;
  WaitGroup& operator=(const WaitGroup&) = delete;

  // Add changes the counter by delta, which may be negative. Never parks.
  // Panics as described above.
  void Add(int delta) {
    // Relaxed: see nbubbles.
    if (rt::nbubbles.load(rt::relaxed) != 0) [[unlikely]] {
      AddInBubble(delta);
    }
    // Acq_rel: the release pairs with the acquire in Wait. The last Done also
    // acquires, so that it passes on everything that the others released.
    const uint64_t state = state_.add(
        static_cast<uint64_t>(static_cast<int64_t>(delta)) << kCounterShift,
        rt::acq_rel);
    // There are waiters, or the WaitGroup belongs to a bubble.
    if (Counter(state) < 0 || static_cast<uint32_t>(state) != 0) [[unlikely]] {
      AddSlow(delta, state);
    }
  }
  // Done is Add(-1).
  void Done() { Add(-1); }

  // Wait waits for the counter to be zero. Parks until it is. Panics as
  // described above.
  void Wait() {
    // Acquire: pairs with the release in Add.
    if (state_.load(rt::acquire) != 0) WaitSlow();
  }

  // Go runs f() in a new goroutine and counts it until it is done. It calls
  // Add(1), and Done when f has returned or has left by Goexit. f, all that it
  // holds, and the goroutine's values of gls are destroyed before Done. If f
  // throws, the process ends as it does for every goroutine. Done is not called
  // then, so no waiter continues with incomplete work. If no goroutine can be
  // started, Go panics and leaves the counter as it was.
  template <class F>
  void Go(F&& f);
  // Go(options, f) is Go(f) with options for the goroutine. Throws
  // std::bad_alloc if there is no memory to copy the name.
  //
  //   wg.Go(gump::GoOptions{.name = "flusher"}, [&] { Flush(log); });
  template <class F>
  void Go(const GoOptions& options, F&& f);

 private:
  friend class Latch;
  // state_:  | counter : 32, signed | in a bubble : 1 | waiters : 31 |
  static constexpr int kCounterShift = 32;
  static constexpr uint64_t kBubbled = uint64_t{1} << 31;
  static constexpr int32_t Counter(uint64_t state) {
    return static_cast<int32_t>(state >> kCounterShift);
  }
  static constexpr uint32_t Waiters(uint64_t state) {
    return static_cast<uint32_t>(state & 0x7fffffff);
  }

  // CountNow returns the counter. Acquire: pairs with the release in Add.
  [[nodiscard]] int32_t CountNow() const noexcept {
    return Counter(state_.load(rt::acquire));
  }
  class Start;
  template <class F>
  auto Counted(F&& f);

  void AddInBubble(int delta);
  void AddSlow(int delta, uint64_t state);
  void WaitSlow();
  void RunTask(void (*run)(void*), void* task);

  rt::Atomic<uint64_t> state_;
  rt::WaitList list_;
  rt::Atomic<uint32_t> bubble_;  // the bubble's id, if kBubbled is set
};

// Counted returns the function of a goroutine that this WaitGroup counts. The
// task is destroyed in place. A const member would be copied out, and the
// original would outlive Done.
template <class F>
inline auto WaitGroup::Counted(F&& f) {
  using Task = gump::internal::Disposable<std::decay_t<F>>;
  return [this, fn = Task(std::in_place, std::forward<F>(f))]() mutable {
    RunTask(
        [](void* p) {
          Task& task = *static_cast<Task*>(p);
          struct EndTask {
            Task& task;
            ~EndTask() { task.reset(); }
          } at_end{task};
          gump::internal::Invoke(*task);
        },
        &fn);
  };
}

// Start counts a goroutine that is about to be started, unless it ends before
// Started.
class WaitGroup::Start {
 public:
  explicit Start(WaitGroup* wg) : wg_(wg) { wg_->Add(1); }
  ~Start() {
    if (wg_ != nullptr) wg_->Done();
  }
  // From then on the goroutine calls Done, and the WaitGroup may be gone.
  void Started() { wg_ = nullptr; }

 private:
  WaitGroup* wg_;
};

template <class F>
inline void WaitGroup::Go(F&& f) {
  Start start(this);
  gump::go(Counted(std::forward<F>(f)));
  start.Started();
}

template <class F>
inline void WaitGroup::Go(const GoOptions& options, F&& f) {
  Start start(this);
  gump::go(options, Counted(std::forward<F>(f)));
  start.Started();
}

}  // namespace gump::sync

#pragma GCC visibility pop

#endif  // GUMP_SYNC_WAITGROUP_H_
