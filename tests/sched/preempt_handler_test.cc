// A goroutine does not hold up the others. This holds even if it computes for
// ever, in malloc or anywhere else, or sleeps in an undeclared call.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <new>
#include <regex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/talk.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Eventually;
using testing::Talk;
using namespace std::chrono_literals;

using namespace std::string_view_literals;

pid_t Tid() { return static_cast<pid_t>(syscall(SYS_gettid)); }

// Begun counts goroutines that are about to do their part.
class Begun {
 public:
  void Count() { n_++; }
  void Wait(int n) {
    while (n_ < n) runtime::Gosched();
  }

 private:
  std::atomic<int> n_ = 0;
};

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
        const pid_t tid = Tid();
        while (!stop.load(std::memory_order_relaxed)) {
          errno = 1000;
          step();
          steps.fetch_add(1, std::memory_order_relaxed);
        }
        EXPECT_EQ(Tid(), tid) << "it never entered the runtime";
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

// ReadersAreWaitedFor retires, again and again, a node at which readers look.
// Each reader looks before and after it calls its `between`.
void ReadersAreWaitedFor(std::vector<std::function<void()>> betweens) {
  // A deleted node keeps its memory. Otherwise another object in its place
  // might look alive.
  struct Node {
    static void operator delete(Node* n, std::destroying_delete_t) {
      n->alive = false;
    }
    std::atomic<bool> alive = true;
  };
  constexpr size_t kRetired = 20;
  std::array<Node, kRetired + 1> nodes;
  std::atomic<Node*> head = &nodes[0];
  std::atomic<bool> stop = false;
  sync::WaitGroup readers;
  for (const auto& between : betweens) {
    readers.Go([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        const Node* node = head.load();
        between();
        EXPECT_TRUE(node->alive);
        runtime::Gosched();
      }
    });
  }
  for (size_t i = 1; i <= kRetired; i++) {
    runtime::Retire(head.exchange(&nodes[i]));
    usleep(5000);
  }
  stop = true;
  readers.Wait();
  EXPECT_TRUE(Eventually([&] {
    return std::none_of(nodes.begin(), nodes.end() - 1,
                        [](const Node& n) { return n.alive.load(); });
  }));
}

void ComputeFor(std::chrono::milliseconds d) {
  const auto until = std::chrono::steady_clock::now() + d;
  while (std::chrono::steady_clock::now() < until) {
  }
}

