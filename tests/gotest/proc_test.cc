// The claims of Go's runtime/proc_test.go, under its names, in our words. A
// stop of the world, GOMAXPROCS(n) or Stack(true), takes the place of a
// collection. The order of the ring of runnable goroutines, which Go tests
// there too, is in runtime/sched/proc_runq_test.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/net.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "runtime/sched/rand.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/status.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::WaitGroup;
using testing::Eventually;
using testing::Ready;
using testing::RunWith;

// TSan delivers a signal when the program next calls libc, so it preempts no
// goroutine that only computes.
#if defined(GUMP_TSAN)
constexpr bool kPreemptsComputation = false;
#else
constexpr bool kPreemptsComputation = true;
#endif

void StopTheWorld() { (void)runtime::Stack(true); }

__attribute__((noinline)) void EmptyCall() { asm volatile(""); }

// A goroutine that starts itself anew until it is told to stop. The last one
// says so.
void Respawn(const std::atomic<bool>* stop, chan<void> done) {
  if (*stop) {
    done.Send();
    return;
  }
  go([=] { Respawn(stop, done); });
}

TEST(GoProcTest, TestStopTheWorldDeadlock) {
  RunWith(3, [] {
    std::atomic<bool> stop = false;
    auto last = make_chan<void>();
    WaitGroup loops;
    loops.Go([] {
      for (int i = 0; i < 1000; i++) StopTheWorld();
    });
    loops.Go([] {
      for (int i = 0; i < 1000; i++) runtime::GOMAXPROCS(3);
    });
    go([&stop, last] { Respawn(&stop, last); });
    loops.Wait();
    stop = true;
    last.Recv();
  });
}

// One goroutine polls a channel and yields; the sender begins later.
void YieldProgress(bool locked) {
  auto c = make_chan<bool>();
  auto got = make_chan<bool>();
  WaitGroup wg;
  wg.Go([=] {
    if (locked) runtime::LockOSThread();
    for (;;) {
      if (select(Recv(c), Default()) == 0) break;
      runtime::Gosched();
    }
    got.Send(true);
  });
  time::Sleep(absl::Milliseconds(10));
  c.Send(true);
  EXPECT_TRUE(got.Recv().value());
  wg.Wait();
}

using GoProcsTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(GoProcsTest);

TEST_P(GoProcsTest, TestYieldProgress) {
  Run([] { YieldProgress(/*locked=*/false); });
}

TEST_P(GoProcsTest, TestYieldLockedProgress) {
  Run([] { YieldProgress(/*locked=*/true); });
}

TEST_P(GoProcsTest, TestYieldLocked) {
  Run([] {
    auto done = make_chan<bool>();
    go([=] {
      runtime::LockOSThread();
      for (int i = 0; i < 10; i++) {
        runtime::Gosched();
        time::Sleep(absl::Milliseconds(1));
      }
      done.Send(true);
      // It ends locked, and its thread ends with it.
    });
    EXPECT_TRUE(done.Recv().value());
  });
}

// P goroutines pass a number around by computing, which needs all of them to
// have a processor at once, because nothing preempts them in time.
void PassAround(int procs, std::atomic<int>& x, int self) {
  for (int round = 0; round < 3; round++) {
    const int expected = procs * round + self;
    while (x != expected) {
    }
    x = expected + 1;
  }
}

constexpr int kParallel = 4;
constexpr int kTries = 3;

TEST(GoProcTest, TestGoroutineParallelism) {
  if (runtime::NumCPU() == 1) GTEST_SKIP() << "takes too long";
  RunWith(kParallel, [] {
    for (int t = 0; t < kTries; t++) {
      std::atomic<int> x = 0;
      WaitGroup wg;
      for (int p = 0; p < kParallel; p++) {
        wg.Go([&x, p] { PassAround(kParallel, x, p); });
      }
      wg.Wait();
    }
  });
}

