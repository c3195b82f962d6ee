// threadState on threads that sleep in unusual ways.
#include "runtime/sys/threadstate_linux.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

#include "runtime/sched/rt0.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/deny_calls.h"
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

// The path is gone, as after a chroot. The descriptor of /proc/self/task is
// left.
TEST(ThreadStateDeathTest, DescriptorServesWhereThePathIsGone) {
  using testing::DenyCalls;
  if (!DenyCalls::Possible()) GTEST_SKIP() << "no seccomp";
  EXPECT_EXIT(
      {
        schedinit();
        const bool denied =
            DenyCalls()
                .When(SYS_openat, DenyCalls::If::kEqual, AT_FDCWD, ENOENT)
                .When(SYS_newfstatat, DenyCalls::If::kEqual, AT_FDCWD, ENOENT)
                .ForAllThreads();
        uint64_t sleeps;
        if (!denied) std::_Exit(1);
        if (open("/proc/self/task", O_RDONLY) >= 0) std::_Exit(2);
        if (threadState(gettid(), &sleeps) != ThreadState::kRunning) {
          std::_Exit(3);
        }
        if (threadCount() < 2) std::_Exit(4);  // this one, sysmon, ...
        std::_Exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

// The texts of several kernels, as far as they matter.
TEST(ThreadStateTest, StatusTellsTheStateOfItsOwnThreadOnly) {
  constexpr int32_t kTid = 42;
  constexpr const char* kCount = "voluntary_ctxt_switches:\t17\n";
  struct Case {
    std::string text;
    ThreadState want;
  };
  const Case cases[] = {
      {std::string("State:\tR (running)\nNSpid:\t42\n") + kCount,
       ThreadState::kRunning},
      {std::string("State:\tS (sleeping)\nNSpid:\t42\n") + kCount,
       ThreadState::kAsleep},
      {std::string("State:\tD (disk sleep)\nNSpid:\t42\n") + kCount,
       ThreadState::kAsleep},
      {std::string("State:\tt (tracing stop)\nNSpid:\t42\n") + kCount,
       ThreadState::kUnknown},
      // Seen from the namespace of an ancestor.
      {std::string("State:\tS (sleeping)\nNSpid:\t9001\t77\t42\n") + kCount,
       ThreadState::kAsleep},
      {std::string("State:\tS (sleeping)\nNSpid:\t42\t77\n") + kCount,
       ThreadState::kUnseen},
      // Linux before 4.1 has no NSpid.
      {std::string("State:\tS (sleeping)\nPid:\t42\n") + kCount,
       ThreadState::kAsleep},
      // gVisor does not count sleeps.
      {"State:\tS (sleeping)\n", ThreadState::kAsleep},
      {"State:\tR (running)\n", ThreadState::kUnseen},
      {kCount, ThreadState::kUnseen},
      {"", ThreadState::kUnseen},
  };
  for (const Case& c : cases) {
    uint64_t sleeps = 0;
    EXPECT_EQ(parseThreadStatus(c.text.c_str(), kTid, &sleeps), c.want)
        << c.text;
    if (c.want == ThreadState::kRunning) {
      EXPECT_EQ(sleeps, 17u);
    }
  }
}

TEST(ThreadStateTest, ThreadIsConfinedHere_IfItMayUseOnlyThisProcessor) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  std::atomic<int32_t> tid = 0;
  std::atomic<bool> over = false;
  std::thread other([&] {
    tid = gettid();
    over.wait(false);
  });
  ASSERT_TRUE(testing::Eventually([&] { return tid != 0; }));
  EXPECT_EQ(isConfinedHere(tid), CPU_COUNT(&all) == 1);
  for (int here = 0; here < CPU_SETSIZE; here++) {
    if (!CPU_ISSET(here, &all)) continue;
    const auto confine = [](int32_t thread, int processor) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(processor, &one);
      EXPECT_EQ(sched_setaffinity(thread, sizeof(one), &one), 0);
    };
    confine(0, here);
    for (int there = 0; there < CPU_SETSIZE; there++) {
      if (!CPU_ISSET(there, &all)) continue;
      confine(tid, there);
      EXPECT_EQ(isConfinedHere(tid), here == there);
    }
  }
  for (const int32_t thread : {0, tid.load()}) {
    EXPECT_EQ(sched_setaffinity(thread, sizeof(all), &all), 0);
  }
  EXPECT_EQ(isConfinedHere(tid), CPU_COUNT(&all) == 1);
  over = true;
  over.notify_all();
  other.join();
  EXPECT_FALSE(isConfinedHere(-1));
}

}  // namespace
}  // namespace gump::rt
