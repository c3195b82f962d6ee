// Binding threads to processors. Each test that needs another environment or
// other masks starts this program again.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "gump/exec.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/runtime/thread.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "runtime/sched/proc.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/scoped_env.h"
#include "tests/testing/sleep_on_threads.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using runtime::Affinity;
using testing::Eventually;
using testing::RunWith;
using testing::ScopedEnv;
using testing::SleepOnThreads;

using Cpus = std::set<int>;

Cpus MaskOf(pid_t tid) {
  cpu_set_t set;
  Cpus cpus;
  if (sched_getaffinity(tid, sizeof(set), &set) != 0) return cpus;
  for (int i = 0; i < CPU_SETSIZE; i++) {
    if (CPU_ISSET(i, &set)) cpus.insert(i);
  }
  return cpus;
}
Cpus Mask() { return MaskOf(0); }

bool SetMaskOf(pid_t tid, const Cpus& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int i : cpus) CPU_SET(i, &set);
  return sched_setaffinity(tid, sizeof(set), &set) == 0;
}

// The processors of the test, and the n-th of them, counted round and round.
const Cpus& All() {
  static const Cpus all = Mask();
  return all;
}
int Nth(int n) {
  return *std::next(All().begin(), n % static_cast<int>(All().size()));
}

std::vector<pid_t> Threads() {
  std::vector<pid_t> tids;
  for (const auto& e : std::filesystem::directory_iterator("/proc/self/task")) {
    tids.push_back(std::stoi(e.path().filename()));
  }
  return tids;
}

std::string NameOf(pid_t tid) {
  std::ifstream in("/proc/self/task/" + std::to_string(tid) + "/comm");
  std::string name;
  std::getline(in, name);
  return name;
}

// SetMaskOfAll does what `taskset -a` does, until no thread has been missed.
void SetMaskOfAll(const Cpus& cpus) {
  for (bool again = true; again;) {
    again = false;
    for (const pid_t tid : Threads()) {
      const Cpus now = MaskOf(tid);
      if (now == cpus || now.empty()) continue;
      again = true;
      (void)SetMaskOf(tid, cpus);
    }
  }
}

// Is ends the program with code 1 and the text, unless ok.
void Is(bool ok, const char* text) {
  if (ok) return;
  std::fprintf(stderr, "%s\n", text);
  std::_Exit(1);
}

// OnManyThreads calls f on goroutines until they have run on many threads.
void OnManyThreads(absl::FunctionRef<void()> f) {
  for (int round = 0; round < 10; round++) {
    sync::WaitGroup wg;
    for (int i = 0; i < 30; i++) {
      wg.Go([&] {
        f();
        runtime::Gosched();
        f();
      });
    }
    SleepOnThreads(round);
    wg.Wait();
  }
}

// IsOnCore returns true if this thread is bound to the processor of its P.
bool IsOnCore() {
  const int p = rt::procPin();
  const Cpus mask = Mask();
  rt::procUnpin();
  return mask == Cpus{Nth(p)};
}
// IsOnNode returns true if this thread is bound to the node of its P. Of two
// nodes with a processor each, the first half of the Ps is on the first.
bool IsOnNode(int maxprocs) {
  const int p = rt::procPin();
  const Cpus mask = Mask();
  rt::procUnpin();
  return mask == Cpus{Nth(p < (maxprocs + 1) / 2 ? 0 : 1)};
}
void OnCore() { Is(IsOnCore(), "not on the processor of the P"); }
// Free checks that this thread may use all processors.
void Free() { Is(Mask() == All(), "this thread is bound"); }

class AffinityTest : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    (void)All();
  }
  // Program calls f in a process of its own, in which no check of Is fails.
  static void Program(absl::FunctionRef<void()> f, const char* err = "") {
    EXPECT_EXIT((f(), std::_Exit(0)), ::testing::ExitedWithCode(0), err);
  }
};
GUMP_INSTANTIATE_GOMAXPROCS(AffinityTest);

// ---- To what threads are bound ----------------------------------------------

TEST_P(AffinityTest, OneNodeBindsNoThread) {
  const ScopedEnv topology("GUMP_TOPOLOGY", "1x4");
  Program([] { RunWith(GetParam(), [] { OnManyThreads(Free); }); });
}

TEST_P(AffinityTest, CoreBindsEachThreadToTheProcessorOfItsP) {
  const ScopedEnv affinity("GUMP_AFFINITY", "core");
  Program([] { RunWith(GetParam(), [] { OnManyThreads(OnCore); }); });
}

