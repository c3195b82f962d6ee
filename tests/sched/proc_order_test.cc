// The order in which goroutines run on one P. Go promises none of it, and
// neither do we, but programs are tuned to it, so it is Go's own.
//
// A test that sees the order exactly must not be preempted halfway. Its work
// takes microseconds of a slice of 10 ms, but on a busy machine the slice may
// end all the same. So each test is a sequence that Ordered() runs several
// times, and the expected order must come out at least once. Under schedule
// fuzzing any order will do, but the same goroutines must have run.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "tests/testing/fuzzsched.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

// Log lists the goroutines that have run so far. There is one P, so one
// goroutine at a time writes it.
using Log = std::string;

// AnyOrderIfFuzzed is `expected` if the scheduler shuffles and `seen` is the
// same in another order. Otherwise it is `seen`.
template <class Sequence>
Sequence AnyOrderIfFuzzed(const Sequence& expected, const Sequence& seen) {
  const bool same = std::is_permutation(expected.begin(), expected.end(),
                                        seen.begin(), seen.end());
  return testing::FuzzSched() && same ? expected : seen;
}

// Ordered runs sequence(log) on one P until it leaves `expected` in the log,
// ten times at most, and returns the last log.
template <class F>
std::string Ordered(const std::string& expected, F sequence) {
  std::string last;
  testing::RunWith(1, [&] {
    for (int i = 0; i < 10 && last != expected; i++) {
      Log log;
      sequence(log);
      last = log;
    }
  });
  return AnyOrderIfFuzzed(expected, last);
}

// YieldUntil lets the others run until the log is n long.
void YieldUntil(const Log& log, size_t n) {
  EXPECT_TRUE(testing::Eventually([&] { return log.size() >= n; }));
}

TEST(SchedOrderTest, NewestOfTheSpawnedRunsFirstThenTheOthersInOrder) {
  auto run = [](Log& log) {
    auto done = make_chan<void>();
    for (char name : {'A', 'B', 'C', 'D'}) {
      go([&log, name, done] {
        log += name;
        if (log.size() == 4) done.Send();
      });
    }
    done.Recv();
  };
  EXPECT_EQ(Ordered("DABC", run), "DABC");
}

TEST(SchedOrderTest, GoschedLetsEveryoneElseRunFirst) {
  auto run = [](Log& log) {
    for (char name : {'A', 'B', 'C', 'D'}) go([&log, name] { log += name; });
    runtime::Gosched();
    log += '0';
    YieldUntil(log, 5);
  };
  EXPECT_EQ(Ordered("DABC0", run), "DABC0");
}

TEST(SchedOrderTest, ReceiverWokenBySendRunsNextButNotBeforeTheSenderBlocks) {
  auto run = [](Log& log) {
    auto c = make_chan<int>();
    auto done = make_chan<void>();
    go([&log, c] {
      c.Recv();
      log += 'R';
    });
    runtime::Gosched();  // R parks
    go([&log] { log += 'X'; });
    go([&log, done] {
      log += 'Y';
      done.Send();
    });
    c.Send(1);
    log += '0';
    done.Recv();
    YieldUntil(log, 4);
  };
  EXPECT_EQ(Ordered("0RXY", run), "0RXY");
}

// Parked starts n goroutines, A, B, ..., one after the other, each of which
// calls wait(), where it parks for `reason`, and then writes its name.
template <class F>
void Parked(Log& log, size_t n, const char* reason, F wait) {
  for (size_t i = 0; i < n; i++) {
    go([&log, wait, i] {
      wait();
      log += static_cast<char>('A' + i);
    });
    EXPECT_TRUE(testing::EventuallyParked(reason, i + 1));
  }
}

TEST(SchedOrderTest, CloseRunsTheFirstReceiverFirstAndTheLastOneNext) {
  // Close readies them last one first, and each kicks its predecessor out of
  // runnext.
  auto run = [](Log& log) {
    auto c = make_chan<int>();
    Parked(log, 4, "chan receive", [c] { c.Recv(); });
    c.Close();
    log += '0';
    YieldUntil(log, 5);
  };
  EXPECT_EQ(Ordered("0ADCB", run), "0ADCB");
}

