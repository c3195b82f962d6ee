// A program in a real-time class, or with a high niceness, goes on while its
// goroutines compute on every processor that it may use: timers fire, sockets
// wake goroutines, goroutines that compute are preempted, the world stops.
//
// Most of the programs use one processor, so a machine with two stays usable. A
// real-time thread that computes for a second without a pause ends the process
// (RLIMIT_RTTIME).
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/net.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/real_time.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::MayBeRealTime;

constexpr int kPriority = 10;

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "failed: %s, errno %d\n", why.c_str(), errno);
  std::_Exit(1);
}

bool SetClass(int policy, int priority) {
  sched_param p = {};
  p.sched_priority = priority;
  return sched_setscheduler(0, policy, &p) == 0;
}

// Confine confines the process to n processors, and ends it after a minute, or
// when a real-time thread computes for a second without a pause.
void Confine(int n) {
  cpu_set_t all;
  cpu_set_t some;
  CPU_ZERO(&some);
  if (sched_getaffinity(0, sizeof(all), &all) != 0) Fail("getaffinity");
  for (int i = CPU_SETSIZE - 1; i >= 0 && CPU_COUNT(&some) < n; i--) {
    if (CPU_ISSET(i, &all)) CPU_SET(i, &some);
  }
  if (sched_setaffinity(0, sizeof(some), &some) != 0) Fail("setaffinity");
  const rlimit limit = {1'000'000, 1'000'000};
  if (setrlimit(RLIMIT_RTTIME, &limit) != 0) Fail("setrlimit");
  alarm(60);
}

void CheckClass(int policy, int priority, const char* where) {
  sched_param p = {};
  sched_getparam(0, &p);
  if (sched_getscheduler(0) != policy || p.sched_priority != priority) {
    Fail(std::string("another class or priority: ") + where);
  }
}

// Echo sends bytes over a connection, one at a time, and gets them back.
void Echo(int bytes) {
  sync::WaitGroup wg;
  auto l = net::Listen("tcp", "127.0.0.1:0");
  if (!l.ok()) Fail("Listen");
  wg.Go([&] {
    auto c = l->Accept();
    if (!c.ok()) Fail("Accept");
    char b[1];
    for (;;) {
      const auto n = c->Read(b);
      if (!n.ok() || *n == 0) return;  // closed
      if (!c->Write(std::string_view(b, 1)).ok()) Fail("Write");
    }
  });
  auto c = net::Dial("tcp", l->LocalAddr().String());
  if (!c.ok()) Fail("Dial");
  char b[1];
  for (int i = 0; i < bytes; i++) {
    if (!c->Write("x").ok() || !c->Read(b).ok()) Fail("Echo");
  }
  c->Close().IgnoreError();
  wg.Wait();
}

// GoOnWhileGoroutinesCompute is the program. `procs` is its GOMAXPROCS. All its
// goroutines have this class.
[[noreturn]] void GoOnWhileGoroutinesCompute(int procs, int policy,
                                             int priority) {
  testing::RunWith(procs, [=] {
    std::atomic<bool> stop = false;
    std::atomic<int> begun = 0;
    sync::WaitGroup wg;
    const int computing = procs + 1;
    for (int i = 0; i < computing; i++) {
      wg.Go([&] {
        CheckClass(policy, priority, "a goroutine");
        begun++;
        while (!stop) {
        }
      });
    }
    // Each has had a turn, so they are preempted for each other.
    while (begun < computing) time::Sleep(absl::Milliseconds(1));
    for (int i = 0; i < 5; i++) time::Sleep(absl::Milliseconds(1));
    Echo(3);
    for (int i = 0; i < 3; i++) {
      if (runtime::Stack(true).empty()) Fail("Stack");
      CheckClass(policy, priority, "after a stop of the world");
    }
    // New threads.
    sync::WaitGroup sleepers;
    for (int i = 0; i < 4; i++) {
      sleepers.Go([=] {
        blocking([] { usleep(1000); });
        CheckClass(policy, priority, "a new thread");
      });
    }
    sleepers.Wait();
    stop = true;
    wg.Wait();
    std::_Exit(7);
  });
  Fail("Run returned");
}

class PriorityDeathTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (rt::kSanitizerBuild) GTEST_SKIP() << "sanitizers have threads, too";
  }
};
INSTANTIATE_TEST_SUITE_P(, PriorityDeathTest, ::testing::Values(1, 2, 4),
                         testing::GomaxprocsName);

TEST_P(PriorityDeathTest, RoundRobinProgramGoesOnWhileGoroutinesCompute) {
  if (!MayBeRealTime()) GTEST_SKIP() << "needs CAP_SYS_NICE";
  EXPECT_EXIT(
      {
        Confine(1);
        if (!SetClass(SCHED_RR, kPriority)) Fail("SCHED_RR");
        GoOnWhileGoroutinesCompute(GetParam(), SCHED_RR, kPriority);
      },
      ::testing::ExitedWithCode(7), "");
}

// With as many Ps as processors, which is the default. A thread beyond that
// would wait for another thread to sleep.
TEST_P(PriorityDeathTest, FifoProgramGoesOnWhileGoroutinesCompute) {
  if (!MayBeRealTime()) GTEST_SKIP() << "needs CAP_SYS_NICE";
  const int n = GetParam();
  if (n > 2) GTEST_SKIP() << "would take too much of the machine";
  if (n > static_cast<int>(std::thread::hardware_concurrency())) {
    GTEST_SKIP() << "too few processors";
  }
  EXPECT_EXIT(
      {
        Confine(n);
        if (!SetClass(SCHED_FIFO, kPriority)) Fail("SCHED_FIFO");
        GoOnWhileGoroutinesCompute(n, SCHED_FIFO, kPriority);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST_P(PriorityDeathTest, NicedProgramGoesOnWhileGoroutinesCompute) {
  EXPECT_EXIT(
      {
        Confine(1);
        if (setpriority(PRIO_PROCESS, 0, 19) != 0) Fail("setpriority");
        GoOnWhileGoroutinesCompute(GetParam(), SCHED_OTHER, 0);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST_P(PriorityDeathTest, BatchProgramGoesOnWhileGoroutinesCompute) {
  EXPECT_EXIT(
      {
        Confine(1);
        if (!SetClass(SCHED_BATCH, 0)) Fail("SCHED_BATCH");
        GoOnWhileGoroutinesCompute(GetParam(), SCHED_BATCH, 0);
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace gump
