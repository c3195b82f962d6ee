// Run queues on bare Ps: no scheduler runs.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/sched/globq.h"
#include "runtime/sched/gqueue.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/rand.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/tls.h"

namespace gump::rt {
namespace {

constexpr uint32_t kHalf = kRunqSize / 2;

// RunqTest is an M that owns two of the Ps. The parameter is GOMAXPROCS. With
// one P its owner does without atomic read-modify-writes.
class RunqTest : public ::testing::TestWithParam<int32_t> {
 protected:
  RunqTest() : gs_(4 * kRunqSize) {
    m_.g0.m = &m_;
    setg(&m_.g0);
    gomaxprocs.store(GetParam(), relaxed);
  }
  ~RunqTest() override {
    while (Global() != nullptr) {
    }
    setg(nullptr);
    gomaxprocs.store(0, relaxed);
  }

  G* g(uint32_t i) { return &gs_[i]; }
  // Fill puts Gs first..first+n-1 into the ring.
  void Fill(P* pp, uint32_t n, uint32_t first = 0) {
    for (uint32_t i = 0; i < n; i++) runqput(pp, g(first + i), false);
  }
  // StartAt makes the indices of pp's ring begin at i.
  static void StartAt(P* pp, uint32_t i) {
    pp->runqhead.store(i, relaxed);
    pp->runqtail.store(i, relaxed);
  }
  static G* Global() {
    LockScope l(&sched.lock);
    return globrunqget(&sched.nodes[0]);
  }
  static int32_t GlobalSize() { return sched.runqsize.load(relaxed); }
  void ExpectGlobal(uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++) ASSERT_EQ(Global(), g(i)) << i;
  }
  void ExpectRing(P* pp, uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++) {
      RunqGet got = runqget(pp);
      ASSERT_EQ(got.gp, g(i)) << i;
      ASSERT_FALSE(got.inheritTime);
    }
  }

  std::vector<G> gs_;
  M m_;
  P p_;
  P victim_;
};
INSTANTIATE_TEST_SUITE_P(, RunqTest, ::testing::Values(1, 2),
                         [](const auto& i) {
                           return i.param == 1 ? "SoleP" : "ManyPs";
                         });

TEST_P(RunqTest, IsEmptyWhenNew) {
  EXPECT_TRUE(runqempty(&p_));
  EXPECT_EQ(runqlen(&p_), 0u);
  EXPECT_EQ(runqget(&p_).gp, nullptr);
  EXPECT_TRUE(runqdrain(&p_).empty());
}

TEST_P(RunqTest, GivesInTheOrderPut) {
  Fill(&p_, 10);
  EXPECT_FALSE(runqempty(&p_));
  EXPECT_EQ(runqlen(&p_), 10u);
  ExpectRing(&p_, 0, 10);
  EXPECT_TRUE(runqempty(&p_));
}

TEST_P(RunqTest, RunnextGoesFirstAndInheritsTheSlice) {
  Fill(&p_, 2);
  runqput(&p_, g(2), true);
  EXPECT_EQ(runqlen(&p_), 2u) << "the ring only";
  RunqGet got = runqget(&p_);
  EXPECT_EQ(got.gp, g(2));
  EXPECT_TRUE(got.inheritTime);
  ExpectRing(&p_, 0, 2);
}

TEST_P(RunqTest, RunnextAloneIsNotEmpty) {
  runqput(&p_, g(0), true);
  EXPECT_FALSE(runqempty(&p_));
  EXPECT_EQ(runqget(&p_).gp, g(0));
  EXPECT_TRUE(runqempty(&p_));
}

TEST_P(RunqTest, NewRunnextKicksTheOldOneToTheTail) {
  Fill(&p_, 1);
  runqput(&p_, g(1), true);
  runqput(&p_, g(2), true);
  runqput(&p_, g(3), true);
  EXPECT_EQ(runqget(&p_).gp, g(3));
  ExpectRing(&p_, 0, 3);
}

