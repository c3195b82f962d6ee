// Goroutines that wait while they are on a stack of the program's own: a
// coroutine, say, that is made with ucontext.
#include <gtest/gtest.h>
#include <ucontext.h>

#include <cstdlib>

#include "gump/chan.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/proc.h"
#include "runtime/sanitizer.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

ucontext_t self;
ucontext_t caller;
alignas(16) char stack[256 << 10];

// OnOtherStack calls f on a stack that is not the goroutine's.
void OnOtherStack(void (*f)()) {
  if (getcontext(&self) != 0) std::abort();
  self.uc_stack.ss_sp = stack;
  self.uc_stack.ss_size = sizeof(stack);
  self.uc_link = &caller;
  makecontext(&self, f, 0);
  if (swapcontext(&caller, &self) != 0) std::abort();
}

// WaitsOnOtherStack does so with f, while another goroutine could run instead.
void WaitsOnOtherStack(int gomaxprocs, void (*f)()) {
  testing::RunWith(gomaxprocs, [f] {
    sync::WaitGroup wg;
    wg.Go([] {
      for (int i = 0; i < 1000; i++) runtime::Gosched();
    });
    runtime::Gosched();
    OnOtherStack(f);
    wg.Wait();
  });
  std::_Exit(0);
}

class OtherStackDeathTest : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  void SetUp() override {
    if (rt::kSanitizerBuild) GTEST_SKIP() << "they do not know that stack";
  }
};

constexpr const char kText[] =
    "^fatal error: park: sp outside of the goroutine's stack\n";

TEST_P(OtherStackDeathTest, YieldIsFatal) {
  EXPECT_EXIT(WaitsOnOtherStack(
                  GetParam(), +[] { runtime::Gosched(); }),
              ::testing::ExitedWithCode(2), kText);
}

TEST_P(OtherStackDeathTest, ReceiveIsFatal) {
  EXPECT_EXIT(WaitsOnOtherStack(
                  GetParam(), +[] { make_chan<int>().Recv(); }),
              ::testing::ExitedWithCode(2), kText);
}

TEST_P(OtherStackDeathTest, WhatDoesNotWaitIsNot) {
  EXPECT_EXIT(WaitsOnOtherStack(
                  GetParam(), +[] { make_chan<int>(1).Send(1); }),
              ::testing::ExitedWithCode(0), "^$");
}

// It has had its turn, and others wait; which is to be said to it by a signal.
TEST_P(OtherStackDeathTest, WhoIsToYieldDoesNotAtAnEntry) {
  EXPECT_EXIT(WaitsOnOtherStack(
                  GetParam(),
                  +[] {
                    rt::getg()->preempt.store(true, rt::relaxed);
                    make_chan<int>(1).Send(1);
                  }),
              ::testing::ExitedWithCode(0), "^$");
}

INSTANTIATE_TEST_SUITE_P(Procs, OtherStackDeathTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace gump
