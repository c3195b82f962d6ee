// The heap of timers on a bare P, with a clock of the test's own.
#include "runtime/sched/time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <vector>

#include "runtime/sched/runtime2.h"
#include "tests/runtime/bare_p.h"

namespace gump::rt {
namespace {

// The time that Check was told.
int64_t checked_at = 0;

// A timer that records how late it was run.
struct Noted {
  Timer t;
  std::vector<int64_t> delays;
  std::function<void()> then;

  explicit Noted(int64_t when, int64_t period = 0) {
    t.when = when;
    t.period = period;
    t.arg = this;
    t.f = [](void* arg, uint64_t, int64_t due) {
      auto* self = static_cast<Noted*>(arg);
      self->delays.push_back(checked_at - due);
      if (self->then) self->then();
    };
  }
  size_t runs() const { return delays.size(); }
};

class TimersTest : public BareP {
 protected:
  Timers* ts() { return &p_.timers; }
  // Add tells whether n is the earliest now.
  bool Add(Noted* n) { return timerAdd(ts(), &n->t) != 0; }
  // Check runs all timers that are due at `now` and returns the next time.
  int64_t Check(int64_t now, bool tidy = true) {
    checked_at = now;
    return timersCheck(ts(), &now, tidy).next;
  }
  uint32_t Len() { return p_.timers.len.load(relaxed); }
  int32_t Zombies() { return p_.timers.zombies.load(relaxed); }
};

TEST_F(TimersTest, EmptyHeapHasNothingToDo) {
  EXPECT_EQ(wakeTime(ts()), 0);
  EXPECT_EQ(Check(1000), 0);
}

TEST_F(TimersTest, RunsDueTimersAndNoOthers) {
  Noted a(100);
  Noted b(200);
  EXPECT_TRUE(Add(&b));
  EXPECT_TRUE(Add(&a)) << "earlier than all";
  EXPECT_EQ(wakeTime(ts()), 100);
  EXPECT_EQ(Check(99), 100);
  EXPECT_EQ(a.runs(), 0u);
  EXPECT_EQ(Check(150), 200);
  EXPECT_EQ(a.delays, std::vector<int64_t>{50});
  EXPECT_EQ(b.runs(), 0u);
  EXPECT_EQ(Check(200), 0);
  EXPECT_EQ(b.delays, std::vector<int64_t>{0});
  EXPECT_EQ(Len(), 0u);
}

TEST_F(TimersTest, AddTellsOnlyIfItIsTheEarliest) {
  Noted a(100);
  Noted b(100);
  Noted c(99);
  EXPECT_TRUE(Add(&a));
  EXPECT_FALSE(Add(&b));
  EXPECT_TRUE(Add(&c));
  Check(100);
}

TEST_F(TimersTest, RunsInOrderOfTime) {
  std::mt19937_64 rng(1);
  std::deque<Noted> timers;
  constexpr int kTimers = 2000;  // grows several times
  for (int i = 0; i < kTimers; i++) {
    timers.emplace_back(1 + static_cast<int64_t>(rng() % 5000));
  }
  std::vector<int64_t> order;
  for (Noted& n : timers) {
    n.then = [&order, when = n.t.when] { order.push_back(when); };
    Add(&n);
  }
  int64_t now = 1;
  while (now != 0) now = Check(now);
  EXPECT_EQ(order.size(), timers.size());
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  order.clear();
  for (Noted& n : timers) {
    n.t.when = 1 + static_cast<int64_t>(rng() % 5000);
    n.then = [&order, when = n.t.when] { order.push_back(when); };
    Add(&n);
  }
  EXPECT_EQ(Check(10000), 0) << "all at once";
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_F(TimersTest, StoppedTimerIsNotRun) {
  Noted a(100);
  Noted b(200);
  Add(&a);
  Add(&b);
  EXPECT_TRUE(timerStop(&a.t));
  EXPECT_FALSE(timerStop(&a.t));
  EXPECT_EQ(Len(), 2u) << "lazily";
  EXPECT_EQ(Zombies(), 1);
  EXPECT_EQ(Check(150), 200);
  EXPECT_EQ(a.runs(), 0u);
  EXPECT_EQ(Len(), 1u);
  EXPECT_EQ(Zombies(), 0);
  Check(200);
  EXPECT_FALSE(timerStop(&b.t)) << "has run";
}

TEST_F(TimersTest, ZombiesDoNotPileUp) {
  std::deque<Noted> timers;
  for (int i = 0; i < 1000; i++) timers.emplace_back(1000 + i);
  for (Noted& n : timers) Add(&n);
  for (size_t i = 0; i < 250; i++) timerStop(&timers[4 * i + 2].t);
  EXPECT_EQ(Check(1), 1000);
  EXPECT_EQ(Zombies(), 250) << "a quarter is borne";
  timerStop(&timers[3].t);
  EXPECT_EQ(Check(1, /*tidy=*/false), 1000);
  EXPECT_EQ(Zombies(), 251) << "not the caller's to clean";
  EXPECT_EQ(Check(1), 1000);
  EXPECT_EQ(Zombies(), 0);
  EXPECT_EQ(Len(), 749u);
}

TEST_F(TimersTest, AddingCleansTheEnds) {
  for (int i = 0; i < 10000; i++) {
    Noted n(1'000'000 - i);
    Add(&n);
    EXPECT_TRUE(timerStop(&n.t));
    EXPECT_LE(Len(), 1u);
    Noted last(2'000'000);
    Add(&last);
    timerStop(&last.t);
    Check(1);
    ASSERT_EQ(Len(), 0u);
  }
}

TEST_F(TimersTest, ResetRevivesAZombie) {
  Noted a(100);
  Add(&a);
  timerStop(&a.t);
  EXPECT_FALSE(timerModify(&a.t, 300, 0));
  EXPECT_EQ(Zombies(), 0);
  EXPECT_EQ(Len(), 1u);
  EXPECT_EQ(Check(200), 300);
  EXPECT_EQ(a.runs(), 0u);
  Check(300);
  EXPECT_EQ(a.delays, std::vector<int64_t>{0});
}

TEST_F(TimersTest, ModifiedEarlierRunsEarlier) {
  Noted a(100);
  Noted b(200);
  Noted c(300);
  for (Noted* n : {&a, &b, &c}) Add(n);
  EXPECT_TRUE(timerModify(&c.t, 50, 0));
  EXPECT_EQ(wakeTime(ts()), 50) << "at once";
  EXPECT_EQ(Check(60), 100);
  EXPECT_EQ(c.delays, std::vector<int64_t>{10});
  EXPECT_EQ(a.runs() + b.runs(), 0u);
  EXPECT_EQ(Check(250), 0);
  EXPECT_EQ(a.runs() + b.runs(), 2u);
}

TEST_F(TimersTest, ModifiedLaterRunsLater) {
  Noted a(100);
  Noted b(200);
  Add(&a);
  Add(&b);
  EXPECT_TRUE(timerModify(&a.t, 300, 0));
  EXPECT_LE(wakeTime(ts()), 200);
  EXPECT_EQ(Check(150), 200);
  EXPECT_EQ(Check(200), 300);
  EXPECT_EQ(a.runs(), 0u);
  EXPECT_EQ(b.runs(), 1u);
  EXPECT_EQ(Check(300), 0);
  EXPECT_EQ(a.runs(), 1u);
}

TEST_F(TimersTest, WakeTimeIsNeverLate) {
  std::mt19937_64 rng(2);
  std::deque<Noted> timers;
  for (int i = 0; i < 300; i++)
    timers.emplace_back(1 + static_cast<int64_t>(rng() % 1000));
  for (Noted& n : timers) Add(&n);
  int64_t now = 1;
  for (int round = 0; round < 20000; round++) {
    Noted& n = timers[rng() % timers.size()];
    switch (rng() % 4) {
      case 0:
        timerStop(&n.t);
        break;
      case 1:
        now += static_cast<int64_t>(rng() % 3);
        Check(now, rng() % 2 == 0);
        break;
      default:
        timerModify(&n.t, now + 1 + static_cast<int64_t>(rng() % 500), 0);
    }
    int64_t first = kMaxWhen;
    for (const Noted& t : timers) {
      if (t.t.when != 0) first = std::min(first, t.t.when);
    }
    if (first == kMaxWhen) continue;
    ASSERT_NE(wakeTime(ts()), 0);
    ASSERT_LE(wakeTime(ts()), first);
  }
  for (Noted& n : timers) timerStop(&n.t);
  EXPECT_EQ(Check(now), 0);
  EXPECT_EQ(Len(), 0u);
  for (const Noted& n : timers) {
    for (int64_t d : n.delays) EXPECT_GE(d, 0) << "early";
  }
}

// The timers of a P that goes away are moved to another P's heap. Meanwhile a
// thread without a P resets one of them and so marks the new heap, where the
// timer is not yet. The new heap is empty, so its owner clears that mark.
TEST_F(TimersTest, MoveFollowsAMarkThatWasLost) {
  Noted far(1'000'000);
  Add(&far);
  P other;
  // The thread's reset, and the loss of its mark. In a program they come while
  // timersTake holds neither lock.
  far.then = nullptr;
  Timers* dst = &other.timers;
  far.t.ts = ts();
  EXPECT_TRUE(timerModify(&far.t, 50, 0));
  p_.timers.minWhenModified.store(0, relaxed);
  timersTake(dst, ts());
  EXPECT_EQ(wakeTime(dst), 50);
  EXPECT_EQ(Len(), 0u);
  timerStop(&far.t);
}

TEST_F(TimersTest, PeriodsThatWereMissedAreLeftOut) {
  Noted a(100, 10);
  Add(&a);
  EXPECT_EQ(Check(100), 110);
  EXPECT_EQ(Check(110), 120);
  EXPECT_EQ(Check(147), 150);
  EXPECT_EQ(a.delays, (std::vector<int64_t>{0, 0, 27}));
  EXPECT_EQ(Check(150), 160);
  EXPECT_TRUE(timerStop(&a.t));
  EXPECT_EQ(Check(1000), 0);
  EXPECT_EQ(a.runs(), 4u);
}

TEST_F(TimersTest, TimesBeyondTheEndAreTheEnd) {
  Noted a(100, kMaxWhen);
  Add(&a);
  EXPECT_EQ(Check(100), kMaxWhen);
  EXPECT_EQ(a.t.when, kMaxWhen);
  EXPECT_EQ(timeAfter(100, 7), 107);
  EXPECT_EQ(timeAfter(100, kMaxWhen), kMaxWhen);
  EXPECT_EQ(timeAfter(100, 0), 100);
  EXPECT_EQ(timeAfter(100, -1), 100);
  EXPECT_EQ(timeAfter(100, INT64_MIN), 100);
  timerStop(&a.t);
  Check(1);
}

TEST_F(TimersTest, FirstIsExactAfterStopsAndMoves) {
  EXPECT_EQ(timersFirst(ts()), 0);
  Noted a(100), b(200), c(300);
  Add(&a);
  Add(&b);
  Add(&c);
  EXPECT_EQ(timersFirst(ts()), 100);
  timerStop(&a.t);
  EXPECT_LE(wakeTime(ts()), 100);  // that is, it may be too early
  EXPECT_EQ(timersFirst(ts()), 200);
  timerModify(&c.t, 150, 0);
  EXPECT_EQ(timersFirst(ts()), 150);
  timerModify(&c.t, 250, 0);
  EXPECT_EQ(timersFirst(ts()), 200);
  timerStop(&b.t);
  timerStop(&c.t);
  EXPECT_EQ(timersFirst(ts()), 0);
  EXPECT_EQ(Len(), 0u);
}

TEST_F(TimersTest, LocksAreFreeDuringTheCall) {
  Noted a(100);
  bool free = false;
  auto isFree = [](Mutex* l) {
    if (!trylock(l)) return false;
    unlock(l);
    return true;
  };
  a.then = [&] { free = isFree(&ts()->mu) && isFree(&a.t.mu); };
  Add(&a);
  Check(100);
  EXPECT_TRUE(free);
}

TEST_F(TimersTest, CallMayResetStopAndEndItsTimer) {
  Noted again(100);
  again.then = [&] {
    EXPECT_FALSE(timerStop(&again.t)) << "it has fired";
    if (again.runs() < 3) {
      EXPECT_FALSE(timerModify(&again.t, 100, 0));
    }
  };
  Add(&again);
  auto* gone = new Noted(100);
  gone->then = [&, gone] {
    auto keep = std::move(gone->then);
    delete gone;
  };
  Add(gone);
  Noted tick(100, 10);
  tick.then = [&] { EXPECT_TRUE(timerStop(&tick.t)) << "the next one"; };
  Add(&tick);
  EXPECT_EQ(Check(100), 0);
  EXPECT_EQ(again.runs(), 3u);
  EXPECT_EQ(tick.runs(), 1u);
  EXPECT_EQ(Len(), 0u);
}

TEST_F(TimersTest, TakenTimersRunWhereTheyAre) {
  P other;
  Noted a(100);
  Noted stopped(50);
  Noted moved(300);
  Noted tick(120, 10);
  Noted here(110);
  for (Noted* n : {&a, &stopped, &moved, &tick}) {
    (void)timerAdd(&other.timers, &n->t);
  }
  Add(&here);
  timerStop(&stopped.t);
  timerModify(&moved.t, 90, 0);
  timersTake(ts(), &other.timers);
  EXPECT_EQ(wakeTime(&other.timers), 0);
  EXPECT_EQ(other.timers.len.load(relaxed), 0u);
  EXPECT_EQ(other.timers.zombies.load(relaxed), 0);
  EXPECT_EQ(Len(), 4u) << "no zombie";
  EXPECT_EQ(Check(90), 100);
  EXPECT_EQ(moved.runs(), 1u);
  EXPECT_TRUE(timerModify(&a.t, 105, 0)) << "it can be reached";
  EXPECT_EQ(Check(115), 120);
  EXPECT_EQ(a.runs() + here.runs(), 2u);
  EXPECT_TRUE(timerStop(&tick.t));
  EXPECT_EQ(Check(1000), 0);
  EXPECT_EQ(tick.runs() + stopped.runs(), 0u);
}

TEST_F(TimersTest, DueIsSeenEvery16thTime) {
  Noted a(1);
  EXPECT_FALSE(timersDue(ts()));
  Add(&a);
  int seen = 0;
  for (int i = 0; i < 160; i++) seen += timersDue(ts()) ? 1 : 0;
  EXPECT_EQ(seen, 10);
  Check(1);
  Noted never(kMaxWhen);
  Add(&never);
  for (int i = 0; i < 160; i++) EXPECT_FALSE(timersDue(ts()));
  timerStop(&never.t);
  Check(1);
}

}  // namespace
}  // namespace gump::rt
