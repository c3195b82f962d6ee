// A goroutine that sleeps in the kernel in an undeclared call holds up no
// other, however many sleep, and even where there are no threads for them all.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "tests/sched/preempt_testing.h"
#include "tests/testing/talk.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Begun;
using testing::ComputeBesideOthers;
using testing::Eventually;
using testing::Talk;

using PreemptTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(PreemptTest);

// There are many more raw calls that block than Ps, and one of them reads
// standard input. They hold up no other goroutine, none of them is interrupted,
// and each gets the data that it waited for.
TEST_P(PreemptTest, BlockedReadsHoldUpNoGoroutine) {
  gump::Run([] {
    constexpr int kReaders = 20;
    const int saved = dup(STDIN_FILENO);
    ASSERT_GE(saved, 0);
    int fds[kReaders][2];
    std::atomic<int> done = 0;
    Begun begun;
    sync::WaitGroup wg;
    for (int i = 0; i < kReaders; i++) {
      ASSERT_EQ(pipe(fds[i]), 0);
      int fd = fds[i][0];
      if (i == 0) fd = dup2(fd, STDIN_FILENO);
      wg.Go([&, i, fd] {
        begun.Count();
        char c = 0;
        EXPECT_EQ(read(fd, &c, 1), 1) << errno;
        EXPECT_EQ(c, 'a' + i);
        done++;
      });
    }
    begun.Wait(kReaders);
    Talk(100);
    EXPECT_EQ(done, 0);
    for (int i = 0; i < kReaders; i++) {
      const char c = static_cast<char>('a' + i);
      EXPECT_EQ(write(fds[i][1], &c, 1), 1);
    }
    wg.Wait();
    dup2(saved, STDIN_FILENO);
    close(saved);
    for (auto& fd : fds) {
      close(fd[0]);
      close(fd[1]);
    }
  });
}

// A signal would cut these calls short, with or without SA_RESTART. One may
// meet a thread on its way into the kernel's sleep, where it looks like a
// thread that computes. That was so in one of some thousand sleeps.
TEST_P(PreemptTest, HardlyAnySleepIsCutShort) {
  gump::Run([] {
    sync::WaitGroup wg;
    std::atomic<int> cut = 0;
    for (int i = 0; i < 8; i++) {
      wg.Go([&cut] {
        for (int k = 0; k < 4; k++) {
          timespec t = {0, 25'000'000};
          if (nanosleep(&t, nullptr) != 0) cut++;
        }
      });
    }
    wg.Go([] { Talk(1000); });
    wg.Wait();
    EXPECT_LE(cut, 3);  // of 32
  });
}

TEST_P(PreemptTest, OtherWaysToBlockHoldUpNoGoroutine) {
  gump::Run([] {
    sync::WaitGroup wg;
    const std::string path =
        ::testing::TempDir() + "/gump_preempt_" + std::to_string(getpid());
    const int held = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    ASSERT_GE(held, 0);
    ASSERT_EQ(flock(held, LOCK_EX), 0);
    Begun begun;
    wg.Go([&] {
      begun.Count();
      const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
      EXPECT_EQ(flock(fd, LOCK_EX), 0) << errno;
      close(fd);
    });
    // This goroutine blocks in pthread_join, until a thread of the program
    // ends.
    std::atomic<bool> release = false;
    wg.Go([&] {
      begun.Count();
      std::thread t([&] { release.wait(false); });
      t.join();
    });
    begun.Wait(2);
    Talk(100);
    release = true;
    release.notify_one();
    EXPECT_EQ(flock(held, LOCK_UN), 0);
    wg.Wait();
    close(held);
    unlink(path.c_str());
  });
}

