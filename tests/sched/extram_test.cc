// Threads that the program made are first-class. They use everything that
// goroutines use, beside goroutines and together with them. There may be
// thousands of them, and they may be short-lived. They leave nothing behind
// when they end, however they do that.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gump/chan.h"
#include "gump/gls.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/tls.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using namespace std::chrono_literals;

struct Extra {
  int64_t all;   // pseudo-Ms ever made
  int32_t lent;  // to threads that live
};
Extra ExtraMs() {
  rt::LockScope l(&rt::sched.lock);
  return {rt::sched.nmextraAll, rt::sched.nmextra};
}

// Crowd is four plain threads, each with a goroutine at its side.
class Crowd {
 public:
  static constexpr int kThreads = 4;

  // Together runs f(0), f(1), ... at once, the even ones on threads, the odd
  // ones as goroutines, and waits for all.
  static void Together(const std::function<void(int)>& f) {
    std::vector<std::thread> threads;
    sync::WaitGroup wg;
    for (int i = 0; i < kThreads; i++) {
      threads.emplace_back([&f, i] { f(2 * i); });
      wg.Go([&f, i] { f(2 * i + 1); });
    }
    wg.Wait();
    testing::JoinAll(threads);
  }
  static constexpr int kAll = 2 * kThreads;
};

using ForeignTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(ForeignTest);

constexpr int kRounds = rt::kSanitizerBuild ? 50 : 500;

TEST_P(ForeignTest, CellsThatAThreadKeeps_CountAsNoGoroutines) {
  Run([] {
    const int before = runtime::NumGoroutine();
    chan<void> spawned = make_chan<void>();
    chan<void> counted = make_chan<void>();
    std::thread t([&] {
      const auto spawn = [](int n) {
        sync::WaitGroup wg;
        for (int i = 0; i < n; i++) wg.Go([] {});
        wg.Wait();
      };
      // Ps give whole batches of free cells to the pool, and the thread takes
      // one when it needs a cell. How many cells it has left after a number of
      // goroutines is chance, and may be none.
      spawn(1000);
      EXPECT_TRUE(testing::Eventually([&] {
        spawn(1);
        return rt::getg()->m->gFreeN > 0;
      }));
      spawned.Close();
      counted.Recv();
    });
    spawned.Recv();
    EXPECT_TRUE(
        testing::Eventually([&] { return runtime::NumGoroutine() == before; }));
    counted.Close();
    blocking([&t] { t.join(); });
    EXPECT_TRUE(
        testing::Eventually([&] { return runtime::NumGoroutine() == before; }));
  });
}

// ---- Every primitive

TEST_P(ForeignTest, EveryValueSentBeforeTheCloseIsReceived) {
  Run([] {
    for (const size_t cap : {size_t{0}, size_t{1}, size_t{16}}) {
      auto there = make_chan<int>(cap);
      std::atomic<int> open = Crowd::kAll / 2;
      std::atomic<int> sum = 0;
      // Half of the threads and half of the goroutines send.
      Crowd::Together([&, there](int i) {
        if (i % 4 < 2) {
          for (int k = 1; k <= kRounds; k++) there.Send(k);
          if (--open == 0) there.Close();
        } else {
          for (int v : there) sum += v;
        }
      });
      EXPECT_EQ(sum, Crowd::kAll / 2 * kRounds * (kRounds + 1) / 2);
    }
  });
}

TEST_P(ForeignTest, CloseWakesEveryReceiver) {
  Run([] {
    for (int round = 0; round < kRounds / 10; round++) {
      auto c = make_chan<int>();
      std::atomic<int> waiting = 0;
      Crowd::Together([&, c](int i) {
        if (i == round % Crowd::kAll) {
          while (waiting < Crowd::kAll - 1) runtime::Gosched();
          c.Close();
          return;
        }
        waiting++;
        EXPECT_EQ(c.Recv(), std::nullopt);
      });
    }
  });
}

TEST_P(ForeignTest, SelectsMeetSelects) {
  Run([] {
    auto c = make_chan<int>();
    auto d = make_chan<int>(2);
    auto stop = make_chan<void>();
    std::atomic<int> sum = 0;
    std::atomic<int> senders = Crowd::kAll / 2;
    Crowd::Together([&, c, d, stop](int i) {
      if (i % 4 < 2) {
        for (int k = 1; k <= kRounds; k++) {
          select(Send(c, k), Send(d, k));
        }
        if (--senders == 0) stop.Close();
        return;
      }
      for (bool stopped = false; !stopped;) {
        select(Recv(c, [&](int v) { sum += v; }),
               Recv(d, [&](int v) { sum += v; }),
               Recv(stop, [&] { stopped = true; }));
      }
    });
    while (d.Len() > 0) sum += *d.Recv();
    EXPECT_EQ(sum, Crowd::kAll / 2 * kRounds * (kRounds + 1) / 2);
  });
}

