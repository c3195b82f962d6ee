// Wake-ups that must not be lost: one item at a time into a runtime that is
// about to fall asleep, from every kind of publisher.
//
// Each round trip leaves all Ps idle or about to be. So each round runs the
// race between a publisher's look at nmspinning and the last spinner's second
// look at the queues. A lost wake-up hangs the test.
#include <atomic>
#include <thread>

#include "gtest/gtest.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using WakeStressTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(WakeStressTest);

void Pause(testing::Rng& rng) {
  for (uint64_t i = rng.Below(3000); i > 0; i--) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
}

// A plain thread has no P, so a goroutine that it readies goes to the global
// queue. Only sched.lock publishes it, and releasing that lock is a plain
// store.
TEST_P(WakeStressTest, AThreadsItemReachesTheLastSpinner) {
  Run([] {
    auto ask = make_chan<int>();
    auto answer = make_chan<int>();
    sync::WaitGroup wg;
    wg.Go([=]() mutable {
      for (int v; ask >> v;) answer.Send(v + 1);
    });
    auto done = make_chan<void>();
    std::thread asker([=]() mutable {
      testing::StressLoop([&](testing::Rng& rng) {
        for (int i = 0; i < 200; i++) {
          ask.Send(i);
          Pause(rng);
          EXPECT_EQ(answer.Recv(), i + 1);
          Pause(rng);
        }
      });
      ask.Close();
      done.Send();
    });
    done.Recv();
    wg.Wait();
    asker.join();
  });
}

// go, Send and Gosched publish in a ring. Gosched sometimes publishes in the
// global queue.
TEST_P(WakeStressTest, GoroutinesKeepReachingEachOther) {
  Run([] {
    testing::StressLoop([](testing::Rng& rng) {
      auto c = make_chan<int>();
      sync::WaitGroup wg;
      wg.Go([=]() mutable {
        for (int v; c >> v;) {
          if (v % 3 == 0) runtime::Gosched();
        }
      });
      for (int i = 0; i < 200; i++) {
        sync::WaitGroup one;
        one.Go([&] {
          if (i % 2 == 0) runtime::Gosched();
        });
        c.Send(i);
        Pause(rng);
        one.Wait();
      }
      c.Close();
      wg.Wait();
    });
  });
}

// The mutex case that once hung: threads and goroutines on one lock.
TEST_P(WakeStressTest, ThreadsHandAMutexToGoroutines) {
  Run([] {
    sync::Mutex mu;
    int64_t counter = 0;
    std::atomic<bool> stop = false;
    std::thread other([&] {
      testing::Rng rng(1);
      while (!stop) {
        mu.Lock();
        counter++;
        Pause(rng);
        mu.Unlock();
      }
    });
    testing::StressLoop([&](testing::Rng& rng) {
      sync::WaitGroup wg;
      for (int g = 0; g < 4; g++) {
        wg.Go([&, seed = rng.Next()] {
          testing::Rng mine(seed);
          for (int i = 0; i < 20; i++) {
            mu.Lock();
            counter++;
            Pause(mine);
            mu.Unlock();
          }
        });
      }
      wg.Wait();
    });
    stop = true;
    blocking([&] { other.join(); });
    EXPECT_GT(counter, 0);
  });
}

}  // namespace
}  // namespace gump
