// The hooks of threads. They are set before the runtime starts, so each test
// starts this program again.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/gls.h"
#include "gump/go.h"
#include "gump/os.h"
#include "gump/pprof.h"
#include "gump/runtime.h"
#include "gump/runtime/thread.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "runtime/sched/labels.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/tls.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/sleep_on_threads.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using debug::ReadSchedStats;
using testing::Eventually;
using testing::RunWith;
using testing::SleepOnThreads;

// Log is what hooks and goroutines have noted, by thread.
struct Log {
  std::mutex mu;
  std::vector<pid_t> started, ended;
  std::set<pid_t> ran;  // threads that have run a goroutine

  void Start() {
    const std::lock_guard<std::mutex> l(mu);
    started.push_back(gettid());
  }
  void End() {
    const std::lock_guard<std::mutex> l(mu);
    ended.push_back(gettid());
  }
  void Ran() {
    const std::lock_guard<std::mutex> l(mu);
    ran.insert(gettid());
  }
  size_t Started() {
    const std::lock_guard<std::mutex> l(mu);
    return started.size();
  }
  size_t Ended() {
    const std::lock_guard<std::mutex> l(mu);
    return ended.size();
  }
  bool HasEnded(pid_t tid) {
    const std::lock_guard<std::mutex> l(mu);
    return std::count(ended.begin(), ended.end(), tid) > 0;
  }
};
Log log_of_hooks;

void LogHooks() {
  runtime::SetThreadHooks({.on_start = [] { log_of_hooks.Start(); },
                           .on_end = [] { log_of_hooks.End(); }});
}

// Is ends the program with code 1 and the text, unless ok.
void Is(bool ok, const char* text) {
  if (ok) return;
  std::fprintf(stderr, "%s\n", text);
  std::_Exit(1);
}

class ThreadHooksTest : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  // Program calls f in a process of its own, in which no check of Is fails.
  static void Program(absl::FunctionRef<void()> f) {
    EXPECT_EXIT((f(), std::_Exit(0)), ::testing::ExitedWithCode(0), "");
  }
};
GUMP_INSTANTIATE_GOMAXPROCS(ThreadHooksTest);

// ---- Which threads call the hooks, and when ---------------------------------

thread_local bool prepared = false;

TEST_P(ThreadHooksTest, StartRunsBeforeTheFirstGoroutineOfEachThread) {
  Program([] {
    runtime::SetThreadHooks({.on_start = [] {
      Is(!prepared, "on_start ran twice on a thread");
      prepared = true;
    }});
    RunWith(GetParam(), [] {
      for (int round = 0; round < 20; round++) {
        sync::WaitGroup wg;
        for (int i = 0; i < 50; i++) {
          wg.Go([] {
            Is(prepared, "a goroutine came before on_start");
            runtime::Gosched();
            Is(prepared, "a goroutine came before on_start");
          });
        }
        wg.Wait();
        SleepOnThreads(round);
      }
    });
  });
}

TEST_P(ThreadHooksTest, OnlyThreadsForGoroutinesCallTheHooks) {
  Program([] {
    LogHooks();
    RunWith(GetParam(), [] {
      // The ring's thread may come for this, beside sysmon and the template
      // thread.
      Is(os::ReadFile("/proc/self/exe").ok(), "ReadFile");
      std::thread plain([] {
        auto c = make_chan<int>(1);
        c.Send(1);
        runtime::LockOSThread();
        const std::lock_guard<std::mutex> l(log_of_hooks.mu);
        Is(std::count(log_of_hooks.started.begin(), log_of_hooks.started.end(),
                      gettid()) == 0,
           "a plain thread called on_start");
      });
      blocking([&] { plain.join(); });
      SleepOnThreads(8);
      sync::WaitGroup wg;
      for (int i = 0; i < 100; i++) {
        wg.Go([] {
          log_of_hooks.Ran();
          runtime::Gosched();
          log_of_hooks.Ran();
        });
      }
      wg.Wait();
      const int threads = ReadSchedStats().threads;
      const std::lock_guard<std::mutex> l(log_of_hooks.mu);
      for (const pid_t tid : log_of_hooks.ran) {
        Is(std::count(log_of_hooks.started.begin(), log_of_hooks.started.end(),
                      tid) == 1,
           "a goroutine ran on a thread that had not called on_start");
      }
      // Without the template thread and sysmon.
      Is(static_cast<int>(log_of_hooks.started.size()) <= threads - 2,
         "too many threads called on_start");
    });
  });
}

