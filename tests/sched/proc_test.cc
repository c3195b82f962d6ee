// The scheduler as a program sees it: many goroutines, changing GOMAXPROCS,
// stopped worlds, one Run after the other.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/parked.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

class SchedTest : public testing::WithGomaxprocs {};
GUMP_INSTANTIATE_GOMAXPROCS(SchedTest);

#if defined(GUMP_TESTING_SANITIZED)
constexpr int kMillion = 20000;
#else
constexpr int kMillion = 1000000;
#endif

// ---- Very many

TEST_P(SchedTest, AMillionGoroutinesRunAndEnd) {
  Run([] {
    std::atomic<int> ran = 0;
    sync::WaitGroup wg;
    wg.Add(kMillion);
    for (int i = 0; i < kMillion; i++) {
      go([&] {
        ran.fetch_add(1, std::memory_order_relaxed);
        wg.Done();
      });
    }
    wg.Wait();
    EXPECT_EQ(ran, kMillion);
  });
}

TEST_P(SchedTest, VeryManyParkedOnOneChannelAreReleased) {
  Run([] {
    constexpr int kN = testing::kManyGoroutines;
    auto gate = make_chan<int>();
    sync::WaitGroup wg;
    std::atomic<int> got = 0;
    for (int i = 0; i < kN; i++) {
      wg.Go([&, gate] { got += gate.Recv().has_value() ? 1 : 0; });
    }
    EXPECT_TRUE(
        testing::Eventually([] { return runtime::NumGoroutine() == kN + 1; }));
    for (int i = 0; i < kN / 2; i++) gate.Send(i);
    gate.Close();
    wg.Wait();
    EXPECT_EQ(got, kN / 2);
    EXPECT_TRUE(
        testing::Eventually([] { return runtime::NumGoroutine() == 1; }));
  });
}

int Fibonacci(int n) {
  if (n < 2) return n;
  auto c = make_chan<int>(2);
  go([=] { c.Send(Fibonacci(n - 1)); });
  go([=] { c.Send(Fibonacci(n - 2)); });
  return *c.Recv() + *c.Recv();
}

TEST_P(SchedTest, GoroutinesStartGoroutines) {
  Run([] { EXPECT_EQ(Fibonacci(15), 610); });
}

TEST_P(SchedTest, RingOfGoroutinesPassesAToken) {
  Run([] {
    constexpr int kN = 500;
    auto first = make_chan<int>();
    auto in = first;
    for (int i = 0; i < kN; i++) {
      auto out = make_chan<int>();
      go([=] {
        while (auto v = in.Recv()) out.Send(*v + 1);
        out.Close();
      });
      in = out;
    }
    for (int i = 0; i < 20; i++) {
      first.Send(i);
      EXPECT_EQ(in.Recv(), i + kN);
    }
    first.Close();
    EXPECT_FALSE(in.Recv().has_value());
  });
}

// ---- GOMAXPROCS and stopping the world

TEST_P(SchedTest, GomaxprocsIsReadAndSet) {
  Run([n = GetParam()] {
    EXPECT_EQ(runtime::GOMAXPROCS(0), n);
    EXPECT_EQ(runtime::GOMAXPROCS(-1), n);
    EXPECT_EQ(runtime::GOMAXPROCS(3), n);
    EXPECT_EQ(runtime::GOMAXPROCS(n), 3);
    EXPECT_EQ(runtime::GOMAXPROCS(5000), n);
    EXPECT_EQ(runtime::GOMAXPROCS(n), 1024);
    EXPECT_GE(runtime::NumCPU(), 1);
  });
}

TEST_P(SchedTest, DefaultGomaxprocsComesBack) {
  Run([] {
    runtime::SetDefaultGOMAXPROCS();
    const int n = runtime::GOMAXPROCS(0);
    EXPECT_LE(n, runtime::NumCPU());
    runtime::GOMAXPROCS(n + 3);
    runtime::SetDefaultGOMAXPROCS();
    EXPECT_EQ(runtime::GOMAXPROCS(0), n);
  });
}

// Load keeps goroutines of all kinds busy until it is stopped, and then checks
// the work that they have done.
class Load {
 public:
  Load() {
    for (int i = 0; i < 4; i++) {
      auto c = make_chan<int>(static_cast<size_t>(i));
      workers_.Go([=, this] {
        for (int n = 1; !stop_; n++) {
          c.Send(n);
          sent_ += n;
        }
        c.Close();
      });
      workers_.Go([=, this] {
        for (int n : c) received_ += n;
      });
      workers_.Go([this] {
        while (!stop_) {
          mu_.Lock();
          counter_++;
          mu_.Unlock();
          locked_++;
          runtime::Gosched();
        }
      });
      workers_.Go([this] {
        while (!stop_) {
          sync::WaitGroup wg;
          for (int k = 0; k < 10; k++) wg.Go([this] { spawned_++; });
          wg.Wait();
          expected_ += 10;
        }
      });
    }
    workers_.Go([this] {
      while (!stop_) blocking([] { std::this_thread::yield(); });
    });
  }
  void StopAndCheck() {
    stop_ = true;
    workers_.Wait();
    EXPECT_EQ(sent_, received_);
    EXPECT_EQ(counter_, locked_);
    EXPECT_EQ(spawned_, expected_);
  }

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> sent_ = 0, received_ = 0, locked_ = 0, spawned_ = 0,
                       expected_ = 0;
  sync::Mutex mu_;
  int64_t counter_ = 0;
  sync::WaitGroup workers_;
};

