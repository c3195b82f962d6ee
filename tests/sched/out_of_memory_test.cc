// When there is no memory: for a stack, for malloc, for a report.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/internal/linkname.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

class OutOfMemoryDeathTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    // Otherwise malloc reserves 64 MiB for each thread that first uses it, at
    // any time, out of the little that a test leaves the process.
    mallopt(M_ARENA_MAX, 1);
  }
  void SetUp() override {
    if (rt::kSanitizerBuild) {
      GTEST_SKIP() << "the shadow does not fit under RLIMIT_AS";
    }
  }
};

// LimitMemory leaves the process `spare` more bytes of address space.
rlimit LimitMemory(size_t spare) {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit old;
  getrlimit(RLIMIT_AS, &old);
  rlimit now = old;
  now.rlim_cur = pages * 4096 + spare;
  if (setrlimit(RLIMIT_AS, &now) != 0) std::abort();
  return old;
}

void Check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "failed: %s\n", what);
  std::_Exit(1);
}

// MakeThreads makes all threads that will be needed before memory gets short.
// There are as many as sleep in the kernel at the same time.
void MakeThreads() {
  constexpr int kThreads = 12;
  std::atomic<int> asleep = 0;
  sync::WaitGroup wg;
  for (int i = 0; i < kThreads; i++) {
    wg.Go([&asleep] {
      blocking([&asleep] {
        asleep++;
        while (asleep < kThreads) usleep(100);
      });
    });
  }
  wg.Wait();
}

// SpawnsUntilNoMemory starts goroutines, on stacks of 1 GiB, until there is
// room for no more. The runtime must be as good as new when they have ended.
void SpawnsUntilNoMemory(int gomaxprocs) {
  testing::RunWith(gomaxprocs, [] {
    MakeThreads();
    for (int round = 0; round < 3; round++) {
      const rlimit old = LimitMemory(size_t{3} << 30);
      auto gate = make_chan<void>();
      std::atomic<int> ended = 0;
      int started = 0;
      std::string text = "no panic";
      while (started < 100 && text == "no panic") {
        text = testing::PanicText([&] {
          go(GoOptions{.stack_size = 1 << 30, .name = "big"}, [&, gate] {
            gate.Recv();
            ended++;
          });
          started++;
        });
        for (int i = 0; i < 10; i++) runtime::Gosched();  // it gets its stack
      }
      Check(text == "out of memory (goroutine stack)", text.c_str());
      Check(started >= 2, "some had room");
      gate.Close();
      Check(testing::Eventually([&] { return ended == started; }),
            "those that waited for memory have run, too");
      sync::WaitGroup wg;
      int n = 0;
      sync::Mutex mu;
      for (int i = 0; i < 1000; i++) {
        wg.Go([&] {
          mu.Lock();
          n++;
          mu.Unlock();
        });
      }
      wg.Wait();
      Check(n == 1000, "usable afterwards");
      setrlimit(RLIMIT_AS, &old);
    }
  });
  std::_Exit(0);
}

TEST_F(OutOfMemoryDeathTest, NoMemoryForAStackIsAPanicAndPasses) {
  EXPECT_EXIT(SpawnsUntilNoMemory(1), ::testing::ExitedWithCode(0), "^$");
  EXPECT_EXIT(SpawnsUntilNoMemory(4), ::testing::ExitedWithCode(0), "^$");
}

// The timer of a sleeper needs a cell. Some sleepers find one. The others keep
// their timers on their stacks.
void SleepWithoutMemory() {
  constexpr int kSleepers = 10'000;
  testing::RunWith(2, [] {
    MakeThreads();
    auto gate = make_chan<void>();
    std::atomic<int> ready = 0;
    std::atomic<int> early = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < kSleepers; i++) {
      wg.Go([&, gate] {
        ready++;
        gate.Recv();
        constexpr auto kPause = std::chrono::milliseconds(20);
        // Sleep goes by this clock. absl::Now may be set back meanwhile.
        const auto due = std::chrono::steady_clock::now() + kPause;
        time::Sleep(kPause);
        early += std::chrono::steady_clock::now() < due ? 1 : 0;
      });
    }
    Check(testing::Eventually([&] { return ready == kSleepers; }), "all wait");
    // The timer heaps grow before memory gets short.
    std::vector<time::Timer> timers;
    for (int i = 0; i < 4 * kSleepers; i++) {
      timers.push_back(time::AfterFunc(absl::Hours(1), [] {}));
    }
    runtime::GOMAXPROCS(1);  // all timers are now in the heap of one P
    for (time::Timer& t : timers) t.Stop();
    const rlimit old = LimitMemory(0);
    gate.Close();
    wg.Wait();
    setrlimit(RLIMIT_AS, &old);
    Check(early == 0, "no sleeper wakes early");
  });
  std::_Exit(0);
}