TEST_P(ThreadHooksTest, ThreadOfRunCallsBothHooksInEachRun) {
  Program([] {
    static std::string order;  // of this thread
    static const pid_t self = gettid();
    runtime::SetThreadHooks({.on_start =
                                 [] {
                                   if (gettid() == self) order += "start ";
                                 },
                             .on_end =
                                 [] {
                                   if (gettid() == self) order += "end ";
                                 }});
    for (int i = 0; i < 3; i++) {
      RunWith(GetParam(), [] {
        if (gettid() == self) order += "main ";
      });
    }
    const std::string once = "start main end ";
    Is(order == once + once + once, order.c_str());
  });
}

TEST_P(ThreadHooksTest, LibraryModeCallsStartOnItsThreads) {
  Program([] {
    LogHooks();
    auto c = make_chan<bool>();
    static const pid_t self = gettid();
    go([c] {
      const std::lock_guard<std::mutex> l(log_of_hooks.mu);
      c.Send(std::count(log_of_hooks.started.begin(),
                        log_of_hooks.started.end(), gettid()) == 1);
    });
    Is(*c.Recv(), "a goroutine came before on_start");
    const std::lock_guard<std::mutex> l(log_of_hooks.mu);
    Is(std::count(log_of_hooks.started.begin(), log_of_hooks.started.end(),
                  self) == 0,
       "a plain thread called on_start");
  });
}

TEST_P(ThreadHooksTest, RuntimeThreadCallsBothHooks) {
  Program([] {
    LogHooks();
    RunWith(GetParam(), [] {
      for (int i = 0; i < 5; i++) {
        pid_t tid = 0;
        {
          runtime::Thread t("hooked");
          tid = t.Run([] {
            const std::lock_guard<std::mutex> l(log_of_hooks.mu);
            Is(std::count(log_of_hooks.started.begin(),
                          log_of_hooks.started.end(), gettid()) == 1,
               "a goroutine of a Thread came before on_start");
            return gettid();
          });
          Is(!log_of_hooks.HasEnded(tid), "on_end came too early");
        }
        Is(Eventually([&] { return log_of_hooks.HasEnded(tid); }),
           "the Thread did not call on_end");
      }
    });
  });
}

TEST_P(ThreadHooksTest, LockedGoroutineThatEndsMakesItsThreadCallEnd) {
  Program([] {
    LogHooks();
    RunWith(GetParam(), [] {
      for (int i = 0; i < 5; i++) {
        std::atomic<pid_t> tid = 0;
        go([&] {
          runtime::LockOSThread();
          tid = gettid();
        });
        Is(Eventually([&] { return tid != 0 && log_of_hooks.HasEnded(tid); }),
           "the thread of a locked goroutine did not call on_end");
      }
    });
  });
}

TEST_P(ThreadHooksTest, IdleThreadThatEndsCallsEnd) {
  Program([] {
    LogHooks();
    RunWith(GetParam(), [] {
      constexpr int kThreads = 20;
      SleepOnThreads(kThreads);
      Is(log_of_hooks.Started() >= kThreads - 1, "too few threads");
      const size_t before = log_of_hooks.Ended();
      Is(Eventually([] {
           runtime::GC();  // ends idle threads
           return ReadSchedStats().threads_retired >= kThreads / 2;
         }),
         "no thread has ended");
      const uint64_t ended = ReadSchedStats().threads_retired;
      Is(Eventually([&] { return log_of_hooks.Ended() - before >= ended; }),
         "a thread has ended without on_end");
    });
    // Each thread that has called on_end had called on_start.
    std::multiset<pid_t> live;
    const std::lock_guard<std::mutex> l(log_of_hooks.mu);
    live.insert(log_of_hooks.started.begin(), log_of_hooks.started.end());
    for (const pid_t tid : log_of_hooks.ended) {
      const auto at = live.find(tid);
      Is(at != live.end(), "on_end without on_start");
      live.erase(at);
    }
  });
}

