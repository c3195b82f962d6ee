// Helpers for tests of groups.
#ifndef TESTS_SCHED_GROUP_TESTING_H_
#define TESTS_SCHED_GROUP_TESTING_H_

#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/time/time.h"
#include "gump/time.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/base.h"

namespace gump::testing {

// EventuallyIdle is Eventually for goroutines that compute. It sleeps between
// looks, and so its P is free to take one of them. One that yields gets its own
// P again at once. Then two goroutines of a group of one may share another P
// for good, each with the slot in its turn: where nothing preempts a loop
// without calls (ThreadSanitizer), or if the other P is of another node.
template <class C>
bool EventuallyIdle(C&& condition) {
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    time::Sleep(absl::Milliseconds(1));
  }
  return true;
}

// Crowd counts how many goroutines of a group run at the same time, and how
// often there were more than allowed.
class Crowd {
 public:
  explicit Crowd(int allowed) : allowed_(allowed) {}

  // Visit is called by a goroutine of the group. Between acquirem and releasem
  // the goroutine keeps its P, so it is not preempted, and certainly runs.
  void Visit(int spins = 100) {
    rt::M* mp = rt::acquirem();
    const int before = allowed_.load();
    const int n = inside_.fetch_add(1) + 1;
    const int after = allowed_.load();
    if (n > before && n > after) tooMany_++;
    for (int most = most_.load(); n > most;) {
      if (most_.compare_exchange_weak(most, n)) break;
    }
    for (int i = 0; i < spins; i++) rt::procyield(1);
    inside_.fetch_sub(1);
    rt::releasem(mp);
    visits_++;
  }

  void Allow(int n) { allowed_ = n; }
  int most() const { return most_; }
  int tooMany() const { return tooMany_; }
  int64_t visits() const { return visits_; }

 private:
  std::atomic<int> allowed_;
  std::atomic<int> inside_ = 0;
  std::atomic<int> most_ = 0;
  std::atomic<int> tooMany_ = 0;
  std::atomic<int64_t> visits_ = 0;
};

}  // namespace gump::testing

#endif  // TESTS_SCHED_GROUP_TESTING_H_
