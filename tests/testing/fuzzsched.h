// Tests that see the order in which goroutines run must know when the
// scheduler shuffles it (GODEBUG fuzzsched, runtime/diag/fuzzsched.h).
#ifndef TESTS_TESTING_FUZZSCHED_H_
#define TESTS_TESTING_FUZZSCHED_H_

#include "runtime/diag/debugvars.h"
#include "runtime/sched/rt0.h"

namespace gump::testing {

inline bool FuzzSched() {
  rt::schedinit();
  return rt::debug.fuzzsched != 0;
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_FUZZSCHED_H_