TEST_P(ThreadHooksTest, HookRunsOnTheStackOfItsThread) {
  Program([] {
    runtime::SetThreadHooks({.on_start = [] {
      pthread_attr_t attr;
      Is(pthread_getattr_np(pthread_self(), &attr) == 0, "getattr");
      void* lo = nullptr;
      size_t size = 0;
      pthread_attr_getstack(&attr, &lo, &size);
      pthread_attr_destroy(&attr);
      const auto sp = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
      const auto from = reinterpret_cast<uintptr_t>(lo);
      Is(sp >= from && sp < from + size, "a hook ran on another stack");
    }});
    RunWith(GetParam(), [] { SleepOnThreads(4); });
  });
}

TEST_P(ThreadHooksTest, HookMayCatchItsExceptionsAndTakeAFreeLock) {
  Program([] {
    static sync::Mutex mu;
    static std::atomic<int> caught = 0;
    const auto hook = [] {
      try {
        throw std::runtime_error("caught");
      } catch (const std::runtime_error&) {
        caught++;
      }
      if (mu.TryLock()) mu.Unlock();
      Is(runtime::NumCPU() > 0 && runtime::Goid() == 0, "NumCPU or Goid");
    };
    runtime::SetThreadHooks({.on_start = hook, .on_end = hook});
    RunWith(GetParam(), [] {
      SleepOnThreads(4);
      // The exceptions of a hook are not those of a goroutine.
      try {
        throw 1;
      } catch (int) {
        go([] { runtime::LockOSThread(); });  // its thread ends
        SleepOnThreads(2);
      }
    });
    Is(caught > 2, "the hooks did not run");
  });
}

struct Counted {
  static std::atomic<int> destroyed;
  int value = 1;
  ~Counted() { destroyed++; }
};
std::atomic<int> Counted::destroyed = 0;

TEST_P(ThreadHooksTest, LocalValuesOfAHookEndWithIt) {
  Program([] {
    static gls<Counted> local{Counted()};
    static std::atomic<int> hooks = 0;
    const auto hook = [] {
      Is(local->value == 1, "a value of another goroutine");
      local->value = 2;
      Is(local->value == 2, "the value is gone");
      hooks++;
    };
    runtime::SetThreadHooks({.on_start = hook, .on_end = hook});
    const int before = Counted::destroyed;
    RunWith(GetParam(), [&] {
      Is(Counted::destroyed > before, "the value of a hook lives on");
      Is(local->value == 1, "the value of a hook");
      SleepOnThreads(4);
    });
    Is(hooks >= 2, "the hooks did not run");
  });
}

// HasLabels returns true if the caller has n labels.
bool HasLabels(size_t n) {
  size_t have = 0;
  (void)rt::labelsIn(rt::labelsOf(rt::getg()), &have);
  return have == n;
}

TEST_P(ThreadHooksTest, LabelsOfAHookEndWithTheirDo) {
  Program([] {
    static std::atomic<int> hooks = 0;
    const auto hook = [] {
      Is(HasLabels(0), "labels of a goroutine");
      pprof::Do(context::Background(), {{"in", "hook"}},
                [](const context::Context& outer) {
                  // Do finds its node behind values of other kinds.
                  static gls<int> local{0};
                  *local = 1;
                  Is(HasLabels(1), "no labels in the hook");
                  pprof::Do(outer, {{"op", "init"}}, [](context::Context) {
                    Is(HasLabels(2), "no labels in the inner Do");
                  });
                  Is(HasLabels(1), "the inner labels live on");
                });
      Is(HasLabels(0), "the labels live on");
      hooks++;
    };
    runtime::SetThreadHooks({.on_start = hook, .on_end = hook});
    RunWith(GetParam(), [&] {
      go([] { Is(HasLabels(0), "the labels of a hook"); });
      SleepOnThreads(4);
    });
    Is(hooks >= 2, "the hooks did not run");
  });
}