TEST_P(ForeignTest, LocksExcludeEveryone) {
  Run([] {
    sync::Mutex mu;
    sync::RWMutex rw;
    int n = 0;
    int m = 0;
    Crowd::Together([&](int i) {
      for (int k = 0; k < kRounds; k++) {
        mu.Lock();
        n++;
        mu.Unlock();
        if ((i + k) % 4 == 0) {
          rw.Lock();
          m++;
          rw.Unlock();
        } else {
          rw.RLock();
          EXPECT_GE(m, 0);
          rw.RUnlock();
        }
        if (k % 16 == 0) runtime::Gosched();
      }
    });
    EXPECT_EQ(n, Crowd::kAll * kRounds);
    EXPECT_EQ(m, Crowd::kAll * kRounds / 4);
  });
}

// A lock may change hands between threads and goroutines while it is held.
TEST_P(ForeignTest, LockTakenByOneIsReleasedByAnother) {
  Run([] {
    sync::Mutex mu;
    for (int k = 0; k < 20; k++) {
      mu.Lock();
      std::thread t([&mu] { mu.Unlock(); });
      mu.Lock();
      go([&mu] { mu.Unlock(); });
      blocking([&t] { t.join(); });
      mu.Lock();
      mu.Unlock();
    }
  });
}

TEST_P(ForeignTest, WaitGroupCondAndOnceJoinEveryone) {
  Run([] {
    for (int round = 0; round < kRounds / 10; round++) {
      sync::WaitGroup all;
      sync::Once once;
      sync::Mutex mu;
      sync::Cond cond(mu);
      int here = 0;
      std::atomic<int> ran = 0;
      all.Add(Crowd::kAll);
      Crowd::Together([&](int) {
        once.Do([&] { ran++; });
        EXPECT_EQ(ran, 1);
        mu.Lock();
        if (++here == Crowd::kAll) cond.Broadcast();
        while (here < Crowd::kAll) cond.Wait();
        mu.Unlock();
        all.Done();
        all.Wait();
      });
    }
  });
}

TEST_P(ForeignTest, CondSignalsOneByOne) {
  Run([] {
    sync::Mutex mu;
    sync::Cond cond(mu);
    int turn = 0;
    Crowd::Together([&](int i) {
      for (int k = 0; k < kRounds / 10; k++) {
        mu.Lock();
        while (turn % Crowd::kAll != i) cond.Wait();
        turn++;
        cond.Broadcast();
        mu.Unlock();
      }
    });
    EXPECT_EQ(turn, Crowd::kAll * (kRounds / 10));
  });
}

TEST_P(ForeignTest, PoolAndMapAreShared) {
  Run([] {
    sync::Pool<std::string> pool;
    sync::Map<int, int> map;
    Crowd::Together([&](int i) {
      for (int k = 0; k < kRounds; k++) {
        auto s = pool.Get();
        if (s == nullptr) s = std::make_unique<std::string>("pooled");
        EXPECT_EQ(*s, "pooled");
        pool.Put(std::move(s));
        map.Store(1000 * i + k % 10, k);
        EXPECT_EQ(map.Load(1000 * i + k % 10), k);
        if (k % 100 == 0) runtime::GC();
      }
    });
  });
}

TEST_P(ForeignTest, ThreadsStartGoroutinesAndResizeTheRuntime) {
  Run([n = GetParam()] {
    std::atomic<int> ran = 0;
    Crowd::Together([&ran](int i) {
      sync::WaitGroup wg;
      for (int k = 0; k < 20; k++) {
        wg.Go([&ran] {
          runtime::Gosched();
          ran++;
        });
        runtime::Gosched();
      }
      EXPECT_GE(runtime::NumGoroutine(), 1);
      EXPECT_NE(runtime::Stack(true).find("goroutine "), std::string::npos);
      EXPECT_EQ(runtime::Stack(false).find("goroutine "), 0u);
      runtime::GOMAXPROCS(1 + i);
      debug::FreeOSMemory();
      wg.Wait();
    });
    EXPECT_EQ(ran, 20 * Crowd::kAll);
    runtime::GOMAXPROCS(n);
  });
}

