// Channels of time, and cells, on bare structs. Each step of a race is a call.
#include "runtime/wait/timechan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <new>

#include "runtime/sched/runtime2.h"
#include "runtime/sched/time.h"
#include "runtime/wait/chan.h"
#include "tests/runtime/bare_p.h"

namespace gump::rt {
namespace {

constexpr int64_t kFar = INT64_MAX / 2;

class TimeChanTest : public BareP {
 protected:
  Timers* ts() { return &p_.timers; }
  // Check runs all timers that are due at `now`.
  void Check(int64_t now) { (void)timersCheck(ts(), &now, /*tidy=*/true); }
  uint32_t Len() { return p_.timers.len.load(relaxed); }
};

// ---- A value or a stop, never both

// Chan is a channel of time that sends `when`. It has one reference.
class Chan {
 public:
  explicit Chan(int64_t when, int64_t period = 0) {
    c()->dataqsiz = 1;
    c()->elemsize = sizeof(int64_t);
    c()->elemalign = alignof(int64_t);
    c()->buf = tc_.slot;
    c()->kind = ElemKind::kBytes;
    c()->isTimer = true;
    t()->f = [](void* arg, uint64_t, int64_t due) {
      auto* self = static_cast<TimerChan*>(arg);
      lock(&self->c.lock);
      (void)sendLocked(&self->c, &due);
      unlock(&self->c.lock);
    };
    t()->arg = &tc_;
    t()->when = when;
    t()->period = period;
    t()->state.store(kTimerChan, relaxed);
  }

  Hchan* c() { return &tc_.c; }
  Timer* t() { return &tc_.t; }

  // FindDue and Send are the two steps of a thread that finds the timer due.
  // The first returns the facts that the second needs.
  struct Found {
    uint64_t seq;
    int64_t when;
  };
  Found FindDue() {
    lock(&t()->mu);
    const Found found{t()->seq, t()->when};
    t()->when = t()->period == 0 ? 0 : t()->when + t()->period;
    timerChanBegin(t());
    unlock(&t()->mu);
    return found;
  }
  void Send(Found found) { timerChanSend(t(), t()->f, found.seq, found.when); }

  // Value returns the value in the slot, or 0 if there is none.
  int64_t Value() {
    if (c()->qcount.load(relaxed) == 0) return 0;
    int64_t v;
    memcpy(&v, tc_.slot, sizeof v);
    return v;
  }
  int64_t Receive() {
    const int64_t v = Value();
    Hchan* taken = c();
    lock(&taken->lock);
    taken->qcount.store(0, relaxed);
    taken->recvx = 0;
    taken->sendx = 0;
    unlock(&taken->lock);
    return v;
  }

