// A sync::Barrier lets a number of goroutines do their work in rounds: none
// begins a round before all have ended the one before.
//
//   sync::Barrier round(workers, [&]() noexcept { std::swap(now, next); });
//   for (int w = 0; w < workers; w++) {
//     wg.Go([&, w] {
//       for (int i = 0; i < rounds; i++) {
//         Compute(now, next, w);
//         round.arrive_and_wait();   // may park
//       }
//     });
//   }
//
// A Barrier is std::barrier for goroutines. In each phase it expects a number
// of arrivals. The arrival that is the last of its phase calls the completion
// function, if there is one, and then begins the next phase, which wakes those
// that wait for the old one. A goroutine that waits parks, and its thread runs
// other goroutines.
//
// A Barrier is never copied or moved. It may be destroyed as soon as every call
// of wait and arrive_and_wait has returned and no more calls follow, even while
// the arrival that released them has not returned yet.
//
// Memory ordering: what a goroutine did before it arrived happens before the
// completion function, and that happens before the return of every wait for the
// phase.
//
// The names are those of std::barrier.
#ifndef GUMP_SYNC_BARRIER_H_
#define GUMP_SYNC_BARRIER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "gump/sync/cond.h"
#include "gump/sync/mutex.h"

#pragma GCC visibility push(default)

namespace gump::internal {

// BarrierCounts is a Barrier without its completion function.
class BarrierCounts {
 public:
  struct Arrival {
    uint64_t phase;
    bool last;  // the caller runs the completion function, and then NextPhase
  };

  // Panics if `expected` is negative.
  explicit BarrierCounts(ptrdiff_t expected);

  // Arrive counts n arrivals in this phase, and lowers by `dropped` the number
  // that the later ones expect. Panics if n is not positive or above the number
  // that this phase still expects. Never parks for long.
  Arrival Arrive(ptrdiff_t n, ptrdiff_t dropped);
  // NextPhase begins the next phase and wakes those that wait for this one.
  void NextPhase();
  // Await parks until `phase` is over.
  void Await(uint64_t phase);

 private:
  sync::Mutex mu_;  // guards the rest
  sync::Cond over_{mu_};
  ptrdiff_t expected_;  // by each of the later phases
  ptrdiff_t pending_;   // by this one; 0 while the completion function runs
  uint64_t phase_ = 0;
};

struct NoCompletion {
  void operator()() const noexcept {}
};

}  // namespace gump::internal

namespace gump::sync {

// Barrier is the meeting point described above. All functions may be called
// from goroutines and from plain threads.
template <class Completion = internal::NoCompletion>
class Barrier {
 public:
  static_assert(std::is_nothrow_invocable_v<Completion&>,
                "gump::sync::Barrier: the completion function is noexcept and "
                "has no parameters, as that of std::barrier");

  // arrival_token says for which phase to wait.
  class arrival_token {
   private:
    friend class Barrier;
    explicit arrival_token(uint64_t phase) noexcept : phase_(phase) {}
    uint64_t phase_;
  };

  // Makes a Barrier whose phases expect `expected` arrivals each. Panics if
  // that is negative.
  explicit Barrier(ptrdiff_t expected, Completion f = Completion())
      : counts_(expected), completion_(std::move(f)) {}
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  // max returns the largest number of arrivals that a phase can expect.
  static constexpr ptrdiff_t max() noexcept {
    return std::numeric_limits<ptrdiff_t>::max();
  }

  // arrive counts n arrivals in this phase and returns a token for it. The last
  // arrival of a phase calls the completion function, which must not call
  // functions of this Barrier. Parks only if the completion function does.
  // Panics if n is not positive or above the number of arrivals that the phase
  // still expects.
  [[nodiscard]] arrival_token arrive(ptrdiff_t n = 1) {
    return Arrive(n, /*dropped=*/0);
  }
  // wait parks until the phase of the token is over. Requires: the token is
  // from this Barrier.
  void wait(arrival_token&& token) { counts_.Await(token.phase_); }
  // arrive_and_wait is wait(arrive()).
  void arrive_and_wait() { wait(arrive()); }
  // arrive_and_drop is arrive(), and each later phase expects one arrival less.
  void arrive_and_drop() { (void)Arrive(1, /*dropped=*/1); }

 private:
  arrival_token Arrive(ptrdiff_t n, ptrdiff_t dropped) {
    const auto arrival = counts_.Arrive(n, dropped);
    if (arrival.last) {
      completion_();
      counts_.NextPhase();
    }
    return arrival_token(arrival.phase);
  }

  internal::BarrierCounts counts_;
  [[no_unique_address]] Completion completion_;
};

}  // namespace gump::sync

#pragma GCC visibility pop

#endif  // GUMP_SYNC_BARRIER_H_