TEST_F(OutOfMemoryDeathTest, GoroutinesSleepWithoutMemory) {
  EXPECT_EXIT(SleepWithoutMemory(), ::testing::ExitedWithCode(0), "^$");
}

// Burst runs n goroutines with stacks of a size, all at once.
void Burst(int n, size_t size) {
  sync::WaitGroup begun;
  sync::WaitGroup ended;
  auto gate = make_chan<void>();
  for (int i = 0; i < n; i++) {
    begun.Add(1);
    ended.Add(1);
    go(GoOptions{.stack_size = size, .name = {}}, [&, gate] {
      begun.Done();
      gate.Recv();
      ended.Done();
    });
  }
  begun.Wait();
  gate.Close();
  ended.Wait();
}

TEST_F(OutOfMemoryDeathTest, StacksOfOneSizeMakeRoomForThoseOfAnother) {
  EXPECT_EXIT(
      {
        testing::RunWith(2, [] {
          MakeThreads();
          LimitMemory(size_t{300} << 20);
          for (int i = 0; i < 3; i++) {
            Burst(200, 1 << 20);
            Burst(800, 0);
          }
        });
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// Idle Ps keep cached stacks only as long as no other P needs them.
void BarrierOfAsManyAsThereIsRoomFor() {
  MakeThreads();
  LimitMemory(size_t{60} << 20);
  auto gate = make_chan<void>();
  sync::WaitGroup ended;
  int room = 0;  // how many goroutines one P can have
  for (std::string text = "no panic"; text == "no panic";) {
    text = testing::PanicText([&] {
      ended.Add(1);
      go([&, gate] {
        gate.Recv();
        ended.Done();
      });
    });
    for (int i = 0; i < 10; i++) runtime::Gosched();  // it gets its stack
    if (text == "no panic") room++;
  }
  ended.Done();
  gate.Close();
  ended.Wait();
  // All of them wait for the last one to begin.
  runtime::GOMAXPROCS(4);
  sync::WaitGroup all;
  all.Add(room - 20);
  for (int i = 0; i < room - 20; i++) {
    ended.Add(1);
    // Ps that run, or look for work, keep the stacks that they have cached.
    // Until they are idle there may be none left for us.
    Check(testing::Eventually([&] {
            return testing::PanicText([&] {
                     go([&] {
                       all.Done();
                       all.Wait();
                       ended.Done();
                     });
                   }) == "no panic";
          }),
          "the stacks that idle Ps have cached are available");
  }
  ended.Wait();
}

TEST_F(OutOfMemoryDeathTest, IdlePsHaveNoStacksWhenOthersNeedThem) {
  EXPECT_EXIT(
      {
        testing::RunWith(1, BarrierOfAsManyAsThereIsRoomFor);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// TakeAll leaves malloc nothing.
void TakeAll() {
  for (size_t n = size_t{1} << 30; n >= 16; n /= 2) {
    while (void* volatile p = std::malloc(n)) static_cast<void>(p);
  }
}

TEST_F(OutOfMemoryDeathTest, StacksMakeRoomForThreads) {
  EXPECT_EXIT(
      {
        testing::RunWith(1, [] {
          Burst(50, 1 << 20);
          LimitMemory(4 << 20);
          sync::WaitGroup wg;
          // Each needs a thread, because it sleeps in the kernel.
          for (int i = 0; i < 5; i++) wg.Go([] { usleep(100'000); });
          wg.Wait();
        });
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// GoesWithoutMalloc ends the process with 0 if go() panics.
void GoesWithoutMalloc() {
  constexpr std::string_view kText = "out of memory (goroutine stack)";
  const GoOptions huge{.stack_size = 1 << 30, .name = {}};
  MakeThreads();
  LimitMemory(0);
  TakeAll();
  try {
    // If a goroutine finds no stack, the next go() tries to get one.
    for (int i = 0; i < 1000; i++) {
      go(huge, [] {});
      runtime::Gosched();
    }
  } catch (const PanicError& e) {
    std::_Exit(e.what() == kText ? 0 : 1);
  }
  std::_Exit(2);
}

TEST_F(OutOfMemoryDeathTest, GoPanicsEvenIfMallocHasNothing) {
  EXPECT_EXIT(testing::RunWith(1, GoesWithoutMalloc),
              ::testing::ExitedWithCode(0), "^$");
}

TEST_F(OutOfMemoryDeathTest, AReportNeedsNoMoreMemory) {
  EXPECT_EXIT(testing::RunWith(1,
                               [] {
                                 MakeThreads();
                                 LimitMemory(0);
                                 TakeAll();
                                 rt::fatalError("the end");
                               }),
              ::testing::ExitedWithCode(2),
              "^fatal error: the end\n\ngoroutine 1 .*gump::testing::RunWith");
}

}  // namespace
}  // namespace gump
