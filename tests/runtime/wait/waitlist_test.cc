// The list of waiters under sync::WaitGroup.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "gump/go.h"
#include "gump/internal/linkname_sync.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

constexpr rt::SemaReason kReason = rt::SemaReason::kWaitGroupWait;

using WaitListTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(WaitListTest);

TEST(WaitListGrantTest, WaiterThatWasLetGoBeforeItCameGoesOn) {
  rt::WaitList l;
  rt::waitListRelease(&l, 2);
  rt::waitListWait(&l, kReason);
  rt::waitListWait(&l, kReason);
  EXPECT_EQ(l.word.load(rt::relaxed), 0u);
}

TEST(WaitListGrantTest, GrantsOfTwoReleasesAddUp) {
  rt::WaitList l;
  rt::waitListRelease(&l, 1);
  rt::waitListRelease(&l, 2);
  for (int i = 0; i < 3; i++) rt::waitListWait(&l, kReason);
  EXPECT_EQ(l.word.load(rt::relaxed), 0u);
}

TEST(WaitListOrderTest, LastWaiterRunsFirstAndTheOthersInOrder) {
  testing::RunWith(1, [] {
    rt::WaitList l;
    std::vector<int> order;
    for (int i = 0; i < 5; i++) {
      go([&, i] {
        rt::waitListWait(&l, kReason);
        order.push_back(i);
      });
      ASSERT_TRUE(testing::EventuallyParked("sync.WaitGroup.Wait",
                                            static_cast<size_t>(i) + 1));
    }
    rt::waitListRelease(&l, 5);
    EXPECT_TRUE(testing::Eventually([&] { return order.size() == 5; }));
    // The last one that is readied runs next, as in Go.
    EXPECT_EQ(order, (std::vector<int>{4, 0, 1, 2, 3}));
  });
}

// Some wait already, and some come while the others are let go.
TEST_P(WaitListTest, EachWaiterIsLetGoOnce) {
  Run([] {
    for (int round = 0; round < 300; round++) {
      constexpr int kGoroutines = 4, kThreads = 2;
      rt::WaitList l;
      std::atomic<int> let_go{0};
      std::vector<std::thread> threads;
      const auto wait = [&] {
        rt::waitListWait(&l, kReason);
        let_go++;
      };
      for (int i = 0; i < kGoroutines; i++) go(wait);
      for (int i = 0; i < kThreads; i++) threads.emplace_back(wait);
      rt::waitListRelease(&l, kGoroutines + kThreads);
      testing::JoinAll(threads);
      ASSERT_TRUE(testing::Eventually(
          [&] { return let_go == kGoroutines + kThreads; }));
      ASSERT_EQ(l.word.load(rt::relaxed), 0u);
    }
  });
}

}  // namespace
}  // namespace gump
