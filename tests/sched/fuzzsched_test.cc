// Schedule fuzzing (runtime/diag/fuzzsched.h): it shuffles, it repeats itself,
// and a program that fails under it prints the seed.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

// PrintOrder prints the order in which goroutines of one P have run. It runs in
// a process of its own, with GODEBUG in the environment.
TEST(FuzzSchedTest, DISABLED_PrintOrder) {
  std::string log;
  testing::RunWith(1, [&log] {
    sync::WaitGroup wg;
    auto c = make_chan<int>(1);
    for (char name = 'A'; name <= 'H'; name++) {
      wg.Go([&log, name, c] {
        for (int i = 0; i < 3; i++) {
          c.Send(1);
          log += name;
          c.Recv();
        }
      });
    }
    wg.Wait();
  });
  std::printf("order=%s.\n", log.c_str());
}

std::string Fuzz(int seed) { return "fuzzsched=" + std::to_string(seed); }

// OutputWith runs a disabled test in a process of its own.
std::string OutputWith(const std::string& godebug, const std::string& test) {
  char self[PATH_MAX] = {};
  if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0) return "";
  const std::string command =
      "GOMAXPROCS=1 GODEBUG=" + godebug + " '" + self +
      "' --gtest_also_run_disabled_tests --gtest_filter=*.DISABLED_" + test;
  FILE* f = popen(command.c_str(), "r");
  if (f == nullptr) return "";
  std::string text;
  char buf[256];
  while (fgets(buf, sizeof(buf), f) != nullptr) text += buf;
  pclose(f);
  return text;
}

std::string OrderWith(const std::string& godebug) {
  const std::string text = OutputWith(godebug, "PrintOrder");
  const size_t at = text.find("order=");
  return at == text.npos ? ""
                         : text.substr(at + 6, text.find('.', at) - at - 6);
}

TEST(FuzzSchedTest, EachSeedHasItsOrder) {
  std::set<std::string> orders;
  for (int seed = 1; seed <= 8; seed++) {
    orders.insert(OrderWith(Fuzz(seed)));
  }
  EXPECT_GE(orders.size(), 6u);
  for (const std::string& order : orders) EXPECT_EQ(order.size(), 24u);
}

TEST(FuzzSchedTest, OnePRepeatsItself) {
  const std::string godebug = "fuzzsched=5,asyncpreemptoff=1";
  const std::string first = OrderWith(godebug);
  for (int i = 0; i < 10; i++) EXPECT_EQ(OrderWith(godebug), first);
}

// ---- Migration, entries, delays ---------------------------------------------

// ValueWith runs a disabled test in a process of its own, and returns the
// number that it prints. Returns -1 if it prints none.
double ValueWith(const std::string& godebug, const std::string& test) {
  const std::string text = OutputWith(godebug, test);
  const size_t at = text.find("value=");
  return at == text.npos ? -1 : std::atof(text.c_str() + at + 6);
}

// Share counts how often a goroutine is on another thread after a switch.
struct Share {
  std::atomic<int> switches{0};
  std::atomic<int> moved{0};

  void Across(absl::FunctionRef<void()> leave) {
    const pid_t before = gettid();
    leave();
    switches++;
    if (gettid() != before) moved++;
  }
  void Print() const { std::printf("value=%.3f\n", 1.0 * moved / switches); }
};

constexpr int kSwitches = 100;  // of each goroutine

// Some goroutines come back through the global queue, some by a timer, and some
// are readied by others. If an answer is there at once, its receiver does not
// switch. Such a receive is counted as a switch that did not change the thread.
// So the true share is at least the one that is counted.
void SwitchOften(Share* share) {
  sync::WaitGroup wg;
  for (int i = 0; i < 3; i++) {
    wg.Go([share] {
      for (int n = 0; n < kSwitches; n++) {
        share->Across([] { runtime::Gosched(); });
      }
    });
    wg.Go([share] {
      for (int n = 0; n < kSwitches; n++) {
        share->Across([] { time::Sleep(absl::Microseconds(1)); });
      }
    });
    auto ask = make_chan<int>();
    auto answer = make_chan<int>();
    wg.Go([ask, answer] {
      for (int n = 0; n < kSwitches; n++) answer.Send(*ask.Recv());
    });
    wg.Go([share, ask, answer] {
      for (int n = 0; n < kSwitches; n++) {
        ask.Send(n);
        share->Across([answer] { answer.Recv(); });
      }
    });
  }
  wg.Wait();
}

TEST(FuzzSchedTest, DISABLED_PrintShareThatMoves) {
  Share share;
  testing::RunWith(4, [&share] { SwitchOften(&share); });
  share.Print();
}

// The other Ps have hogs, which do not give them up.
TEST(FuzzSchedTest, DISABLED_PrintShareThatMovesBesideHogs) {
  Share share;
  testing::RunWith(4, [&share] {
    std::atomic<bool> done = false;
    sync::WaitGroup hogs;
    for (int i = 0; i < 3; i++) {
      hogs.Go([&done] {
        while (!done) {
        }
      });
    }
    SwitchOften(&share);
    done = true;
    hogs.Wait();
  });
  share.Print();
}

