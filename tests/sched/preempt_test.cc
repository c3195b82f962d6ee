// A goroutine that computes does not hold up the others, even if it does so for
// ever, in malloc or anywhere else. Three other files test goroutines that
// sleep (preempt_blocked_test.cc), handlers of the program
// (preempt_handler_test.cc), and the kernel (preempt_signal_test.cc).
#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/sys/sanitizer.h"
#include "tests/sched/preempt_testing.h"
#include "tests/testing/talk.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Begun;
using testing::Eventually;
using testing::Talk;

using namespace std::string_view_literals;

// Hog is something that a goroutine does for a moment, again and again, without
// ever entering the runtime.
struct Hog {
  const char* name;
  void (*step)();
};

std::atomic<uint64_t> sink;

int CompareSlowly(const void* a, const void* b) {
  uint64_t x = 1;
  for (int i = 0; i < 1000; i++) x = x * 6364136223846793005 + 1;
  sink.store(x, std::memory_order_relaxed);
  return *static_cast<const int*>(a) - *static_cast<const int*>(b);
}

const Hog kHogs[] = {
    {"Compute",
     [] {
       double x = 1;
       for (int i = 0; i < 1000; i++) x = std::sqrt(x + i);
       ASSERT_NEAR(x, 32.09, 0.1);
     }},
    {"Malloc",
     [] {
       void* volatile p[16];
       for (size_t i = 0; i < 16; i++) p[i] = std::malloc(size_t{16} << i);
       for (void* volatile& q : p) std::free(q);
     }},
    {"Stdio",
     [] {
       static FILE* const null = std::fopen("/dev/null", "w");
       std::fprintf(null, "%d %s %f\n", 1, "two", 3.0);
     }},
    {"Throw",
     [] {
       try {
         throw std::runtime_error("x");
       } catch (const std::exception& e) {
         ASSERT_STREQ(e.what(), "x");
       }
     }},
    {"Regex",
     [] {
       static const std::regex re("(a+)+b");
       ASSERT_TRUE(std::regex_match("aaaaaaaaaaaab", re));
     }},
    {"Qsort",
     [] {
       int v[64];
       for (int i = 0; i < 64; i++) v[i] = (i * 37) % 64;
       std::qsort(v, 64, sizeof(int), CompareSlowly);
       for (int i = 0; i < 64; i++) ASSERT_EQ(v[i], i);
     }},
    {"Dlopen",
     [] {
       // Part of libc6, and not mapped by anything else.
       void* h = dlopen("libanl.so.1", RTLD_NOW);
       ASSERT_NE(h, nullptr);
       dlclose(h);
     }},
};

class HogTest : public ::testing::TestWithParam<std::tuple<Hog, int>> {
 protected:
  const Hog& hog() const { return std::get<0>(GetParam()); }
  // TSan delivers a signal when the program next calls libc.
  void SetUp() override {
    runtime::GOMAXPROCS(std::get<1>(GetParam()));
    const std::string name = hog().name;
#if defined(GUMP_TSAN)
    if (name == "Compute") GTEST_SKIP() << "never calls libc";
#endif
  }
};
INSTANTIATE_TEST_SUITE_P(, HogTest,
                         ::testing::Combine(::testing::ValuesIn(kHogs),
                                            ::testing::Values(1, 2, 4)),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param).name) +
                                  "GOMAXPROCS" +
                                  std::to_string(std::get<1>(param.param));
                         });

// With four hogs and one or two Ps, every exchange of Talk waits for a
// preemption. The results of each hog are right, and it stays on its thread.
TEST_P(HogTest, OthersGoOn) {
  gump::Run([&] {
    std::atomic<bool> stop = false;
    std::atomic<int> steps = 0;
    Begun begun;
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([&, step = hog().step] {
        begun.Count();
        const pid_t tid = gettid();
        while (!stop.load(std::memory_order_relaxed)) {
          errno = 1000;
          step();
          steps.fetch_add(1, std::memory_order_relaxed);
        }
        EXPECT_EQ(gettid(), tid) << "it never entered the runtime";
      });
    }
    begun.Wait(4);
    Talk(5);
    runtime::GC();
    EXPECT_NE(runtime::Stack(true).find("goroutine "), std::string::npos);
    stop = true;
    wg.Wait();
    EXPECT_GT(steps, 0);
  });
}

using PreemptTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(PreemptTest);

// Coroutine is a coroutine of the program, on a stack of its own.
struct Coroutine {
  std::atomic<bool> begun = false;
  std::atomic<bool> stop = false;
  ucontext_t self;
  ucontext_t caller;
  alignas(16) char stack[64 << 10];
} coroutine;

