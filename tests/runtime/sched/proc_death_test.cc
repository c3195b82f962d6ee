// The checks that the scheduler makes of itself in every build. Each test
// breaks one, on bare structs where they will do, and the process ends in Go's
// words. (proc_status_test.cc has the status words, watchdog_test.cc the idle
// lists.)
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "gump/go.h"
#include "gump/internal/linkname.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/locked.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/switch.h"
#include "runtime/sched/thread.h"
#include "runtime/sys/tls.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::rt {
namespace {

// SchedDeathTest is an M on g0 without a P, two idle Ps, and another M. There
// is no thread for the other M, so nothing runs. The checks only look at it.
class SchedDeathTest : public ::testing::Test {
 protected:
  SchedDeathTest() : gs_(2 * kRunqSize) {
    for (M* mp : {&m_, &other_}) mp->g0.m = mp;
    other_.id = 7;
    m_.locks.store(1, relaxed);  // (K3) of proc_park.cc
    setg(&m_.g0);
    p_.id = 0;
    q_.id = 1;
    allp[0] = &p_;
    allp[1] = &q_;
    gomaxprocs.store(2, relaxed);
  }
  ~SchedDeathTest() override {
    gomaxprocs.store(0, relaxed);
    allp[0] = allp[1] = nullptr;
    setg(nullptr);
  }

  G* g(uint32_t i) { return &gs_[i]; }
  void Fill(P* pp, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) runqput(pp, g(i), false);
  }
  // Own gives p_ to m_.
  void Own() { acquirep(&p_); }
  // Idle makes other_ the only idle M.
  void Idle() {
    LockScope l(&sched.lock);
    other_.idle = true;
    sched.nodes[0].midle = &other_;
    sched.nmidle = 1;
  }

  std::vector<G> gs_;
  M m_;
  M other_;
  P p_;
  P q_;
};

// Dies expects f to end the process with this text on its first lines.
template <class F>
void Dies(F f, const char* text) {
  EXPECT_EXIT(f(), ::testing::ExitedWithCode(2), text);
}

TEST_F(SchedDeathTest, MOwnsOneP) {
  Dies(
      [this] {
        Own();
        acquirep(&q_);
      },
      "^fatal error: wirep: already in go\n");
}

TEST_F(SchedDeathTest, POfAnotherIsNotAcquired) {
  Dies(
      [this] {
        q_.m.store(&other_, relaxed);
        acquirep(&q_);
      },
      "^runtime: wirep: P1 belongs to M7\n"
      "fatal error: wirep: invalid p state\n");
}

TEST_F(SchedDeathTest, OnlyAnOwnedPIsReleased) {
  Dies([] { (void)releasep(); }, "^fatal error: releasep: invalid arg\n");
  Dies(
      [this] {
        Own();
        p_.m.store(&other_, relaxed);
        (void)releasep();
      },
      "^fatal error: releasep: invalid p state\n");
}

TEST_F(SchedDeathTest, PWithWorkIsNotIdle) {
  constexpr char kText[] =
      "^fatal error: pidleput: P has non-empty run queue\n";
  auto idle = [this] {
    LockScope l(&sched.lock);
    pidleput(&p_);
  };
  Dies(
      [&] {
        runqput(&p_, g(0), /*next=*/false);
        idle();
      },
      kText);
  Dies(
      [&] {
        runqput(&p_, g(0), /*next=*/true);
        idle();
      },
      kText);
  Dies(
      [&] {
        p_.yielded.pushBack(g(0));
        idle();
      },
      kText);
}

TEST_F(SchedDeathTest, NumberOfPsIsInRange) {
  for (int32_t n : {-1, 0, kMaxGomaxprocs + 1}) {
    Dies(
        [n] {
          LockScope l(&sched.lock);
          (void)procresize(n);
        },
        "^fatal error: procresize: invalid arg\n");
  }
}

