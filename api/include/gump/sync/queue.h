// A sync::Queue is an unbounded first-in-first-out queue, lock-free, for any
// number of goroutines and plain threads at both ends.
//
//   sync::Queue<Job> todo;
//   todo.Push(Job("paint"));
//   while (std::optional<Job> job = todo.Pop()) job->Run();  // until empty
//
// No operation waits; Pop on an empty queue returns nullopt. To wait for the
// next element, use a chan, which is bounded. To have both, put the elements in
// a Queue and announce each one on a chan<void>.
//
// A goroutine that stops in the middle of an operation, preempted or not,
// delays no other goroutine. Elements that one caller pushes come out in the
// order in which it pushed them.
//
// Requires: elements are nothrow-move-constructible. They may be move-only. A
// Queue is never copied or moved.
//
// Requires: no goroutine or thread uses a queue that is being destroyed. The
// remaining elements are destroyed with it. Until then, the queue keeps the
// memory for the largest number of elements that it ever held.
//
// Memory ordering: a Push happens before the Pop that returns its element.
//
// Source: M. M. Michael and M. L. Scott, Simple, Fast, and Practical
// Non-Blocking and Blocking Concurrent Queue Algorithms, PODC 1996. In their
// algorithm a Pop copies the value before it owns it. Our Pop first owns the
// value and then moves it. So a node can be freed only after two events, which
// Node::state records (Q3).
#ifndef GUMP_SYNC_QUEUE_H_
#define GUMP_SYNC_QUEUE_H_

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "gump/internal/atomic.h"
#include "gump/internal/node_arena.h"

#pragma GCC visibility push(default)

namespace gump::sync {

// Queue is the queue described above. All functions may be called from
// goroutines and from plain threads; none parks.
template <class T>
class Queue {
  static_assert(
      std::is_nothrow_move_constructible_v<T> &&
          std::is_nothrow_destructible_v<T>,
      "gump::sync::Queue<T>: T must be nothrow-move-constructible "
      "and nothrow-destructible; keep a std::unique_ptr<T> otherwise");