// The goroutines are started in two levels. With load, workers that have just
// run are parking. With netpoll, one M polls the network.
void GoroutineParallelism2(bool load, bool netpoll) {
  if (runtime::NumCPU() == 1) GTEST_SKIP() << "takes too long";
  RunWith(kParallel, [=] {
    std::vector<net::Listener> listeners;
    for (int t = 0; t < kTries; t++) {
      if (load) {
        std::atomic<int> running = 0;
        WaitGroup wg;
        for (int p = 0; p < kParallel; p++) {
          wg.Go([&] {
            running++;
            while (running != kParallel) {
            }
          });
        }
        wg.Wait();
      }
      if (netpoll) {
        listeners.push_back(Ready(net::Listen("tcp", "127.0.0.1:0")));
      }
      std::atomic<int> x = 0;
      WaitGroup wg;
      for (int p = 0; p < kParallel / 2; p++) {
        wg.Go([&x, &wg, p] {
          for (int q = 0; q < 2; q++) {
            wg.Go([&x, p, q] { PassAround(kParallel, x, p * 2 + q); });
          }
        });
      }
      wg.Wait();
    }
    for (const net::Listener& l : listeners) l.Close().IgnoreError();
  });
}

TEST(GoProcTest, TestGoroutineParallelism2_Load) {
  GoroutineParallelism2(/*load=*/true, /*netpoll=*/false);
}

TEST(GoProcTest, TestGoroutineParallelism2_Netpoll) {
  GoroutineParallelism2(/*load=*/false, /*netpoll=*/true);
}

TEST(GoProcTest, TestGoroutineParallelism2_LoadAndNetpoll) {
  GoroutineParallelism2(/*load=*/true, /*netpoll=*/true);
}

TEST_P(GoProcsTest, TestBlockLocked) {
  Run([] {
    constexpr int kValues = 10;
    auto c = make_chan<bool>();
    go([=] {
      runtime::LockOSThread();
      for (int i = 0; i < kValues; i++) c.Send(true);
      runtime::UnlockOSThread();
    });
    for (int i = 0; i < kValues; i++) ASSERT_TRUE(c.Recv().value());
  });
}

TEST_P(GoProcsTest, TestTimerFairness) {
  Run([] {
    auto c = make_chan<bool>();
    auto stop = make_chan<void>();
    WaitGroup wg;
    for (int i = 0; i < 2; i++) {
      wg.Go([=] {
        while (select(Send(c, true), Recv(stop)) == 0) {
        }
      });
    }
    const recv_chan<absl::Time> timer = time::After(absl::Milliseconds(20));
    while (select(Recv(c), Recv(timer)) == 0) {
    }
    stop.Close();
    wg.Wait();
  });
}

TEST_P(GoProcsTest, TestTimerFairness2) {
  Run([] {
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    ASSERT_GE(null, 0);
    auto c = make_chan<bool>();
    WaitGroup wg;
    for (int i = 0; i < 2; i++) {
      wg.Go([=] {
        const recv_chan<absl::Time> timer = time::After(absl::Milliseconds(20));
        char none = 0;
        do {
          blocking([&] { EXPECT_EQ(read(null, &none, 0), 0); });
        } while (select(Send(c, true), Recv(c), Recv(timer)) != 2);
      });
    }
    wg.Wait();
    close(null);
  });
}

// Two goroutines take turns, and the one that waits computes.
TEST_P(GoProcsTest, TestPreemption) {
  if (!kPreemptsComputation) GTEST_SKIP() << "needs preemption";
  Run([] {
    constexpr int kTurns = 5;
    std::atomic<int> x = 0;
    WaitGroup wg;
    for (int i = 0; i < 2; i++) {
      wg.Go([&x, i] {
        for (int n = 0; n < kTurns; n++) {
          while (x % 2 != i) EmptyCall();
          x++;
        }
      });
    }
    wg.Wait();
    EXPECT_EQ(x, 2 * kTurns);
  });
}

