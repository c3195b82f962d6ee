// Goroutines that are bound to their thread.
#include <gtest/gtest.h>
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

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/sched/locked.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stw.h"
#include "runtime/sys/tls.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

size_t Threads() {
  std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(
      std::distance(begin(tasks), std::filesystem::directory_iterator()));
}

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
          if (gettid() == locked_tid) intruders++;
          runtime::Gosched();
        }
      });
    }
    sync::WaitGroup wg;
    wg.Go([&] {
      runtime::LockOSThread();
      const pid_t tid = gettid();
      locked_tid = tid;
      auto c = make_chan<int>();
      for (int i = 0; i < 200; i++) {
        go([c] { c.Send(1); });
        c.Recv();
        EXPECT_EQ(gettid(), tid);
        runtime::Gosched();
        EXPECT_EQ(gettid(), tid);
        blocking([] {});
        EXPECT_EQ(gettid(), tid);
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
      const pid_t tid = gettid();
      runtime::UnlockOSThread();
      for (int i = 0; i < 50; i++) {
        runtime::Gosched();
        EXPECT_EQ(gettid(), tid);
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
        if (gettid() != getpid()) {
          std::lock_guard<std::mutex> l(mu);
          ended.insert(gettid());
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
  const pid_t tid = gettid();
  Run([] {
    runtime::LockOSThread();
    const pid_t locked = gettid();
    for (int i = 0; i < 50; i++) {
      auto c = make_chan<int>();
      go([c] { c.Send(1); });
      c.Recv();
      runtime::Gosched();
      EXPECT_EQ(gettid(), locked);
    }
    runtime::UnlockOSThread();
  });
  EXPECT_EQ(gettid(), tid);
}

TEST_P(LockOSThreadTest, MainThatLocksAtOnceIsOnTheThreadOfRun) {
  const pid_t tid = gettid();
  for (int i = 0; i < 50; i++) {
    gump::Run([tid] {
      runtime::LockOSThread();
      EXPECT_EQ(gettid(), tid);
      runtime::Gosched();
      EXPECT_EQ(gettid(), tid);
    });
  }
}

// Like a Go program that locks its thread in an init function.
TEST_P(LockOSThreadTest, CallerOfRunMayLockMain) {
  std::thread([this] {
    const pid_t tid = gettid();
    const auto stays = [tid] {
      bool all = true;
      for (int i = 0; i < 50; i++) {
        sync::WaitGroup wg;
        wg.Go([] { usleep(10); });
        wg.Wait();
        all = all && gettid() == tid;
      }
      return all;
    };
    runtime::LockOSThread();
    runtime::LockOSThread();
    for (int i = 0; i < 3; i++) {
      Run([&] { EXPECT_TRUE(stays()); });
    }
    // Main begins with as many locks as its caller has. To release them leaves
    // the caller's own locks as they are.
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
  const pid_t tid = gettid();
  Run([&] {
    sync::WaitGroup wg;
    for (int i = 0; i < 100; i++) {
      wg.Go([=] {
        for (int k = 0; k < 10; k++) {
          EXPECT_NE(gettid(), tid);
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

// Queued tells whether gp is in the global queue, on any node.
bool Queued(const rt::G* gp) {
  rt::LockScope l(&rt::sched.lock);
  for (int k = 0; k < rt::sched.nnodes.load(rt::relaxed); k++) {
    const rt::G* at = rt::sched.nodes[k].runq.head();
    while (at != nullptr && at != gp) at = at->schedlink;
    if (at != nullptr) return true;
  }
  return false;
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
  // thread a P. There must be two Ps, because the caller keeps its own.
  void HandP() {
    rt::P* pp = rt::allp[rt::allp[0] == rt::getg()->m->p ? 1 : 0];
    rt::M* mp = g()->lockedm;
    {
      rt::LockScope l(&rt::sched.lock);
      for (int k = 0; k < rt::sched.nnodes.load(rt::relaxed); k++) {
        rt::SchedNode* np = &rt::sched.nodes[k];
        for (int n = np->runq.size(); n > 0; n--) {
          rt::G* gp = rt::globrunqget(np);
          if (gp != g()) rt::globrunqputOn(np, gp);
        }
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
    return !g()->putBack;  // set before g is queued
  }

 private:
  std::atomic<rt::G*> g_ = nullptr;
  std::atomic<bool> ran_ = false;
  std::atomic<bool> may_end_ = false;
  sync::WaitGroup wg_;
};

// The goroutine's thread must look for a stop when it is handed the P. Once the
// goroutine computes, only a signal would stop it.
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

// PretendEnd runs f on n Ps in a process of its own. There f may set
// sched.mainEnded, as if main had ended. That needs main on m0: without main to
// run, m0 would see the flag and leave Run.
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

}  // namespace
}  // namespace gump