TEST_P(AffinityTest, SetAffinityBindsAndReleasesRunningThreads) {
  Program([] {
    RunWith(GetParam(), [] {
      for (int i = 0; i < 3; i++) {
        runtime::SetAffinity(Affinity::kCore);
        OnCore();
        OnManyThreads(OnCore);
        runtime::SetAffinity(Affinity::kNone);
        Free();
        OnManyThreads(Free);
      }
    });
  });
}

TEST_P(AffinityTest, SetAffinityReachesGoroutinesThatCompute) {
  Program([] {
    RunWith(GetParam(), [] {
      std::atomic<bool> stop = false;
      std::atomic<int> bound = 0;
      sync::WaitGroup wg;
      const int n = GetParam();
      for (int i = 0; i < n; i++) {
        wg.Go([&] {
          while (Mask().size() != 1 && !stop) {
          }
          bound++;
          while (!stop) {
          }
        });
      }
      runtime::SetAffinity(Affinity::kCore);
      Is(Eventually([&] { return bound == n; }), "a thread was not bound");
      stop = true;
      wg.Wait();
    });
  });
}

TEST_P(AffinityTest, NodeBindsEachThreadToItsNode) {
  if (All().size() < 2) GTEST_SKIP() << "needs two processors";
  const std::string lists =
      std::to_string(Nth(0)) + "/" + std::to_string(Nth(1));
  const ScopedEnv topology("GUMP_TOPOLOGY", lists.c_str());
  Program([] {
    RunWith(GetParam(), [] {
      // kNode is the mode if there are several nodes. The first half of the Ps
      // is on the first node.
      OnManyThreads([] { Is(IsOnNode(GetParam()), "not on the P's node"); });
      runtime::SetAffinity(Affinity::kNone);
      OnManyThreads(Free);
    });
  });
}

TEST_P(AffinityTest, CoreDealsTheProcessorsOfANodeToItsPs) {
  if (All().size() < 2) GTEST_SKIP() << "needs two processors";
  // The second processor comes first.
  const std::string lists =
      std::to_string(Nth(1)) + "/" + std::to_string(Nth(0));
  const ScopedEnv topology("GUMP_TOPOLOGY", lists.c_str());
  const ScopedEnv affinity("GUMP_AFFINITY", "core");
  Program([] {
    RunWith(GetParam(), [] {
      OnManyThreads([] {
        const int p = rt::procPin();
        const Cpus mask = Mask();
        rt::procUnpin();
        const bool first = p < (GetParam() + 1) / 2;
        Is(mask == Cpus{Nth(first ? 1 : 0)}, "not on the P's processor");
      });
    });
  });
}

TEST_P(AffinityTest, SimulatedNodeWithMissingProcessorsBindsNoThread) {
  const ScopedEnv topology("GUMP_TOPOLOGY", "2x2048");
  for (const char* mode : {"node", "core"}) {
    const ScopedEnv affinity("GUMP_AFFINITY", mode);
    Program([] { RunWith(GetParam(), [] { OnManyThreads(Free); }); });
  }
}

TEST_P(AffinityTest, ChangesOfGomaxprocsKeepThreadsBound) {
  const ScopedEnv affinity("GUMP_AFFINITY", "core");
  Program([] {
    RunWith(GetParam(), [] {
      for (int i = 1; i <= 20; i++) {
        (void)runtime::GOMAXPROCS(1 + i % 5);
        OnCore();
        SleepOnThreads(3);
        OnCore();
      }
    });
  });
}

TEST_P(AffinityTest, DefaultOfGomaxprocsCountsTheProcessorsOfTheProgram) {
  const ScopedEnv affinity("GUMP_AFFINITY", "core");
  Program([] {
    RunWith(GetParam(), [] {
      runtime::SetDefaultGOMAXPROCS();
      const int unbound = runtime::GOMAXPROCS(0);
      runtime::SetAffinity(Affinity::kNone);
      runtime::SetDefaultGOMAXPROCS();
      Is(runtime::GOMAXPROCS(0) == unbound, "another number of Ps");
    });
  });
}

// ---- Which threads are not --------------------------------------------------

