// Goroutines and threads: declared blocking calls, goroutines bound to their
// thread, and plain threads that use everything.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "runtime/sched/locked.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stw.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/tls.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

pid_t Tid() { return static_cast<pid_t>(syscall(SYS_gettid)); }

size_t Threads() {
  std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(
      std::distance(begin(tasks), std::filesystem::directory_iterator()));
}

struct Pipe {
  Pipe() { EXPECT_EQ(pipe(ends), 0); }
  ~Pipe() {
    close(ends[0]);
    close(ends[1]);
  }
  char Read() const {
    char c = 0;
    EXPECT_EQ(read(ends[0], &c, 1), 1);
    return c;
  }
  void Write(char c) const { EXPECT_EQ(write(ends[1], &c, 1), 1); }
  int ends[2];
};

class BlockingTest : public testing::WithGomaxprocs {};
GUMP_INSTANTIATE_GOMAXPROCS(BlockingTest);

TEST_P(BlockingTest, OthersRunWhileOneIsInTheKernel) {
  Run([] {
    Pipe pipe;
    // Only this goroutine ends the read, so it must run meanwhile.
    go([&pipe] { pipe.Write('x'); });
    EXPECT_EQ(blocking([&] { return pipe.Read(); }), 'x');
  });
}

TEST_P(BlockingTest, ManyInTheKernelHoldUpNoOtherGoroutine) {
  Run([] {
    constexpr int kN = 16;
    std::vector<Pipe> pipes(kN);
    sync::WaitGroup wg;
    std::atomic<int> read = 0;
    for (auto& p : pipes) {
      wg.Go([&] {
        blocking([&] { p.Read(); });
        read++;
      });
    }
    // A chain: each byte is written by a goroutine that runs only because the
    // readers have given up their Ps.
    for (auto& p : pipes) {
      sync::WaitGroup one;
      one.Go([&] { p.Write('x'); });
      one.Wait();
    }
    wg.Wait();
    EXPECT_EQ(read, kN);
  });
}

TEST_P(BlockingTest, ReturnsReferencesAndLetsExceptionsPass) {
  Run([] {
    int x = 1;
    int& r = blocking([&]() -> int& { return x; });
    EXPECT_EQ(&r, &x);
    EXPECT_THROW(blocking([] { throw 5; }), int);
    blocking([] {});
  });
}

// In starvation mode an Unlock hands the lock over, and yields where it may.
TEST_P(BlockingTest, UnlocksAStarvingMutexInside) {
  Run([] {
    sync::Mutex mu;
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    for (int i = 0; i < 3; i++) {
      wg.Go([&] {
        while (!stop) {
          mu.Lock();
          usleep(1500);
          mu.Unlock();
        }
      });
    }
    for (int i = 0; i < 30; i++) {
      mu.Lock();
      blocking([&] {
        usleep(1500);
        mu.Unlock();
      });
    }
    stop = true;
    wg.Wait();
  });
}

// The inner calls are part of the outermost. Gosched finds the P given up, and
// other goroutines are woken.
TEST_P(BlockingTest, NestsAndWakesOthers) {
  Run([] {
    auto c = make_chan<int>(1);
    sync::WaitGroup wg;
    wg.Go([c] { EXPECT_EQ(c.Recv(), 5); });
    const int n = blocking([&] {
      wg.Go([] {});
      return blocking([&] {
        runtime::Gosched();
        EXPECT_EQ(blocking([] { return 1; }), 1);
        EXPECT_THROW(blocking([] { throw 5; }), int);
        c.Send(5);
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        (void)runtime::NumGoroutine();
        return 2;
      });
    });
    EXPECT_EQ(n, 2);
    wg.Wait();  // parks, so the calls are over
  });
}

using BlockingDeathTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(BlockingDeathTest);