TEST_P(RunqTest, OverflowSendsTheFirstHalfAndTheNewOneToTheGlobalQueue) {
  Fill(&p_, kRunqSize);
  EXPECT_EQ(GlobalSize(), 0);
  runqput(&p_, g(kRunqSize), false);
  EXPECT_EQ(GlobalSize(), static_cast<int32_t>(kHalf + 1));
  EXPECT_EQ(runqlen(&p_), kHalf);
  ExpectGlobal(0, kHalf);
  EXPECT_EQ(Global(), g(kRunqSize));
  EXPECT_EQ(GlobalSize(), 0);
  ExpectRing(&p_, kHalf, kRunqSize);
}

TEST_P(RunqTest, KickOutOfRunnextMayOverflowToo) {
  runqput(&p_, g(kRunqSize), true);
  Fill(&p_, kRunqSize);
  runqput(&p_, g(kRunqSize + 1), true);
  EXPECT_EQ(GlobalSize(), static_cast<int32_t>(kHalf + 1));
  ExpectGlobal(0, kHalf);
  EXPECT_EQ(Global(), g(kRunqSize));
  EXPECT_EQ(runqget(&p_).gp, g(kRunqSize + 1));
  ExpectRing(&p_, kHalf, kRunqSize);
}

TEST_P(RunqTest, OverflowWithAStaleHeadIsRefused) {
  // The owner read head before a thief moved it, so it must try again.
  Fill(&p_, kRunqSize);
  p_.runqhead.store(kHalf, relaxed);
  EXPECT_FALSE(runqputslow(&p_, g(kRunqSize), 0, kRunqSize));
  EXPECT_EQ(GlobalSize(), 0);
  ExpectRing(&p_, kHalf, kRunqSize);
}

TEST_P(RunqTest, IndicesWrapAround) {
  for (uint32_t start : {0u - 1, 0u - 5, 0u - kHalf, 0u - kRunqSize}) {
    StartAt(&p_, start);
    StartAt(&victim_, start + 3);
    Fill(&p_, kRunqSize);
    EXPECT_EQ(runqlen(&p_), kRunqSize);
    ExpectRing(&p_, 0, 10);
    Fill(&p_, 10, kRunqSize);
    ExpectRing(&p_, 10, kRunqSize + 10);
    EXPECT_TRUE(runqempty(&p_));

    StartAt(&p_, start);
    Fill(&p_, kRunqSize + 1);  // overflow
    EXPECT_EQ(runqlen(&p_), kHalf);
    ExpectGlobal(0, kHalf);
    EXPECT_EQ(Global(), g(kRunqSize));
    EXPECT_EQ(runqdrain(&p_).size, static_cast<int32_t>(kHalf));

    StartAt(&p_, start);
    Fill(&victim_, 7);
    EXPECT_EQ(runqsteal(&p_, &victim_, false), g(3));
    ExpectRing(&p_, 0, 3);
    ExpectRing(&victim_, 4, 7);
  }
}

TEST_P(RunqTest, StealTakesHalfRoundedUpAndReturnsTheLastOfIt) {
  for (uint32_t n = 1; n <= kRunqSize; n++) {
    StartAt(&p_, 0);
    StartAt(&victim_, 0);
    Fill(&victim_, n);
    const uint32_t stolen = (n + 1) / 2;
    ASSERT_EQ(runqsteal(&p_, &victim_, false), g(stolen - 1)) << n;
    ASSERT_EQ(runqlen(&p_), stolen - 1) << n;
    ASSERT_EQ(runqlen(&victim_), n - stolen) << n;
    ExpectRing(&p_, 0, stolen - 1);
    ExpectRing(&victim_, stolen, n);
  }
}

TEST_P(RunqTest, StealFromAnEmptyPFindsNothing) {
  EXPECT_EQ(runqsteal(&p_, &victim_, false), nullptr);
  EXPECT_EQ(runqsteal(&p_, &victim_, true), nullptr);
}