TEST_P(AffinityTest, PlainThreadsAndTheRuntimesOwnAreNotBound) {
  const ScopedEnv affinity("GUMP_AFFINITY", "core");
  Program([] {
    std::atomic<bool> stop = false;
    std::thread plain([&] {
      go([] {});
      while (!stop) {
        Free();
        usleep(1000);
      }
    });
    RunWith(GetParam(), [] {
      OnManyThreads(OnCore);
      for (const pid_t tid : Threads()) {
        const std::string name = NameOf(tid);
        if (name == "gump-sysmon" || name == "gump-template") {
          Is(MaskOf(tid) == All(), "a thread of the runtime's own is bound");
        }
      }
    });
    stop = true;
    plain.join();
  });
}

TEST_P(AffinityTest, LockedThreadGetsTheProgramsMaskAndKeepsItsOwn) {
  const ScopedEnv affinity("GUMP_AFFINITY", "core");
  Program([] {
    RunWith(GetParam(), [] {
      sync::WaitGroup wg;
      for (int i = 0; i < 4; i++) {
        wg.Go([i] {
          runtime::LockOSThread();
          Free();
          for (int k = 0; k < 20; k++) {
            time::Sleep(absl::Microseconds(100));  // leaves its P
            Free();
          }
          const Cpus own = {Nth(i)};
          Is(SetMaskOf(0, own), "sched_setaffinity");
          for (int k = 0; k < 20; k++) {
            time::Sleep(absl::Microseconds(100));
            Is(Mask() == own, "a locked thread was bound");
          }
          runtime::SetAffinity(Affinity::kNone);
          runtime::SetAffinity(Affinity::kCore);
          Is(Mask() == own, "a locked thread was bound");
        });
      }
      SleepOnThreads(8);
      wg.Wait();
    });
  });
}

TEST_P(AffinityTest, ThreadIsBoundAgainOnceItIsUnlocked) {
  const ScopedEnv affinity("GUMP_AFFINITY", "core");
  Program([] {
    RunWith(GetParam(), [] {
      runtime::LockOSThread();
      runtime::LockOSThread();
      Free();
      runtime::UnlockOSThread();
      runtime::LockOSThread();
      Free();
      runtime::UnlockOSThread();
      runtime::UnlockOSThread();
      SleepOnThreads(4);  // main leaves its P
      Is(Eventually([] {
           SleepOnThreads(2);
           return Mask().size() == 1;
         }),
         "the thread stayed free");
    });
  });
}

TEST_P(AffinityTest, RuntimeThreadIsNotBound) {
  const ScopedEnv affinity("GUMP_AFFINITY", "core");
  Program([] {
    RunWith(GetParam(), [] {
      runtime::Thread t("own");
      for (int i = 0; i < 20; i++) {
        t.Run(Free);
        SleepOnThreads(2);
        OnCore();
      }
      static const Cpus own = {Nth(1)};
      t.Run([] { Is(SetMaskOf(0, own), "sched_setaffinity"); });
      for (int i = 0; i < 20; i++) {
        t.Run([] { Is(Mask() == own, "the mask of a Thread is gone"); });
      }
    });
  });
}

TEST_P(AffinityTest, MaskThatAHookHasSetStays) {
  if (All().size() < 2) GTEST_SKIP() << "needs two processors";
  const ScopedEnv affinity("GUMP_AFFINITY", "core");
  Program([] {
    static const Cpus own = {Nth(1)};
    runtime::SetThreadHooks(
        {.on_start = [] { Is(SetMaskOf(0, own), "sched_setaffinity"); }});
    RunWith(GetParam(), [] {
      OnManyThreads([] { Is(Mask() == own, "the hook's mask is gone"); });
    });
  });
}

TEST_P(AffinityTest, ThreadOfRunGetsItsMaskBack) {
  const ScopedEnv affinity("GUMP_AFFINITY", "core");
  Program([] {
    for (int i = 0; i < 3; i++) {
      RunWith(GetParam(), [] { OnCore(); });
      Free();
    }
    // A thread that the program has bound keeps its mask in Run.
    const Cpus own = {Nth(1)};
    Is(SetMaskOf(0, own), "sched_setaffinity");
    RunWith(GetParam(), [&] {
      SleepOnThreads(2);
      (void)runtime::GOMAXPROCS(3);
    });
    Is(Mask() == own, "the caller's mask is gone");
  });
}

// ---- What inherits ----------------------------------------------------------