TEST_P(BlockingDeathTest, ParkingInsideIsFatal) {
  constexpr char kText[] =
      "^fatal error: goroutine parks inside gump::blocking\n";
  EXPECT_DEATH(Run([] {
                 auto c = make_chan<int>();
                 blocking([c] { c.Recv(); });
               }),
               kText);
  EXPECT_DEATH(Run([] {
                 sync::Mutex mu;
                 mu.Lock();
                 blocking([&] { blocking([&] { mu.Lock(); }); });
               }),
               kText);
  EXPECT_DEATH(
      Run([] { blocking([] { time::Sleep(absl::Milliseconds(1)); }); }), kText);
}

TEST_P(BlockingTest, WorldStopsWhileOneIsInTheKernel) {
  Run([] {
    Pipe pipe;
    sync::WaitGroup wg;
    wg.Go([&] { blocking([&] { pipe.Read(); }); });
    EXPECT_TRUE(testing::Eventually([] {
      return runtime::Stack(true).find("[syscall") != std::string::npos;
    }));
    int n = runtime::GOMAXPROCS(3);
    EXPECT_EQ(runtime::GOMAXPROCS(n), 3);
    pipe.Write('x');
    wg.Wait();
  });
}

// The goroutine never enters the scheduler by itself, because each call is over
// before its P is retaken. But its slice ends.
TEST_P(BlockingTest, ManyShortCallsDoNotStarveTheOthers) {
  Run([n = GetParam()] {
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    for (int i = 0; i < n; i++) {
      wg.Go([&stop] {
        while (!stop) blocking([] { std::this_thread::yield(); });
      });
    }
    for (int i = 0; i < 5; i++) runtime::Gosched();
    stop = true;
    wg.Wait();
  });
}

TEST_P(BlockingTest, GracePeriodDoesNotWaitForTheKernel) {
  Run([] {
    Pipe pipe;
    sync::WaitGroup wg;
    wg.Go([&] { blocking([&] { pipe.Read(); }); });
    for (int i = 0; i < 20; i++) debug::FreeOSMemory();
    pipe.Write('x');
    wg.Wait();
  });
}

// ---- LockOSThread

class LockOSThreadTest : public testing::WithGomaxprocs {};
GUMP_INSTANTIATE_GOMAXPROCS(LockOSThreadTest);

TEST_P(LockOSThreadTest, LockedGoroutineHasItsThreadForItself) {
  Run([] {
    std::atomic<bool> stop = false;
    std::atomic<int> intruders = 0;
    std::atomic<pid_t> locked_tid = 0;
    sync::WaitGroup others;
    for (int i = 0; i < 8; i++) {
      others.Go([&] {
        while (!stop) {
          if (Tid() == locked_tid) intruders++;
          runtime::Gosched();
        }
      });
    }
    sync::WaitGroup wg;
    wg.Go([&] {
      runtime::LockOSThread();
      const pid_t tid = Tid();
      locked_tid = tid;
      auto c = make_chan<int>();
      for (int i = 0; i < 200; i++) {
        go([c] { c.Send(1); });
        c.Recv();
        EXPECT_EQ(Tid(), tid);
        runtime::Gosched();
        EXPECT_EQ(Tid(), tid);
        blocking([] {});
        EXPECT_EQ(Tid(), tid);
      }
      locked_tid = 0;
      runtime::UnlockOSThread();
    });
    wg.Wait();
    stop = true;
    others.Wait();
    EXPECT_EQ(intruders, 0);
  });
}

TEST_P(LockOSThreadTest, IsHeldUntilTheLastUnlock) {
  Run([] {
    sync::WaitGroup wg;
    wg.Go([] {
      runtime::LockOSThread();
      runtime::LockOSThread();
      const pid_t tid = Tid();
      runtime::UnlockOSThread();
      for (int i = 0; i < 50; i++) {
        runtime::Gosched();
        EXPECT_EQ(Tid(), tid);
      }
      runtime::UnlockOSThread();
      runtime::UnlockOSThread();  // one too many is ignored
    });
    wg.Wait();
  });
}