TEST_P(RunqTest, RunnextIsStolenOnlyIfAskedAndOnlyFromAnEmptyRing) {
  runqput(&victim_, g(9), true);
  EXPECT_EQ(runqsteal(&p_, &victim_, false), nullptr);
  Fill(&victim_, 1);
  EXPECT_EQ(runqsteal(&p_, &victim_, true), g(0));
  EXPECT_EQ(runqsteal(&p_, &victim_, true), g(9));
  EXPECT_TRUE(runqempty(&victim_));
  EXPECT_TRUE(runqempty(&p_));
}

TEST_P(RunqTest, RunnextOfARunningPIsStolenAfterAMoment) {
  victim_.status.store(kPrunning, relaxed);
  runqput(&victim_, g(1), true);
  EXPECT_EQ(runqsteal(&p_, &victim_, true), g(1));
}

TEST_P(RunqTest, StolenGIsNotTakenByItsOldPlace) {
  if (GetParam() == 1) GTEST_SKIP() << "no thief";
  Fill(&victim_, 3);
  runqput(&victim_, g(3), true);
  const uint32_t h = victim_.runqhead.load(relaxed);
  EXPECT_EQ(runqsteal(&p_, &victim_, false), g(1));
  EXPECT_FALSE(takeRingHead(&victim_, h)) << "g(0) has been stolen";
  EXPECT_TRUE(takeRingHead(&victim_, h + 2)) << "g(2)";
  EXPECT_EQ(runqget(&p_).gp, g(0));
  EXPECT_EQ(runqsteal(&p_, &victim_, true), g(3));
  EXPECT_FALSE(takeRunnext(&victim_, g(3)));
  EXPECT_TRUE(runqempty(&victim_));
}

TEST_P(RunqTest, GrabWritesBehindTheThiefsTail) {
  Fill(&victim_, 4);
  StartAt(&p_, 100);
  EXPECT_EQ(runqgrab(&victim_, p_.runq, 100, false), 2u);
  EXPECT_EQ(p_.runq[100].load(relaxed), g(0));
  EXPECT_EQ(p_.runq[101].load(relaxed), g(1));
  EXPECT_TRUE(runqempty(&p_)) << "published by runqsteal only";
}

TEST_P(RunqTest, BatchFillsTheRingAndLeavesTheRest) {
  Fill(&p_, kRunqSize - 3);
  GQueue q;
  for (uint32_t i = 0; i < 5; i++) q.pushBack(g(kRunqSize - 3 + i));
  runqputbatch(&p_, &q);
  EXPECT_EQ(runqlen(&p_), kRunqSize);
  EXPECT_EQ(q.size, 2);
  EXPECT_EQ(q.pop(), g(kRunqSize));
  EXPECT_EQ(q.pop(), g(kRunqSize + 1));
  ExpectRing(&p_, 0, kRunqSize);
}

TEST_P(RunqTest, BatchOfNothingChangesNothing) {
  GQueue q;
  runqputbatch(&p_, &q);
  EXPECT_TRUE(runqempty(&p_));
}

TEST_P(RunqTest, DrainTakesRunnextFirstThenTheRing) {
  Fill(&p_, 5);
  runqput(&p_, g(5), true);
  GQueue q = runqdrain(&p_);
  EXPECT_TRUE(runqempty(&p_));
  EXPECT_EQ(q.size, 6);
  EXPECT_EQ(q.pop(), g(5));
  for (uint32_t i = 0; i < 5; i++) EXPECT_EQ(q.pop(), g(i));
  EXPECT_EQ(q.pop(), nullptr);
}

// ---- The global queue

class GlobrunqTest : public RunqTest {
 protected:
  void Put(uint32_t from, uint32_t to) {
    LockScope l(&sched.lock);
    for (uint32_t i = from; i < to; i++) globrunqput(g(i));
  }
  G* Batch(int32_t n) {
    LockScope l(&sched.lock);
    return globrunqgetbatch(&sched.nodes[0], &p_, n);
  }
};
INSTANTIATE_TEST_SUITE_P(, GlobrunqTest, ::testing::Values(1, 2, 4, 8));