TEST_P(AffinityTest, ChildOfCmdHasTheProgramsMask) {
  const ScopedEnv affinity("GUMP_AFFINITY", "core");
  Program([] {
    const auto mask_of_child = [] {
      exec::Cmd cmd("/bin/grep", "Cpus_allowed:", "/proc/self/status");
      const auto out = cmd.Output();
      Is(out.ok(), "grep failed");
      return *out;
    };
    const auto mask_here = [] {
      std::ifstream in("/proc/thread-self/status");
      for (std::string line; std::getline(in, line);) {
        if (line.starts_with("Cpus_allowed:")) return line + "\n";
      }
      return std::string("none");
    };
    const std::string all = mask_here();
    RunWith(GetParam(), [&] {
      for (int i = 0; i < 4; i++) {
        OnCore();
        Is(mask_of_child() == all, "a child of a bound thread");
        SleepOnThreads(2);
      }
      runtime::LockOSThread();
      Is(mask_of_child() == all, "a child of a locked thread");
      Is(SetMaskOf(0, {Nth(1)}), "sched_setaffinity");
      Is(mask_of_child() == mask_here(), "a child of a thread with a mask");
      runtime::UnlockOSThread();
    });
  });
}

TEST_P(AffinityTest, ChildOfForkHasTheProgramsMask) {
  const ScopedEnv affinity("GUMP_AFFINITY", "core");
  Program([] {
    RunWith(GetParam(), [] {
      OnManyThreads([] {
        static std::atomic<int> forks = 0;
        if (++forks % 50 != 0) return;
        const pid_t pid = fork();
        if (pid == 0) _exit(Mask() == All() ? 0 : 1);
        int status = -1;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
        Is(status == 0, "a child of fork is bound");
      });
    });
  });
}

TEST_P(AffinityTest, ThreadMadeByALockedGoroutineIsFree) {
  const ScopedEnv affinity("GUMP_AFFINITY", "core");
  Program([] {
    RunWith(GetParam(), [] {
      runtime::LockOSThread();
      std::thread t(Free);
      runtime::UnlockOSThread();
      blocking([&] { t.join(); });
    });
  });
}

// ---- taskset and cpusets ----------------------------------------------------

TEST_P(AffinityTest, MaskOfTasksetIsNeverLeft) {
  static constexpr int kRounds = rt::kSanitizerBuild ? 25 : 100;
  const ScopedEnv affinity("GUMP_AFFINITY", "core");
  Program([] {
    std::atomic<bool> stop = false;
    std::thread taskset([&] {
      for (int round = 0; round < kRounds; round++) {
        const Cpus cpus = {Nth(round)};
        SetMaskOfAll(cpus);
        for (int i = 0; i < 5; i++) {
          for (const pid_t tid : Threads()) {
            const Cpus mask = MaskOf(tid);
            Is(mask.empty() || mask == cpus, "a thread has left the mask");
          }
          usleep(500);
        }
      }
      stop = true;
    });
    RunWith(GetParam(), [&] {
      while (!stop) {
        SleepOnThreads(4);
        // Each stop binds the Ps anew.
        (void)runtime::GOMAXPROCS(1 + (runtime::GOMAXPROCS(0) % 4));
      }
      blocking([&] { taskset.join(); });
    });
  });
}

TEST_P(AffinityTest, BindingFollowsTheMaskOfTheProcess) {
  if (All().size() < 2) GTEST_SKIP() << "needs two processors";
  const ScopedEnv affinity("GUMP_AFFINITY", "core");
  Program([] {
    RunWith(GetParam(), [] {
      OnManyThreads(OnCore);
      const Cpus one = {Nth(1)};
      SetMaskOfAll(one);
      OnManyThreads([&] { Is(Mask() == one, "a thread has left the mask"); });
      SetMaskOfAll(All());
      // sysmon looks once a second.
      Is(Eventually([] {
           std::atomic<int> free = 0;
           OnManyThreads([&] { free += IsOnCore() ? 0 : 1; });
           return free == 0;
         }),
         "a thread stayed free");
    });
  });
}