TEST_F(SchedDeathTest, OnlyAFullRingOverflows) {
  Dies(
      [this] {
        Fill(&p_, 3);
        (void)runqputslow(&p_, g(3), 0, 3);
      },
      "^fatal error: runqputslow: queue is not full\n");
}

TEST_F(SchedDeathTest, ThiefHasRoom) {
  Dies(
      [this] {
        Fill(&q_, kRunqSize);
        Fill(&p_, kRunqSize - 8);
        (void)runqsteal(&p_, &q_, /*stealRunNextG=*/false);
      },
      "^fatal error: runqsteal: runq overflow\n");
}

TEST_F(SchedDeathTest, GlobalBatchFits) {
  Dies(
      [this] {
        Fill(&p_, kRunqSize);
        LockScope l(&sched.lock);
        for (uint32_t i = 0; i < 8; i++) globrunqput(g(kRunqSize + i));
        (void)globrunqgetbatch(&sched.nodes[0], &p_, 4);
      },
      "^fatal error: Couldn't put Gs into empty local runq\n");
}

TEST_F(SchedDeathTest, MStopsWithEmptyHands) {
  Dies(
      [this] {
        m_.locks.store(2, relaxed);
        stopm();
      },
      "^fatal error: stopm holding locks\n");
  Dies(
      [this] {
        Own();
        stopm();
      },
      "^fatal error: stopm holding p\n");
  Dies(
      [this] {
        m_.spinning = true;
        stopm();
      },
      "^fatal error: stopm spinning\n");
}

TEST_F(SchedDeathTest, GcstopmNeedsAStopTheWorld) {
  Dies(
      [this] {
        Own();
        gcstopm();
      },
      "^fatal error: gcstopm: not waiting for gc\n");
  Dies(
      [this] {
        Own();
        m_.spinning = true;  // and is not counted
        sched.gcwaiting.store(true, relaxed);
        gcstopm();
      },
      "^fatal error: gcstopm: negative nmspinning\n");
}

TEST_F(SchedDeathTest, SpinningMNeedsAP) {
  Dies([] { startm(nullptr, /*spinning=*/true); },
       "^fatal error: startm: P required for spinning=true\n");
}

TEST_F(SchedDeathTest, IdleMIsStartedOnce) {
  Dies(
      [this] {
        Idle();
        other_.spinning = true;
        startm(&p_, /*spinning=*/false);
      },
      "^fatal error: startm: m is spinning\n");
  Dies(
      [this] {
        Idle();
        other_.nextp = &q_;
        startm(&p_, /*spinning=*/false);
      },
      "^fatal error: startm: m has p\n");
  Dies(
      [this] {
        Idle();
        Fill(&p_, 1);
        startm(&p_, /*spinning=*/true);
      },
      "^fatal error: startm: p has runnable gs\n");
}

TEST_F(SchedDeathTest, LockedMAndGKnowEachOther) {
  constexpr char kText[] = "^fatal error: stoplockedm: inconsistent locking\n";
  Dies([] { stoplockedm(); }, kText);
  Dies(
      [this] {
        m_.lockedg = g(0);
        g(0)->lockedm = &other_;
        stoplockedm();
      },
      kText);
  Dies(
      [this] {
        g(0)->lockedm = &m_;
        startlockedm(g(0));
      },
      "^fatal error: startlockedm: locked to me\n");
  Dies(
      [this] {
        Own();
        g(0)->lockedm = &other_;
        other_.nextp = &q_;
        startlockedm(g(0));
      },
      "^fatal error: startlockedm: m has p\n");
}

TEST_F(SchedDeathTest, SearchesThatEndHaveBegun) {
  Dies([this] { stopSpinning(&m_); },
       "^fatal error: findRunnable: negative nmspinning\n");
}