// Each goroutine is switched to when another parks, and then only tries
// operations. The share of those that are interrupted meanwhile is printed.
TEST(FuzzSchedTest, DISABLED_PrintShareThatYieldsAtEntries) {
  constexpr int kGoroutines = 64;
  int last = 0;  // the last to run, as there is one P and no other preemption
  int interrupted = 0;
  testing::RunWith(1, [&] {
    bool done = false;
    sync::WaitGroup wg, bystander;
    auto gate = make_chan<int>();
    for (int id = 1; id <= kGoroutines; id++) {
      wg.Go([&, id] {
        gate.Recv();
        auto c = make_chan<int>(1);
        bool mine = true;
        last = id;
        for (int n = 0; n < 200 && mine; n++) {
          (void)c.TrySend(n);
          (void)c.TryRecv();
          mine = last == id;
        }
        if (!mine) interrupted++;
      });
    }
    bystander.Go([&] {
      while (!done) {
        last = 0;
        runtime::Gosched();
      }
    });
    while (testing::CountParked("chan receive") < kGoroutines) {
      runtime::Gosched();
    }
    gate.Close();
    wg.Wait();
    done = true;
    bystander.Wait();
  });
  std::printf("value=%.3f\n", 1.0 * interrupted / kGoroutines);
}

// Counts how often a thread sleeps although it always has a goroutine to run.
// That happens only if the scheduler delays a goroutine on purpose. (A round in
// which main changes its thread is not counted.)
TEST(FuzzSchedTest, DISABLED_PrintSleepsWhileBusy) {
  constexpr int kRounds = 20;
  constexpr int kValues = 1000;  // of a round
  long sleeps = 0;
  testing::RunWith(1, [&] {
    auto c = make_chan<int>();
    go([c] {
      for (int n = 0; n < (kRounds + 1) * kValues; n++) c.Send(n);
    });
    for (int round = 0; round <= kRounds; round++) {
      const pid_t thread = gettid();
      rusage before{}, after{};
      getrusage(RUSAGE_THREAD, &before);
      for (int n = 0; n < kValues; n++) c.Recv();
      getrusage(RUSAGE_THREAD, &after);
      if (gettid() == thread) sleeps += after.ru_nvcsw - before.ru_nvcsw;
    }
  });
  std::printf("value=%ld\n", sleeps);
}

TEST(FuzzSchedTest, WakeUpsAreLate) {
  const std::string alone = "asyncpreemptoff=1";
  EXPECT_LT(ValueWith(alone, "PrintSleepsWhileBusy"), 20);
  for (int seed = 1; seed <= 4; seed++) {
    EXPECT_GT(ValueWith(Fuzz(seed) + "," + alone, "PrintSleepsWhileBusy"), 100)
        << seed;
  }
}

TEST(FuzzSchedTest, MostSwitchesLeadToAnotherThread) {
  for (int seed = 1; seed <= 4; seed++) {
    EXPECT_GT(ValueWith(Fuzz(seed), "PrintShareThatMoves"), 0.5) << seed;
  }
}

TEST(FuzzSchedTest, SwitchesLeadToAnotherThreadBesideHogs) {
  for (int seed = 1; seed <= 2; seed++) {
    EXPECT_GT(ValueWith(Fuzz(seed), "PrintShareThatMovesBesideHogs"), 0.5)
        << seed;
  }
}

TEST(FuzzSchedTest, EveryGoroutineYieldsAtEntries) {
  for (int seed = 1; seed <= 4; seed++) {
    EXPECT_EQ(ValueWith(Fuzz(seed) + ",asyncpreemptoff=1",
                        "PrintShareThatYieldsAtEntries"),
              1)
        << seed;
  }
}

void RunFuzzed(void (*main)()) {
  setenv("GODEBUG", "fuzzsched=1234", 1);
  Run(main);
}

TEST(FuzzSchedDeathTest, PanicTellsTheSeed) {
  EXPECT_EXIT(RunFuzzed([] { panic("boom"); }), ::testing::ExitedWithCode(2),
              "^panic: boom\nfuzzsched=1234\n\ngoroutine 1 ");
}

TEST(FuzzSchedDeathTest, FatalErrorTellsTheSeed) {
  EXPECT_EXIT(RunFuzzed([] {
                sync::Mutex mu;
                mu.Unlock();
              }),
              ::testing::ExitedWithCode(2),
              "^fatal error: sync: unlock of unlocked mutex\n"
              "fuzzsched=1234\n\ngoroutine 1 ");
}

TEST(FuzzSchedDeathTest, DeadlockTellsTheSeed) {
  EXPECT_EXIT(RunFuzzed([] { make_chan<int>().Recv(); }),
              ::testing::ExitedWithCode(2),
              "^fatal error: all goroutines are asleep - deadlock!\n"
              "fuzzsched=1234\n\ngoroutine 1 ");
}

}  // namespace
}  // namespace gump