TEST(GoProcTest, TestPreemptionGC) {
  if (!kPreemptsComputation) GTEST_SKIP() << "needs preemption";
  constexpr int kHogs = 5;
  RunWith(kHogs + 1, [] {
    std::atomic<bool> stop = false;
    WaitGroup wg;
    for (int i = 0; i < kHogs; i++) {
      wg.Go([&] {
        while (!stop) EmptyCall();
      });
    }
    for (int i = 0; i < 10; i++) {
      runtime::Gosched();
      StopTheWorld();
    }
    stop = true;
    wg.Wait();
  });
}

// With one P, main must get it back from each kind of loop.
TEST(GoProcTest, TestAsyncPreempt) {
  if (!kPreemptsComputation) GTEST_SKIP() << "needs preemption";
  RunWith(1, [] {
    std::atomic<bool> stop = false;
    std::atomic<int> ready = 0;
    WaitGroup wg;
    wg.Go([&] {
      ready++;
      while (!stop.load(std::memory_order_relaxed)) {
        EmptyCall();
        EmptyCall();
      }
    });
    wg.Go([&] {
      ready++;
      uint32_t x = 1;
      while (!stop.load(std::memory_order_relaxed)) {
        x = x * 1664525 + 1013904223;
        asm volatile("" : "+r"(x));
      }
    });
    wg.Go([&] {
      ready++;
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
    while (ready != 3) runtime::Gosched();
    StopTheWorld();
    stop = true;
    wg.Wait();
  });
}

TEST(GoProcTest, TestGCFairness) {
  RunWith(1, [] {
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    ASSERT_GE(null, 0);
    std::atomic<bool> stop = false;
    WaitGroup wg;
    for (int i = 0; i < 2; i++) {
      wg.Go([&] {
        while (!stop) EXPECT_EQ(write(null, ".", 1), 1);
      });
    }
    time::Sleep(absl::Milliseconds(10));
    stop = true;
    wg.Wait();
    close(null);
  });
}

// Work of the system, here grace periods and finalizers, starves no goroutine.
TEST(GoProcTest, TestGCFairness2) {
  RunWith(1, [] {
    std::atomic<bool> stop = false;
    std::atomic<int> count[3] = {};
    WaitGroup wg;
    for (std::atomic<int>& mine : count) {
      wg.Go([&] {
        while (!stop) {
          runtime::SetFinalizer([] {});
          mine++;
        }
      });
    }
    EXPECT_TRUE(Eventually([&] {
      return std::all_of(std::begin(count), std::end(count),
                         [](const std::atomic<int>& n) { return n != 0; });
    }));
    stop = true;
    wg.Wait();
    std::atomic<bool> drained = false;
    runtime::SetFinalizer([&] { drained = true; });
    EXPECT_TRUE(Eventually([&] { return drained.load(); }));
  });
}

TEST_P(GoProcsTest, TestNumGoroutine) {
  Run([] {
    auto release = make_chan<void>();
    WaitGroup wg;
    for (int i = 0; i < 5; i++) wg.Go([=] { release.Recv(); });
    // A goroutine may end between the two questions.
    EXPECT_TRUE(Eventually([] {
      const int n = runtime::NumGoroutine();
      const std::string all = runtime::Stack(true);
      int headers = 0;
      for (size_t at = 0;
           (at = all.find("goroutine ", at)) != std::string::npos; at++) {
        if (at == 0 || all.compare(at - 2, 2, "\n\n") == 0) headers++;
      }
      return n == headers;
    }));
    release.Close();
    wg.Wait();
  });
}

// The runtime of a fresh program counts main alone.
TEST(GoProcDeathTest, TestNumGoroutine_IsOneAtTheStart) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(gump::Run([] { return runtime::NumGoroutine(); })),
              ::testing::ExitedWithCode(1), "");
}

