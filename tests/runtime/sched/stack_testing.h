// A fixture for tests of stacks, which come from one allocator per process.
#ifndef TESTS_RUNTIME_SCHED_STACK_TESTING_H_
#define TESTS_RUNTIME_SCHED_STACK_TESTING_H_

#include "gtest/gtest.h"
#include "runtime/diag/debugvars.h"
#include "runtime/sched/stack.h"

namespace gump::testing {

class StackTest : public ::testing::Test {
 protected:
  // The library warns only once in a process, so death tests begin a new one.
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  void SetUp() override {
    rt::stackinit();
    rt::debug.stackguardStrict = 0;
    rt::stackReclaim();  // the stacks that other tests have left
  }
  void TearDown() override {
    rt::debug.stackguardStrict = 0;
    rt::stackinit();
  }
};

}  // namespace gump::testing

#endif  // TESTS_RUNTIME_SCHED_STACK_TESTING_H_