// The holder of a lock of the program is bound to its thread and takes the lock
// along when it parks. Goroutines that want the lock block their threads, and
// hold up no other goroutine.
TEST_P(PreemptTest, MutexHeldAcrossAParkHoldsUpItsWaitersOnly) {
  gump::Run([] {
    constexpr int kWanting = 8;
    std::mutex mu;
    int taken = 0;
    auto release = make_chan<void>();
    auto holds = make_chan<void>();
    sync::WaitGroup wg;
    wg.Go([&] {
      runtime::LockOSThread();
      {
        const std::lock_guard<std::mutex> hold(mu);
        holds.Send();
        release.Recv();
      }
      runtime::UnlockOSThread();
    });
    holds.Recv();
    Begun begun;
    for (int i = 0; i < kWanting; i++) {
      wg.Go([&] {
        begun.Count();
        const std::lock_guard<std::mutex> hold(mu);
        taken++;
      });
    }
    begun.Wait(kWanting);
    Talk(100);
    runtime::GC();
    release.Send();
    wg.Wait();
    EXPECT_EQ(taken, kWanting);
  });
}

// A goroutine that lost its P while it slept computes without one until it is
// caught. It must not keep a processor beside the Ps for ever.
TEST_P(PreemptTest, SleeperThatWakesAsAHogIsCaught) {
#if defined(GUMP_TSAN)
  GTEST_SKIP() << "never calls libc";
#endif
  Run([] {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    std::atomic<bool> stop = false;
    Begun begun;
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([&] {
        char c;
        EXPECT_EQ(read(fds[0], &c, 1), 1) << errno;
        begun.Count();
        while (!stop.load(std::memory_order_relaxed)) {
        }
      });
    }
    const auto lost = [] {
      return rt::sched.npresumed.load(rt::relaxed);  // a count
    };
    EXPECT_TRUE(testing::Eventually([&] { return lost() == 4; }));
    EXPECT_EQ(write(fds[1], "wake", 4), 4);
    begun.Wait(4);
    EXPECT_TRUE(testing::Eventually([&] { return lost() == 0; }));
    Talk(5);
    stop = true;
    wg.Wait();
    close(fds[0]);
    close(fds[1]);
  });
}

// More goroutines block than there may be threads. At the limit, sleepers keep
// their Ps and other goroutines have to wait, but the process does not die.
TEST(PreemptLimitTest, SleepersBeyondTheThreadLimitWait) {
  testing::RunWith(2, [] {
    const int limit = debug::SetMaxThreads(64);
    sync::WaitGroup wg;
    for (int i = 0; i < 500; i++) wg.Go([] { usleep(20'000); });
    wg.Wait();
    EXPECT_LE(debug::ReadSchedStats().threads, 64);
    runtime::GC();
    debug::SetMaxThreads(limit);
  });
}

// SleepThenCompute starts more goroutines that sleep in the kernel than this
// user may have threads. Then it starts more goroutines that compute than there
// are Ps. Returns false if it could not set the limit, or if a goroutine did
// not wake up.
bool SleepThenCompute() {
  // The user of this process has no other threads, which would count for the
  // limit, such as those of another such test. And root has no limit.
  const uid_t alone = 640'000'000 + static_cast<uid_t>(getpid());
  const rlimit limit = {32, 32};
  if (setrlimit(RLIMIT_NPROC, &limit) != 0 ||
      setresuid(alone, alone, alone) != 0) {
    return false;
  }
  // The sleep is so long that even a slow machine reaches the limit before the
  // first sleeper wakes up.
  constexpr int kSleepers = 64;
  constexpr int kSleep = 1'000'000'000;  // ns
  bool all = false;
  testing::RunWith(2, [&] {
    std::atomic<int> woken = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < kSleepers; i++) {
      wg.Go([&] {
        // A signal may cut it short, where there is no membarrier.
        const int64_t end = rt::nanotime() + kSleep;
        while (rt::nanotime() < end) usleep(100'000);
        woken++;
      });
    }
    wg.Wait();
    all = woken == kSleepers && ComputeBesideOthers();
  });
  return all;
}

// Here the kernel, not the runtime, refuses more threads.
TEST(PreemptLimitDeathTest, SleepersBeyondTheProcessLimitWait) {
  if (geteuid() != 0) GTEST_SKIP() << "needs a user of its own";
  if (rt::kSanitizerBuild) GTEST_SKIP() << "sanitizers start threads, too";
  EXPECT_EXIT(std::exit(SleepThenCompute() ? 7 : 1),
              ::testing::ExitedWithCode(7), "failed to create new OS thread");
}

}  // namespace
}  // namespace gump