TEST_P(LockOSThreadTest, NestingHasALimit) {
  Run([] {
    runtime::LockOSThread();
    rt::M* mp = rt::getg()->m;  // for good, while it is locked
    mp->lockedExt = UINT32_MAX;
    try {
      runtime::LockOSThread();
      ADD_FAILURE() << "once more than can be counted";
    } catch (const PanicError& e) {
      EXPECT_STREQ(e.what(), "LockOSThread nesting overflow");
    }
    EXPECT_EQ(mp->lockedExt, UINT32_MAX) << "the panic has not counted";
    mp->lockedExt = 1;
    runtime::UnlockOSThread();
  });
}

TEST_P(LockOSThreadTest, ExitWhileLockedEndsTheThread) {
  Run([] {
    std::mutex mu;
    std::set<pid_t> ended;
    for (int i = 0; i < 20; i++) {
      sync::WaitGroup wg;
      wg.Go([&] {
        // m0 sleeps instead of ending, so leave it to main.
        runtime::LockOSThread();
        if (Tid() != getpid()) {
          std::lock_guard<std::mutex> l(mu);
          ended.insert(Tid());
        }
        if (i % 2 == 0) runtime::Goexit();
      });
      wg.Wait();
    }
    EXPECT_TRUE(testing::Eventually([&] {
      for (pid_t tid : ended) {
        if (std::filesystem::exists("/proc/self/task/" + std::to_string(tid))) {
          return false;
        }
      }
      return true;
    }));
  });
}

TEST_P(LockOSThreadTest, ThreadsThatEndedAreNotCountedAgainstTheLimit) {
  Run([] {
    const size_t before = Threads();
    const int limit = debug::SetMaxThreads(static_cast<int>(before) + 40);
    for (int i = 0; i < 100; i++) {
      sync::WaitGroup wg;
      wg.Go([] { runtime::LockOSThread(); });
      wg.Wait();
    }
    debug::SetMaxThreads(limit);
    EXPECT_TRUE(testing::Eventually([&] { return Threads() < before + 40; }));
  });
}

TEST_P(LockOSThreadTest, LockedMainStaysWhereItIs) {
  const pid_t tid = Tid();
  Run([] {
    runtime::LockOSThread();
    const pid_t locked = Tid();
    for (int i = 0; i < 50; i++) {
      auto c = make_chan<int>();
      go([c] { c.Send(1); });
      c.Recv();
      runtime::Gosched();
      EXPECT_EQ(Tid(), locked);
    }
    runtime::UnlockOSThread();
  });
  EXPECT_EQ(Tid(), tid);
}

TEST_P(LockOSThreadTest, MainThatLocksAtOnceIsOnTheThreadOfRun) {
  const pid_t tid = Tid();
  for (int i = 0; i < 50; i++) {
    gump::Run([tid] {
      runtime::LockOSThread();
      EXPECT_EQ(Tid(), tid);
      runtime::Gosched();
      EXPECT_EQ(Tid(), tid);
    });
  }
}

// Like a Go program that locks its thread in an init function.
TEST_P(LockOSThreadTest, CallerOfRunMayLockMain) {
  std::thread([this] {
    const pid_t tid = Tid();
    const auto stays = [tid] {
      bool all = true;
      for (int i = 0; i < 50; i++) {
        sync::WaitGroup wg;
        wg.Go([] { usleep(10); });
        wg.Wait();
        all = all && Tid() == tid;
      }
      return all;
    };
    runtime::LockOSThread();
    runtime::LockOSThread();
    for (int i = 0; i < 3; i++) {
      Run([&] { EXPECT_TRUE(stays()); });
    }
    // Main has as many locks as its caller, and its own.
    Run([&] {
      runtime::UnlockOSThread();
      EXPECT_TRUE(stays());
      runtime::UnlockOSThread();
      EXPECT_FALSE(stays());
    });
    runtime::UnlockOSThread();
    Run([&] { EXPECT_TRUE(stays()); });
    runtime::UnlockOSThread();
    Run([&] { EXPECT_FALSE(stays()); });
  }).join();
}