TEST_P(PreemptTest, CoroutinesThatComputeHoldUpNoGoroutine) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "left alone under sanitizers";
  gump::Run([] {
    coroutine.begun = coroutine.stop = false;
    sync::WaitGroup wg;
    wg.Go([] {
      ASSERT_EQ(getcontext(&coroutine.self), 0);
      coroutine.self.uc_stack.ss_sp = coroutine.stack;
      coroutine.self.uc_stack.ss_size = sizeof(coroutine.stack);
      coroutine.self.uc_link = &coroutine.caller;
      makecontext(
          &coroutine.self,
          +[] {
            coroutine.begun = true;
            while (!coroutine.stop) asm volatile("");
          },
          0);
      ASSERT_EQ(swapcontext(&coroutine.caller, &coroutine.self), 0);
    });
    while (!coroutine.begun) runtime::Gosched();
    Talk(100);
    // This stops the world. The callers of the interrupted frame are not
    // walked, because that stack is not ours.
    const std::string dump = runtime::Stack(true);
    const std::regex one(" \\[runnable\\]:\n.*\n\t.*\ncreated by ");
    EXPECT_TRUE(std::regex_search(dump, one)) << dump;
    coroutine.stop = true;
    wg.Wait();
  });
}

// The number of Ps changes while every P has a hog. One hog only computes
// (except under TSan, which would not stop it), the others are in malloc.
TEST_P(PreemptTest, WorldStopsUnderHogs) {
  gump::Run([] {
    const int procs = runtime::GOMAXPROCS(0);
    std::atomic<bool> stop = false;
    Begun begun;
    sync::WaitGroup wg;
    for (int i = 0; i < procs; i++) {
      wg.Go([&, computes = i == 0 && !rt::kSanitizerDefersHandlers] {
        begun.Count();
        while (!stop.load(std::memory_order_relaxed)) {
          if (computes) continue;
          void* volatile p = std::malloc(100);
          std::free(p);
        }
      });
    }
    begun.Wait(procs);
    for (int i = 0; i < 10; i++) {
      runtime::GOMAXPROCS(i % 2 == 0 ? procs + 3 : procs);
    }
    stop = true;
    wg.Wait();
  });
}

// Signals from outside, with and without a reason to preempt, change nothing.
TEST_P(PreemptTest, StormOfSIGURGChangesNothing) {
  std::atomic<bool> stop = false;
  std::thread storm([&] {
    while (!stop) {
      kill(getpid(), SIGURG);
      usleep(50);
    }
  });
  gump::Run([&] {
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([] {
        for (int k = 0; k < (rt::kSanitizerBuild ? 40 : 200); k++) {
          for (const Hog& hog : kHogs) {
            if (hog.name != "Regex"sv) hog.step();
          }
          runtime::Gosched();
        }
      });
    }
    Talk(1000);
    wg.Wait();
  });
  stop = true;
  storm.join();
}

// Run returns, and the process can end, while others compute for ever.
TEST(PreemptDeathTest, RunReturnsUnderHogs) {
  EXPECT_EXIT(
      {
        gump::Run([] {
          static Begun begun;
          for (int i = 0; i < 4; i++) {
            go([] {
              begun.Count();
              for (;;) {
                void* volatile p = std::malloc(100);  // not optimised away
                std::free(p);
              }
            });
          }
          begun.Wait(4);
          Talk(2);
        });
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

// With one P, a goroutine that yields waits in a queue of that P. It counts as
// a goroutine that waits all the same.
TEST(PreemptLimitTest, SoleHogIsPreemptedForYieldedGoroutines) {
  testing::RunWith(1, [] {
    auto c = make_chan<int>();
    go([&] { c.Send(1); });
    c.Recv();  // main parks, and continues on another thread than Run's
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    wg.Go([&] {
      while (!stop) {
      }
    });
    runtime::Gosched();
    stop = true;
    wg.Wait();
  });
}

// ---- Other tasks of sysmon

void SetAffinity(const cpu_set_t& set) {
  // sched_setaffinity changes one thread.
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* d = readdir(tasks)) {
    const int tid = std::atoi(d->d_name);
    if (tid != 0) sched_setaffinity(tid, sizeof(set), &set);
  }
  closedir(tasks);
}

// A process of its own, because GOMAXPROCS(n) must not have been called.
TEST(PreemptDeathTest, GomaxprocsFollowsTheAffinity) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "one processor";
  EXPECT_EXIT(
      {
        unsetenv("GOMAXPROCS");
        unsetenv("GUMP_MAXPROCS");
        bool followed = false;
        gump::Run([&] {
          const int before = runtime::GOMAXPROCS(0);
          cpu_set_t one;
          CPU_ZERO(&one);
          for (int i = 0; CPU_COUNT(&one) == 0; i++) {
            if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
          }
          SetAffinity(one);
          followed =
              testing::Eventually([] { return runtime::GOMAXPROCS(0) == 1; });
          SetAffinity(all);
          followed = followed && testing::Eventually([&] {
                       return runtime::GOMAXPROCS(0) == before;
                     });
        });
        std::exit(followed ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace gump