TEST(SchedOrderTest, CloseRunsSendersInTheSameOrder) {
  auto run = [](Log& log) {
    auto c = make_chan<int>();
    Parked(log, 4, "chan send", [c] { EXPECT_THROW(c.Send(1), PanicError); });
    c.Close();
    log += '0';
    YieldUntil(log, 5);
  };
  EXPECT_EQ(Ordered("0ADCB", run), "0ADCB");
}

TEST(SchedOrderTest, BroadcastRunsTheLastWaiterFirstThenTheOthersInOrder) {
  auto run = [](Log& log) {
    sync::Mutex mu;
    sync::Cond cond(mu);
    Parked(log, 4, "sync.Cond.Wait", [&] {
      mu.Lock();
      cond.Wait();
      mu.Unlock();
    });
    cond.Broadcast();
    log += '0';
    YieldUntil(log, 5);
  };
  EXPECT_EQ(Ordered("0DABC", run), "0DABC");
}

TEST(SchedOrderTest, LastDoneRunsTheLastWaiterFirstThenTheOthersInOrder) {
  auto run = [](Log& log) {
    sync::WaitGroup wg;
    wg.Add(1);
    Parked(log, 4, "sync.WaitGroup.Wait", [&] { wg.Wait(); });
    wg.Done();
    log += '0';
    YieldUntil(log, 5);
  };
  EXPECT_EQ(Ordered("0DABC", run), "0DABC");
}

TEST(SchedOrderTest, UnlockRunsTheLastReaderFirstThenTheOthersInOrder) {
  auto run = [](Log& log) {
    sync::RWMutex mu;
    mu.Lock();
    Parked(log, 4, "sync.RWMutex.RLock", [&] {
      mu.RLock();
      mu.RUnlock();
    });
    mu.Unlock();
    log += '0';
    YieldUntil(log, 5);
  };
  EXPECT_EQ(Ordered("0DABC", run), "0DABC");
}

TEST(SchedOrderTest, GoroutinesThatOnlyYieldTakeTurns) {
  auto run = [](Log& log) {
    for (char name : {'A', 'B', 'C'}) {
      go([&log, name] {
        for (int i = 0; i < 4; i++) {
          log += name;
          runtime::Gosched();
        }
      });
    }
    YieldUntil(log, 12);
  };
  EXPECT_EQ(Ordered("CABCABCABCAB", run), "CABCABCABCAB");
}

TEST(SchedOrderTest, OverflowSendsTheOlderHalfOfTheRingBehindTheRest) {
  // The ring holds 256, and the 257th is in runnext. The 258th kicks that one
  // out, which goes to the global queue together with the first 128.
  constexpr int kN = 258;
  std::vector<int> expected = {257};
  for (int i = 128; i < 256; i++) expected.push_back(i);
  for (int i = 0; i < 128; i++) expected.push_back(i);
  expected.push_back(256);
  std::vector<int> last;
  testing::RunWith(1, [&] {
    // Every 61st turn the global queue goes first. So only the relative order
    // of the two halves counts, and that of runnext.
    for (int round = 0; round < 10 && last != expected; round++) {
      last.clear();
      std::vector<int> early;
      std::vector<int> late;
      auto done = make_chan<void>();
      sync::WaitGroup wg;
      wg.Add(kN);
      for (int i = 0; i < kN; i++) {
        go([&, i] {
          (i < 128 || i == 256 ? late : early).push_back(i);
          wg.Done();
        });
      }
      wg.Wait();
      last = early;
      last.insert(last.end(), late.begin(), late.end());
    }
  });
  EXPECT_EQ(AnyOrderIfFuzzed(expected, last), expected);
}

