#include "gump/sync/singleflight.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "gump/chan.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::SingleFlight;
using sync::WaitGroup;
using Flight = SingleFlight<std::string, int>;
using SingleFlightTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(SingleFlightTest);

TEST_P(SingleFlightTest, OneCallAtATimeIsNotShared) {
  Run([] {
    Flight flight;
    int calls = 0;
    for (int i = 0; i < 3; i++) {
      auto [value, shared] = flight.Do("key", [&] { return ++calls; });
      EXPECT_EQ(value, i + 1);
      EXPECT_FALSE(shared);
    }
  });
}

TEST_P(SingleFlightTest, TheFunctionMayChangeTheCallersKey) {
  Run([] {
    Flight flight;
    std::string key = "a";
    EXPECT_EQ(flight.Do(key, [&] { return key = "b", 1; }).value, 1);
    EXPECT_EQ(flight.Do("a", [] { return 2; }).value, 2);
  });
}

// StartTogether starts n callers. One is inside its function and the others
// wait for it. The function returns when `go_on` is closed.
template <class F>
void StartTogether(WaitGroup& wg, int n, F call) {
  for (int i = 0; i < n; i++) wg.Go(call);
  EXPECT_TRUE(testing::EventuallyParked("chan receive", 1));
  EXPECT_TRUE(testing::EventuallyParked("sync.WaitGroup.Wait",
                                        static_cast<size_t>(n - 1)));
}

TEST_P(SingleFlightTest, CallersAtTheSameTimeShareOneCall) {
  Run([] {
    Flight flight;
    std::atomic<int> calls = 0, got = 0;
    chan<void> go_on = make_chan<void>();
    WaitGroup wg;
    StartTogether(wg, 20, [&] {
      auto [value, shared] = flight.Do("key", [&] {
        (void)go_on.Recv();
        return ++calls;
      });
      EXPECT_EQ(value, 1);
      EXPECT_TRUE(shared);
      got++;
    });
    EXPECT_EQ(flight.Do("other", [] { return 7; }).value, 7);
    go_on.Close();
    wg.Wait();
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(got, 20);
  });
}

TEST_P(SingleFlightTest, AnExceptionGoesToEveryCaller) {
  Run([] {
    Flight flight;
    std::atomic<int> calls = 0, caught = 0;
    chan<void> go_on = make_chan<void>();
    WaitGroup wg;
    StartTogether(wg, 10, [&] {
      try {
        (void)flight.Do("key", [&]() -> int {
          calls++;
          (void)go_on.Recv();
          throw std::out_of_range("over the edge");
        });
        ADD_FAILURE();
      } catch (const std::out_of_range& e) {
        EXPECT_STREQ(e.what(), "over the edge");
        caught++;
      }
    });
    auto outcome = flight.DoChan("key", [] { return 0; });
    go_on.Close();
    wg.Wait();
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(caught, 10);
    auto o = outcome.Recv();
    ASSERT_TRUE(o.has_value());
    EXPECT_TRUE(o->shared());
    EXPECT_TRUE(o->error());
    EXPECT_THROW((void)o->value(), std::out_of_range);
    EXPECT_EQ(flight.Do("key", [] { return 3; }).value, 3);
  });
}

TEST_P(SingleFlightTest, GoexitEndsEveryCaller) {
  Run([] {
    Flight flight;
    chan<void> go_on = make_chan<void>();
    WaitGroup wg;
    StartTogether(wg, 5, [&] {
      (void)flight.Do("key", [&]() -> int {
        (void)go_on.Recv();
        runtime::Goexit();
      });
      ADD_FAILURE();
    });
    auto outcome = flight.DoChan("key", [] { return 0; });
    go_on.Close();
    wg.Wait();
    EXPECT_FALSE(outcome.Recv().has_value());
    auto own = flight.DoChan("key", []() -> int { runtime::Goexit(); });
    EXPECT_FALSE(own.Recv().has_value());
  });
}

TEST_P(SingleFlightTest, DoChanDelivers) {
  Run([] {
    SingleFlight<int, std::shared_ptr<std::string>> flight;
    chan<void> go_on = make_chan<void>();
    auto first = flight.DoChan(1, [&, unique = std::make_unique<int>(5)] {
      (void)go_on.Recv();
      return std::make_shared<std::string>(std::to_string(*unique));
    });
    auto second = flight.DoChan(1, [] { return nullptr; });
    go_on.Close();
    auto a = first.Recv(), b = second.Recv();
    EXPECT_EQ(*a->value(), "5");
    EXPECT_EQ(a->value(), b->value());
    EXPECT_TRUE(a->shared());
    EXPECT_FALSE(a->error());
    auto thrown = flight.DoChan(
        1, []() -> std::shared_ptr<std::string> { throw std::bad_alloc(); });
    EXPECT_THROW((void)thrown.Recv()->value(), std::bad_alloc);
  });
}

TEST_P(SingleFlightTest, ForgetMakesTheNextOneCall) {
  Run([] {
    Flight flight;
    chan<void> go_on = make_chan<void>();
    auto slow = flight.DoChan("key", [&] {
      (void)go_on.Recv();
      return 1;
    });
    flight.Forget("key");
    chan<void> go_on_too = make_chan<void>();
    auto next = flight.DoChan("key", [&] {
      (void)go_on_too.Recv();
      return 2;
    });
    go_on.Close();
    EXPECT_EQ(slow.Recv()->value(), 1);
    // The end of the forgotten call does not end the one after it.
    auto joined = flight.DoChan("key", [] { return 3; });
    go_on_too.Close();
    EXPECT_EQ(next.Recv()->value(), 2);
    EXPECT_EQ(joined.Recv()->value(), 2);
    flight.Forget("nobody knows");
  });
}

TEST_P(SingleFlightTest, MayBeDestroyedOnceItHasDelivered) {
  Run([] {
    for (int i = 0; i < 1000; i++) {
      auto flight = std::make_unique<Flight>();
      auto c = flight->DoChan("key", [i] { return i; });
      EXPECT_EQ(c.Recv()->value(), i);
    }
  });
}

TEST_P(SingleFlightTest, MixesWithPlainThreads) {
  Run([] {
    Flight flight;
    std::atomic<int> inside = 0;
    const auto work = [&] {
      for (int i = 0; i < 300; i++) {
        auto r = flight.Do("key", [&] {
          EXPECT_EQ(++inside, 1);
          runtime::Gosched();
          inside--;
          return 1;
        });
        EXPECT_EQ(r.value, 1);
      }
    };
    testing::InThreadsAndGoroutines(2, 3, work);
  });
}

}  // namespace
}  // namespace gump
