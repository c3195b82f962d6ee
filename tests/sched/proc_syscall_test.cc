// Declared blocking calls: others run meanwhile, and what a goroutine may do in
// one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "runtime/sched/g.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/tls.h"
#include "tests/testing/fuzzsched.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

struct Pipe {
  Pipe() { EXPECT_EQ(pipe(ends), 0); }
  ~Pipe() {
    close(ends[0]);
    close(ends[1]);
  }
  char Read() const {
    char c = 0;
    EXPECT_EQ(read(ends[0], &c, 1), 1);
    return c;
  }
  void Write(char c) const { EXPECT_EQ(write(ends[1], &c, 1), 1); }
  int ends[2];
};

class BlockingTest : public testing::WithGomaxprocs {};
GUMP_INSTANTIATE_GOMAXPROCS(BlockingTest);

TEST_P(BlockingTest, OthersRunWhileOneIsInTheKernel) {
  Run([] {
    Pipe pipe;
    // Only this goroutine ends the read, so it must run meanwhile.
    go([&pipe] { pipe.Write('x'); });
    EXPECT_EQ(blocking([&] { return pipe.Read(); }), 'x');
  });
}

TEST_P(BlockingTest, ManyInTheKernelHoldUpNoOtherGoroutine) {
  Run([] {
    constexpr int kN = 16;
    std::vector<Pipe> pipes(kN);
    sync::WaitGroup wg;
    std::atomic<int> read = 0;
    for (auto& p : pipes) {
      wg.Go([&] {
        blocking([&] { p.Read(); });
        read++;
      });
    }
    // A chain: each byte is written by a goroutine that runs only because the
    // readers have given up their Ps.
    for (auto& p : pipes) {
      sync::WaitGroup one;
      one.Go([&] { p.Write('x'); });
      one.Wait();
    }
    wg.Wait();
    EXPECT_EQ(read, kN);
  });
}

TEST_P(BlockingTest, ReturnsReferencesAndLetsExceptionsPass) {
  Run([] {
    int x = 1;
    int& r = blocking([&]() -> int& { return x; });
    EXPECT_EQ(&r, &x);
    EXPECT_THROW(blocking([] { throw 5; }), int);
    blocking([] {});
  });
}

// In starvation mode an Unlock hands the lock over, and yields where it may.
TEST_P(BlockingTest, UnlocksAStarvingMutexInside) {
  Run([] {
    sync::Mutex mu;
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    for (int i = 0; i < 3; i++) {
      wg.Go([&] {
        while (!stop) {
          mu.Lock();
          usleep(1500);
          mu.Unlock();
        }
      });
    }
    for (int i = 0; i < 30; i++) {
      mu.Lock();
      blocking([&] {
        usleep(1500);
        mu.Unlock();
      });
    }
    stop = true;
    wg.Wait();
  });
}

// The inner calls are part of the outermost. Gosched finds the P given up, and
// other goroutines are woken.
TEST_P(BlockingTest, NestsAndWakesOthers) {
  Run([] {
    auto c = make_chan<int>(1);
    sync::WaitGroup wg;
    wg.Go([c] { EXPECT_EQ(c.Recv(), 5); });
    const int n = blocking([&] {
      wg.Go([] {});
      return blocking([&] {
        runtime::Gosched();
        EXPECT_EQ(blocking([] { return 1; }), 1);
        EXPECT_THROW(blocking([] { throw 5; }), int);
        c.Send(5);
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        (void)runtime::NumGoroutine();
        return 2;
      });
    });
    EXPECT_EQ(n, 2);
    wg.Wait();  // parks, so the calls are over
  });
}

using BlockingDeathTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(BlockingDeathTest);

TEST_P(BlockingDeathTest, ParkingInsideIsFatal) {
  constexpr char kText[] =
      "^fatal error: goroutine parks inside gump::blocking\n";
  EXPECT_DEATH(Run([] {
                 auto c = make_chan<int>();
                 blocking([c] { c.Recv(); });
               }),
               kText);
  EXPECT_DEATH(Run([] {
                 sync::Mutex mu;
                 mu.Lock();
                 blocking([&] { blocking([&] { mu.Lock(); }); });
               }),
               kText);
  EXPECT_DEATH(
      Run([] { blocking([] { time::Sleep(absl::Milliseconds(1)); }); }), kText);
}

TEST_P(BlockingTest, WorldStopsWhileOneIsInTheKernel) {
  Run([] {
    Pipe pipe;
    sync::WaitGroup wg;
    wg.Go([&] { blocking([&] { pipe.Read(); }); });
    EXPECT_TRUE(testing::Eventually([] {
      return runtime::Stack(true).find("[syscall") != std::string::npos;
    }));
    int n = runtime::GOMAXPROCS(3);
    EXPECT_EQ(runtime::GOMAXPROCS(n), 3);
    pipe.Write('x');
    wg.Wait();
  });
}

// The goroutine never enters the scheduler by itself, because each call is over
// before its P is retaken. But its slice ends.
TEST_P(BlockingTest, ManyShortCallsDoNotStarveTheOthers) {
  Run([n = GetParam()] {
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    for (int i = 0; i < n; i++) {
      wg.Go([&stop] {
        while (!stop) blocking([] { std::this_thread::yield(); });
      });
    }
    for (int i = 0; i < 5; i++) runtime::Gosched();
    stop = true;
    wg.Wait();
  });
}

TEST_P(BlockingTest, GracePeriodDoesNotWaitForTheKernel) {
  Run([] {
    Pipe pipe;
    sync::WaitGroup wg;
    wg.Go([&] { blocking([&] { pipe.Read(); }); });
    for (int i = 0; i < 20; i++) debug::FreeOSMemory();
    pipe.Write('x');
    wg.Wait();
  });
}

// ---- What a goroutine expects of its next call
// -------------------------------

// LearnLong makes calls until the caller has lost its P in one.
void LearnLong() {
  while (!rt::getg()->callsBlock) {
    go([] {});  // it waits for the P
    blocking([] { usleep(1000); });
  }
}

TEST(LongCallTest, CallAfterALongOneGivesItsPToWaitersAtOnce) {
  if (testing::FuzzSched()) GTEST_SKIP() << "the seed decides";
  testing::RunWith(1, [] {
    LearnLong();
    sync::WaitGroup wg;
    wg.Go([] {});
    rt::P* const pp = rt::getg()->m->p;
    EXPECT_NE(blocking([&] { return pp->status.load(rt::relaxed); }),
              uint32_t{rt::kPsyscall});
    wg.Wait();
  });
}

TEST(LongCallTest, CallAfterALongOneKeepsItsPIfNoGoroutineWaits) {
  if (testing::FuzzSched()) GTEST_SKIP() << "the seed decides";
  testing::RunWith(1, [] {
    // sysmon may retake the P before we look.
    EXPECT_TRUE(testing::Eventually([] {
      LearnLong();
      runtime::Gosched();
      rt::P* const pp = rt::getg()->m->p;
      return blocking([&] { return pp->status.load(rt::relaxed); }) ==
             uint32_t{rt::kPsyscall};
    }));
  });
}

TEST(LongCallTest, ShortCallsEndTheExpectation) {
  if (testing::FuzzSched()) GTEST_SKIP() << "the seed decides";
  testing::RunWith(1, [] {
    LearnLong();
    // The kernel may keep the thread from running during a short call.
    EXPECT_TRUE(testing::Eventually([] {
      blocking([] {});
      return !rt::getg()->callsBlock;
    }));
  });
}

}  // namespace
}  // namespace gump