TEST_P(AffinityTest, NodeThatLeavesTheMaskLeavesItsPsUnbound) {
  if (All().size() < 2) GTEST_SKIP() << "needs two processors";
  const std::string lists =
      std::to_string(Nth(0)) + "/" + std::to_string(Nth(1));
  const ScopedEnv topology("GUMP_TOPOLOGY", lists.c_str());
  Program([] {
    RunWith(GetParam(), [] {
      std::atomic<bool> stop = false;
      std::atomic<int> turns = 0;
      sync::WaitGroup wg;
      for (int i = 0; i < GetParam(); i++) {  // these run all the time
        wg.Go([&] {
          while (!stop) {
            turns++;
            runtime::Gosched();
          }
        });
      }
      for (int gone = 0; gone < 2; gone++) {
        const Cpus left = {Nth(1 - gone)};
        SetMaskOfAll(left);
        OnManyThreads(
            [&] { Is(Mask() == left, "a thread has left the mask"); });
        const int before = turns;
        Is(Eventually([&] { return turns >= before + 100; }),
           "a P stands still");
        SetMaskOfAll(All());
        // sysmon looks once a second.
        Is(Eventually([] {
             std::atomic<int> elsewhere = 0;
             OnManyThreads([&] { elsewhere += IsOnNode(GetParam()) ? 0 : 1; });
             return elsewhere == 0;
           }),
           "a thread stayed free");
      }
      stop = true;
      wg.Wait();
    });
  });
}

TEST_P(AffinityTest, TopologyWithoutAProcessorOfTheMaskBindsNoThread) {
  if (All().size() < 2) GTEST_SKIP() << "needs two processors";
  const ScopedEnv topology("GUMP_TOPOLOGY", std::to_string(Nth(1)).c_str());
  const ScopedEnv affinity("GUMP_AFFINITY", "node");
  Program([] {
    RunWith(GetParam(), [] {
      static const Cpus first = {Nth(0)};
      static const Cpus second = {Nth(1)};
      OnManyThreads([] { Is(Mask() == second, "not on the node"); });
      SetMaskOfAll(first);  // no node has a processor now
      OnManyThreads([] { Is(Mask() == first, "a thread left the mask"); });
      (void)runtime::GOMAXPROCS(GetParam() + 1);  // binds the Ps anew
      OnManyThreads([] { Is(Mask() == first, "a thread left the mask"); });
      SetMaskOfAll(All());
      Is(Eventually([] {
           std::atomic<int> elsewhere = 0;
           OnManyThreads([&] { elsewhere += Mask() == second ? 0 : 1; });
           return elsewhere == 0;
         }),
         "a thread stayed free");
    });
  });
}

// ---- Settings ---------------------------------------------------------------

TEST_P(AffinityTest, MalformedVariableIsIgnoredAndReportedOnce) {
  for (const char* text : {"cores", "Core", "none,core", "1"}) {
    const ScopedEnv affinity("GUMP_AFFINITY", text);
    const std::string said = "^runtime: GUMP_AFFINITY=\"" + std::string(text) +
                             "\" is ignored: it is neither none, node nor "
                             "core\n$";
    Program(
        [] {
          for (int i = 0; i < 2; i++) {
            RunWith(GetParam(), [] { OnManyThreads(Free); });
          }
        },
        said.c_str());
  }
}

TEST_P(AffinityTest, EmptyVariableIsNone) {
  const ScopedEnv affinity("GUMP_AFFINITY", "");
  Program([] { RunWith(GetParam(), [] { OnManyThreads(Free); }); }, "^$");
}

TEST_P(AffinityTest, SetAffinityBeforeTheStartWinsAndDoesNotStart) {
  const ScopedEnv affinity("GUMP_AFFINITY", "core");
  Program([] {
    runtime::SetAffinity(Affinity::kNone);
    for (const pid_t tid : Threads()) {
      Is(!NameOf(tid).starts_with("gump-"), "the runtime has started");
    }
    runtime::SetThreadHooks({});
    RunWith(GetParam(), [] { OnManyThreads(Free); });
  });
}

TEST_P(AffinityTest, SetAffinityFromAPlainThreadBindsLaterGoroutines) {
  Program([] {
    RunWith(GetParam(), [] {
      std::thread t([] { runtime::SetAffinity(Affinity::kCore); });
      blocking([&] { t.join(); });
      OnManyThreads(OnCore);
    });
    runtime::SetAffinity(Affinity::kNone);
    RunWith(GetParam(), [] { OnManyThreads(Free); });
  });
}

TEST_P(AffinityTest, UnknownAffinityPanics) {
  EXPECT_EQ(testing::PanicText(
                [] { runtime::SetAffinity(static_cast<Affinity>(7)); }),
            "runtime: SetAffinity of an unknown Affinity");
}

}  // namespace
}  // namespace gump
