// A sync::Stack is an unbounded last-in-first-out stack, lock-free, for any
// number of goroutines and plain threads.
//
//   sync::Stack<std::unique_ptr<Buffer>> spare;
//   spare.Push(std::move(buffer));
//   if (auto b = spare.Pop()) Use(std::move(*b));
//
// No operation waits; Pop on an empty stack returns nullopt. A goroutine that
// stops in the middle of an operation, preempted or not, delays no other
// goroutine.
//
// Requires: elements are nothrow-move-constructible. They may be move-only. A
// Stack is never copied or moved.
//
// Requires: no goroutine or thread uses a stack that is being destroyed. The
// remaining elements are destroyed with it. Until then, the stack keeps the
// memory for the largest number of elements that it ever held.
//
// Memory ordering: a Push happens before the Pop that returns its element.
//
// Source: R. K. Treiber, Systems Programming: Coping with Parallelism, 1986.
#ifndef GUMP_SYNC_STACK_H_
#define GUMP_SYNC_STACK_H_

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

// Stack is the stack described above. All functions may be called from
// goroutines and from plain threads; none parks.
template <class T>
class Stack {
  static_assert(
      std::is_nothrow_move_constructible_v<T> &&
          std::is_nothrow_destructible_v<T>,
      "gump::sync::Stack<T>: T must be nothrow-move-constructible "
      "and nothrow-destructible; keep a std::unique_ptr<T> otherwise");

 public:
  Stack() noexcept = default;
  ~Stack() {
    while (Pop().has_value()) {
    }
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  // Push puts v on top. Throws std::bad_alloc if the stack has to grow and
  // there is no memory. v is then destroyed.
  void Push(T v);

  // Pop removes and returns the top element. Returns nullopt if the stack was
  // empty.
  [[nodiscard]] std::optional<T> Pop() noexcept;

  // Pop(out) pops into a variable. Returns false, and leaves `out` untouched,
  // if the stack was empty. If the move assignment of T throws, the exception
  // passes through and the element is lost.
  [[nodiscard]] bool Pop(T& out);

  // Empty returns true if the stack is empty now.
  //
  // Acquire: pairs with the release in Push. A later Pop does not break the
  // pair, because its CAS is a read-modify-write.
  [[nodiscard]] bool Empty() const noexcept {
    return top_.load(rt::acquire).index == internal::kNoNode;
  }

 private:
  using TaggedIndex = internal::TaggedIndex;

  struct Node {
    Node() {}
    ~Node() {}
    rt::Atomic<uint32_t> next;  // the node below
    rt::Atomic<uint32_t> free_next;
    union {
      T value;  // alive from Push until Pop
    };
  };

  internal::NodeArena<Node> arena_;
  alignas(128) rt::Atomic<TaggedIndex> top_;
};

template <class T>
inline void Stack<T>::Push(T v) {
  const uint32_t fresh = arena_.Alloc();
  Node& node = arena_[fresh];
  ::new (std::addressof(node.value)) T(std::move(v));
  TaggedIndex top = top_.load(rt::relaxed);  // a guess; the CAS decides
  do {
    node.next.store(top.index, rt::relaxed);  // published by the CAS
    // Release: publishes the node and its value; pairs with Pop. The nodes
    // below stay published, because every change of top_ is a
    // read-modify-write.
  } while (!top_.casWeak(top, top.Successor(fresh), rt::release));
}

template <class T>
inline std::optional<T> Stack<T>::Pop() noexcept {
  TaggedIndex top = top_.load(rt::acquire);  // pairs with Push: to read next
  while (top.index != internal::kNoNode) {
    Node& node = arena_[top.index];
    // Relaxed: the node may have been freed and used again. Then the tag has
    // changed, and the CAS fails.
    const uint32_t next = node.next.load(rt::relaxed);
    // Acquire: pairs with the release in Push, for the value.
    if (top_.cas(top, top.Successor(next), rt::acquire)) {
      std::optional<T> out(std::move(node.value));
      node.value.~T();
      arena_.Free(top.index);
      return out;
    }
    top = top_.load(rt::acquire);  // as above
  }
  return std::nullopt;
}

template <class T>
inline bool Stack<T>::Pop(T& out) {
  std::optional<T> v = Pop();
  if (v.has_value()) out = std::move(*v);
  return v.has_value();
}

}  // namespace gump::sync

#pragma GCC visibility pop

#endif  // GUMP_SYNC_STACK_H_
