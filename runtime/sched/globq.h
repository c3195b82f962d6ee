// The global run queue of a node.
#ifndef RUNTIME_SCHED_GLOBQ_H_
#define RUNTIME_SCHED_GLOBQ_H_

#include <cstdint>

#include "runtime/sched/gqueue.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"

namespace gump::rt {

inline constexpr uint32_t kRunqSize = kModelBuild ? 4 : 256;  // the ring of a P
// How many goroutines a P moves to the global queue when its ring is full: half
// of the ring, and the one for which there was no room.
inline constexpr uint32_t kRunqBatch = kRunqSize / 2 + 1;

// A RunqBatch lists goroutines of the global queue that a P has put there
// together, because its ring was full (runqputslow). An M that takes them reads
// the array. Without the array it would follow the chain under sched.lock. Each
// link is a cache miss, and the next miss cannot begin before it has ended.
struct RunqBatch {
  RunqBatch* next = nullptr;  // the next batch of the queue, or the next free
  uint32_t begin = 0;         // the goroutines before it have been taken
  uint32_t end = 0;
  G* gs[kRunqBatch];
};

// GlobalQueue is a GQueue that also has the batches of its goroutines:
//  (Q1) The goroutines [begin, end) of a batch follow one another in the chain.
//       The batches are in the order of the chain, and are never empty.
//  (Q2) So if the goroutine at the head belongs to a batch, that batch is the
//       oldest one. pop and popBatch advance its begin.
//  (Q3) Goroutines are added only at the two ends of the chain, so never
//       between two goroutines of a batch.
// The memory of a batch is used again, and never returned to the system. It is
// 8 bytes for each goroutine, which itself has a cell of 256.
// All functions: On: any.  P: either.  Locks: caller holds sched.lock.
// Parks: no.
class GlobalQueue {
 public:
  [[nodiscard]] bool empty() const { return chain_.empty(); }
  [[nodiscard]] int32_t size() const { return chain_.size; }
  [[nodiscard]] G* head() const { return chain_.head; }

  void push(G* gp) { chain_.push(gp); }  // at the head
  void pushBack(G* gp) { chain_.pushBack(gp); }
  void pushBackAll(GQueue* q) { chain_.pushBackAll(q); }  // empties q
  // pushBackBatch appends q. Its goroutines are those of b, in the same order.
  void pushBackBatch(GQueue* q, RunqBatch* b);
  // pushAll puts all goroutines of q in front, in their order, and empties q.
  void pushAll(GQueue* q);
  [[nodiscard]] G* pop();
  // popBatch takes goroutines from the head, at most max and all of one batch.
  // It puts them into the ring of kRunqSize slots, from slot t on. None of them
  // is preempted in place, because a ring never has such a goroutine. Returns
  // how many it has taken: 0 if the goroutine at the head is in no batch.
  [[nodiscard]] uint32_t popBatch(Atomic<G*>* ring, uint32_t t, uint32_t max);
  // moveTo appends all goroutines to q.
  void moveTo(GQueue* q);
  // takeFree returns a batch of which all goroutines have been taken, or
  // nullptr. The caller owns it.
  [[nodiscard]] RunqBatch* takeFree();

 private:
  // oldest returns the oldest batch if the head belongs to it, else nullptr.
  [[nodiscard]] RunqBatch* oldest() const {
    RunqBatch* b = first_;
    return b != nullptr && b->gs[b->begin] == chain_.head ? b : nullptr;
  }
  // advance notes that n goroutines of b, the oldest batch, have been taken. It
  // frees b if none is left.
  void advance(RunqBatch* b, uint32_t n);

  GQueue chain_;
  RunqBatch* first_ = nullptr;
  RunqBatch* last_ = nullptr;  // valid unless first_ is nullptr
  RunqBatch* free_ = nullptr;
};

inline void GlobalQueue::pushBackBatch(GQueue* q, RunqBatch* b) {
  b->next = nullptr;
  if (first_ == nullptr) {
    first_ = b;
  } else {
    last_->next = b;
  }
  last_ = b;
  pushBackAll(q);
}

inline void GlobalQueue::pushAll(GQueue* q) {
  q->pushBackAll(&chain_);
  chain_ = *q;
  *q = GQueue();
}

inline void GlobalQueue::advance(RunqBatch* b, uint32_t n) {
  b->begin += n;
  if (b->begin < b->end) return;
  first_ = b->next;
  b->next = free_;
  free_ = b;
}

inline G* GlobalQueue::pop() {
  RunqBatch* b = oldest();
  G* gp = chain_.pop();
  if (b != nullptr) advance(b, 1);
  return gp;
}

inline uint32_t GlobalQueue::popBatch(Atomic<G*>* ring, uint32_t t,
                                      uint32_t max) {
  RunqBatch* b = oldest();
  if (b == nullptr) return 0;
  G* const* gs = b->gs + b->begin;
  const uint32_t left = b->end - b->begin;
  const uint32_t n = left < max ? left : max;
  if (n == 0) return 0;
  for (uint32_t i = 0; i < n; i++) {
    ring[(t + i) % kRunqSize].store(gs[i], relaxed);  // the caller publishes
  }
  chain_.head = n < left ? gs[n] : gs[n - 1]->schedlink;
  if (chain_.head == nullptr) chain_.tail = nullptr;
  chain_.size -= static_cast<int32_t>(n);
  advance(b, n);
  return n;
}

inline void GlobalQueue::moveTo(GQueue* q) {
  q->pushBackAll(&chain_);
  if (first_ == nullptr) return;
  last_->next = free_;
  free_ = first_;
  first_ = nullptr;
}

inline RunqBatch* GlobalQueue::takeFree() {
  RunqBatch* b = free_;
  if (b != nullptr) free_ = b->next;
  return b;
}

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_GLOBQ_H_