TEST_P(GlobrunqTest, HeadGoesFirstAndBatchesGoLast) {
  Put(0, 2);
  {
    LockScope l(&sched.lock);
    globrunqputhead(g(2));
    GQueue q;
    q.pushBack(g(3));
    q.pushBack(g(4));
    globrunqputbatch(&q);
    EXPECT_TRUE(q.empty());
  }
  EXPECT_EQ(GlobalSize(), 5);
  EXPECT_EQ(Global(), g(2));
  EXPECT_EQ(Global(), g(0));
  EXPECT_EQ(Global(), g(1));
  EXPECT_EQ(Global(), g(3));
  EXPECT_EQ(Global(), g(4));
  EXPECT_EQ(Global(), nullptr);
  EXPECT_EQ(GlobalSize(), 0);
}

TEST_P(GlobrunqTest, BatchIsAFairShare) {
  const auto procs = static_cast<uint32_t>(GetParam());
  for (uint32_t size : {1u, 2u, 7u, 8u, 100u, 255u}) {
    Put(0, size);
    uint32_t share = size / procs + 1;
    if (share > size) share = size;
    if (share > kHalf) share = kHalf;
    ASSERT_EQ(Batch(kRunqSize / 2), g(0)) << size;
    ASSERT_EQ(runqlen(&p_), share - 1) << size;
    ExpectRing(&p_, 1, share);
    ExpectGlobal(share, size);
  }
}

TEST_P(GlobrunqTest, BatchIsNotLargerThanAsked) {
  Put(0, 100);
  EXPECT_EQ(Batch(3), g(0));
  EXPECT_EQ(runqlen(&p_), 2u);
  ExpectRing(&p_, 1, 3);
  ExpectGlobal(3, 100);
}

TEST_P(GlobrunqTest, BatchOfAnEmptyQueueIsNothing) {
  EXPECT_EQ(Batch(kRunqSize / 2), nullptr);
}

TEST_P(GlobrunqTest, GoroutinesOfFullRingsAreTakenInTheirOrder) {
  const uint32_t n = 3 * kRunqSize;
  std::vector<G*> expected;
  std::deque<G*> ring;
  for (uint32_t i = 0; i < n; i++) {
    runqput(&victim_, g(i), false);
    ring.push_back(g(i));
    if (ring.size() <= kRunqSize) continue;
    // The ring was full: its older half and the new G have left.
    expected.insert(expected.end(), ring.begin(), ring.begin() + kHalf);
    expected.push_back(g(i));
    ring.erase(ring.begin(), ring.begin() + kHalf);
    ring.pop_back();
  }
  Put(n, n + 1);
  expected.push_back(g(n));
  size_t at = 0;
  while (G* gp = Batch(kRunqSize / 2)) {
    ASSERT_EQ(gp, expected[at++]);
    while (G* next = runqget(&p_).gp) ASSERT_EQ(next, expected[at++]);
  }
  EXPECT_EQ(at, expected.size());
}

TEST_P(GlobrunqTest, FullRingOverflowsWithoutMemoryForABatch) {
  if (kSanitizerBuild) GTEST_SKIP() << "shadow memory exceeds any limit";
  rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &old), 0);
  rlimit none = old;
  none.rlim_cur = 1 << 20;  // less than is mapped, so every mmap fails
  ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
  while (persistentalloc(sizeof(RunqBatch), alignof(RunqBatch)) != nullptr) {
  }
  Fill(&victim_, kRunqSize + 1);
  RunqBatch* const spare = victim_.spareBatch;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &old), 0);
  ASSERT_EQ(spare, nullptr);
  EXPECT_EQ(GlobalSize(), static_cast<int32_t>(kHalf + 1));
  ExpectGlobal(0, kHalf);
  EXPECT_EQ(Global(), g(kRunqSize));
  ExpectRing(&victim_, kHalf, kRunqSize);
}

TEST_P(GlobrunqTest, YieldedGoroutinesGoToTheHead) {
  Put(2, 4);
  p_.yielded.pushBack(g(0));
  p_.yielded.pushBack(g(1));
  flushYielded(&p_);
  EXPECT_TRUE(p_.yielded.empty());
  EXPECT_EQ(GlobalSize(), 4);
  ExpectGlobal(0, 4);
}

