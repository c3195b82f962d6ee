// Stopping the world, and retaking Ps, in all states of goroutines and sysmon.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stw.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/tls.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/talk.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using std::chrono::steady_clock;
using testing::Talk;
using namespace std::chrono_literals;

// ---- The world stops

// World is shared by the goroutines in some state. They count themselves, and
// stay in the state until they are told to stop.
struct World {
  std::atomic<int> begun = 0;
  std::atomic<bool> stop = false;
  int pipe[2];
  chan<void> quit = make_chan<void>();

  World() { EXPECT_EQ(::pipe(pipe), 0); }
  ~World() {
    close(pipe[0]);
    if (!stop) close(pipe[1]);
  }
  // End wakes all of them. A reader finds the end of the pipe.
  void End() {
    stop = true;
    quit.Close();
    close(pipe[1]);
  }
};

struct State {
  const char* name;
  void (*be)(World&);
};

void ReadToEnd(const World& w) {
  char c;
  EXPECT_EQ(read(w.pipe[0], &c, 1), 0);
}

const State kStates[] = {
    {"Spinning",
     [](World& w) {
       while (!w.stop) asm volatile("");
     }},
    {"InMalloc",
     [](World& w) {
       while (!w.stop) std::free(std::malloc(100'000));
     }},
    {"BlockedUnannounced", [](World& w) { ReadToEnd(w); }},
    {"InADeclaredCall", [](World& w) { blocking([&] { ReadToEnd(w); }); }},
    {"InShortDeclaredCalls",
     [](World& w) {
       while (!w.stop) blocking([] { (void)getppid(); });
     }},
    {"Parked", [](World& w) { (void)w.quit.Recv(); }},
    {"Yielding",
     [](World& w) {
       while (!w.stop) runtime::Gosched();
     }},
    {"LockedAndSpinning",
     [](World& w) {
       runtime::LockOSThread();
       while (!w.stop) asm volatile("");
     }},
    {"LockedAndParked",
     [](World& w) {
       runtime::LockOSThread();
       (void)w.quit.Recv();
     }},
    {"LockedInADeclaredCall",
     [](World& w) {
       runtime::LockOSThread();
       blocking([&] { ReadToEnd(w); });
     }},
    {"LockedAndBlockedUnannounced",
     [](World& w) {
       runtime::LockOSThread();
       ReadToEnd(w);
     }},
};

// Stops stops the world for a dump and to change GOMAXPROCS. In between it
// visits every P without a stop.
void Stops(int procs) {
  for (int i = 0; i < 5; i++) {
    EXPECT_NE(runtime::Stack(true), "");
    runtime::GOMAXPROCS(procs + 1 + i % 2);
    Talk(5);
    runtime::GOMAXPROCS(procs);
    runtime::GC();  // visits every P
  }
}

// Be begins n goroutines in a state.
void Be(const State& state, int n, World* w, sync::WaitGroup* wg) {
  for (int i = 0; i < n; i++) {
    wg->Go([&state, w] {
      w->begun++;
      state.be(*w);
    });
  }
}

class StopStateTest : public ::testing::TestWithParam<std::tuple<State, int>> {
 public:
  static std::string Name(
      const ::testing::TestParamInfo<std::tuple<State, int>>& test) {
    return std::get<0>(test.param).name +
           ("GOMAXPROCS" + std::to_string(std::get<1>(test.param)));
  }
};
INSTANTIATE_TEST_SUITE_P(, StopStateTest,
                         ::testing::Combine(::testing::ValuesIn(kStates),
                                            testing::Gomaxprocs()),
                         StopStateTest::Name);

TEST_P(StopStateTest, TheWorldStops) {
  const auto& [state, procs] = GetParam();
  testing::RunWith(procs, [&state = state, procs = procs] {
    constexpr int kEach = 3;
    World w;
    sync::WaitGroup wg;
    Be(state, kEach, &w, &wg);
    ASSERT_TRUE(testing::Eventually([&] { return w.begun == kEach; }));
    Stops(procs);
    w.End();
    wg.Wait();
  });
}

using PreemptStateTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(PreemptStateTest);

TEST_P(PreemptStateTest, TheWorldStopsInAllStatesAtOnce) {
  Run([procs = GetParam()] {
    World w;
    sync::WaitGroup wg;
    int n = 0;
    for (const State& state : kStates) {
      Be(state, 1, &w, &wg);
      n++;
    }
    ASSERT_TRUE(testing::Eventually([&] { return w.begun == n; }));
    Stops(procs);
    w.End();
    wg.Wait();
  });
}

// ---- Goroutines go on where they were

// Kept counts what became of the goroutines that stops kept on their Ps.
struct Kept {
  int stops = 0;
  int kept = 0;    // goroutines that stayed the next ones of their Ps
  int stayed = 0;  // of these: went on first on the same P and thread
};

// Runner is a goroutine that notes where it runs first after each stop. Its
// loop does not enter the runtime before it has noted that.
struct Runner {
  std::atomic<rt::G*> g = nullptr;
  std::atomic<int> seen = -1;  // the last stop that it has noted
  std::atomic<rt::P*> p = nullptr;
  std::atomic<int> thread = 0;

  void Note(int stop) {
    if (seen == stop) return;
    p = rt::getg()->m->p;
    thread = static_cast<int>(syscall(SYS_gettid));
    seen = stop;
  }
};

// StopBeside stops the world again and again, from a thread of its own, beside
// a goroutine on each P that calls f in a loop.
Kept StopBeside(int procs, void (*f)()) {
  std::vector<Runner> runners(static_cast<size_t>(procs));
  std::atomic<int> stop = 0;
  std::atomic<bool> done = false;
  Kept kept;
  testing::RunWith(procs, [&] {
    sync::WaitGroup wg;
    for (Runner& r : runners) {
      wg.Go([&] {
        r.g = rt::getg();
        while (!done) {
          r.Note(stop);
          f();
        }
      });
    }
    const auto look = [&] {
      while (std::any_of(runners.begin(), runners.end(),
                         [&](Runner& r) { return r.seen != stop; })) {
        std::this_thread::yield();
      }
      rt::stopTheWorld(rt::WaitReason::kStoppingTheWorld);
      std::vector<std::tuple<Runner*, rt::P*, int>> next;
      for (int i = 0; i < procs; i++) {
        rt::P* pp = rt::allp[i];
        for (Runner& r : runners) {
          if (pp->runnext.load(rt::relaxed) != r.g) continue;
          next.emplace_back(&r, pp, pp->oldm->procid.load(rt::relaxed));
        }
      }
      stop++;
      rt::startTheWorld();
      kept.stops++;
      for (const auto& [r, pp, thread] : next) {
        while (r->seen != stop) std::this_thread::yield();
        kept.kept++;
        kept.stayed += r->p == pp && r->thread == thread ? 1 : 0;
      }
    };
    blocking([&] {
      std::thread([&] {
        runtime::NumGoroutine();  // from now on this thread has a G
        for (int i = 0; i < 100; i++) look();
      }).join();
    });
    done = true;
    wg.Wait();
  });
  return kept;
}

// As TestTraceSTW of Go 1.26. A goroutine is not kept if its slice has ended.
// It may move if its thread gets no processor for a slice.
TEST(StopAffinityTest, GoroutinesThatYieldGoOnOnTheirPsAndThreads) {
  const Kept kept = StopBeside(2, [] { (void)runtime::NumGoroutine(); });
  EXPECT_GE(kept.kept, kept.stops);
  EXPECT_GE(kept.stayed, kept.kept * 3 / 4);
}

TEST(StopAffinityTest, GoroutinesThatComputeGoOnOnTheirPs) {
  const Kept kept = StopBeside(2, [] { asm volatile(""); });
  EXPECT_GE(kept.kept, kept.stops);
  EXPECT_GE(kept.stayed, kept.kept * 3 / 4);
}

// Stopping calls f on the main goroutine of a Run, while a thread stops the
// world again and again with hardly a pause.
void Stopping(int procs, absl::FunctionRef<void()> f) {
  testing::RunWith(procs, [&] {
    std::atomic<bool> done = false;
    std::thread stopper([&] {
      while (!done) EXPECT_NE(runtime::Stack(true), "");
    });
    f();
    done = true;
    blocking([&] { stopper.join(); });
  });
}

// TakeTurns waits until each of a number of goroutines has run f, three times
// over.
void TakeTurns(int n, void (*begin)(), void (*f)()) {
  std::vector<std::atomic<int>> turns(static_cast<size_t>(n));
  std::atomic<bool> done = false;
  sync::WaitGroup wg;
  for (std::atomic<int>& turn : turns) {
    wg.Go([&] {
      begin();
      while (!done) {
        f();
        turn++;
      }
    });
  }
  for (int round = 0; round < 3; round++) {
    for (std::atomic<int>& turn : turns) turn = 0;
    EXPECT_TRUE(testing::Eventually([&] {
      return std::all_of(turns.begin(), turns.end(),
                         [](std::atomic<int>& turn) { return turn > 0; });
    }));
  }
  done = true;
  wg.Wait();
}

// A goroutine that a stop keeps on its P does so for a slice at most.
TEST_P(PreemptStateTest, EachGoroutineGetsItsTurnWhileStopsFollowEachOther) {
  Stopping(GetParam(), [] {
    TakeTurns(
        3 * GetParam(), [] {}, [] { asm volatile(""); });
  });
}

TEST_P(PreemptStateTest, EachBoundGoroutineGetsItsTurnWhileStopsFollow) {
  Stopping(GetParam(), [] {
    TakeTurns(
        3 * GetParam(), [] { runtime::LockOSThread(); },
        [] { (void)runtime::NumGoroutine(); });
  });
}

// LateThreads holds threads back: one that wakes from its sleep in the
// scheduler does not go on until the next stop of the world has begun.
class LateThreads {
 public:
  LateThreads() {
    struct sigaction sa = {};
    sa.sa_handler = [](int) {
      held++;
      while (hold) ::usleep(100);
      held--;
    };
    sa.sa_flags = SA_RESTART | SA_ONSTACK;
    EXPECT_EQ(sigaction(SIGUSR1, &sa, &before_), 0);
  }
  ~LateThreads() {
    Release();
    sigaction(SIGUSR1, &before_, nullptr);
  }
  LateThreads(const LateThreads&) = delete;
  LateThreads& operator=(const LateThreads&) = delete;

  // Hold returns when each thread is in the handler. The caller has stopped the
  // world, so the threads sleep.
  static void Hold(const std::vector<int>& threads) {
    hold = true;
    for (const int tid : threads) syscall(SYS_tgkill, getpid(), tid, SIGUSR1);
    while (held != static_cast<int>(threads.size())) std::this_thread::yield();
  }
  // Release returns when each thread has left the handler.
  static void Release() {
    hold = false;
    while (held != 0) std::this_thread::yield();
  }

 private:
  inline static std::atomic<bool> hold = false;
  inline static std::atomic<int> held = 0;
  struct sigaction before_;
};

// A stop keeps a goroutine on its P, even one that is bound to a thread. If the
// next stop begins before that thread has woken, the goroutine loses the P, and
// the others come first. In this test, no thread ever wakes in time.
TEST(StopTurnTest, GoroutineGoesBehindTheOthersIfItsThreadWakesLate) {
  // ThreadSanitizer delays the signals of threads that sleep.
  if (rt::kSanitizerBuild) GTEST_SKIP();
  constexpr size_t kRunners = 3;
  constexpr int kStops = 100;
  std::array<std::atomic<int>, kRunners> turns{};
  std::array<std::atomic<int>, kRunners> tids{};
  std::atomic<bool> done = false;
  testing::RunWith(1, [&] {
    sync::WaitGroup wg;
    for (size_t i = 0; i < kRunners; i++) {
      wg.Go([&, i] {
        runtime::LockOSThread();
        tids[i] = static_cast<int>(syscall(SYS_gettid));
        while (!done) {
          turns[i]++;
          (void)runtime::NumGoroutine();
        }
      });
    }
    ASSERT_TRUE(testing::Eventually([&] {
      return std::all_of(tids.begin(), tids.end(),
                         [](const std::atomic<int>& tid) { return tid != 0; });
    }));
    blocking([&] {
      std::thread([&] {
        const LateThreads late;
        const std::vector<int> threads(tids.begin(), tids.end());
        rt::stopTheWorld(rt::WaitReason::kStoppingTheWorld);
        for (std::atomic<int>& turn : turns) turn = 0;
        for (int i = 0; i < kStops; i++) {
          LateThreads::Hold(threads);
          rt::startTheWorld();
          std::thread release([] {
            while (!rt::sched.gcwaiting.load(rt::acquire)) {
              std::this_thread::yield();
            }
            LateThreads::Release();
          });
          // An M finds the goroutine that is first in the queue.
          std::this_thread::sleep_for(1ms);
          rt::stopTheWorld(rt::WaitReason::kStoppingTheWorld);
          release.join();
        }
        for (const std::atomic<int>& turn : turns) EXPECT_GT(turn, 0);
        rt::startTheWorld();
      }).join();
    });
    done = true;
    wg.Wait();
  });
}

// TestMexitSTW of Go 1.26: the thread that had a P ends before the P comes back
// to it.
TEST_P(PreemptStateTest, ThreadsEndWhileTheWorldStops) {
  Stopping(GetParam(), [] {
    for (int i = 0; i < 100; i++) {
      sync::WaitGroup wg;
      for (int k = 0; k < 4; k++) wg.Go([] { runtime::LockOSThread(); });
      wg.Wait();
    }
  });
}

// ---- Locked threads without a P

// Locked goroutines come back from their calls while a P is hard to get, and
// wait for one on their own threads.
TEST_P(PreemptStateTest, LockedGoroutinesComeBackFromCallsOnTheirThreads) {
  Run([] {
    std::atomic<bool> stop = false;
    sync::WaitGroup busy;
    for (int i = 0; i < 2 * GetParam(); i++) {
      busy.Go([&] {
        while (!stop) runtime::Gosched();
      });
    }
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([] {
        runtime::LockOSThread();
        const long tid = syscall(SYS_gettid);
        for (int k = 0; k < 200; k++) {
          blocking([] { std::this_thread::sleep_for(50us); });
          ASSERT_EQ(syscall(SYS_gettid), tid);
        }
        runtime::UnlockOSThread();
      });
    }
    wg.Wait();
    stop = true;
    busy.Wait();
  });
}

// ---- Signals

// A goroutine that blocks SIGURG on its thread gives its P up when it enters
// the runtime, or sleeps.
TEST_P(PreemptStateTest, GoroutineThatBlocksTheSignalYieldsByItself) {
  Run([] {
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    for (int i = 0; i < GetParam(); i++) {
      wg.Go([&] {
        runtime::LockOSThread();
        sigset_t urgent;
        sigset_t before;
        sigemptyset(&urgent);
        sigaddset(&urgent, SIGURG);
        pthread_sigmask(SIG_BLOCK, &urgent, &before);
        auto c = make_chan<int>(1);
        while (!stop) {
          for (int k = 0; k < 1000; k++) asm volatile("");
          c.Send(1);
          (void)c.Recv();
        }
        std::this_thread::sleep_for(1ms);
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        runtime::UnlockOSThread();
      });
    }
    Talk(100);
    EXPECT_NE(runtime::Stack(true), "");
    stop = true;
    wg.Wait();
  });
}

// ---- sysmon

// Sysmon sleeps for up to a minute while nothing runs, and is awake as soon as
// a goroutine computes.
TEST(SysmonWakeTest, HogAfterAPauseIsPreempted) {
  testing::RunWith(1, [] {
    constexpr int kRounds = 3;
    auto best = steady_clock::duration::max();
    auto work = make_chan<void>();
    std::thread t = testing::KnownThread([&] {
      for (int i = 0; i < kRounds; i++) {
        while (!rt::sched.sysmonwait.load(rt::acquire)) {
          std::this_thread::sleep_for(1ms);
        }
        std::this_thread::sleep_for(10ms);
        work.Send();
      }
    });
    for (int i = 0; i < kRounds; i++) {
      (void)work.Recv();
      std::atomic<bool> stop = false;
      sync::WaitGroup wg;
      const auto start = steady_clock::now();
      wg.Go([&] {
        while (!stop && steady_clock::now() - start < 10s) {
        }
      });
      runtime::Gosched();  // to the hog, for a slice
      best = std::min(best, steady_clock::now() - start);
      stop = true;
      wg.Wait();
    }
    EXPECT_LT(best, 200ms);
    blocking([&] { t.join(); });
  });
}

}  // namespace
}  // namespace gump
