// The corpus of goroutineleak_test.cc: programs that leak goroutines.
//
// Go's corpus (runtime/testdata/testgoroutineleakprofile) has small programs,
// common patterns, and reductions of leaks that real projects had ("goker").
// The programs here have the same mistakes, in their own words, and without
// chance: every run leaks the same goroutines, and no others stay.
#ifndef TESTS_GOTEST_LEAK_PROGRAMS_H_
#define TESTS_GOTEST_LEAK_PROGRAMS_H_

#include <cstdint>

#include "absl/types/span.h"

namespace gump::gotest {

struct LeakProgram {
  const char* name;
  void (*run)();  // in a goroutine
  int64_t leaks;  // how many goroutines
};

// SmallLeaks are the small programs and the common patterns, ProjectLeaks those
// of real projects.
absl::Span<const LeakProgram> SmallLeaks();
absl::Span<const LeakProgram> ProjectLeaks();

}  // namespace gump::gotest

#endif  // TESTS_GOTEST_LEAK_PROGRAMS_H_