TEST_P(LockOSThreadTest, MainMayEndLocked) {
  for (int i = 0; i < 5; i++) {
    Run([] { runtime::LockOSThread(); });
    Run([] {
      auto c = make_chan<int>();
      go([c] { c.Send(1); });
      EXPECT_EQ(c.Recv(), 1);
    });
  }
}

// Otherwise a goroutine that does not stop would keep Run from returning.
TEST_P(LockOSThreadTest, OnlyMainRunsOnTheThreadOfRun) {
  const pid_t tid = Tid();
  Run([&] {
    sync::WaitGroup wg;
    for (int i = 0; i < 100; i++) {
      wg.Go([=] {
        for (int k = 0; k < 10; k++) {
          EXPECT_NE(Tid(), tid);
          runtime::Gosched();
        }
      });
    }
    wg.Wait();
  });
}

TEST_P(LockOSThreadTest, TwoLockedGoroutinesTalk) {
  Run([] {
    auto c = make_chan<int>();
    auto d = make_chan<int>();
    sync::WaitGroup wg;
    wg.Go([=] {
      runtime::LockOSThread();
      for (int i = 0; i < 200; i++) {
        c.Send(i);
        EXPECT_EQ(d.Recv(), i);
      }
      runtime::UnlockOSThread();
    });
    wg.Go([=] {
      runtime::LockOSThread();
      for (int i = 0; i < 200; i++) {
        EXPECT_EQ(c.Recv(), i);
        d.Send(i);
      }
      runtime::UnlockOSThread();
    });
    wg.Wait();
  });
}

// Queued tells whether gp is in the global queue.
bool Queued(const rt::G* gp) {
  rt::LockScope l(&rt::sched.lock);
  const rt::G* at = rt::sched.runq.head;
  while (at != nullptr && at != gp) at = at->schedlink;
  return at != nullptr;
}

// InAStop is a goroutine that is locked to its thread, parked, and made ready
// in a stopped world. There the test hands it Ps as startlockedm would have
// done just before the stop began. It computes until it may end.
class InAStop {
 public:
  InAStop() {
    wg_.Go([this] {
      runtime::LockOSThread();
      g_ = rt::getg();
      (void)rt::acquirem();
      rt::gopark(nullptr, nullptr, rt::WaitReason::kZero);
      ran_ = true;
      while (!may_end_) {
      }
      runtime::UnlockOSThread();
    });
    while (g_ == nullptr || rt::readgstatus(g_) != rt::kGwaiting) {
      runtime::Gosched();
    }
    rt::stopTheWorld(rt::WaitReason::kStoppingTheWorld);
    rt::casgstatus(g_, rt::kGwaiting, rt::kGrunnable);
  }
  ~InAStop() {
    MayEnd();
    rt::startTheWorld();
    wg_.Wait();
    EXPECT_TRUE(ran_);
  }

  rt::G* g() const { return g_; }
  bool ran() const { return ran_; }
  void MayEnd() { may_end_ = true; }

  // HandP takes the goroutine off the queue, if it is there, and hands its
  // thread a P. It needs two Ps, because the caller keeps its own.
  void HandP() {
    rt::P* pp = rt::allp[rt::allp[0] == rt::getg()->m->p ? 1 : 0];
    rt::M* mp = g()->lockedm;
    {
      rt::LockScope l(&rt::sched.lock);
      for (int n = rt::sched.runq.size; n > 0; n--) {
        rt::G* gp = rt::globrunqget();
        if (gp != g()) rt::globrunqput(gp);
      }
      rt::setPStatus(pp, rt::kPgcstop, rt::kPidle);
      rt::sched.stopwait = 1;
      rt::sched.nmidlelocked--;
    }
    mp->nextp = pp;
    rt::notewakeup(&mp->park);
  }
  // AwaitP waits until the P has been given back.
  void AwaitP() {
    rt::notesleep(&rt::sched.stopnote);
    rt::noteclear(&rt::sched.stopnote);
  }
  // AwaitTurn waits until the goroutine has had its turn. Returns false if the
  // goroutine has been put back.
  bool AwaitTurn() {
    while (!ran_ && !Queued(g())) usleep(10);
    return !g()->putBack;  // as its thread, or the queuing one, has left it
  }