// Each of two pairs shares its time slices, so a pair that computes for long
// gets no more than a pair that computes briefly.
TEST(GoProcTest, TestPingPongHog) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "counts are too small";
  RunWith(1, [] {
    auto done = make_chan<void>();
    auto hog = make_chan<void>();
    auto light = make_chan<void>();
    int64_t hogs = 0;
    int64_t lights = 0;
    WaitGroup wg;
    auto run = [&](int limit, int64_t* counter, const chan<void>& wake) {
      wg.Go([=] {
        while (select(Recv(done), Recv(wake)) == 1) {
          for (int i = 0; i < limit; i++) {
            ++*counter;
            asm volatile("" ::: "memory");
          }
          if (select(Recv(done), Send(wake)) == 0) return;
        }
      });
    };
    for (int i = 0; i < 2; i++) run(1'000'000, &hogs, hog);
    for (int i = 0; i < 2; i++) run(1000, &lights, light);
    hog.Send();
    light.Send();
    time::Sleep(absl::Milliseconds(200));
    done.Close();
    wg.Wait();
    constexpr int64_t kFactor = 20;
    EXPECT_LE(hogs / kFactor, lights);
    EXPECT_LE(lights / kFactor, hogs);
  });
}

__attribute__((noinline)) void BigFrame() {
  volatile char frame[8 << 10];
  frame[0] = 1;
  asm volatile("" ::"r"(frame) : "memory");
}

TEST(GoProcTest, TestPreemptSplitBig) {
  if (!kPreemptsComputation) GTEST_SKIP() << "needs preemption";
  RunWith(2, [] {
    std::atomic<bool> stop = false;
    WaitGroup wg;
    wg.Go([&] {
      while (!stop) BigFrame();
    });
    for (int i = 0; i < 3; i++) {
      time::Sleep(absl::Milliseconds(1));
      StopTheWorld();
    }
    stop = true;
    wg.Wait();
  });
}

bool TaskExists(pid_t tid) {
  return std::filesystem::exists("/proc/self/task/" + std::to_string(tid));
}

// A goroutine that ends locked takes its thread with it.
TEST(GoProcTest, TestLockOSThreadExit) {
  RunWith(2, [] {
    runtime::LockOSThread();
    auto ready = make_chan<pid_t>(1);
    go([=] {
      runtime::LockOSThread();
      ready.Send(gettid());
    });
    const pid_t tid = ready.Recv().value();
    runtime::UnlockOSThread();
    EXPECT_TRUE(Eventually([&] {
      EXPECT_NE(gettid(), tid);
      return !TaskExists(tid);
    }));
  });
}

// No thread is made by one that a goroutine may have changed. The goroutine
// gives its thread a working directory of its own, and ends locked.
TEST(GoProcTest, TestLockOSThreadAvoidsStatePropagation) {
  RunWith(1, [] {
    runtime::LockOSThread();
    const std::filesystem::path before = std::filesystem::current_path();
    const bool elsewhere = before != "/";
    auto permitted = make_chan<bool>(1);
    go([=] {
      runtime::LockOSThread();
      const bool ok = unshare(CLONE_FS) == 0;
      permitted.Send(ok && chdir(elsewhere ? "/" : "/tmp") == 0);
    });
    if (permitted.Recv().value()) {
      constexpr int kThreads = 4;
      std::atomic<int> seen = 0;
      auto release = make_chan<void>();
      WaitGroup wg;
      for (int i = 0; i < kThreads; i++) {
        wg.Go([&, release] {
          runtime::LockOSThread();
          EXPECT_EQ(std::filesystem::current_path(), before);
          seen++;
          release.Recv();
          runtime::UnlockOSThread();
        });
      }
      EXPECT_TRUE(Eventually([&] { return seen == kThreads; }));
      release.Close();
      wg.Wait();
    }
    runtime::UnlockOSThread();
  });
}

// Threads of which each asks the kernel for random bytes, and ends with its
// locked goroutine, leave no state behind.
TEST(GoProcTest, TestLockOSThreadVgetrandom) {
  constexpr int kThreads = rt::kSanitizerBuild ? 100 : 1000;
  RunWith(4, [] {
    auto places = make_chan<bool>(50);
    WaitGroup wg;
    for (int i = 0; i < kThreads; i++) {
      places.Send(true);
      wg.Go([=] {
        runtime::LockOSThread();
        uint64_t bytes = 0;
        EXPECT_EQ(getrandom(&bytes, sizeof(bytes), 0),
                  static_cast<ssize_t>(sizeof(bytes)));
        (void)places.Recv();
      });
    }
    wg.Wait();
  });
}

