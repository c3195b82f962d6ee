// The global queue of a node, with the batches of its goroutines.
#include "runtime/sched/globq.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <random>
#include <vector>

namespace gump::rt {
namespace {

// GlobalQueueTest compares a queue with a deque that holds the same Gs.
class GlobalQueueTest : public ::testing::Test {
 protected:
  GlobalQueueTest() : gs_(10'000), batches_(100) {
    for (RunqBatch& b : batches_) free_.push_back(&b);
  }

  G* Next() { return &gs_[next_++ % gs_.size()]; }
  void PushBack(int n) {
    for (int i = 0; i < n; i++) {
      q_.pushBack(expected_.emplace_back(Next()));
    }
  }
  void PushBatch() {
    RunqBatch* b = q_.takeFree();
    if (b == nullptr) {
      ASSERT_FALSE(free_.empty());
      b = free_.back();
      free_.pop_back();
    }
    b->begin = 0;
    b->end = kRunqBatch;
    GQueue q;
    for (G*& gp : b->gs) {
      gp = expected_.emplace_back(Next());
      q.pushBack(gp);
    }
    q_.pushBackBatch(&q, b);
    EXPECT_TRUE(q.empty());
  }
  // PopBatch takes at most max Gs, and returns how many.
  uint32_t PopBatch(uint32_t max) {
    const uint32_t n = q_.popBatch(ring_, at_, max);
    for (uint32_t i = 0; i < n; i++) {
      EXPECT_EQ(ring_[(at_ + i) % kRunqSize].load(relaxed), expected_.front());
      expected_.pop_front();
    }
    at_ += n;
    return n;
  }
  void Pop() {
    G* gp = q_.pop();
    if (expected_.empty()) {
      EXPECT_EQ(gp, nullptr);
      return;
    }
    EXPECT_EQ(gp, expected_.front());
    expected_.pop_front();
  }
  // ExpectChain follows the chain from its head to its tail.
  void ExpectChain() {
    ASSERT_EQ(q_.size(), static_cast<int32_t>(expected_.size()));
    ASSERT_EQ(q_.empty(), expected_.empty());
    const G* at = q_.head();
    for (const G* gp : expected_) {
      ASSERT_EQ(at, gp);
      at = at->schedlink;
    }
    if (!expected_.empty()) {
      ASSERT_EQ(at, nullptr);
    }
  }

  std::vector<G> gs_;
  size_t next_ = 0;
  std::vector<RunqBatch> batches_;
  std::vector<RunqBatch*> free_;
  GlobalQueue q_;
  std::deque<G*> expected_;
  Atomic<G*> ring_[kRunqSize];
  uint32_t at_ = UINT32_MAX - 100;  // so that it wraps around
};

TEST_F(GlobalQueueTest, BatchIsTakenInOrderIntoSlotsThatWrapAround) {
  PushBatch();
  EXPECT_EQ(PopBatch(50), 50u);
  EXPECT_EQ(PopBatch(60), 60u);
  EXPECT_EQ(PopBatch(60), kRunqBatch - 110);
  ExpectChain();
  EXPECT_EQ(PopBatch(60), 0u) << "it is empty";
}

TEST_F(GlobalQueueTest, GoroutinesBeforeABatchAreTakenOneAtATime) {
  PushBack(2);
  PushBatch();
  EXPECT_EQ(PopBatch(10), 0u);
  Pop();
  EXPECT_EQ(PopBatch(10), 0u);
  Pop();
  EXPECT_EQ(PopBatch(10), 10u);
  ExpectChain();
}

TEST_F(GlobalQueueTest, PopTakesFromTheBatchToo) {
  PushBatch();
  PushBack(1);
  Pop();
  EXPECT_EQ(PopBatch(10), 10u);
  Pop();
  EXPECT_EQ(PopBatch(kRunqBatch), kRunqBatch - 12);
  EXPECT_EQ(PopBatch(1), 0u) << "what follows is in no batch";
  Pop();
  ExpectChain();
}

TEST_F(GlobalQueueTest, OneCallTakesFromOneBatch) {
  PushBatch();
  PushBatch();
  EXPECT_EQ(PopBatch(2 * kRunqBatch), kRunqBatch);
  EXPECT_EQ(PopBatch(2 * kRunqBatch), kRunqBatch);
  ExpectChain();
}

TEST_F(GlobalQueueTest, BatchBehindAGoroutineThatIsPutInFrontIsKept) {
  PushBatch();
  Pop();
  q_.push(expected_.emplace_front(Next()));
  EXPECT_EQ(PopBatch(1), 0u);
  Pop();
  EXPECT_EQ(PopBatch(kRunqBatch), kRunqBatch - 1);
  ExpectChain();
}

TEST_F(GlobalQueueTest, QueueThatIsMovedAwayLeavesNoBatch) {
  PushBack(1);
  PushBatch();
  PushBatch();
  Pop();
  Pop();
  GQueue q;
  q_.moveTo(&q);
  EXPECT_TRUE(q_.empty());
  EXPECT_EQ(PopBatch(1), 0u);
  EXPECT_EQ(q.size, static_cast<int32_t>(expected_.size()));
  for (G* gp : expected_) ASSERT_EQ(q.pop(), gp);
  expected_.clear();
  EXPECT_NE(q_.takeFree(), nullptr);
  EXPECT_NE(q_.takeFree(), nullptr);
  EXPECT_EQ(q_.takeFree(), nullptr);
}

TEST_F(GlobalQueueTest, MemoryOfBatchesIsUsedAgain) {
  for (int i = 0; i < 50; i++) {
    PushBatch();
    PushBatch();
    while (!expected_.empty()) {
      if (PopBatch(40) == 0) Pop();
    }
  }
  EXPECT_EQ(free_.size(), batches_.size() - 2);
}

TEST_F(GlobalQueueTest, AnyMixOfOperationsKeepsTheOrder) {
  std::mt19937 random(1);
  const auto below = [&](uint32_t n) { return static_cast<int>(random() % n); };
  for (int i = 0; i < 20'000; i++) {
    const bool full = expected_.size() > 2'000;  // no G is in it twice
    switch (full ? 6 : below(7)) {
      case 0:
        PushBack(1 + below(3));
        break;
      case 1:
        PushBatch();
        break;
      case 2:
        q_.push(expected_.emplace_front(Next()));
        break;
      case 3: {  // as takeInPlace: take some from the head, and put them back
        GQueue q;
        for (int k = below(200); k > 0 && !q_.empty(); k--) {
          q.pushBack(q_.pop());
        }
        q_.pushAll(&q);
        ASSERT_TRUE(q.empty());
        break;
      }
      case 4:
        if (below(100) == 0) {
          GQueue q;
          q_.moveTo(&q);
          ASSERT_TRUE(q_.empty());
          q_.pushBackAll(&q);
        }
        break;
      case 5:
        Pop();
        break;
      default:
        if (PopBatch(static_cast<uint32_t>(below(200))) == 0) Pop();
        break;
    }
    ASSERT_FALSE(HasFailure());
    if (i % 100 == 0) ExpectChain();
  }
}

}  // namespace
}  // namespace gump::rt