 private:
  std::atomic<rt::G*> g_ = nullptr;
  std::atomic<bool> ran_ = false;
  std::atomic<bool> may_end_ = false;
  sync::WaitGroup wg_;
};

// On that thread nothing else looks for a stop before the goroutine computes.
// After that only a signal would stop it.
TEST_P(LockOSThreadTest, GoroutineHandedAPInAStopGivesItBack) {
  if (GetParam() == 1) return;
  Run([] {
    InAStop g;
    g.HandP();
    g.AwaitP();
    EXPECT_FALSE(g.ran());
  });
}

// Otherwise the goroutine would never run, if stops follow each other fast.
TEST_P(LockOSThreadTest, GoroutineThatGaveThePBackRunsTheNextTime) {
  if (GetParam() == 1) return;
  Run([] {
    InAStop g;
    g.HandP();
    g.AwaitP();
    g.HandP();
    EXPECT_TRUE(g.AwaitTurn());
    g.MayEnd();
    g.AwaitP();
  });
}

TEST_P(LockOSThreadTest, StopperThatFindsALockedGoroutineKeepsItsP) {
  Run([] {
    InAStop g;
    const rt::P* pp = rt::getg()->m->p;
    rt::startlockedm(g.g());
    EXPECT_EQ(rt::getg()->m->p, pp);
    EXPECT_TRUE(Queued(g.g()));
    EXPECT_FALSE(g.ran());
  });
}

// PretendEnd runs f on n Ps in a process of its own. There f may pretend that
// main has ended, because the main goroutine is on m0, which would otherwise
// leave Run.
[[noreturn]] void PretendEnd(int n, void (*f)()) {
  bool done = false;
  while (!done) {
    gump::Run([&] {
      runtime::LockOSThread();
      if (rt::getg()->m != &rt::m0) return;  // it was preempted before
      runtime::GOMAXPROCS(n);
      f();
      done = true;
    });
  }
  std::_Exit(::testing::Test::HasFailure() ? 1 : 7);
}

void SetMainEnded(bool to) {
  rt::LockScope l(&rt::sched.lock);
  rt::sched.mainEnded.store(to, rt::release);
}

// No M takes the goroutine from the queue any more, and it may hold a lock for
// which exit waits.
void NobodyGivesThePBack() {
  InAStop g;
  SetMainEnded(true);
  g.HandP();
  EXPECT_TRUE(g.AwaitTurn());
  SetMainEnded(false);
  g.MayEnd();
  g.AwaitP();
}

TEST(LockOSThreadDeathTest, WhenMainHasEndedNoPIsGivenBack) {
  EXPECT_EXIT(PretendEnd(2, NobodyGivesThePBack), ::testing::ExitedWithCode(7),
              "");
}

// GoesOn waits until turns has changed, for at most ten seconds. It calls
// nothing of the library, because it must not be preempted there.
bool GoesOn(const std::atomic<uint64_t>& turns) {
  const uint64_t before = turns;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (turns == before && std::chrono::steady_clock::now() < end) {
  }
  return turns != before;
}

// A hog is preempted in place and queued by a stop. Main ends during the stop,
// at the end of which the hog must go on.
void TheEndOfAStopLetsGo() {
  std::atomic<rt::G*> hog = nullptr;
  std::atomic<uint64_t> turns = 0;
  std::atomic<bool> stop = false;
  sync::WaitGroup wg;
  wg.Go([&] {
    hog = rt::getg();
    while (!stop) turns++;
  });
  for (;;) {
    runtime::Gosched();
    rt::stopTheWorld(rt::WaitReason::kStoppingTheWorld);
    if (hog != nullptr && Queued(hog)) break;
    rt::startTheWorld();
  }
  EXPECT_TRUE(hog.load()->inPlace);
  rt::M* mp = rt::acquirem();  // keeps the P, which the hog might get instead
  SetMainEnded(true);
  rt::startTheWorld();
  EXPECT_TRUE(GoesOn(turns));
  SetMainEnded(false);
  rt::releasem(mp);
  stop = true;
  wg.Wait();
}

