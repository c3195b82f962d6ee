// A wait for a time goes by a clock that cannot be set. A process that waits
// for nothing in the near future costs nothing.
//
// clock_gettime is replaced by one with a wall clock that can be moved.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <vector>

#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/net.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace {
constinit std::atomic<int64_t> ahead{0};  // of the wall clock, seconds
}  // namespace

#if !defined(GUMP_TESTING_SANITIZED)
extern "C" int clock_gettime(clockid_t clock, timespec* ts) noexcept {
  const long err = syscall(SYS_clock_gettime, clock, ts);
  if (clock == CLOCK_REALTIME) ts->tv_sec += ahead;
  return static_cast<int>(err);
}
#endif

namespace gump {
namespace {

using Steady = std::chrono::steady_clock;

constexpr absl::Duration kNear = absl::Milliseconds(30);
constexpr absl::Duration kFar = absl::Minutes(30);
constexpr int64_t kHour = 3600;

class ClockTest : public testing::WithGomaxprocs {
 protected:
  void SetUp() override {
#if defined(GUMP_TESTING_SANITIZED)
    GTEST_SKIP() << "sanitizers have a clock_gettime of their own";
#endif
  }
  void TearDown() override { ahead = 0; }
};
GUMP_INSTANTIATE_GOMAXPROCS(ClockTest);

// Waits starts goroutines that wait for kNear, each in another way.
void Waits(sync::WaitGroup* wg, std::atomic<int>* early) {
  const auto timed = [=](auto wait) {
    wg->Go([=] {
      const auto begin = Steady::now();
      wait();
      if (Steady::now() - begin < absl::ToChronoNanoseconds(kNear)) ++*early;
    });
  };
  timed([] { time::Sleep(kNear); });
  timed([] { time::After(kNear).Recv(); });
  timed([] {
    auto c = make_chan<void>();
    auto t = time::AfterFunc(kNear, [c] { c.Send(); });
    c.Recv();
  });
  timed([] {
    auto [ctx, cancel] = context::WithTimeout(context::Background(), kNear);
    ctx.Done().Recv();
  });
}

TEST_P(ClockTest, StepsOfTheWallClockMoveNoTimer) {
  Run([] {
    for (const int64_t step : {kHour, -kHour}) {
      std::atomic<int> early = 0;
      std::atomic<int> far = 0;
      sync::WaitGroup wg;
      auto [ctx, cancel] = context::WithTimeout(context::Background(), kFar);
      auto t = time::AfterFunc(kFar, [&far] { far++; });
      auto ticker = time::NewTicker(kFar);
      Waits(&wg, &early);
      ahead = step;  // while they wait
      Waits(&wg, &early);
      wg.Wait();
      EXPECT_EQ(early, 0);
      EXPECT_TRUE(ctx.Err().ok());
      EXPECT_FALSE(ticker.C.TryRecv().value.has_value());
      EXPECT_TRUE(t.Stop());
      EXPECT_EQ(far, 0);
      ticker.Stop();
      ahead = 0;
    }
  });
}

// Switches is how often this process has been woken or interrupted.
long Switches() {
  rusage u;
  getrusage(RUSAGE_SELF, &u);
  return u.ru_nvcsw + u.ru_nivcsw;
}

// The process has very many distant timers, and goroutines that wait for an
// event that never comes. There are seconds in which almost no thread wakes up.
// In other seconds a periodic task of sysmon's may run.
TEST(IdleTest, DistantAndEndlessWaitsCostNothing) {
#if defined(GUMP_TESTING_SANITIZED)
  GTEST_SKIP() << "their threads wake up";
#endif
  testing::RunWith(4, [] {
    std::vector<time::Timer> timers;
    sync::WaitGroup wg;
    auto never = make_chan<void>();
    for (int i = 0; i < testing::kManyGoroutines; i++) {
      timers.push_back(time::AfterFunc(kFar, [] {}));
    }
    for (int i = 0; i < 1000; i++) wg.Go([never] { never.Recv(); });
    bool quiet = false;
    for (int i = 0; i < 60 && !quiet; i++) {
      const long before = Switches();
      time::Sleep(absl::Seconds(1));
      quiet = Switches() - before < 10;
    }
    EXPECT_TRUE(quiet);
    never.Close();
    wg.Wait();
  });
}

}  // namespace
}  // namespace gump