TEST_P(GlobrunqTest, YieldedGoroutinesAdoptTheGlobalQueue) {
  pushYielded(&p_, g(0));
  Put(1, 3);
  adoptGlobal(&p_);
  EXPECT_EQ(popYielded(&p_), g(0));
  EXPECT_EQ(GlobalSize(), 0);
  Put(3, 4);
  pushYielded(&p_, g(4));
  EXPECT_EQ(p_.nyielded.load(relaxed), 4);
  for (uint32_t i = 1; i < 5; i++) EXPECT_EQ(popYielded(&p_), g(i));
  EXPECT_EQ(popYielded(&p_), nullptr);
  EXPECT_EQ(p_.nyielded.load(relaxed), 0);
}

TEST_P(GlobrunqTest, PostedGoroutinesGoBehindTheQueueInTheirOrder) {
  for (uint32_t i = 2; i < 5; i++) globrunqpost(g(i));
  Put(0, 2);
  EXPECT_EQ(globalSize(relaxed), 5);
  ExpectGlobal(0, 5);
  EXPECT_EQ(Global(), nullptr);
  EXPECT_EQ(globalSize(relaxed), 0);
}

TEST_P(GlobrunqTest, BatchTakesThePostedGoroutines) {
  const auto procs = static_cast<uint32_t>(GetParam());
  for (uint32_t i = 0; i < 20; i++) globrunqpost(g(i));
  EXPECT_EQ(Batch(kRunqSize / 2), g(0));
  const uint32_t share = std::min(20 / procs + 1, 20u);
  ExpectRing(&p_, 1, share);
  ExpectGlobal(share, 20);
}

TEST_P(GlobrunqTest, YieldedGoroutinesAdoptThePostedOnes) {
  pushYielded(&p_, g(0));
  globrunqpost(g(1));
  adoptGlobal(&p_);
  EXPECT_EQ(globalSize(relaxed), 0);
  globrunqpost(g(2));
  pushYielded(&p_, g(3));  // behind all others
  for (uint32_t i = 0; i < 4; i++) EXPECT_EQ(popYielded(&p_), g(i));
}

// An M walks through the list while it holds sched.lock, so the list has to be
// short.
TEST_P(GlobrunqTest, ThreadThatPostsManyCollectsThem) {
  for (uint32_t i = 0; i < 4 * kRunqSize; i++) {
    globrunqpost(g(i));
    ASSERT_LT(sched.nposted.load(relaxed), 64) << i;
  }
  EXPECT_EQ(globalSize(relaxed), int32_t{4 * kRunqSize});
  ExpectGlobal(0, 4 * kRunqSize);
}

// ---- Threads that post