// Two plain threads dump at once. The first takes a profile, and the second
// stops the world. Both look at goroutines whose waits no dump has seen yet, so
// both want to note the time. TSan looks on.
TEST_P(ForeignTest, TwoThreadsDumpTheSameNewWaits) {
  Run([] {
    constexpr int kWaiters = 20;
    for (int round = 0; round < kRounds; round++) {
      chan<void> release = make_chan<void>();
      sync::WaitGroup parked;
      sync::WaitGroup ended;
      for (int i = 0; i < kWaiters; i++) {
        parked.Add(1);
        ended.Go([&] {
          parked.Done();
          release.Recv();
        });
      }
      parked.Wait();
      std::vector<std::thread> threads;
      for (int i = 0; i < 2; i++) {
        threads.emplace_back([] {
          EXPECT_NE(runtime::Stack(true).find("chan receive"),
                    std::string::npos);
        });
      }
      testing::JoinAll(threads);
      release.Close();
      ended.Wait();
    }
  });
}

// ---- Ends

TEST_P(ForeignTest, TenThousandThreadsLeaveNothingBehind) {
  constexpr int kAtOnce = 50;
  constexpr int kWaves = rt::kSanitizerBuild ? 20 : 200;
  static gls<int> local{0};
  Run([] {
    const Extra before = ExtraMs();
    auto c = make_chan<int>();
    sync::Mutex mu;
    int locked = 0;
    int sum = 0;
    for (int wave = 0; wave < kWaves; wave++) {
      std::vector<std::thread> threads;
      for (int i = 0; i < kAtOnce; i++) {
        threads.emplace_back([&, c, i] {
          ++*local;
          EXPECT_EQ(*local, 1);
          mu.Lock();
          locked++;
          mu.Unlock();
          if (i % 3 == 0) runtime::LockOSThread();
          if (i % 3 == 1) go([c] { c.Send(1); });
          if (i % 3 != 1) c.Send(1);
          if (i % 5 == 0) pthread_exit(nullptr);
        });
      }
      for (int i = 0; i < kAtOnce; i++) sum += *c.Recv();
      testing::JoinAll(threads);
      // A thread that has been joined has given its pseudo-G back.
      const Extra now = ExtraMs();
      ASSERT_LE(now.all, before.all + kAtOnce);
      ASSERT_EQ(now.lent, before.lent);
    }
    EXPECT_EQ(sum, kAtOnce * kWaves);
    EXPECT_EQ(locked, kAtOnce * kWaves);
  });
}

// The next thread with the same pseudo-M is not locked to anything.
TEST_P(ForeignTest, ThreadMayEndWhileLocked) {
  Run([] {
    for (int i = 0; i < 100; i++) {
      std::thread t([] {
        for (int k = 0; k < 3; k++) runtime::LockOSThread();
        auto c = make_chan<int>();
        go([c] { c.Send(1); });
        EXPECT_EQ(c.Recv(), 1);
        const rt::M* mp = rt::getg()->m;
        EXPECT_EQ(mp->lockedExt, 3u);
      });
      blocking([&t] { t.join(); });
    }
  });
}

TEST_P(ForeignTest, ThreadsThrowAndWaitInHandlers) {
  Run([] {
    auto c = make_chan<int>();
    Crowd::Together([c](int i) {
      for (int k = 0; k < kRounds / 10; k++) {
        try {
          throw std::runtime_error(std::to_string(i));
        } catch (const std::exception& e) {
          if (i % 4 < 2) {
            c.Send(k);
          } else {
            c.Recv();
          }
          EXPECT_EQ(e.what(), std::to_string(i));
        }
        EXPECT_EQ(std::current_exception(), nullptr);
      }
    });
  });
}

bool Talk() {
  auto c = make_chan<int>();
  auto d = make_chan<int>(1);
  sync::Mutex mu;
  mu.Lock();
  go([=, &mu] {
    d.Send(*c.Recv() + 1);
    mu.Unlock();
  });
  c.Send(41);
  mu.Lock();
  mu.Unlock();
  return d.Recv() == 42;
}

std::atomic<int> talked;
pthread_key_t lateKey;

// TalkLate is the destructor of a pthread key. It may run before or after the
// runtime's own, so it asks to be called again. Then one call certainly comes
// after the runtime's.
void TalkLate(void* turns) {
  talked += Talk() ? 1 : 0;
  const auto left = reinterpret_cast<uintptr_t>(turns) - 1;
  if (left > 0) pthread_setspecific(lateKey, reinterpret_cast<void*>(left));
}