TEST_P(SchedTest, GomaxprocsChangesUnderLoad) {
  Run([n = GetParam()] {
    Load load;
    for (int i = 0; i < 40; i++) {
      const int procs = i % 2 == 0 ? 8 : 1 + i / 2 % 4;
      runtime::GOMAXPROCS(procs);
      EXPECT_EQ(runtime::GOMAXPROCS(0), procs);
      runtime::Gosched();
    }
    load.StopAndCheck();
    runtime::GOMAXPROCS(n);
  });
}

TEST_P(SchedTest, WorldStopsUnderLoad) {
  Run([] {
    Load load;
    for (int i = 0; i < (rt::kSanitizerBuild ? 10 : 40); i++) {
      const std::string all = runtime::Stack(true);
      EXPECT_EQ(all.find("goroutine 1 [running]:\n"), 0u);
      runtime::Gosched();
    }
    load.StopAndCheck();
  });
}

TEST_P(SchedTest, ManyStopTheWorldAtOnce) {
  Run([n = GetParam()] {
    sync::WaitGroup wg;
    for (int i = 0; i < 8; i++) {
      wg.Go([i] {
        for (int k = 0; k < 10; k++) {
          if (i % 3 == 0) runtime::GOMAXPROCS(1 + (i + k) % 8);
          if (i % 3 == 1) runtime::Stack(true);
          if (i % 3 == 2) debug::FreeOSMemory();
        }
      });
    }
    wg.Wait();
    runtime::GOMAXPROCS(n);
  });
}

// ---- One Run after the other

TEST_P(SchedTest, RunReturnsTheResultOfMain) {
  EXPECT_EQ(gump::Run([] { return 42; }), 42);
  EXPECT_EQ(gump::Run([] {}), 0);
}

TEST_P(SchedTest, LeftoversGoOnInTheNextRun) {
  constexpr int kN = 20;
  std::atomic<int> steps = 0;
  std::atomic<bool> stop = false;
  std::atomic<int> ended = 0;
  auto gate = make_chan<int>();
  Run([&] {
    for (int i = 0; i < kN; i++) {
      go([&] {
        while (!stop) {
          steps++;
          runtime::Gosched();
        }
        ended++;
      });
      go([&, gate] {
        gate.Recv();
        ended++;
      });
    }
    EXPECT_TRUE(testing::EventuallyParked("chan receive", kN));
  });
  for (int round = 0; round < 3; round++) {
    // At most one more step for each that was running when main returned.
    int before = -1;
    EXPECT_TRUE(testing::Eventually([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return std::exchange(before, steps.load()) == steps;
    }));
    Run([&] {
      EXPECT_TRUE(testing::Eventually([&] { return steps > before + 100; }));
    });
  }
  Run([&] {
    stop = true;
    gate.Close();
    EXPECT_TRUE(testing::Eventually([&] { return ended == 2 * kN; }));
  });
}

TEST_P(SchedTest, ManyRunsMayFollowOneAnother) {
  for (int i = 0; i < (rt::kSanitizerBuild ? 100 : 300); i++) {
    Run([i] {
      EXPECT_EQ(runtime::Goid(), 1u);
      auto c = make_chan<int>();
      go([c, i] { c.Send(i); });
      EXPECT_EQ(c.Recv(), i);
    });
  }
}

TEST_P(SchedTest, RunWithinARunPanics) {
  Run([] {
    auto nested = [] { return testing::PanicText([] { gump::Run([] {}); }); };
    constexpr char kText[] = "gump::Run called while another Run is active";
    EXPECT_EQ(nested(), kText);
    std::string other;
    std::thread t([&] { other = nested(); });
    blocking([&t] { t.join(); });
    EXPECT_EQ(other, kText);
  });
}

TEST_P(SchedTest, RunWorksOnAnotherThread) {
  for (int i = 0; i < 10; i++) {
    int result = 0;
    std::thread t([&] {
      result = gump::Run([] {
        auto c = make_chan<int>();
        go([c] { c.Send(5); });
        return *c.Recv();
      });
    });
    t.join();
    EXPECT_EQ(result, 5);
  }
}

TEST_P(SchedTest, ThreadThatUsedTheRuntimeMayCallRun) {
  std::thread t([this] {
    auto c = make_chan<int>(1);
    c.Send(1);
    (void)runtime::Stack(false);
    const uint64_t before = runtime::Goid();
    Run([] { EXPECT_EQ(runtime::Goid(), 1u); });
    EXPECT_EQ(runtime::Goid(), before);
    EXPECT_EQ(c.Recv(), 1);
  });
  t.join();
}

// ---- Counting and naming

TEST_P(SchedTest, NumGoroutineCountsTheGoroutinesThatExist) {
  Run([] {
    EXPECT_TRUE(
        testing::Eventually([] { return runtime::NumGoroutine() == 1; }));
    auto gate = make_chan<void>();
    for (int i = 0; i < 100; i++) {
      go([gate] { gate.Recv(); });
    }
    EXPECT_EQ(runtime::NumGoroutine(), 101);
    gate.Close();
    EXPECT_TRUE(
        testing::Eventually([] { return runtime::NumGoroutine() == 1; }));
  });
}

TEST_P(SchedTest, GoidsAreUniqueAndMainIsOne) {
  Run([] {
    EXPECT_EQ(runtime::Goid(), 1u);
    std::mutex mu;
    std::set<uint64_t> ids = {1};
    sync::WaitGroup wg;
    constexpr int kN = 2000;
    for (int i = 0; i < kN; i++) {
      wg.Go([&] {
        const uint64_t id = runtime::Goid();
        runtime::Gosched();
        EXPECT_EQ(runtime::Goid(), id);
        std::lock_guard<std::mutex> l(mu);
        EXPECT_TRUE(ids.insert(id).second) << id;
      });
    }
    wg.Wait();
    EXPECT_EQ(ids.size(), kN + 1u);
  });
}

}  // namespace
}  // namespace gump
