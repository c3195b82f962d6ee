// What stress tests share beside testing/stress.h: random numbers of Ps, and a
// fixture that runs until its time is over.
#ifndef TESTS_STRESS_STRESS_TESTING_H_
#define TESTS_STRESS_STRESS_TESTING_H_

#include <chrono>
#include <cstdint>
#include <iterator>
#include <thread>

#include "gump/internal/linkname_sync.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {

// RandomProcs sets GOMAXPROCS to one of a few values and returns it.
inline int RandomProcs(Rng& rng) {
  constexpr int kProcs[] = {1, 2, 3, 4, 8};
  const int n = kProcs[rng.Below(std::size(kProcs))];
  runtime::GOMAXPROCS(n);
  return n;
}

// InGoroutines calls f(rng) in n goroutines, each with an Rng of its own, and
// returns when all have returned.
template <class F>
void InGoroutines(Rng& rng, int n, const F& f) {
  sync::WaitGroup wg;
  for (int i = 0; i < n; i++) {
    wg.Go([&f, seed = rng.Next()] {
      Rng own(seed);
      f(own);
    });
  }
  wg.Wait();
}

// TimedStress is for tests that repeat their load until Over. Each case has a
// seed of its own.
class TimedStress : public WithGomaxprocs {
 protected:
  bool Over() const { return std::chrono::steady_clock::now() >= end_; }

  // Pause lets others run now and then: goroutines, threads, or other cores.
  static void Pause(Rng& rng) {
    const uint64_t r = rng.Below(16);
    if (r == 0) runtime::Gosched();
    if (r == 1) std::this_thread::yield();
    if (r == 2) rt::doSpin();
  }

  const uint64_t seed_ = StressSeed();

 private:
  const std::chrono::steady_clock::time_point end_ =
      std::chrono::steady_clock::now() + StressTime();
};

}  // namespace gump::testing

#endif  // TESTS_STRESS_STRESS_TESTING_H_
