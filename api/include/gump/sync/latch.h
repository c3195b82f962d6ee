// A sync::Latch lets goroutines wait until a number of things have happened.
//
//   sync::Latch loaded(2);
//   go([&] { LoadUsers(); loaded.count_down(); });
//   go([&] { LoadPrices(); loaded.count_down(); });
//   loaded.wait();   // both are loaded; may park
//
// A Latch is std::latch for goroutines: a counter that only falls. A goroutine
// that waits parks, and its thread runs other goroutines. When the counter is
// zero, the Latch is open and stays open. To wait for goroutines to end, a
// WaitGroup is simpler. For rounds, see Barrier.
//
// A Latch is never copied or moved. It may be destroyed as soon as every wait
// has returned, even while the count_down that opened it has not returned yet.
//
// Memory ordering: a count_down happens before the return of every wait, and
// of every try_wait that returns true.
//
// The names are those of std::latch. The counter is that of WaitGroup.
#ifndef GUMP_SYNC_LATCH_H_
#define GUMP_SYNC_LATCH_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "gump/sync/waitgroup.h"

#pragma GCC visibility push(default)

namespace gump::sync {

// Latch is the counter described above. All functions may be called from
// goroutines and from plain threads.
class Latch {
 public:
  // Makes a Latch that opens when count_down has been called for `expected`
  // things. If that is 0, it is open. Panics if it is negative or above max().
  explicit Latch(ptrdiff_t expected);
  Latch(const Latch&) = delete;
  Latch& operator=(const Latch&) = delete;

  // max returns the largest number that a Latch can count.
  static constexpr ptrdiff_t max() noexcept {
    return std::numeric_limits<int32_t>::max();
  }

  // count_down lowers the counter by n. If it becomes zero, count_down wakes
  // all that wait. Never parks. Panics if n is negative or above the counter.
  void count_down(ptrdiff_t n = 1);
  // try_wait returns whether the counter is zero. Never parks, and never
  // returns false for an open Latch.
  [[nodiscard]] bool try_wait() const noexcept {
    return count_.CountNow() == 0;
  }
  // wait parks until the counter is zero.
  void wait() { count_.Wait(); }
  // arrive_and_wait is count_down(n), and then wait().
  void arrive_and_wait(ptrdiff_t n = 1) {
    count_down(n);
    wait();
  }

 private:
  WaitGroup count_;
};

}  // namespace gump::sync

#pragma GCC visibility pop

#endif  // GUMP_SYNC_LATCH_H_