TEST(LockOSThreadDeathTest, WhenMainHasEndedTheEndOfAStopReleasesHogs) {
  EXPECT_EXIT(PretendEnd(1, TheEndOfAStopLetsGo), ::testing::ExitedWithCode(7),
              "");
}

// StopsBesideAHog calls stop() while another goroutine computes with a P of its
// own, after main has ended.
void StopsBesideAHog(void (*stop)()) {
  std::atomic<uint64_t> turns = 0;
  std::atomic<bool> end = false;
  sync::WaitGroup wg;
  wg.Go([&] {
    while (!end) turns++;
  });
  rt::M* mp = rt::acquirem();  // keeps our P
  EXPECT_TRUE(GoesOn(turns));
  SetMainEnded(true);
  stop();
  EXPECT_TRUE(GoesOn(turns));
  SetMainEnded(false);
  rt::releasem(mp);
  end = true;
  wg.Wait();
}

void WorldStopsBesideAHog() {
  StopsBesideAHog([] {
    rt::stopTheWorld(rt::WaitReason::kStoppingTheWorld);
    rt::startTheWorld();
  });
}

void EveryPIsVisitedBesideAHog() {
  StopsBesideAHog(
      [] { rt::forEachP(rt::WaitReason::kFlushProcCaches, [](rt::P*) {}); });
}

TEST(LockOSThreadDeathTest, WhenMainHasEndedTheWorldStops) {
  EXPECT_EXIT(PretendEnd(2, WorldStopsBesideAHog), ::testing::ExitedWithCode(7),
              "");
}

TEST(LockOSThreadDeathTest, WhenMainHasEndedEveryPIsVisited) {
  EXPECT_EXIT(PretendEnd(2, EveryPIsVisitedBesideAHog),
              ::testing::ExitedWithCode(7), "");
}

// ---- Plain threads

class PlainThreadTest : public testing::WithGomaxprocs {};
GUMP_INSTANTIATE_GOMAXPROCS(PlainThreadTest);

TEST_P(PlainThreadTest, PlainThreadUsesEverything) {
  Run([] {
    std::atomic<bool> ok = false;
    std::thread t([&ok] {
      auto c = make_chan<int>();
      auto d = make_chan<int>();
      go([=] {
        for (int i = 0; i < 100; i++) d.Send(*c.Recv() + 1);
      });
      for (int i = 0; i < 100; i++) {
        c.Send(i);
        EXPECT_EQ(d.Recv(), i + 1);
        runtime::Gosched();
      }
      sync::Mutex mu;
      sync::WaitGroup wg;
      int n = 0;
      for (int i = 0; i < 10; i++) {
        wg.Go([&] {
          mu.Lock();
          n++;
          mu.Unlock();
        });
      }
      wg.Wait();
      EXPECT_EQ(n, 10);
      EXPECT_NE(runtime::Goid(), 0u);
      runtime::LockOSThread();
      runtime::UnlockOSThread();
      blocking([] {});
      EXPECT_FALSE(runtime::Stack(true).empty());
      debug::FreeOSMemory();
      runtime::GC();
      ok = true;
    });
    blocking([&t] { t.join(); });
    EXPECT_TRUE(ok);
  });
}

TEST_P(PlainThreadTest, PlainThreadChangesGomaxprocs) {
  Run([n = GetParam()] {
    std::thread t([n] {
      for (int i = 1; i < 20; i++) runtime::GOMAXPROCS(1 + i % 8);
      runtime::GOMAXPROCS(n);
    });
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([] {
        for (int k = 0; k < 100; k++) runtime::Gosched();
      });
    }
    wg.Wait();
    blocking([&t] { t.join(); });
    EXPECT_EQ(runtime::GOMAXPROCS(0), n);
  });
}

int64_t ExtraMs() {
  rt::LockScope l(&rt::sched.lock);
  return rt::sched.nmextraAll;
}

