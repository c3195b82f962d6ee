// sync::WaitGroup: waits for a number of goroutines to finish.
//
//   sync::WaitGroup wg;
//   for (const std::string& url : urls) {
//     wg.Go([&url] { Fetch(url); });
//   }
//   wg.Wait();   // all have returned; may park
//
// A counter: Add raises it, Done lowers it by one, Wait waits until it is zero.
// Never copied or moved; the zero value is ready; sixteen bytes. It may be
// destroyed as soon as every Wait has returned, while the Done that let them go
// is still on its way out.
//
// An Add that raises the counter from zero must happen before the Wait that is
// to see it. A WaitGroup that is used again must not be until every Wait of the
// last round has returned. Offences that are noticed are panics:
//   "sync: negative WaitGroup counter"
//   "sync: WaitGroup misuse: Add called concurrently with Wait"
//   "sync: WaitGroup is reused before previous Wait has returned"
//
// Raised from zero in a bubble of synctest, it belongs to that bubble until it
// is zero again. To use it from elsewhere meanwhile is a fatal error:
//   "sync: WaitGroup.Add called from inside and outside synctest bubble"
//   "sync: WaitGroup.Add called from multiple synctest bubbles"
//
// Memory ordering: a Done happens before the return of every Wait it lets go.
//
// The algorithm is that of Go's sync.WaitGroup; see api/waitgroup.cc.
#ifndef GUMP_WAITGROUP_H_
#define GUMP_WAITGROUP_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "gump/go.h"
#include "gump/internal/linkname.h"

namespace gump::sync {

// WaitGroup is the counter described above. All functions may be called from
// goroutines and from plain threads.
class WaitGroup {
 public:
  constexpr WaitGroup() noexcept = default;
  WaitGroup(const WaitGroup&) = delete;
  WaitGroup& operator=(const WaitGroup&) = delete;

  // Add changes the counter by delta, which may be negative. Never parks.
  // Panics as said above.
  void Add(int delta) {
    // Relaxed: see nbubbles.
    if (rt::nbubbles.load(rt::relaxed) != 0) [[unlikely]] {
      AddInBubble(delta);
    }
    // Acq_rel: release pairs with the acquire in Wait; the last Done also
    // acquires, so that it passes on what the others released.
    const uint64_t state = state_.add(
        static_cast<uint64_t>(static_cast<int64_t>(delta)) << kCounterShift,
        rt::acq_rel);
    // Waiters, or of a bubble.
    if (Counter(state) < 0 || static_cast<uint32_t>(state) != 0) [[unlikely]] {
      AddSlow(delta, state);
    }
  }
  // Done is Add(-1).
  void Done() { Add(-1); }

  // Wait waits until the counter is zero. Parks. Panics as said above.
  void Wait() {
    // Acquire: pairs with the release in Add.
    if (state_.load(rt::acquire) != 0) WaitSlow();
  }

  // Go runs f() in a new goroutine and counts it until it is done: Add(1), and
  // Done when f has returned or left by Goexit. f and what it holds are
  // destroyed before Done. If f throws, the process ends as it does for every
  // goroutine, without Done, so that nobody goes on with half of the work.
  // Panics if no goroutine can be started; the counter is as before then.
  template <class F>
  void Go(F&& f) {
    Add(1);
    try {
      // Destroyed in place: a const member would be copied out, and the
      // original outlive Done.
      using Task = std::optional<std::decay_t<F>>;
      gump::go([this, fn = Task(std::in_place, std::forward<F>(f))]() mutable {
        RunTask(
            [](void* p) {
              Task& task = *static_cast<Task*>(p);
              struct EndTask {
                Task& task;
                ~EndTask() { task.reset(); }
              } at_end{task};
              std::invoke(*task);
            },
            &fn);
      });
    } catch (...) {
      Done();
      throw;
    }
  }

 private:
  // state_:  | counter : 32, signed | of a bubble : 1 | waiters : 31 |
  static constexpr int kCounterShift = 32;
  static constexpr uint64_t kBubbled = uint64_t{1} << 31;
  static constexpr int32_t Counter(uint64_t state) {
    return static_cast<int32_t>(state >> kCounterShift);
  }
  static constexpr uint32_t Waiters(uint64_t state) {
    return static_cast<uint32_t>(state & 0x7fffffff);
  }

  void AddInBubble(int delta);
  void AddSlow(int delta, uint64_t state);
  void WaitSlow();
  void RunTask(void (*run)(void*), void* task);

  rt::Atomic<uint64_t> state_;
  rt::Atomic<uint32_t> sema_;
  rt::Atomic<uint32_t> bubble_;  // which, if kBubbled
};

}  // namespace gump::sync

#endif  // GUMP_WAITGROUP_H_
