// Helpers for tests of preemption.
#ifndef TESTS_SCHED_PREEMPT_TESTING_H_
#define TESTS_SCHED_PREEMPT_TESTING_H_

#include <atomic>

#include "gump/runtime.h"
#include "gump/sync.h"

namespace gump::testing {

// Begun counts goroutines that are about to do their part.
class Begun {
 public:
  void Count() { n_++; }
  void Wait(int n) {
    while (n_ < n) runtime::Gosched();
  }

 private:
  std::atomic<int> n_ = 0;
};

// ComputeBesideOthers makes more goroutines compute than there are Ps, and
// returns whether all of them have had a turn.
inline bool ComputeBesideOthers() {
  std::atomic<int> turns = 0;
  sync::WaitGroup wg;
  for (int i = 0; i < 4; i++) {
    wg.Go([&] {
      turns++;
      while (turns < 4) {
      }
    });
  }
  wg.Wait();
  return turns == 4;
}

}  // namespace gump::testing

#endif  // TESTS_SCHED_PREEMPT_TESTING_H_
