// The figures of ReadSchedStats, one by one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/sched/reclaim.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using debug::ReadSchedStats;
using debug::SchedStats;
using testing::Eventually;
using testing::RunWith;

TEST(SchedStatsTest, IdlePsAndThreadsAreCounted) {
  RunWith(4, [] {
    sync::WaitGroup wg;
    std::atomic<int> together = 0;
    for (int i = 0; i < 3; i++) {
      wg.Go([&] {
        together++;
        while (together < 4) {  // one thread for each
        }
      });
    }
    together++;
    wg.Wait();
    EXPECT_TRUE(Eventually([] {
      blocking([] { usleep(1000); });  // an M that looks for work gives up
      const SchedStats s = ReadSchedStats();
      return s.procs == 4 && s.idle_procs == 3 && s.idle_threads >= 3 &&
             s.threads > s.idle_threads && s.spinning_threads == 0;
    }));
  });
}

// A stop of the world or a preemption of main may come between.
TEST(SchedStatsTest, GoroutinesThatWaitForAPAreCounted) {
  RunWith(1, [] {
    EXPECT_TRUE(Eventually([] {
      sync::WaitGroup wg;
      for (int i = 0; i < 5; i++) wg.Go([] {});
      const SchedStats s = ReadSchedStats();
      wg.Wait();
      return s.runnable == 5 && s.goroutines == 6;
    }));
    EXPECT_EQ(ReadSchedStats().runnable, 0);
  });
}

TEST(SchedStatsTest, GoroutinesPreemptedInPlaceAreCounted) {
  RunWith(1, [] {
    const SchedStats before = ReadSchedStats();
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    for (int i = 0; i < 2; i++) {
      wg.Go([&] {
        while (!stop) (void)std::chrono::steady_clock::now();
      });
    }
    EXPECT_TRUE(
        Eventually([] { return ReadSchedStats().preempted_in_place == 2; }));
    EXPECT_GE(ReadSchedStats().preemptions, before.preemptions + 2);
    stop = true;
    wg.Wait();
    EXPECT_EQ(ReadSchedStats().preempted_in_place, 0);
  });
}

TEST(SchedStatsTest, GoroutinesPresumedBlockedAreCounted) {
  RunWith(2, [] {
    const SchedStats before = ReadSchedStats();
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    sync::WaitGroup wg;
    for (int i = 0; i < 3; i++) {
      wg.Go([&] {
        char c;
        EXPECT_EQ(read(fds[0], &c, 1), 1) << std::strerror(errno);
      });
    }
    EXPECT_TRUE(
        Eventually([] { return ReadSchedStats().presumed_blocked == 3; }));
    EXPECT_GE(ReadSchedStats().presumptions, before.presumptions + 3);
    EXPECT_EQ(write(fds[1], "xyz", 3), 3);
    wg.Wait();
    // A goroutine that has called Done may not have entered the runtime yet.
    EXPECT_TRUE(
        Eventually([] { return ReadSchedStats().presumed_blocked == 0; }));
    close(fds[0]);
    close(fds[1]);
  });
}

TEST(SchedStatsTest, StopsOfTheWorldAreCounted) {
  RunWith(2, [] {
    const SchedStats before = ReadSchedStats();
    constexpr uint64_t kStops = 3;
    for (uint64_t i = 0; i < kStops; i++) {
      EXPECT_NE(runtime::Stack(/*all=*/true), "");
    }
    const SchedStats after = ReadSchedStats();
    EXPECT_GE(after.world_stops, before.world_stops + kStops);
    EXPECT_GT(after.world_stop_ns, before.world_stop_ns);
  });
}

TEST(SchedStatsTest, PeriodicCyclesAreCounted) {
  RunWith(2, [] {
    const SchedStats before = ReadSchedStats();
    runtime::GC();
    const SchedStats asked = ReadSchedStats();
    EXPECT_GT(asked.reclaim_cycles, before.reclaim_cycles);
    EXPECT_EQ(asked.forced_reclaim_cycles, before.forced_reclaim_cycles);
    const int64_t period = rt::forcegcperiod.xchg(1'000'000, rt::relaxed);
    EXPECT_TRUE(Eventually([&] {
      return ReadSchedStats().forced_reclaim_cycles >=
             before.forced_reclaim_cycles + 2;
    }));
    rt::forcegcperiod.store(period, rt::relaxed);
    EXPECT_GE(ReadSchedStats().reclaim_cycles, asked.reclaim_cycles + 2);
  });
}

}  // namespace
}  // namespace gump