// A reader without a lock is waited for, even if it is preempted or asleep.
TEST_P(PreemptTest, RetireWaitsForReadersThatLostTheirP) {
  Run([] {
    const auto compute = [] { ComputeFor(25ms); };
    const auto sleep = [] { usleep(25'000); };
    ReadersAreWaitedFor({compute, sleep, compute, sleep});
  });
}

// The readers sleep all the time. Their Ps are borrowed for the safe point and
// given back.
TEST_P(PreemptTest, RetireWaitsForReadersThatSleep) {
  Run([] {
    const auto sleep = [] { usleep(15'000); };
    ReadersAreWaitedFor({sleep, sleep, sleep, sleep});
  });
}

// A reader that lost its P while asleep wakes up, computes, and is preempted.
// It has still not entered the runtime.
TEST_P(PreemptTest, RetireWaitsForReadersThatSleepAndThenCompute) {
  Run([] {
    const auto both = [] {
      usleep(15'000);
      ComputeFor(40ms);
    };
    ReadersAreWaitedFor({both, both, both, both});
  });
}

// There is one hog and no other goroutine that computes, and every P has to
// pass a safe point. The P of the hog must not go straight back to the hog.
TEST_P(PreemptTest, GracePeriodsEndUnderOneHog) {
#if defined(GUMP_TSAN)
  GTEST_SKIP() << "never calls libc";
#endif
  Run([] {
    std::atomic<bool> stop = false;
    Begun begun;
    sync::WaitGroup wg;
    wg.Go([&] {
      begun.Count();
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
    begun.Wait(1);
    for (int i = 0; i < 5; i++) debug::FreeOSMemory();
    stop = true;
    wg.Wait();
  });
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

// There are many more raw calls that block than Ps, and one of them reads
// standard input. They hold up no other goroutine, none of them is interrupted,
// and each gets the data that it waited for.
TEST_P(PreemptTest, BlockedReadsHoldUpNoGoroutine) {
  gump::Run([] {
    constexpr int kReaders = 20;
    const int saved = dup(STDIN_FILENO);
    ASSERT_GE(saved, 0);
    int fds[kReaders][2];
    std::atomic<int> done = 0;
    Begun begun;
    sync::WaitGroup wg;
    for (int i = 0; i < kReaders; i++) {
      ASSERT_EQ(pipe(fds[i]), 0);
      int fd = fds[i][0];
      if (i == 0) fd = dup2(fd, STDIN_FILENO);
      wg.Go([&, i, fd] {
        begun.Count();
        char c = 0;
        EXPECT_EQ(read(fd, &c, 1), 1) << errno;
        EXPECT_EQ(c, 'a' + i);
        done++;
      });
    }
    begun.Wait(kReaders);
    Talk(100);
    EXPECT_EQ(done, 0);
    for (int i = 0; i < kReaders; i++) {
      const char c = static_cast<char>('a' + i);
      EXPECT_EQ(write(fds[i][1], &c, 1), 1);
    }
    wg.Wait();
    dup2(saved, STDIN_FILENO);
    close(saved);
    for (auto& fd : fds) {
      close(fd[0]);
      close(fd[1]);
    }
  });
}

// A signal would cut these calls short, with or without SA_RESTART.
TEST_P(PreemptTest, SleepsAreNotCutShort) {
  gump::Run([] {
    sync::WaitGroup wg;
    for (int i = 0; i < 8; i++) {
      wg.Go([] {
        for (int k = 0; k < 4; k++) {
          timespec t = {0, 25'000'000};
          EXPECT_EQ(nanosleep(&t, nullptr), 0) << errno;
        }
      });
    }
    wg.Go([] { Talk(1000); });
    wg.Wait();
  });
}

TEST_P(PreemptTest, OtherWaysToBlockHoldUpNoGoroutine) {
  gump::Run([] {
    sync::WaitGroup wg;
    const std::string path =
        ::testing::TempDir() + "/gump_preempt_" + std::to_string(getpid());
    const int held = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    ASSERT_GE(held, 0);
    ASSERT_EQ(flock(held, LOCK_EX), 0);
    Begun begun;
    wg.Go([&] {
      begun.Count();
      const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
      EXPECT_EQ(flock(fd, LOCK_EX), 0) << errno;
      close(fd);
    });
    // This goroutine blocks in pthread_join, until a thread of the program
    // ends.
    std::atomic<bool> release = false;
    wg.Go([&] {
      begun.Count();
      std::thread t([&] { release.wait(false); });
      t.join();
    });
    begun.Wait(2);
    Talk(100);
    release = true;
    release.notify_one();
    EXPECT_EQ(flock(held, LOCK_UN), 0);
    wg.Wait();
    close(held);
    unlink(path.c_str());
  });
}

// The holder of a lock of the program is bound to its thread and takes the lock
// along when it parks. Goroutines that want the lock block their threads, and
// hold up no other goroutine.
TEST_P(PreemptTest, MutexHeldAcrossAParkHoldsUpItsWaitersOnly) {
  gump::Run([] {
    constexpr int kWanting = 8;
    std::mutex mu;
    int taken = 0;
    auto release = make_chan<void>();
    auto holds = make_chan<void>();
    sync::WaitGroup wg;
    wg.Go([&] {
      runtime::LockOSThread();
      {
        const std::lock_guard<std::mutex> hold(mu);
        holds.Send();
        release.Recv();
      }
      runtime::UnlockOSThread();
    });
    holds.Recv();
    Begun begun;
    for (int i = 0; i < kWanting; i++) {
      wg.Go([&] {
        begun.Count();
        const std::lock_guard<std::mutex> hold(mu);
        taken++;
      });
    }
    begun.Wait(kWanting);
    Talk(100);
    runtime::GC();
    release.Send();
    wg.Wait();
    EXPECT_EQ(taken, kWanting);
  });
}

// A goroutine that lost its P while it slept computes without one until it is
// caught. It must not keep a processor beside the Ps for ever.
TEST_P(PreemptTest, SleeperThatWakesAsAHogIsCaught) {
#if defined(GUMP_TSAN)
  GTEST_SKIP() << "never calls libc";
#endif
  Run([] {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    std::atomic<bool> stop = false;
    Begun begun;
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([&] {
        char c;
        EXPECT_EQ(read(fds[0], &c, 1), 1) << errno;
        begun.Count();
        while (!stop.load(std::memory_order_relaxed)) {
        }
      });
    }
    const auto lost = [] {
      return rt::sched.npresumed.load(rt::relaxed);  // a count
    };
    EXPECT_TRUE(testing::Eventually([&] { return lost() == 4; }));
    EXPECT_EQ(write(fds[1], "wake", 4), 4);
    begun.Wait(4);
    EXPECT_TRUE(testing::Eventually([&] { return lost() == 0; }));
    Talk(5);
    stop = true;
    wg.Wait();
    close(fds[0]);
    close(fds[1]);
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

// ---- Signals

std::atomic<int> urgents;

// A handler that the program installed before ours sees every SIGURG.
TEST(PreemptSignalDeathTest, HandlersOfTheProgramAreCalledToo) {
  // A process of its own, in which the handler of the program comes first.
  EXPECT_EXIT(
      {
        std::signal(SIGURG, [](int) { urgents++; });
        gump::Run([] {
          raise(SIGURG);
          for (int i = 0; i < 100; i++) {
            kill(getpid(), SIGURG);
            runtime::Gosched();
          }
          Talk(100);
        });
        std::exit(urgents >= 2 ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "");
}

// ComputeBesideOthers makes more goroutines compute than there are Ps, and
// returns whether all of them have had a turn.
bool ComputeBesideOthers() {
  std::atomic<int> turns = 0;
  sync::WaitGroup wg;
  for (int i = 0; i < 4; i++) {
    wg.Go([&] {
      turns++;
      while (turns < 4) {
      }
    });
  }
  wg.Wait();
  return turns == 4;
}

struct sigaction replaced;
void CallReplaced(int sig, siginfo_t* info, void* context) {
  urgents++;
  replaced.sa_sigaction(sig, info, context);
}

// A handler that comes after ours, and calls the one that it replaces, changes
// nothing.
TEST(PreemptSignalDeathTest, HandlersThatPassOnMayReplaceOurs) {
  EXPECT_EXIT(
      {
        bool all = false;
        testing::RunWith(2, [&] {
          struct sigaction action = {};
          action.sa_sigaction = CallReplaced;
          action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
          sigaction(SIGURG, &action, &replaced);
          all = ComputeBesideOthers();
        });
        std::exit(all && urgents > 0 ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "");
}

// If the handler in force does not call ours, goroutines still yield when they
// enter the runtime. The same holds for threads that block the signal.
TEST(PreemptSignalDeathTest, GoroutinesThatTakeNoSignalYieldByThemselves) {
  EXPECT_EXIT(
      {
        testing::RunWith(1, [&] {
          std::signal(SIGURG, SIG_IGN);
          std::atomic<bool> stop = false;
          sync::WaitGroup wg;
          wg.Go([&] {
            wg.Go([&] { stop = true; });
            auto c = make_chan<int>(1);
            while (!stop) {
              c.Send(1);
              c.Recv();
            }
          });
          wg.Wait();
          Talk(100);
        });
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

// A program that starts with the signal blocked gets threads that let it
// through. A parent that blocks the signal starts its children like that.
TEST(PreemptSignalDeathTest, SignalMayBeBlockedWhenTheRuntimeStarts) {
  EXPECT_EXIT(
      {
        sigset_t urgent;
        sigemptyset(&urgent);
        sigaddset(&urgent, SIGURG);
        pthread_sigmask(SIG_BLOCK, &urgent, nullptr);
        bool all = false;
        testing::RunWith(1, [&] { all = ComputeBesideOthers(); });
        std::exit(all ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "");
}

// HogIsStoppedAfter has a goroutine compute while `lose_signals` handles
// SIGURG, for a while, and then while our handler is back. It returns whether
// the goroutine is preempted in the end, so that the world can be stopped.
bool HogIsStoppedAfter(void (*lose_signals)(int)) {
  bool yielded = false;
  testing::RunWith(1, [&] {
    std::atomic<bool> stop = false;
    std::atomic<bool> ours = false;
    sync::WaitGroup wg;
    wg.Go([&] {
      struct sigaction before;
      sigaction(SIGURG, nullptr, &before);
      std::signal(SIGURG, lose_signals);
      const auto end = std::chrono::steady_clock::now() + 100ms;
      while (std::chrono::steady_clock::now() < end) {
      }
      sigaction(SIGURG, &before, nullptr);
      ours = true;
      const auto limit = std::chrono::steady_clock::now() + 30s;
      while (!stop && std::chrono::steady_clock::now() < limit) {
      }
      yielded = stop;
    });
    while (!ours) runtime::Gosched();
    (void)runtime::Stack(true);
    stop = true;
    wg.Wait();
  });
  return yielded;
}

// A handler that replaces ours for a while does no lasting harm: the runtime
// sends the lost signals again.
TEST(PreemptSignalDeathTest, SignalsIgnoredForAWhileAreSentAgain) {
  EXPECT_EXIT(std::exit(HogIsStoppedAfter(SIG_IGN) ? 7 : 1),
              ::testing::ExitedWithCode(7), "");
}

TEST(PreemptSignalDeathTest, SignalsForAnotherHandlerAreSentAgain) {
  EXPECT_EXIT(std::exit(HogIsStoppedAfter([](int) {}) ? 7 : 1),
              ::testing::ExitedWithCode(7), "");
}

[[gnu::noinline]] void UseSignalStack(int) {
  volatile char room[40 << 10];
  for (size_t i = 0; i < sizeof(room); i += 512) room[i] = 1;
  urgents += room[512];
}

// The signal stack of our threads has room for the program's handlers.
TEST_P(PreemptTest, SignalStackHasRoomForHandlers) {
  struct sigaction action = {};
  action.sa_handler = UseSignalStack;
  action.sa_flags = SA_ONSTACK;
  struct sigaction before;
  sigaction(SIGUSR2, &action, &before);
  gump::Run([] {
    stack_t stack;
    sigaltstack(nullptr, &stack);
    EXPECT_GE(stack.ss_size, size_t{64} << 10);
    const int had = urgents;
    sync::WaitGroup wg;
    for (int i = 0; i < 10; i++) wg.Go([] { raise(SIGUSR2); });
    wg.Wait();
    EXPECT_EQ(urgents, had + 10);
  });
  sigaction(SIGUSR2, &before, nullptr);
}

// With SA_RESTART, a read that SIGURG interrupts goes on.
TEST_P(PreemptTest, ReadsAreRestarted) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  gump::Run([&] {
    std::atomic<pid_t> reader = 0;
    sync::WaitGroup wg;
    wg.Go([&] {
      reader = Tid();
      char c = 0;
      EXPECT_EQ(read(fds[0], &c, 1), 1) << strerror(errno);
      EXPECT_EQ(c, 'x');
    });
    EXPECT_TRUE(testing::Eventually([&] { return reader != 0; }));
    for (int i = 0; i < 200; i++) {
      syscall(SYS_tgkill, getpid(), reader.load(), SIGURG);
      runtime::Gosched();
    }
    EXPECT_EQ(write(fds[1], "x", 1), 1);
    wg.Wait();
  });
  close(fds[0]);
  close(fds[1]);
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

// More goroutines block than there may be threads. At the limit, sleepers keep
// their Ps and other goroutines have to wait, but the process does not die.
TEST(PreemptLimitTest, SleepersBeyondTheThreadLimitWait) {
  testing::RunWith(2, [] {
    const int limit = debug::SetMaxThreads(64);
    sync::WaitGroup wg;
    for (int i = 0; i < 500; i++) wg.Go([] { usleep(20'000); });
    wg.Wait();
    EXPECT_LE(debug::ReadSchedStats().threads, 64);
    runtime::GC();
    debug::SetMaxThreads(limit);
  });
}

// SleepThenCompute starts more goroutines that sleep in the kernel than this
// user may have threads. Then it starts more goroutines that compute than there
// are Ps. Returns false if it could not set the limit, or if a goroutine did
// not wake up.
bool SleepThenCompute() {
  // The user of this process has no other threads, which would count for the
  // limit, such as those of another such test. And root has no limit.
  const uid_t alone = 640'000'000 + static_cast<uid_t>(getpid());
  const rlimit limit = {32, 32};
  if (setrlimit(RLIMIT_NPROC, &limit) != 0 ||
      setresuid(alone, alone, alone) != 0) {
    return false;
  }
  // The sleep is so long that even a slow machine reaches the limit before the
  // first sleeper wakes up.
  constexpr int kSleepers = 64;
  constexpr int kSleep = 1'000'000'000;  // ns
  bool all = false;
  testing::RunWith(2, [&] {
    std::atomic<int> woken = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < kSleepers; i++) {
      wg.Go([&] {
        // A signal may cut it short, where there is no membarrier.
        const int64_t end = rt::nanotime() + kSleep;
        while (rt::nanotime() < end) usleep(100'000);
        woken++;
      });
    }
    wg.Wait();
    all = woken == kSleepers && ComputeBesideOthers();
  });
  return all;
}

// The same, if it is the kernel that refuses more threads.
TEST(PreemptLimitDeathTest, SleepersBeyondTheProcessLimitWait) {
  if (geteuid() != 0) GTEST_SKIP() << "needs a user of its own";
  if (rt::kSanitizerBuild) GTEST_SKIP() << "sanitizers start threads, too";
  EXPECT_EXIT(std::exit(SleepThenCompute() ? 7 : 1),
              ::testing::ExitedWithCode(7), "failed to create new OS thread");
}

}  // namespace
}  // namespace gump
