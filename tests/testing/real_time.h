// Whether a test may use real-time threads.
#ifndef TESTS_TESTING_REAL_TIME_H_
#define TESTS_TESTING_REAL_TIME_H_

#include <sched.h>

#include <thread>

namespace gump::testing {

// MayBeRealTime returns true if a thread of this process may have the highest
// priority of a real-time class.
inline bool MayBeRealTime() {
  bool may = false;
  std::thread([&] {
    sched_param p = {};
    p.sched_priority = sched_get_priority_max(SCHED_RR);
    may = sched_setscheduler(0, SCHED_RR, &p) == 0;
  }).join();
  return may;
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_REAL_TIME_H_
