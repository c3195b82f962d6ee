// The reclamation cycle: memory that the program no longer uses goes back to
// the kernel, but no stack or thread that is in use.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "tests/testing/resident_bytes.h"
#include "tests/testing/sleep_on_threads.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using debug::ReadSchedStats;
using testing::Eventually;
using testing::ResidentBytes;
using testing::RunWith;
using testing::SleepOnThreads;

constexpr int kCrowd = 5000;
constexpr size_t kDeep = 64 << 10;

// UseStack writes to n bytes of the caller's stack, and returns a sum that is
// right only if the bytes have not been disturbed.
[[gnu::noinline]] uint64_t UseStack(size_t n, uint64_t seed) {
  auto* p = static_cast<unsigned char*>(__builtin_alloca(n));
  std::memset(p, static_cast<int>(seed & 0xff), n);
  asm volatile("" : : "r"(p) : "memory");
  uint64_t sum = 0;
  for (size_t i = 0; i < n; i += 512) sum += p[i];
  return sum;
}

// Crowd is a set of goroutines that have once gone deep into their stacks, and
// are parked until they are told to end.
class Crowd {
 public:
  explicit Crowd(int n) {
    for (int i = 0; i < n; i++) {
      go([this] {
        (void)UseStack(kDeep, 1);
        deep_++;
        end_.Recv();
        ended_++;
      });
    }
    EXPECT_TRUE(Eventually([&] { return deep_ == n; }));
    EXPECT_TRUE(Eventually([&] { return ReadSchedStats().runnable == 0; }));
  }
  void End() {
    end_.Close();
    EXPECT_TRUE(Eventually([&] { return ended_ == deep_; }));
  }

 private:
  std::atomic<int> deep_ = 0;
  std::atomic<int> ended_ = 0;
  chan<void> end_ = make_chan<void>();
};

// A goroutine that yields begins a new slice when it continues, and that raises
// schedtick. With more than one slab of goroutines the cycle also runs workers,
// which raise it, too. So this test comes before those that start many
// goroutines.
TEST(ReclaimTest, CyclesOfALoneGoroutine_DoNotYield) {
  if (rt::gcountAll() > 256) GTEST_SKIP() << "there are several slabs";
  RunWith(4, [] {
    constexpr uint32_t kCycles = 100;
    const auto executions = [] {
      uint32_t n = 0;
      for (int i = 0; i < 4; i++) n += rt::allp[i]->schedtick.load(rt::relaxed);
      return n;
    };
    EXPECT_TRUE(Eventually([&] {
      const uint32_t before = executions();
      for (uint32_t i = 0; i < kCycles; i++) runtime::GC();
      return executions() - before < kCycles / 2;
    }));
  });
}

TEST(ReclaimTest, StackPagesOfParkedGoroutinesAreGivenBack) {
  RunWith(2, [] {
    [[maybe_unused]] const int64_t before = ResidentBytes();
    Crowd crowd(kCrowd);
    const uint64_t reclaimed = ReadSchedStats().stack_bytes_reclaimed;
    runtime::GC();
    const uint64_t bytes = ReadSchedStats().stack_bytes_reclaimed - reclaimed;
    EXPECT_GE(bytes, uint64_t{kCrowd} * (kDeep - 2 * 4096));
#if !defined(GUMP_TESTING_SANITIZED)
    EXPECT_LE((ResidentBytes() - before) / kCrowd, 4800);
#endif
    crowd.End();
  });
}

TEST(ReclaimTest, StacksOfEndedGoroutinesAreGivenBackAndUsedAgain) {
  RunWith(2, [] {
    [[maybe_unused]] const int64_t before = ResidentBytes();
    for (int i = 0; i < 3; i++) {
      Crowd(kCrowd).End();
      runtime::GC();
#if !defined(GUMP_TESTING_SANITIZED)
      // Only their cells stay.
      EXPECT_LE((ResidentBytes() - before) / kCrowd, 600);
#endif
    }
  });
}