 private:
  TimerChan tc_;
};

TEST_F(TimeChanTest, AValueThatWasSentIsTakenBackByAStop) {
  Chan c(100);
  c.Send(c.FindDue());
  EXPECT_EQ(c.Value(), 100);
  EXPECT_TRUE(timerStop(c.t()));
  EXPECT_EQ(c.Value(), 0);
  EXPECT_FALSE(timerStop(c.t())) << "once";
}

TEST_F(TimeChanTest, AValueThatWasSentIsTakenBackByAReset) {
  Chan c(100);
  c.Send(c.FindDue());
  EXPECT_TRUE(timerModify(c.t(), kFar, 0));
  EXPECT_EQ(c.Value(), 0);
  EXPECT_TRUE(timerStop(c.t())) << "the new one";
}

TEST_F(TimeChanTest, AStopBetweenDueAndSentWins) {
  Chan c(100);
  const auto found = c.FindDue();
  EXPECT_TRUE(timerStop(c.t()));
  EXPECT_FALSE(timerStop(c.t())) << "once";
  c.Send(found);
  EXPECT_EQ(c.Value(), 0) << "it has been prevented";
}

TEST_F(TimeChanTest, AResetBetweenDueAndSentWins) {
  Chan c(100);
  const auto old = c.FindDue();
  EXPECT_TRUE(timerModify(c.t(), 200, 0));
  c.Send(old);
  EXPECT_EQ(c.Value(), 0) << "it has been prevented";
  c.Send(c.FindDue());
  EXPECT_EQ(c.Value(), 200);
}

TEST_F(TimeChanTest, TheOldValueDoesNotComeInPlaceOfTheNew) {
  Chan c(100);
  const auto old = c.FindDue();
  EXPECT_TRUE(timerModify(c.t(), 200, 0));
  const auto fresh = c.FindDue();
  c.Send(old);
  EXPECT_EQ(c.Value(), 0);
  EXPECT_TRUE(timerStop(c.t())) << "the new one is still on its way";
  c.Send(fresh);
  EXPECT_EQ(c.Value(), 0);
}

TEST_F(TimeChanTest, ATickBetweenDueAndSentIsForgotten) {
  Chan c(100, 10);
  const auto old = c.FindDue();
  EXPECT_TRUE(timerModify(c.t(), 200, 20));
  c.Send(old);
  EXPECT_EQ(c.Value(), 0);
  c.Send(c.FindDue());
  EXPECT_EQ(c.Value(), 200);
  EXPECT_TRUE(timerStop(c.t()));
  EXPECT_EQ(c.Value(), 0);
}

TEST_F(TimeChanTest, ATickThatComesAfterALaterOneIsLost) {
  Chan c(100, 10);
  const auto earlier = c.FindDue();
  const auto later = c.FindDue();
  c.Send(later);
  EXPECT_EQ(c.Receive(), 110);
  c.Send(earlier);
  EXPECT_EQ(c.Value(), 0);
  c.Send(c.FindDue());
  EXPECT_EQ(c.Receive(), 120);
}

TEST_F(TimeChanTest, AfterAResetATickMayBeEarlierThanTheLast) {
  Chan c(100, 10);
  c.Send(c.FindDue());
  EXPECT_TRUE(timerModify(c.t(), 50, 10));
  c.Send(c.FindDue());
  EXPECT_EQ(c.Receive(), 50);
}

TEST_F(TimeChanTest, ATimerWithoutWaitersIsInNoHeap) {
  Chan c(100);
  EXPECT_EQ(timerAdd(ts(), c.t()), 0);
  EXPECT_TRUE(timerModify(c.t(), 200, 0));
  EXPECT_EQ(Len(), 0u);
  EXPECT_TRUE(timerStop(c.t()));
}

// ---- Cells

// Cells of timers that were dropped while they were in the heap. They come back
// to the P when they are taken out.
class TimerCellsTest : public TimeChanTest {
 protected:
  Timer* Add(int64_t when) {
    Timer* t = &(new (&cells_.emplace_back()) FuncTimer)->t;
    t->when = when;
    t->arg = t;
    t->f = [](void*, uint64_t, int64_t) {};
    (void)timerAdd(ts(), t);
    return t;
  }
  static void Drop(Timer* t) {
    EXPECT_TRUE(timerStop(t));
    timerDrop(t);
  }
  uint32_t Free() { return p_.funcCells.n; }

 private:
  struct alignas(kCacheLine) Cell {
    unsigned char bytes[sizeof(FuncTimer)];
  };
  std::deque<Cell> cells_;
};

TEST_F(TimerCellsTest, CellsOfNoHeapAreFreeAtOnce) {
  Timer* t = Add(100);
  Check(100);
  EXPECT_EQ(Len(), 0u);
  timerDrop(t);
  EXPECT_EQ(Free(), 1u);
}

TEST_F(TimerCellsTest, CellsAtTheHeadAreFreeWhenTheirTimeComes) {
  Timer* head = Add(100);
  for (int i = 0; i < 10; i++) Add(200);
  Drop(head);
  EXPECT_EQ(Free(), 0u) << "lazily";
  Check(100);
  EXPECT_EQ(Free(), 1u);
  EXPECT_EQ(Len(), 10u);
}

TEST_F(TimerCellsTest, CellsAtTheEndAreFreeWhenAnotherComes) {
  Add(100);
  Timer* last = Add(200);
  Drop(last);
  EXPECT_EQ(Free(), 0u) << "lazily";
  Add(300);
  EXPECT_EQ(Free(), 1u);
  EXPECT_EQ(Len(), 2u);
}

TEST_F(TimerCellsTest, CellsInTheMiddleAreFreeWhenTheyAreMany) {
  Add(100);
  Timer* middle[8];
  for (Timer*& t : middle) t = Add(200);
  Add(300);
  for (Timer* t : middle) Drop(t);
  EXPECT_EQ(Free(), 0u) << "lazily";
  Check(1);
  EXPECT_EQ(Free(), 8u);
  EXPECT_EQ(Len(), 2u);
}

TEST_F(TimerCellsTest, CellsOfAPThatGoesAwayAreFree) {
  Add(100);
  Drop(Add(200));
  P other;
  timersTake(&other.timers, ts());
  EXPECT_EQ(Free(), 1u);
  EXPECT_EQ(other.timers.len.load(relaxed), 1u);
}

}  // namespace
}  // namespace gump::rt