 public:
  Queue();  // Throws std::bad_alloc.
  ~Queue() {
    while (Pop().has_value()) {
    }
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Push appends v. Throws std::bad_alloc if the queue has to grow and there is
  // no memory. v is then destroyed.
  void Push(T v);

  // Pop removes and returns the first element. Returns nullopt if the queue was
  // empty.
  [[nodiscard]] std::optional<T> Pop() noexcept;

  // Pop(out) pops into a variable. Returns false, and leaves `out` untouched,
  // if the queue was empty. If the move assignment of T throws, the exception
  // passes through and the element is lost.
  [[nodiscard]] bool Pop(T& out);

  // Empty returns true if the queue had no element at some moment of the call.
  [[nodiscard]] bool Empty() const noexcept;

 private:
  using TaggedIndex = internal::TaggedIndex;
  static constexpr uint32_t kNoNode = internal::kNoNode;

  // The nodes from head_ on, linked by next, are the queue. The first node has
  // no value, or one that is being taken out. Each of the others has one. tail_
  // is the last node, or one before it.
  //  (Q1) tail_ never falls behind head_: Pop first moves tail_ on.
  //  (Q2) A thread reads tail_ (or head_), then next of that node, then tail_
  //       (or head_) again. If it has not changed, the node was in the queue
  //       when its next was read. For suppose that the node had been reused by
  //       then. The thread that stored this next, by a release, had seen that
  //       tail_ (or head_) had left the node. Our acquire of next makes our
  //       last read see that too.
  //  (Q3) A node has left the queue for good when head_ has passed it and its
  //       value is out. These two events come in either order. The thread that
  //       causes the second one frees the node.
  static constexpr uint32_t kTaken = 1;   // the value is out
  static constexpr uint32_t kPassed = 2;  // head_ is at a later node
  struct Node {
    Node() {}
    ~Node() {}
    rt::Atomic<TaggedIndex> next;
    rt::Atomic<uint32_t> state;
    rt::Atomic<uint32_t> free_next;
    union {
      T value;  // constructed from Push until kTaken
    };
  };

  // Claim is the result of ClaimFirst: the node with the value, and the node
  // before it.
  struct Claim {
    uint32_t value;
    uint32_t passed;
  };

  // The steps of Pop: ClaimFirst moves head_ on, and Finish destroys the value.
  // Then Leave records, for both nodes, that one of the two events of (Q3) has
  // come.
  Claim ClaimFirst() noexcept;
  void Finish(Claim claim) noexcept;
  void Leave(uint32_t i, uint32_t how) noexcept;
  void AdvanceTail(TaggedIndex tail, TaggedIndex next) noexcept;

  internal::NodeArena<Node> arena_;
  alignas(128) rt::Atomic<TaggedIndex> head_;
  alignas(128) rt::Atomic<TaggedIndex> tail_;
};

template <class T>
inline Queue<T>::Queue() {
  const uint32_t first = arena_.Alloc();
  arena_[first].state.store(kTaken, rt::relaxed);  // the node has no value
  // Relaxed: the program publishes the finished queue by other means.
  head_.store({first, 0}, rt::relaxed);
  tail_.store({first, 0}, rt::relaxed);
}

template <class T>
inline void Queue<T>::Push(T v) {
  const uint32_t fresh = arena_.Alloc();
  Node& node = arena_[fresh];
  ::new (std::addressof(node.value)) T(std::move(v));
  node.state.store(0, rt::relaxed);  // published when the node is linked
  // Relaxed: the node is ours. While it is not in the queue, no other thread
  // changes its next, not even if next is kNoNode. Release: a thread that reads
  // this value in a reused node also sees that tail_ had left the node (Q2).
  const TaggedIndex end = node.next.load(rt::relaxed);
  node.next.store(end.Successor(kNoNode), rt::release);
  for (;;) {
    const TaggedIndex tail = tail_.load(rt::acquire);
    Node& last = arena_[tail.index];
    const TaggedIndex next = last.next.load(rt::acquire);
    if (tail_.load(rt::relaxed) != tail) continue;  // (Q2)
    if (next.index != kNoNode) {
      AdvanceTail(tail, next);
      continue;
    }
    // Release: publishes the node and its value; pairs with Pop.
    if (last.next.cas(next, next.Successor(fresh), rt::release)) {
      AdvanceTail(tail, {fresh, 0});
      return;
    }
  }
}

template <class T>
inline std::optional<T> Queue<T>::Pop() noexcept {
  const Claim claim = ClaimFirst();
  if (claim.value == kNoNode) return std::nullopt;
  std::optional<T> out(std::move(arena_[claim.value].value));
  Finish(claim);
  return out;
}

template <class T>
inline bool Queue<T>::Pop(T& out) {
  std::optional<T> v = Pop();
  if (v.has_value()) out = std::move(*v);
  return v.has_value();
}

template <class T>
inline bool Queue<T>::Empty() const noexcept {
  for (;;) {
    const TaggedIndex head = head_.load(rt::acquire);
    const TaggedIndex next = arena_[head.index].next.load(rt::acquire);
    if (head_.load(rt::relaxed) == head) return next.index == kNoNode;
  }
}

template <class T>
inline typename Queue<T>::Claim Queue<T>::ClaimFirst() noexcept {
  for (;;) {
    const TaggedIndex head = head_.load(rt::acquire);
    // Acquire, after head_: this tail_ is at least as far on as head_ (Q1).
    const TaggedIndex tail = tail_.load(rt::acquire);
    // Acquire: pairs with the release in Push, for the value.
    const TaggedIndex next = arena_[head.index].next.load(rt::acquire);
    if (head_.load(rt::relaxed) != head) continue;  // (Q2)
    if (next.index == kNoNode) return {kNoNode, kNoNode};
    if (head.index == tail.index) {
      AdvanceTail(tail, next);
      continue;
    }
    // Release: a thread that sees the new head_ sees a tail_ not behind it.
    if (head_.cas(head, head.Successor(next.index), rt::acq_rel)) {
      return {next.index, head.index};
    }
  }
}

template <class T>
inline void Queue<T>::Finish(Claim claim) noexcept {
  arena_[claim.value].value.~T();
  Leave(claim.value, kTaken);
  Leave(claim.passed, kPassed);
}

template <class T>
inline void Queue<T>::Leave(uint32_t i, uint32_t how) noexcept {
  // Acq_rel: the second to leave is ordered after all that the first did (Q3).
  if (arena_[i].state.or_(how, rt::acq_rel) != 0) arena_.Free(i);
}

// AdvanceTail moves tail_ on, unless another thread has. Acq_rel: a thread that
// sees the new tail_ sees the node there. The CAS also passes on all that other
// threads have published to us.
template <class T>
inline void Queue<T>::AdvanceTail(TaggedIndex tail, TaggedIndex next) noexcept {
  (void)tail_.cas(tail, tail.Successor(next.index), rt::acq_rel);
}

}  // namespace gump::sync

#pragma GCC visibility pop

#endif  // GUMP_SYNC_QUEUE_H_
