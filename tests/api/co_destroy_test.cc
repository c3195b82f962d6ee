// Coroutines that are destroyed while they wait.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/co.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "tests/testing/counted.h"
#include "tests/testing/owned_coroutine.h"
#include "tests/testing/parked.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_counted.h"

namespace gump {
namespace {

using testing::Counted;
using testing::Eventually;
using testing::EventuallyParked;
using testing::OwnedCoroutine;
using testing::Start;

// Only main is left: no goroutine waits for a coroutine that is gone.
bool NothingWaits() {
  return Eventually([] { return runtime::NumGoroutine() == 1; });
}

class CoDestroyTest : public testing::WithCounted {};
GUMP_INSTANTIATE_GOMAXPROCS(CoDestroyTest);

TEST_P(CoDestroyTest, DestroyedReceiveTakesNoValue) {
  Run([] {
    for (const bool parked : {true, false}) {
      chan<int> c = make_chan<int>();
      {
        OwnedCoroutine o = Start(co::Recv(c));
        EXPECT_TRUE(!parked || EventuallyParked("select", 1));
      }
      EXPECT_FALSE(c.TrySend(1));  // no receiver is left
      go([c] { c.Send(2); });
      EXPECT_EQ(c.Recv(), std::optional<int>(2));
      EXPECT_TRUE(NothingWaits());
    }
  });
}

TEST_P(CoDestroyTest, ValueInTheBufferStaysForOthers) {
  Run([] {
    for (int i = 0; i < 100; i++) {
      chan<int> c = make_chan<int>(1);
      { OwnedCoroutine o = Start(co::Recv(c)); }
      // The goroutine that was to receive may not have run yet.
      c.Send(7);
      EXPECT_EQ(c.Recv(), std::optional<int>(7));
    }
    EXPECT_TRUE(NothingWaits());
  });
}

TEST_P(CoDestroyTest, DestroyedSendDeliversNothing) {
  Run([] {
    for (const bool parked : {true, false}) {
      auto c = make_chan<Counted>();
      {
        OwnedCoroutine o = Start(co::Send(c, Counted(1)));
        EXPECT_TRUE(!parked || EventuallyParked("select", 1));
      }
      EXPECT_EQ(c.TryRecv().kind, RecvResult<Counted>::kEmpty);
      EXPECT_TRUE(Eventually([] { return Counted::values() == 0; }));
      EXPECT_TRUE(NothingWaits());
    }
  });
}

TEST_P(CoDestroyTest, DestroyedOperationOnANilChannelEnds) {
  Run([] {
    {
      OwnedCoroutine o = Start(co::Recv(chan<int>()));
      OwnedCoroutine p = Start(co::Send(chan<void>()));
    }
    EXPECT_TRUE(NothingWaits());
  });
}

TEST_P(CoDestroyTest, DestroyedSleepIsForgotten) {
  Run([] {
    std::atomic<bool> woke{false};
    auto f = [&]() -> co::task<> {
      co_await co::Sleep(absl::Milliseconds(1));
      woke = true;
    };
    {
      OwnedCoroutine o = Start(co::Sleep(absl::Hours(1)));
      OwnedCoroutine p = Start(co::Sleep(absl::InfiniteDuration()));
    }
    co::Wait(f());
    EXPECT_TRUE(woke);
    EXPECT_TRUE(NothingWaits());
  });
}

TEST_P(CoDestroyTest, FunctionOfGoContinuesAndItsResultIsDropped) {
  Run([] {
    chan<void> proceed = make_chan<void>();
    auto fn = [proceed] {
      (void)proceed.Recv();
      return Counted(1);
    };
    { OwnedCoroutine o = Start(co::Go(fn)); }
    proceed.Send();
    EXPECT_TRUE(NothingWaits());
    EXPECT_EQ(Counted::objects(), 0);
  });
}

TEST_P(CoDestroyTest, NestedTasksAreDestroyedFromTheOutside) {
  Run([] {
    chan<int> c = make_chan<int>();
    auto inner = [c](Counted) -> co::task<int> {
      co_return *co_await co::Recv(c);
    };
    auto outer = [&](Counted) -> co::task<int> {
      co_return co_await inner(Counted(2));
    };
    {
      OwnedCoroutine o = Start(outer(Counted(1)));
      EXPECT_EQ(Counted::values(), 2);
    }
    EXPECT_EQ(Counted::values(), 0);
    EXPECT_FALSE(c.TrySend(1));
    EXPECT_TRUE(NothingWaits());
  });
}

TEST_P(CoDestroyTest, WaitBeginsAnewInTheSameLoop) {
  Run([] {
    // The goroutine that waits keeps its CoWait from one wait to the next.
    chan<int> c = make_chan<int>();
    auto f = [c]() -> co::task<> {
      for (;;) (void)co_await co::Recv(c);
    };
    {
      OwnedCoroutine o = Start(f());
      for (int i = 0; i < 100; i++) c.Send(i);
      EXPECT_TRUE(EventuallyParked("select", 1));
    }
    EXPECT_FALSE(c.TrySend(1));
    EXPECT_TRUE(NothingWaits());
  });
}

// One P, so the goroutine that has received does not run before the coroutine
// is destroyed, unless main is preempted just there.
TEST(CoDestroyOneTest, ReceivedValueIsDestroyedWithItsCoroutine) {
  testing::RunWith(1, [] {
    auto c = make_chan<Counted>();
    {
      OwnedCoroutine o = Start(co::Recv(c));
      EXPECT_TRUE(EventuallyParked("select", 1));
      c.Send(Counted(1));
    }
    EXPECT_TRUE(Eventually([] { return Counted::objects() == 0; }));
    EXPECT_TRUE(NothingWaits());
  });
}

TEST(CoDestroyRunTest, PlainThreadDestroysBetweenRuns) {
  chan<int> c = make_chan<int>();
  std::optional<OwnedCoroutine> recv;
  std::optional<OwnedCoroutine> sleep;
  gump::Run([&] {
    recv.emplace(Start(co::Recv(c)));
    sleep.emplace(Start(co::Sleep(absl::Hours(1))));
    EXPECT_TRUE(EventuallyParked("select", 1));
  });
  recv.reset();
  sleep.reset();
  EXPECT_FALSE(c.TrySend(1));
  gump::Run([] { EXPECT_TRUE(NothingWaits()); });
}

// Coroutines are destroyed at any stage of their wait. Every value that is sent
// after that goes to a coroutine that is left, or to main.
TEST_P(CoDestroyTest, Stress_NoValueIsLost) {
  Run([] {
    testing::StressLoop([](testing::Rng& rng) {
      auto c = make_chan<int>(rng.Below(3));
      std::atomic<int> received{0};
      auto f = [&]() -> co::task<> {
        if (co_await co::Recv(c)) received++;
      };
      std::vector<OwnedCoroutine> waiting;
      for (int i = 0; i < 8; i++) waiting.push_back(Start(f()));
      for (uint64_t n = rng.Below(100); n > 0; n--) runtime::Gosched();
      // Nothing was sent yet, so no coroutine runs now.
      const size_t keep = rng.Below(8);
      sync::WaitGroup wg;
      wg.Go([&] {
        while (waiting.size() > keep) waiting.pop_back();
      });
      wg.Wait();
      const int sent = static_cast<int>(keep + rng.Below(3));
      wg.Go([&] {
        for (int i = 0; i < sent; i++) c.Send(i);
        c.Close();
      });
      for (const OwnedCoroutine& o : waiting) {
        EXPECT_TRUE(Eventually([&] { return o.Ended(); }));
      }
      int rest = 0;
      while (c.Recv()) rest++;
      wg.Wait();
      EXPECT_EQ(received, static_cast<int>(keep));
      EXPECT_EQ(received + rest, sent);
      EXPECT_TRUE(NothingWaits());
    });
  });
}

TEST(CoDestroyDeathTest, ResumedCoroutineMustNotBeDestroyed) {
  EXPECT_EXIT(
      {
        internal::CoClaim claim;
        claim.Arm();
        EXPECT_TRUE(claim.Claim());
        claim.Cancel();
      },
      ::testing::ExitedWithCode(2),
      "fatal error: co: coroutine destroyed while it runs");
}

}  // namespace
}  // namespace gump