TEST_P(ThreadHooksTest, EndSeesNoExceptionThatAGoroutineHandles) {
  Program([] {
    runtime::SetThreadHooks({.on_end = [] {
      Is(std::current_exception() == nullptr, "an exception in on_end");
    }});
    static auto never = make_chan<int>();
    RunWith(GetParam(), [] {
      for (int i = 0; i < 4; i++) {
        go([] {
          try {
            throw 1;
          } catch (int) {
            (void)never.Recv();
          }
        });
      }
      SleepOnThreads(8);
      runtime::GC();
    });
  });
}

// ---- When they can be set ---------------------------------------------------

TEST_P(ThreadHooksTest, SecondCallBeforeTheStartReplacesTheHooks) {
  Program([] {
    runtime::SetThreadHooks(
        {.on_start = [] { Is(false, "the first on_start"); }});
    LogHooks();
    RunWith(GetParam(), [] {});
    Is(log_of_hooks.Started() >= 1 && log_of_hooks.Ended() >= 1,
       "the second hooks did not run");
  });
}

TEST_P(ThreadHooksTest, EmptyHooksAreNotCalled) {
  Program([] {
    LogHooks();
    runtime::SetThreadHooks({});
    RunWith(GetParam(), [] { SleepOnThreads(4); });
    Is(log_of_hooks.Started() == 0 && log_of_hooks.Ended() == 0,
       "a hook that was replaced ran");
  });
}

TEST_P(ThreadHooksTest, SetThreadHooksAfterTheStartPanics) {
  Program([] {
    static constexpr char kText[] = "runtime: SetThreadHooks after the start";
    RunWith(GetParam(), [] {
      Is(testing::PanicText([] { LogHooks(); }) == kText, "no panic in Run");
      SleepOnThreads(2);
    });
    Is(testing::PanicText([] { LogHooks(); }) == kText, "no panic after Run");
    Is(log_of_hooks.Started() == 0, "a hook that was refused ran");
  });
}

TEST_P(ThreadHooksTest, SetThreadHooksInLibraryModePanics) {
  Program([] {
    static constexpr char kText[] = "runtime: SetThreadHooks after the start";
    auto c = make_chan<bool>();
    go([c] { c.Send(testing::PanicText([] { LogHooks(); }) == kText); });
    Is(*c.Recv(), "no panic in a goroutine");
    Is(testing::PanicText([] { LogHooks(); }) == kText, "no panic beside it");
  });
}

// The threads of the test set hooks while another one starts the runtime. Each
// of them wins or is refused, and hooks that were refused never run.
TEST_P(ThreadHooksTest, SetThreadHooksBesideTheStartIsSetOrRefused) {
  Program([] {
    static std::atomic<int> state[8];  // 1 if set, 2 if refused
    static std::atomic<bool> begin = false;
    static std::atomic<int> winner = -1;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++) {
      threads.emplace_back([i] {
        while (!begin) {
        }
        const std::string text = testing::PanicText([i] {
          runtime::SetThreadHooks({.on_start = [i] { winner = i; }});
          state[i] = 1;
        });
        if (state[i] == 0) {
          Is(text == "runtime: SetThreadHooks after the start", text.c_str());
          state[i] = 2;
        }
      });
    }
    begin = true;
    RunWith(GetParam(), [] {});
    for (std::thread& t : threads) t.join();
    Is(winner < 0 || state[winner] == 1, "hooks that were refused ran");
  });
}

// ---- A hook that forks ----------------------------------------------------

TEST_P(ThreadHooksTest, ChildOfForkInAHookMayNotUseGoroutines) {
  Program([] {
    static std::atomic<int> status = -1;
    static std::atomic<bool> once = false;
    runtime::SetThreadHooks({.on_start = [] {
      if (once.exchange(true)) return;
      const pid_t pid = fork();
      if (pid == 0) return;  // and run goroutines
      int s = 0;
      Is(waitpid(pid, &s, 0) == pid, "waitpid");
      status = s;
    }});
    RunWith(GetParam(), [] {});
    Is(WIFEXITED(status) && WEXITSTATUS(status) == 2,
       "the child of fork went on");
  });
}

// ---- A hook that blocks -----------------------------------------------------

