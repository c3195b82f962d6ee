// sync::Queue: an unbounded first-in-first-out queue, lock-free, for any number
// of goroutines and plain threads at both ends.
//
//   sync::Queue<Job> todo;
//   todo.Push(Job("paint"));
//   while (std::optional<Job> job = todo.Pop()) job->Run();  // until empty
//
// Nothing here waits: Pop on an empty queue says so. To wait for the next
// element use a chan, which is bounded; the two combine well, with a chan<void>
// that tells of arrivals.
//
// One goroutine that stops in the middle of an operation, preempted or not,
// holds up nobody. Elements that one caller pushes come out in that order.
//
// Elements must be nothrow-move-constructible; they may be move-only. Queue is
// never copied or moved. Nobody may be using a queue that is being destroyed;
// elements that are left are destroyed with it. The queue keeps the memory for
// as many elements as it once held, until it is destroyed.
//
// Memory ordering: a Push happens before the Pop that returns its element.
//
// Source: M. M. Michael and M. L. Scott, Simple, Fast, and Practical
// Non-Blocking and Blocking Concurrent Queue Algorithms, PODC 1996. Their
// dequeuer copies the value before it owns it; ours owns it first, for which
// each node counts to two (see Node::state).
#ifndef GUMP_QUEUE_H_
#define GUMP_QUEUE_H_

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "gump/internal/linkname.h"
#include "gump/internal/node_arena.h"

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
  // Throws std::bad_alloc.
  Queue() {
    const uint32_t first = arena_.Alloc();
    arena_[first].state.store(kTaken, rt::relaxed);  // there is no value
    // Relaxed: a program hands over a queue that it has made by other means.
    head_.store({first, 0}, rt::relaxed);
    tail_.store({first, 0}, rt::relaxed);
  }
  ~Queue() {
    while (Pop().has_value()) {
    }
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Push appends v. Throws std::bad_alloc if the queue has to grow and cannot;
  // v is destroyed then.
  void Push(T v) {
    const uint32_t fresh = arena_.Alloc();
    Node& node = arena_[fresh];
    ::new (std::addressof(node.value)) T(std::move(v));
    node.state.store(0, rt::relaxed);  // published when the node is linked
    // Relaxed: only the owner of a node, now us, moves its next while it is
    // kNoNode and not in the queue. Release: whoever sees this value of a node
    // that has been used again also sees that tail_ had left it (Q2).
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

  // Pop takes the first element out; nullopt: the queue was empty.
  [[nodiscard]] std::optional<T> Pop() noexcept {
    const Claim claim = ClaimFirst();
    if (claim.value == kNoNode) return std::nullopt;
    std::optional<T> out(std::move(arena_[claim.value].value));
    Finish(claim);
    return out;
  }

  // The same into a variable. False: the queue was empty, out is untouched.
  // Throws what T's move assignment throws; the element is lost then.
  [[nodiscard]] bool Pop(T& out) {
    std::optional<T> v = Pop();
    if (v.has_value()) out = std::move(*v);
    return v.has_value();
  }

  // Empty tells whether there was nothing in the queue at some moment of the
  // call.
  [[nodiscard]] bool Empty() const noexcept {
    for (;;) {
      const TaggedIndex head = head_.load(rt::acquire);
      const TaggedIndex next = arena_[head.index].next.load(rt::acquire);
      if (head_.load(rt::relaxed) == head) return next.index == kNoNode;
    }
  }

 private:
  using TaggedIndex = internal::TaggedIndex;
  static constexpr uint32_t kNoNode = internal::kNoNode;

  // The nodes from head_ on, linked by next, are the queue. The first has no
  // value, or one that is being taken out; each of the others has one. tail_ is
  // the last node, or one before it.
  //  (Q1) tail_ never falls behind head_: Pop helps it on first.
  //  (Q2) Who reads tail_ (head_), then next of that node, then the same tail_
  //       (head_), has seen the next of a node in the queue. If the node had
  //       been used again, its next would come by acquire from somebody who
  //       had seen tail_ (head_) leave it, and the last look would too.
  //  (Q3) A node has left the queue for good when head_ has passed it and its
  //       value is out. These two happen in either order; who comes second
  //       frees the node.
  static constexpr uint32_t kTaken = 1;   // the value is out
  static constexpr uint32_t kPassed = 2;  // head_ is at a later node
  struct Node {
    Node() {}
    ~Node() {}
    rt::Atomic<TaggedIndex> next;
    rt::Atomic<uint32_t> state;
    rt::Atomic<uint32_t> free_next;
    union {
      T value;  // there from Push until kTaken
    };
  };

  // What a Pop has got hold of: the node with the value, and the one before.
  struct Claim {
    uint32_t value;
    uint32_t passed;
  };

  Claim ClaimFirst() noexcept {
    for (;;) {
      const TaggedIndex head = head_.load(rt::acquire);
      // Acquire, after head_: at least as far on as head_ (Q1).
      const TaggedIndex tail = tail_.load(rt::acquire);
      // Acquire: pairs with the release in Push, for the value.
      const TaggedIndex next = arena_[head.index].next.load(rt::acquire);
      if (head_.load(rt::relaxed) != head) continue;  // (Q2)
      if (next.index == kNoNode) return {kNoNode, kNoNode};
      if (head.index == tail.index) {
        AdvanceTail(tail, next);
        continue;
      }
      // Release: who sees the new head_ sees a tail_ that is not behind it.
      if (head_.cas(head, head.Successor(next.index), rt::acq_rel)) {
        return {next.index, head.index};
      }
    }
  }

  void Finish(Claim claim) noexcept {
    arena_[claim.value].value.~T();
    Leave(claim.value, kTaken);
    Leave(claim.passed, kPassed);
  }

  void Leave(uint32_t i, uint32_t how) noexcept {
    // Acq_rel: who comes second is ordered after what the first did (Q3).
    if (arena_[i].state.or_(how, rt::acq_rel) != 0) arena_.Free(i);
  }

  // AdvanceTail moves tail_ on, unless somebody has. Acq_rel: who sees the new
  // tail_ sees the node there, and hands on what the others showed us.
  void AdvanceTail(TaggedIndex tail, TaggedIndex next) noexcept {
    (void)tail_.cas(tail, tail.Successor(next.index), rt::acq_rel);
  }

  internal::NodeArena<Node> arena_;
  alignas(128) rt::Atomic<TaggedIndex> head_;
  alignas(128) rt::Atomic<TaggedIndex> tail_;
};

}  // namespace gump::sync

#endif  // GUMP_QUEUE_H_
