// Timers, and contexts with a deadline, that are not needed any more leave the
// heaps. After a while none is left, and at any time only few are.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/select.h"
#include "gump/time.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/time.h"
#include "tests/testing/resident_bytes.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using context::WithTimeout;
using testing::Eventually;
using namespace std::chrono_literals;

constexpr auto kNever = 24h;
#if defined(GUMP_TESTING_SANITIZED)
constexpr int kTimes = 10000;
#else
constexpr int kTimes = 100000;
#endif
// How many may be left: a heap has some zombies until its P looks at it.
constexpr int64_t kFew = kTimes / 100;

// InHeaps counts the timers in all heaps.
int64_t InHeaps() {
  int64_t n = 0;
  for (const rt::P* pp : rt::allp) {
    if (pp != nullptr) n += pp->timers.len.load(rt::relaxed);
  }
  return n;
}

// LeavesFew expects that few timers are left of kTimes calls of step().
template <class F>
void LeavesFew(F step) {
  const int64_t before = InHeaps();
  for (int i = 0; i < kTimes; i++) step();
  EXPECT_TRUE(Eventually([&] { return InHeaps() - before <= kFew; }))
      << InHeaps() - before;
}

using TimeHeapTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(TimeHeapTest);

// ---- When an M that sleeps for timers wakes

// TogetherNS returns how long after the earliest timer an M that sleeps for
// timers wakes.
int64_t TogetherNS() {
  rt::M* mp = rt::acquirem();
  const int64_t first = rt::timeSleepUntil();
  const int64_t together = rt::timersTogether(first) - first;
  rt::releasem(mp);
  return together;
}

TEST_P(TimeHeapTest, ATimerThatIsAloneIsNotDelayed) {
  Run([] {
    const auto timer = time::AfterFunc(kNever, [] {});
    const auto later = time::AfterFunc(kNever + 1ms, [] {});
    EXPECT_EQ(TogetherNS(), 0);
    EXPECT_TRUE(timer.Stop() && later.Stop());  // or the next test sees them
  });
}

TEST_P(TimeHeapTest, TimersThatAreDueTogetherShareAWakeUp) {
  Run([] {
    // Again if this goroutine is interrupted between the two timers.
    EXPECT_TRUE(Eventually([] {
      const auto timer = time::AfterFunc(kNever, [] {});
      const auto later = time::AfterFunc(kNever, [] {});
      const int64_t together = TogetherNS();
      EXPECT_TRUE(timer.Stop() && later.Stop());
      EXPECT_LE(together, rt::kTogetherNS);
      return together > 0;
    }));
    EXPECT_TRUE(Eventually([] {
      std::vector<time::Timer> many;
      for (int i = 0; i < 10; i++) {
        many.push_back(time::AfterFunc(kNever, [] {}));
      }
      const int64_t together = TogetherNS();
      for (const time::Timer& t : many) EXPECT_TRUE(t.Stop());
      return together == rt::kTogetherNS;
    }));
  });
}

TEST_P(TimeHeapTest, StoppedTimersDoNotDelayATimerThatIsAlone) {
  Run([] {
    std::vector<time::Timer> timers;
    for (int i = 0; i < 4; i++) {
      timers.push_back(time::AfterFunc(kNever, [] {}));
    }
    for (int i = 1; i < 4; i++)
      EXPECT_TRUE(timers[static_cast<size_t>(i)].Stop());
    EXPECT_EQ(TogetherNS(), 0);
    EXPECT_TRUE(timers[0].Stop());
  });
}

TEST_P(TimeHeapTest, TheDelayEndsAtTheLatestTime) {
  Run([] {
    const auto last = time::AfterFunc(absl::InfiniteDuration(), [] {});
    rt::M* mp = rt::acquirem();
    const int64_t end = rt::timersTogether(rt::kMaxWhen);
    const int64_t before = rt::timersTogether(rt::kMaxWhen - 1);
    const int64_t delay = rt::timersDelay(rt::kMaxWhen - 1);
    const int64_t none = rt::timersDelay(1);
    rt::releasem(mp);
    EXPECT_EQ(end, rt::kMaxWhen);
    EXPECT_EQ(before, rt::kMaxWhen);
    EXPECT_GT(delay, 0);
    EXPECT_EQ(none, 0) << "the first is due";
    EXPECT_TRUE(last.Stop());
  });
}

// ---- Timers