// BlockFirst makes the first thread but the caller's wait in on_start until
// the result is set.
std::atomic<bool>* BlockFirst() {
  static std::atomic<bool> go_on = false;
  static std::atomic<bool> once = false;
  static const pid_t self = gettid();
  runtime::SetThreadHooks({.on_start = [] {
    if (gettid() == self || once.exchange(true)) return;
    while (!go_on) usleep(1000);
  }});
  return &go_on;
}

TEST_P(ThreadHooksTest, HookThatBlocksLeavesThePsToOtherThreads) {
  Program([] {
    std::atomic<bool>* go_on = BlockFirst();
    RunWith(GetParam(), [&] {
      // As many goroutines as Ps run side by side, although one thread is in
      // its hook.
      const int n = GetParam();
      std::atomic<int> here = 0;
      sync::WaitGroup wg;
      for (int i = 0; i < n; i++) {
        wg.Go([&] {
          here++;
          while (here < n) {
          }
        });
      }
      wg.Wait();
      *go_on = true;
    });
  });
}

TEST_P(ThreadHooksTest, HookThatBlocksLeavesWorkToThreadsBesideABusyMain) {
  Program([] {
    std::atomic<bool>* go_on = BlockFirst();
    RunWith(GetParam(), [&] {
      std::atomic<bool> ran = false;
      go([&] { ran = true; });
      while (!ran) {
      }
      *go_on = true;
    });
  });
}

// The thread in its hook was to look for work, and other threads rely on that.
// No preemption hands main's P to a thread that finds the work by chance.
TEST_P(ThreadHooksTest, HookOfASpinnerLeavesItsSearchToAnotherThread) {
  Program([] {
    const char* set = getenv("GODEBUG");
    const std::string godebug = set == nullptr ? "" : std::string(set) + ",";
    setenv("GODEBUG", (godebug + "asyncpreemptoff=1").c_str(), 1);
    std::atomic<bool>* go_on = BlockFirst();
    RunWith(GetParam() + 1, [&] {  // main keeps one P
      std::atomic<bool> ran = false;
      go([&] { ran = true; });
      while (!ran) {
      }
      *go_on = true;
    });
  });
}

TEST_P(ThreadHooksTest, HookThatBlocksDelaysOnlyItsRuntimeThread) {
  Program([] {
    static std::atomic<bool> go_on = false;
    runtime::SetThreadHooks({.on_start = [] {
      if (rt::getg()->m->home == nullptr) return;
      while (!go_on) usleep(1000);
    }});
    static runtime::Thread t("late");
    static std::atomic<int> ran = 0;
    go(GoOptions{.thread = &t}, [] { ran++; });
    RunWith(GetParam(), [&] {
      for (int i = 0; i < 20; i++) {
        sync::WaitGroup wg;
        for (int k = 0; k < 20; k++) wg.Go([] { runtime::Gosched(); });
        wg.Wait();
        runtime::GC();  // stops the world
      }
      Is(ran == 0, "a goroutine came before on_start");
      go_on = true;
      t.Run([] { Is(ran == 1, "a goroutine was overtaken"); });
    });
  });
}

TEST_P(ThreadHooksTest, EndThatBlocksLeavesThePsToOtherThreads) {
  Program([] {
    static const pid_t self = gettid();
    static std::atomic<bool> go_on = false;
    static std::atomic<int> ending = 0;
    runtime::SetThreadHooks({.on_end = [] {
      if (gettid() == self) return;
      ending++;
      while (!go_on) usleep(1000);
    }});
    RunWith(GetParam(), [] {
      const int n = GetParam();
      for (int i = 0; i < n; i++) {
        go([] { runtime::LockOSThread(); });  // its thread ends
      }
      Is(Eventually([n] { return ending == n; }), "a thread did not end");
      std::atomic<int> begun = 0;
      sync::WaitGroup wg;
      for (int i = 0; i < n; i++) {
        wg.Go([&] {
          begun++;
          while (begun < n) {
          }
        });
      }
      wg.Wait();
      runtime::GC();
      go_on = true;
    });
  });
}

TEST_P(ThreadHooksTest, HookThatBlocksDoesNotDelayAStopOfTheWorld) {
  Program([] {
    std::atomic<bool>* go_on = BlockFirst();
    RunWith(GetParam(), [&] {
      for (int i = 1; i <= 20; i++) {
        go([] {});
        (void)runtime::GOMAXPROCS(1 + i % 4);
        runtime::GC();
      }
      *go_on = true;
    });
  });
}