TEST_F(SchedDeathTest, SchedulerHoldsNothing) {
  Dies(
      [this] {
        Own();
        m_.locks.store(2, relaxed);
        (void)schedule();
      },
      "^fatal error: schedule: holding locks\n");
  Dies(
      [this] {
        Own();
        m_.spinning = true;
        Fill(&p_, 1);
        (void)schedule();
      },
      "^fatal error: schedule: spinning with local work\n");
  Dies([] { (void)findRunnable(); }, "^fatal error: findRunnable: no p\n");
}

// ---- In a runtime that is otherwise whole -----------------------------------

TEST(ParkDeathTest, MustBeInTheRuntime) {
  Dies(
      [] {
        testing::RunWith(1,
                         [] { gopark(nullptr, nullptr, WaitReason::kZero); });
      },
      "^runtime: gopark with m.locks=0\nfatal error: gopark: bad m.locks\n");
}

TEST(ParkDeathTest, MustHoldNothing) {
  Dies(
      [] {
        testing::RunWith(1, [] {
          (void)acquirem();
          (void)acquirem();
          gopark(nullptr, nullptr, WaitReason::kZero);
        });
      },
      "^runtime: gopark with m.locks=2\nfatal error: gopark: bad m.locks\n");
}

TEST(SemaDeathTest, ReasonMustBeKnown) {
  Dies(
      [] {
        testing::RunWith(1, [] {
          Atomic<uint32_t> nothing;
          semacquire(&nothing, /*lifo=*/false, static_cast<SemaReason>(99));
        });
      },
      "^fatal error: semacquire: bad reason\n");
}

TEST(SelectDeathTest, CasesHaveALimit) {
  Dies(
      [] {
        const size_t n = 65'537;
        auto cases = std::make_unique<Scase[]>(n);
        (void)selectgo(cases.get(), n, /*block=*/false);
      },
      "^fatal error: selectgo: too many cases\n");
}

TEST(CheckdeadDeathTest, CountsMustBeConsistent) {
  Dies(
      [] {
        testing::RunWith(1, [] {
          LockScope l(&sched.lock);
          sched.nmidle += 100;
          checkdead();
        });
      },
      "^runtime: checkdead: nmidle=[0-9]+ nmidlelocked=-?[0-9]+ mcount=[0-9]+ "
      "nmsys=[0-9]+\nfatal error: checkdead: inconsistent counts\n");
}

TEST(CheckdeadDeathTest, ARunningGoroutineIsNotDead) {
  // The test dies in a process of its own, not in a child of fork. checkdead
  // counts the threads of the process, and TSan gives a child of fork one
  // background thread too many if its parent had started no thread.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Dies(
      [] {
        testing::RunWith(1, [] {
          LockScope l(&sched.lock);
          // As if every M were idle, this one as well.
          sched.nmidle =
              static_cast<int32_t>(mcount()) - sched.nmidlelocked - sched.nmsys;
          checkdead();
        });
      },
      "^runtime: checkdead: no thread runs, yet [0-9]+ goroutines are "
      "runnable, 0 of them without a stack, 0 in a full group; busy goroutine: "
      "1\n"
      "fatal error: checkdead: runnable g\n");
}

TEST(FatalDeathTest, TracesThoughItHoldsTheLock) {
  Dies(
      [] {
        setenv("GODEBUG", "schedtrace=1000000", 1);
        testing::RunWith(1, [] {
          LockScope l(&sched.lock);
          fatal("locked");
        });
      },
      "fatal error: locked\nSCHED [0-9]+ms: ");
}

// It shows the stack of the scheduler, and of the goroutine that led to it.
TEST(FatalDeathTest, OnG0ShowsTheGoroutineToo) {
  Dies(
      [] {
        testing::RunWith(1, [] {
          (void)acquirem();
          gumpMcall([](G*) -> G* { fatalthrow("on g0"); });
        });
      },
      "^fatal error: on g0\n(.*\n)*runtime stack:\n(.*\n)*goroutine 1 ");
}

}  // namespace
}  // namespace gump::rt
