// threadState on threads that sleep in unusual ways.
#include "runtime/sys/threadstate_linux.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "runtime/sched/rt0.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::rt {
namespace {

TEST(ThreadStateTest, AParentThatWaitsForItsVforkChildSleeps) {
  if (kSanitizerBuild) GTEST_SKIP() << "vfork is fork";
  schedinit();
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  std::atomic<int32_t> tid = 0;
  std::thread parent([&] {
    tid = gettid();
    if (vfork() == 0) {
      char c;
      (void)!read(fds[0], &c, 1);
      _exit(0);
    }
  });
  EXPECT_TRUE(testing::Eventually([&] {
    uint64_t sleeps;
    return tid != 0 && threadState(tid, &sleeps) == ThreadState::kAsleep;
  }));
  EXPECT_EQ(write(fds[1], "", 1), 1);
  parent.join();
  close(fds[0]);
  close(fds[1]);
}

}  // namespace
}  // namespace gump::rt