TEST(PostStressTest, EachPostedGIsTakenOnceAndInItsThreadsOrder) {
  constexpr uint32_t kThreads = 3;
  constexpr uint32_t kPerThread = kSanitizerBuild ? 5000 : 50000;
  gomaxprocs.store(2, relaxed);
  std::vector<G> gs(kThreads * kPerThread);
  auto post = [&](uint32_t self) {
    M m;
    m.g0.m = &m;
    setg(&m.g0);
    for (uint32_t i = 0; i < kPerThread; i++) {
      globrunqpost(&gs[self * kPerThread + i]);
    }
    setg(nullptr);
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; i++) threads.emplace_back(post, i);
  M m;
  m.g0.m = &m;
  setg(&m.g0);
  std::array<uint32_t, kThreads> next = {};
  P p;
  auto take = [&](const G* gp) {
    const auto i = static_cast<uint32_t>(gp - gs.data());
    ASSERT_EQ(i % kPerThread, next[i / kPerThread]++) << i;
  };
  for (uint32_t taken = 0;
       taken < gs.size() && !::testing::Test::HasFailure();) {
    G* gp;
    {
      LockScope l(&sched.lock);
      gp = globrunqgetbatch(&sched.nodes[0], &p, kHalf);
    }
    for (; gp != nullptr; gp = runqget(&p).gp) {
      take(gp);
      taken++;
    }
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(globalSize(relaxed), 0);
  setg(nullptr);
  gomaxprocs.store(0, relaxed);
}

// ---- Thieves

// Each thread owns a P, feeds its own ring now and then, and takes Gs from
// there or steals. Every G must come out exactly once.
TEST(RunqStressTest, EachGIsTakenExactlyOnce) {
  constexpr uint32_t kThreads = 4;
  constexpr uint32_t kPerThread = 50000;
  gomaxprocs.store(kThreads, relaxed);
  std::vector<G> gs(kThreads * kPerThread);
  std::vector<Atomic<uint32_t>> seen(gs.size());
  std::array<P, kThreads> ps;
  Atomic<uint32_t> taken;
  auto take = [&](G* gp) {
    seen[static_cast<size_t>(gp - gs.data())].add(1, relaxed);
    taken.add(1, relaxed);
  };
  auto work = [&](uint32_t self) {
    M m;
    m.g0.m = &m;
    m.schedrand = self + 1;
    setg(&m.g0);
    P* pp = &ps[self];
    uint32_t next = self * kPerThread;
    const uint32_t end = next + kPerThread;
    // Overflow sends Gs to the global queue, where all find them.
    while (taken.load(relaxed) < gs.size()) {
      for (uint32_t n = cheaprandn(&m, 300); n > 0 && next < end; n--) {
        runqput(pp, &gs[next++], cheaprandn(&m, 4) == 0);
      }
      for (uint32_t n = cheaprandn(&m, 200); n > 0; n--) {
        G* gp = runqget(pp).gp;
        if (gp == nullptr) break;
        take(gp);
      }
      const uint32_t victim = cheaprandn(&m, kThreads);
      if (runqempty(pp) && victim != self) {
        if (G* gp = runqsteal(pp, &ps[victim], cheaprandn(&m, 2) == 0)) {
          take(gp);
        }
      }
      if (runqempty(pp)) {
        LockScope l(&sched.lock);
        if (G* gp = globrunqgetbatch(&sched.nodes[0], pp, kHalf)) take(gp);
      }
      if (cheaprandn(&m, 64) == 0) {
        GQueue q = runqdrain(pp);
        LockScope l(&sched.lock);
        globrunqputbatch(&q);
      }
    }
    setg(nullptr);
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; i++) threads.emplace_back(work, i);
  for (auto& t : threads) t.join();
  for (size_t i = 0; i < seen.size(); i++) {
    ASSERT_EQ(seen[i].load(relaxed), 1u) << i;
  }
  for (auto& pp : ps) EXPECT_TRUE(runqempty(&pp));
  EXPECT_EQ(sched.runqsize.load(relaxed), 0);
  gomaxprocs.store(0, relaxed);
}

// A thread that looks on must never believe a P to be empty that is not.
TEST(RunqStressTest, KickFromRunnextToTheRingIsNeverSeenAsEmpty) {
  gomaxprocs.store(2, relaxed);
  std::vector<G> gs(3);
  P p;
  Atomic<bool> stop;
  Atomic<uint64_t> looks;
  runqput(&p, &gs[0], true);
  std::thread onlooker([&] {
    while (!stop.load(relaxed)) {
      EXPECT_FALSE(runqempty(&p));
      looks.add(1, relaxed);
    }
  });
  // There are always one or two Gs: runnext, and the G that it has kicked out.
  for (uint32_t i = 1; looks.load(relaxed) < 20000 || i < 20000; i++) {
    runqput(&p, &gs[i % 3], true);
    const uint32_t h = p.runqhead.load(relaxed);
    if (p.runqtail.load(relaxed) != h) p.runqhead.store(h + 1, release);
  }
  stop.store(true, relaxed);
  onlooker.join();
  gomaxprocs.store(0, relaxed);
}

}  // namespace
}  // namespace gump::rt