// A thief looks at each P once, from any start and with any stride. Go compares
// all of its orders; here an order is random, so many are drawn.
TEST(GoProcTest, TestStealOrder) {
  rt::M m;
  m.schedrand = 1;
  for (uint32_t procs = 1; procs <= 64; procs++) {
    std::set<std::vector<uint32_t>> orders;
    for (int i = 0; i < 200; i++) {
      std::vector<uint32_t> order;
      for (rt::RandomOrder o(procs, &m); !o.done(); o.next()) {
        order.push_back(o.position());
      }
      orders.insert(order);
      ASSERT_EQ(order.size(), procs);
      std::sort(order.begin(), order.end());
      for (uint32_t p = 0; p < procs; p++) ASSERT_EQ(order[p], p);
    }
    // Each start has at least two strides where there are three Ps or more.
    EXPECT_GE(orders.size(), procs < 3 ? procs : std::min(2 * procs, 60u));
  }
}

// The world stops while two goroutines lock their threads for the first time in
// the process, both with work in their queues.
void LockWhileTheWorldStops() {
  RunWith(4, [] {
    std::atomic<bool> stop = false;
    WaitGroup all;
    all.Go([&] {
      while (!stop) StopTheWorld();
    });
    const auto start =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
    WaitGroup wg;
    for (int n = 0; n < 2; n++) {
      wg.Go([=] {
        while (std::chrono::steady_clock::now() < start) {
        }
        go([] {});
        runtime::LockOSThread();
        runtime::Gosched();
      });
    }
    wg.Wait();
    stop = true;
    all.Wait();
  });
  std::exit(0);
}

TEST(GoProcDeathTest, TestLockOSThreadTemplateThreadRace) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int i = 0; i < 10; i++) {
    EXPECT_EXIT(LockWhileTheWorldStops(), ::testing::ExitedWithCode(0), "");
  }
}

// Short system calls do not renew the time slice of their goroutine.
void PreemptionAfterSyscall(std::chrono::microseconds spin) {
  RunWith(2, [=] {
    constexpr int kGoroutines = 8;
    std::atomic<bool> stop = false;
    auto c = make_chan<bool>(kGoroutines);
    for (int i = 0; i < kGoroutines; i++) {
      go([&stop, c, spin] {
        c.Send(true);
        while (!stop) {
          blocking([=] {
            const auto end = std::chrono::steady_clock::now() + spin;
            while (std::chrono::steady_clock::now() < end) {
            }
          });
        }
        c.Send(true);
      });
    }
    for (int i = 0; i < kGoroutines; i++) ASSERT_TRUE(c.Recv().value());
    stop = true;
    for (int i = 0; i < kGoroutines; i++) ASSERT_TRUE(c.Recv().value());
  });
}

TEST(GoProcTest, TestPreemptionAfterSyscall_10us) {
  PreemptionAfterSyscall(std::chrono::microseconds(10));
}

TEST(GoProcTest, TestPreemptionAfterSyscall_100us) {
  PreemptionAfterSyscall(std::chrono::microseconds(100));
}

TEST(GoProcTest, TestPreemptionAfterSyscall_1000us) {
  PreemptionAfterSyscall(std::chrono::microseconds(1000));
}

TEST(GoProcDeathTest, TestBigGOMAXPROCS) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("GOMAXPROCS", "1024", 1);
        gump::Run([] {
          WaitGroup wg;
          for (int i = 0; i < 100; i++) wg.Go([] { runtime::Gosched(); });
          wg.Wait();
          std::exit(runtime::GOMAXPROCS(0) == 1024 ? 0 : 1);
        });
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gump