// Stir is the load of the next test: a goroutine that goes to a random depth,
// and parks at every depth.
[[gnu::noinline]] uint64_t Stir(testing::Rng* rng, const chan<int>& c,
                                int depth) {
  const uint64_t seed = rng->Next();
  volatile uint64_t frame[64];
  for (auto& word : frame) word = seed;
  const uint64_t sum = UseStack(rng->Below(kDeep), seed);
  if (depth > 0) (void)Stir(rng, c, depth - 1);
  if (rng->OneIn(2)) {
    c.Send(1);
  } else {
    (void)c.Recv();
  }
  for (const auto& word : frame) EXPECT_EQ(word, seed);
  return sum;
}

TEST(ReclaimTest, CyclesDisturbNoGoroutine) {
  for (const int procs : {1, 2, 4}) {
    RunWith(procs, [] {
      std::atomic<bool> over = false;
      std::atomic<int> left = 40;
      auto c = make_chan<int>();
      for (int i = 0; i < left; i++) {
        go([&, seed = static_cast<uint64_t>(i)] {
          testing::Rng rng(seed);
          for (int round = 0; round < 10; round++) (void)Stir(&rng, c, 8);
          left--;
        });
      }
      sync::WaitGroup cycles;
      for (int i = 0; i < 3; i++) {
        cycles.Go([&] {
          while (!over) runtime::GC();
        });
      }
      // As many senders as receivers, in the end.
      while (left > 0) {
        (void)c.TrySend(1);
        (void)c.TryRecv();
        runtime::Gosched();
      }
      over = true;
      cycles.Wait();
    });
  }
}

TEST(ReclaimTest, IdlePsHelp) {
  RunWith(2, [] {
    Crowd crowd(kCrowd);
    const uint64_t before = ReadSchedStats().reclaim_worker_slabs;
    EXPECT_TRUE(Eventually([&] {
      runtime::GC();
      return ReadSchedStats().reclaim_worker_slabs > before;
    }));
    crowd.End();
  });
}

TEST(ReclaimTest, CyclesInALoop_LetAnotherGoroutineRunBetweenThem) {
  RunWith(1, [] {
    constexpr int kCycles = 100;
    int turns = 0;
    bool over = false;
    sync::WaitGroup other;
    other.Go([&] {
      while (!over) {
        turns++;
        runtime::Gosched();
      }
    });
    for (int i = 0; i < kCycles; i++) runtime::GC();
    EXPECT_GE(turns, kCycles);
    over = true;
    other.Wait();
  });
}

TEST(ReclaimTest, PlainThreadsMayAskForIt) {
  RunWith(2, [] {
    Crowd crowd(100);
    const uint64_t before = ReadSchedStats().reclaim_cycles;
    blocking([] {
      std::thread a([] { runtime::GC(); });
      std::thread b([] { debug::FreeOSMemory(); });
      a.join();
      b.join();
    });
    EXPECT_GE(ReadSchedStats().reclaim_cycles, before + 2);
    crowd.End();
  });
}

TEST(ReclaimTest, UnneededThreadsEnd) {
  RunWith(2, [] {
    runtime::GC();
    const int32_t before = ReadSchedStats().threads;
    SleepOnThreads(50);
    const uint64_t retired = ReadSchedStats().threads_retired;
    EXPECT_TRUE(Eventually([&] {
      runtime::GC();
      return ReadSchedStats().threads <= before + 2;
    }));
    EXPECT_GE(ReadSchedStats().threads_retired, retired + 40);
    SleepOnThreads(50);  // they come again
  });
}

TEST(ReclaimTest, UnneededThreadsEndWithoutAGC) {
  RunWith(2, [] {
    SleepOnThreads(50);
    EXPECT_TRUE(Eventually([&] { return ReadSchedStats().threads < 15; }));
  });
}

TEST(ReclaimTest, ThreadsEndWhileOthersAreNeeded) {
  RunWith(4, [] {
    for (int i = 0; i < 30; i++) {
      sync::WaitGroup wg;
      wg.Go([] { runtime::GC(); });
      for (int k = 0; k < 3; k++) wg.Go([] { SleepOnThreads(5); });
      wg.Go([i] { runtime::GOMAXPROCS(2 + i % 5); });
      wg.Wait();
    }
  });
}

}  // namespace
}  // namespace gump
