// Goroutine profiles and dumps stop the world only to mark a moment.
#include "runtime/diag/goroutine_profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gump/chan.h"
#include "gump/internal/linkname_debug.h"
#include "gump/internal/linkname_pprof.h"
#include "gump/internal/linkname_runtime.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stw.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::rt {
namespace {

// LeftToRecord returns how many parked goroutines the current profile has yet
// to record, or 0 if none is being taken. The world is stopped.
int LeftToRecord() {
  int left = 0;
  if (goroutineProfile.load(acquire) == 0) return left;
  forEachG(
      [](G* gp, void* n) {
        const uint8_t done = profileDone(goroutineProfile.load(acquire));
        *static_cast<int*>(n) +=
            readgstatus(gp) == kGwaiting && gp->profiled.load(acquire) != done;
      },
      &left);
  return left;
}

// Two stops of the world exclude each other. So a goroutine that another stop
// finds unrecorded is recorded after the stop of its profile, not in it.
template <class Take>
void ExpectRecordedAfterTheStop(const Take& take) {
  testing::RunWith(2, [&] {
    constexpr int kMany = testing::kManyGoroutines / 10;
    chan<bool> c = make_chan<bool>();
    std::atomic<bool> done = false;
    std::atomic<int> most_left = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < kMany; i++) wg.Go([c] { (void)c.Recv(); });
    wg.Go([&] {
      while (!done) {
        stopTheWorld(WaitReason::kStoppingTheWorld);
        most_left = std::max(most_left.load(), LeftToRecord());
        startTheWorld();
        runtime::Gosched();
      }
    });
    EXPECT_TRUE(testing::Eventually([&] {
      take();
      return most_left > kMany / 2;
    })) << most_left;
    done = true;
    c.Close();
    wg.Wait();
  });
}

TEST(GoroutineProfileStopTest, StacksAreRecordedAfterTheStop) {
  ExpectRecordedAfterTheStop([] {
    const auto ignore = [](void* /*arg*/, const StackRecord& /*stack*/) {};
    EXPECT_TRUE(visitGoroutines(ignore, nullptr));
  });
}

TEST(GoroutineProfileStopTest, StatesAreRecordedAfterTheStop) {
  ExpectRecordedAfterTheStop([] {
    const auto ignore = [](void* /*arg*/, const GoroutineInfo& /*info*/) {};
    EXPECT_EQ(visitGoroutineInfos(ignore, nullptr), 0U);
  });
}

TEST(GoroutineProfileStopTest, DumpIsTakenAfterTheStop) {
  ExpectRecordedAfterTheStop([] {
    char part[4096];
    const auto ignore = [](void* /*arg*/, const char* /*text*/, size_t /*n*/) {
      return true;
    };
    EXPECT_TRUE(stackStream(part, sizeof(part), ignore, nullptr));
  });
}

}  // namespace
}  // namespace gump::rt