TEST_P(ForeignTest, ThreadUsesChannelsWhenItsPseudoGIsGone) {
  static const int made = pthread_key_create(&lateKey, TalkLate);
  ASSERT_EQ(made, 0);
  struct Local {
    ~Local() { talked += Talk() ? 1 : 0; }
  };
  talked = 0;
  Run([] {
    const Extra before = ExtraMs();
    for (int i = 0; i < 20; i++) {
      std::thread t([i] {
        thread_local Local destroyedFirst;
        (void)&destroyedFirst;
        pthread_setspecific(lateKey, reinterpret_cast<void*>(uintptr_t{2}));
        if (i % 2 == 0) talked += Talk() ? 0 : 100;
      });
      blocking([&t] { t.join(); });
    }
    EXPECT_EQ(talked, 3 * 20);
    const Extra now = ExtraMs();
    EXPECT_LE(now.all, before.all + 1);
    EXPECT_EQ(now.lent, before.lent);
  });
}

// ---- The deadlock report

class ForeignDeathTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

constexpr char kDeadlock[] =
    "^fatal error: all goroutines are asleep - deadlock!\n\n"
    "goroutine 1 \\[chan receive\\]:\n";

bool MainIsParked() {
  return runtime::Stack(true).find("goroutine 1 [chan receive]:\n") !=
         std::string::npos;
}

TEST_F(ForeignDeathTest, DeadlockIsReportedAfterThreadsThatEnded) {
  EXPECT_EXIT(gump::Run([] {
                for (int i = 0; i < 20; i++) {
                  std::thread t([] { Talk(); });
                  blocking([&t] { t.join(); });
                }
                make_chan<int>().Recv();
              }),
              ::testing::ExitedWithCode(2), kDeadlock);
}

TEST_F(ForeignDeathTest, DeadlockIsReportedWhenTheLastThreadEnds) {
  EXPECT_EXIT(gump::Run([] {
                std::thread([] {
                  while (!MainIsParked()) runtime::Gosched();
                }).detach();
                make_chan<int>().Recv();
              }),
              ::testing::ExitedWithCode(2), kDeadlock);
}

// A first thread that has ended stays in the process as a zombie.
TEST_F(ForeignDeathTest, DeadlockIsReportedAfterTheFirstThreadEnded) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "a sanitizer may use that thread";
  EXPECT_EXIT(
      {
        std::thread([] {
          gump::Run([] { make_chan<int>().Recv(); });
        }).detach();
        ::syscall(SYS_exit, 0);  // ends this thread alone, without unwinding
      },
      ::testing::ExitedWithCode(2), kDeadlock);
}

TEST_F(ForeignDeathTest, ThreadThatLivesMayStillWakeThem) {
  EXPECT_EXIT(gump::Run([] {
                auto c = make_chan<int>();
                std::thread t([c] {
                  while (!MainIsParked()) runtime::Gosched();
                  // Others have come and gone meanwhile, and no deadlock was
                  // reported.
                  for (int i = 0; i < 10; i++) {
                    std::thread([] { Talk(); }).join();
                    EXPECT_TRUE(MainIsParked());
                  }
                  c.Send(7);
                });
                const int code = *c.Recv();
                blocking([&t] { t.join(); });
                std::exit(code);
              }),
              ::testing::ExitedWithCode(7), "^$");
}

// A list of the threads of a process may lack some of them if others end
// meanwhile. The threads that it lacks must not be taken for dead.
TEST_F(ForeignDeathTest, ThreadsThatEndHideNoneThatLives) {
  EXPECT_EXIT(gump::Run([] {
                auto c = make_chan<int>();
                // It does not use the library, so the runtime does not know it.
                // Each time another thread ends, all goroutines seem dead.
                std::thread t([c] {
                  for (int i = 0; i < 300; i++) {
                    std::thread a(Talk);
                    std::thread b(Talk);
                    a.join();
                    b.join();
                  }
                  std::thread([c] { c.Send(7); }).join();
                });
                const int code = *c.Recv();
                blocking([&t] { t.join(); });
                std::exit(code);
              }),
              ::testing::ExitedWithCode(7), "^$");
}

// The thread waits as well, but it has not ended. A wake-up may come from
// outside.
TEST_F(ForeignDeathTest, ThreadThatIsParkedCountsAsOneThatLives) {
  EXPECT_EXIT(gump::Run([] {
                auto c = make_chan<int>();
                auto d = make_chan<int>();
                std::thread([d] { d.Recv(); }).detach();
                std::thread([] {
                  while (!MainIsParked()) runtime::Gosched();
                  for (int i = 0; i < 10; i++) std::thread(Talk).join();
                  std::_Exit(7);
                }).detach();
                c.Recv();
              }),
              ::testing::ExitedWithCode(7), "^$");
}

}  // namespace
}  // namespace gump