TEST_P(TimeHeapTest, TimersStayUntilTheyAreStopped) {
  Run([] {
    std::vector<time::Timer> all;
    for (int i = 0; i < kTimes; i++) {
      all.push_back(time::AfterFunc(kNever, [] {}));
    }
    EXPECT_GE(InHeaps(), kTimes) << "or nothing is tested";
    for (const time::Timer& t : all) EXPECT_TRUE(t.Stop());
    EXPECT_TRUE(Eventually([&] { return InHeaps() <= kFew; })) << InHeaps();
  });
}

TEST_P(TimeHeapTest, StoppedTimersLeave) {
  Run([] {
    LeavesFew([] {
      const auto timer = time::AfterFunc(kNever, [] {});
      EXPECT_TRUE(timer.Stop());
    });
  });
}

// No thread schedules meanwhile, because P 0 sleeps until its first timer.
TEST_P(TimeHeapTest, TimersOfPlainThreadsLeaveWhileAllSleep) {
  Run([] {
    constexpr size_t kWindow = 500;
    auto enough = make_chan<void>();
    const time::Timer first = time::AfterFunc(absl::Hours(12), [] {});
    std::thread thread([enough] {
      std::deque<time::Timer> window;
      int64_t most = 0;
      for (int i = 0; i < kTimes; i++) {
        window.push_back(time::AfterFunc(absl::Hours(24), [] {}));
        if (window.size() <= kWindow) continue;
        window.front().Stop();
        window.pop_front();
        if (i % 100 == 0) most = std::max(most, InHeaps());
      }
      EXPECT_LE(most, 4 * int64_t{kWindow});
      for (time::Timer& t : window) t.Stop();
      enough.Close();
    });
    enough.Recv();
    thread.join();
  });
}

// The timers are in a heap while a goroutine waits. Cells that were dropped
// there are used again.
TEST_P(TimeHeapTest, TimersThatWereWaitedForLeave) {
  Run([] {
    auto ping = make_chan<void>();
    auto pong = make_chan<void>();
    go([=] {
      while (ping.Recv()) pong.Send();
    });
    auto step = [&] {
      ping.Send();
      const auto timer = time::NewTimer(kNever);
      const auto ticker = time::NewTicker(kNever);
      EXPECT_EQ(2, select(Recv(timer.C), Recv(ticker.C), Recv(pong)));
    };
    for (int i = 0; i < 1000; i++) step();  // makes the allocations that last
    [[maybe_unused]] const int64_t before = testing::ResidentBytes();
    LeavesFew(step);
#if !defined(GUMP_TESTING_SANITIZED)
    // Two cells of 256 bytes each time would have been 50 MB.
    EXPECT_LE(testing::ResidentBytes() - before, 8 << 20);
#endif
    ping.Close();
  });
}

// ---- Contexts

TEST_P(TimeHeapTest, TimersOfCancelledContextsLeave) {
  Run([] {
    LeavesFew([] {
      const auto [ctx, cancel] = WithTimeout({}, kNever);
      cancel();
    });
  });
}

TEST_P(TimeHeapTest, TimersOfDroppedContextsLeave) {
  Run([] {
    LeavesFew([] {
      const auto [ctx, cancel] = WithTimeout({}, kNever);
      const auto child = WithTimeout(ctx, kNever / 2);
    });
  });
}

TEST_P(TimeHeapTest, TimersOfContextsOfACancelledParentLeave) {
  Run([] {
    LeavesFew([] {
      const auto [parent, cancel] = context::WithCancel({});
      const auto child = WithTimeout(parent, kNever);
      cancel();
      EXPECT_FALSE(child.first.Err().ok());
    });
  });
}

// All contexts are there at once. Their handles stay, but their timers do not.
TEST_P(TimeHeapTest, TimersLeaveThoughTheirContextsStay) {
  Run([] {
    const int64_t before = InHeaps();  // zombies among them, which may leave
    const auto [parent, cancel] = context::WithCancel({});
    std::vector<context::Context> all;
    for (int i = 0; i < kTimes; i++) {
      all.push_back(WithTimeout(parent, kNever).first);
    }
    EXPECT_GE(InHeaps(), kTimes) << "or nothing is tested";
    cancel();
    EXPECT_TRUE(Eventually([&] { return InHeaps() - before <= kFew; }))
        << InHeaps() - before;
  });
}

}  // namespace
}  // namespace gump