TEST(SchedOrderTest, UnlockOfAStarvingMutexYieldsToTheWaiterAtOnce) {
  auto run = [](Log& log) {
    sync::Mutex mu;
    auto done = make_chan<void>();
    mu.Lock();
    go([&] {
      mu.Lock();  // waits for more than a millisecond, and loses the first race
      log += 'W';
      mu.Unlock();
      done.Send();
    });
    runtime::Gosched();
    auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    while (std::chrono::steady_clock::now() < end) {
    }
    mu.Unlock();
    mu.Lock();           // barges in before the waiter has run
    runtime::Gosched();  // the waiter turns the mutex to starving
    go([&log] { log += 'X'; });
    mu.Unlock();  // hands over to the waiter, ahead of X
    log += '0';
    done.Recv();
    YieldUntil(log, 3);
  };
  EXPECT_EQ(Ordered("WX0", run), "WX0");
}

// A pair that readies each other keeps its slice, so schedtick stands still.
// The global queue would wait for ever if sysmon did not see that.
TEST(SchedOrderTest, PairThatReadiesEachOtherDoesNotStarveTheGlobalQueue) {
  testing::RunWith(1, [] {
    auto ping = make_chan<int>();
    auto pong = make_chan<int>();
    bool stop = false;
    auto done = make_chan<void>();
    go([=, &stop] {
      while (!stop) {
        ping.Send(1);
        pong.Recv();
      }
      ping.Close();
      done.Send();
    });
    go([=] {
      while (ping.Recv().has_value()) pong.Send(1);
    });
    for (int i = 0; i < 5; i++) runtime::Gosched();  // through the global queue
    stop = true;
    done.Recv();
  });
}

// The timer of the sleeper is due at each look, and readies it in front of the
// ring. Each time the sleeper begins a new slice, so sysmon does not preempt
// it.
TEST(SchedOrderTest, OneThatSleepsForMomentsDoesNotStarveTheRing) {
  testing::RunWith(1, [] {
    for (int round = 0; round < 3; round++) {
      bool ran = false;
      go([&] { ran = true; });
      int sleeps = 0;
      for (; !ran && sleeps < 100'000; sleeps++) {
        time::Sleep(absl::Nanoseconds(1));
      }
      EXPECT_TRUE(ran) << "round " << round;
    }
  });
}

TEST(SchedOrderTest, ThoseThatYieldDoNotOvertakeTheGlobalQueue) {
  // The ring never runs empty, so the global queue gets only every 61st turn.
  // Goroutines that yield all the time go there, too. A goroutine that has come
  // there in another way, here from a plain thread, must get its turn.
  testing::RunWith(1, [] {
    struct State {
      std::atomic<bool> stop = false;
      std::atomic<bool> ran = false;
    } state;
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([&state] {
        while (!state.stop) runtime::Gosched();
      });
      auto c = make_chan<int>();
      wg.Go([&state, c] {
        while (!state.stop) {
          go([c] { c.Send(1); });
          go([c] { c.Send(2); });
          c.Recv();
          c.Recv();
        }
      });
    }
    std::thread t([&state] { go([&state] { state.ran = true; }); });
    EXPECT_TRUE(testing::Eventually([&] { return state.ran.load(); }));
    state.stop = true;
    wg.Wait();
    blocking([&t] { t.join(); });
  });
}

TEST(SchedOrderTest, FullRingDoesNotStarveTheGlobalQueue) {
  // Goroutines that start one another keep the ring from ever being empty. The
  // global queue gets every 61st turn.
  testing::RunWith(1, [] {
    struct Chain {
      std::atomic<bool> stop = false;
      std::atomic<int> alive = 0;
      void Link() {
        if (!stop) {
          alive++;
          go([this] { Link(); });
        }
        alive--;
      }
    } chain;
    for (int i = 0; i < 4; i++) {
      chain.alive++;
      go([&chain] { chain.Link(); });
    }
    for (int i = 0; i < 5; i++) runtime::Gosched();
    chain.stop = true;
    EXPECT_TRUE(testing::Eventually([&] { return chain.alive == 0; }));
  });
}

}  // namespace
}  // namespace gump