TEST_P(ThreadHooksTest, HookMayWaitForALockThatAGoroutineHoldsInACall) {
  Program([] {
    static std::mutex mu;
    static std::atomic<bool> held = false;
    static std::atomic<bool> wants = false;
    static const pid_t self = gettid();
    runtime::SetThreadHooks({.on_start = [] {
      if (gettid() == self || !held) return;
      wants = true;
      const std::lock_guard<std::mutex> l(mu);
    }});
    RunWith(GetParam(), [] {
      sync::WaitGroup wg;
      wg.Go([] {
        mu.lock();
        held = true;
        // Another thread is wanted for this P.
        go([] {});
        blocking([] {
          for (int i = 0; i < 100 && !wants; i++) usleep(1000);
        });
        held = false;
        mu.unlock();
      });
      wg.Wait();
    });
  });
}

TEST_P(ThreadHooksTest, HookThatNeverReturnsTakesFewThreads) {
  Program([] {
    static const pid_t self = gettid();
    static std::atomic<int> stuck = 0;
    runtime::SetThreadHooks({.on_start = [] {
      if (gettid() == self) return;
      stuck++;
      for (;;) pause();
    }});
    // One thread for each P, and those that sysmon has ordered in their place.
    static const int limit = 3 * GetParam() + 2;
    std::thread([] {
      Is(Eventually([] { return stuck > 0; }), "no thread has come");
      usleep(1'000'000);  // many times as long as sysmon waits for a thread
      Is(stuck <= limit, "too many threads");
      std::_Exit(0);
    }).detach();
    RunWith(GetParam(), [] {
      for (;;) {
        go([] {});
        runtime::Gosched();
      }
    });
  });
}

// Meet makes every thread but the caller's wait in on_start until n of them are
// there at once. They do not wait for a goroutine, because all threads that
// could run it may be among them. The result counts the threads that have come.
const std::atomic<int>* Meet(int n) {
  static int wanted;
  static std::atomic<int> here = 0;
  static const pid_t self = gettid();
  wanted = n;
  runtime::SetThreadHooks({.on_start = [] {
    if (gettid() == self) return;
    here++;
    while (here < wanted) usleep(1000);
  }});
  return &here;
}

// ComputeUntilAllRun begins n goroutines that compute until each has begun.
void ComputeUntilAllRun(sync::WaitGroup* wg, std::atomic<int>* begun, int n) {
  for (int i = 0; i < n; i++) {
    wg->Go([=] {
      (*begun)++;
      while (*begun < n) {
      }
    });
  }
}

TEST_P(ThreadHooksTest, SlowHooksRunSideBySide) {
  Program([] {
    const int n = GetParam();
    // Set before Run, because it limits how many threads may be late at once.
    // A fuzzed main may leave its thread before it calls GOMAXPROCS.
    setenv("GOMAXPROCS", std::to_string(n).c_str(), 1);
    const std::atomic<int>* here = Meet(n - 1);
    RunWith(n, [=] {
      std::atomic<int> begun = 0;
      sync::WaitGroup wg;
      ComputeUntilAllRun(&wg, &begun, n);
      // Main keeps its P meanwhile, unless the schedule is fuzzed.
      while (*here < n - 1) {
      }
      wg.Wait();
    });
  });
}

TEST_P(ThreadHooksTest, PGoesFromOneThreadInItsHookToTheNext) {
  Program([] {
    const int n = GetParam();
    // There are only n Ps, so half of these threads have lost one.
    // Set before Run, because it limits how many threads may be late at once.
    // A fuzzed main may leave its thread before it calls GOMAXPROCS.
    setenv("GOMAXPROCS", std::to_string(n).c_str(), 1);
    Meet(2 * n);
    RunWith(n, [n] {
      std::atomic<int> begun = 0;
      sync::WaitGroup wg;
      ComputeUntilAllRun(&wg, &begun, n);
      // Main leaves the thread of Run. Every thread that could run it is new,
      // and is in its hook.
      runtime::Gosched();
      wg.Wait();
    });
  });
}

}  // namespace
}  // namespace gump