TEST_P(PlainThreadTest, PseudoMsOfEndedThreadsAreUsedAgain) {
  Run([] {
    constexpr int kAtOnce = 8;
    constexpr int kRounds = 250;
    const int64_t before = ExtraMs();
    auto c = make_chan<int>(kAtOnce);
    int sum = 0;
    for (int round = 0; round < kRounds; round++) {
      std::vector<std::thread> threads;
      for (int i = 0; i < kAtOnce; i++) {
        threads.emplace_back([c] { c.Send(1); });
      }
      for (int i = 0; i < kAtOnce; i++) sum += *c.Recv();
      testing::JoinAll(threads);
    }
    EXPECT_EQ(sum, kAtOnce * kRounds);
    EXPECT_LE(ExtraMs(), before + kAtOnce);
  });
}

TEST_P(PlainThreadTest, CellsOfEndedGoroutinesAreUsedAgain) {
  Run([] {
    std::thread t([] {
      auto c = make_chan<int>();
      auto spawn = [&c](int n) {
        for (int i = 0; i < n; i++) {
          go([c] { c.Send(1); });
          c.Recv();
        }
      };
      spawn(1000);
      const uint64_t before = rt::gcountAll();
      spawn(2000);
      // A P may keep some for itself, and one may be on its way to the list.
      EXPECT_LT(rt::gcountAll(), before + 8 * rt::kGFreeMax);
    });
    blocking([&t] { t.join(); });
  });
}

TEST_P(PlainThreadTest, ThreadsThatWaitAreInDumps) {
  Run([] {
    auto c = make_chan<int>();
    std::atomic<pid_t> tid = 0;
    std::thread t([&] {
      tid = Tid();
      for (int i = 0; i < 2; i++) EXPECT_EQ(c.Recv(), i);
    });
    auto parked = [&] {
      return runtime::Stack(true).find(
                 "[chan receive]:\n\tplain thread " + std::to_string(tid) +
                 "; stack unavailable\n") != std::string::npos;
    };
    for (int i = 0; i < 2; i++) {  // twice: the pseudo-G stays the thread's
      EXPECT_TRUE(testing::Eventually(parked));
      c.Send(i);
    }
    blocking([&t] { t.join(); });
    EXPECT_FALSE(parked());
  });
}

TEST_P(PlainThreadTest, ThreadsThatRunAreNotInDumps) {
  Run([] {
    auto c = make_chan<int>();
    std::atomic<bool> woken = false;
    std::atomic<bool> may_end = false;
    std::atomic<uint64_t> goid = 0;
    std::thread t([&] {
      goid = runtime::Goid();
      c.Recv();
      woken = true;
      while (!may_end) {
      }
    });
    EXPECT_TRUE(testing::EventuallyParked("chan receive", 1));
    c.Send(0);
    EXPECT_TRUE(testing::Eventually([&] { return woken.load(); }));
    EXPECT_EQ(
        runtime::Stack(true).find("goroutine " + std::to_string(goid) + " ["),
        std::string::npos);
    may_end = true;
    blocking([&t] { t.join(); });
  });
}

// A thread without a P sends wakes through the global queue. It does so just
// while the goroutine's thread is looking for work for the last time before it
// sleeps.
TEST_P(PlainThreadTest, WakesAreNotLostWhileTheLastSpinnerGoesToSleep) {
  Run([] {
    constexpr int kRounds = rt::kSanitizerBuild ? 5000 : 20000;
    auto c = make_chan<int>();
    auto d = make_chan<int>(1);
    std::thread t([=] {
      for (int i = 0; i < kRounds; i++) {
        c.Send(i);
        for (int k = i % 64; k > 0; k--) rt::procyield(1);
        while (d.TryRecv().kind == RecvResult<int>::kEmpty) {
        }
      }
    });
    for (int i = 0; i < kRounds; i++) {
      EXPECT_EQ(c.Recv(), i);
      d.Send(i);
    }
    blocking([&t] { t.join(); });
  });
}

}  // namespace
}  // namespace gump
