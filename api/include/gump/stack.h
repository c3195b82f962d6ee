// sync::Stack: an unbounded last-in-first-out stack, lock-free, for any number
// of goroutines and plain threads.
//
//   sync::Stack<std::unique_ptr<Buffer>> spare;
//   spare.Push(std::move(buffer));
//   if (auto b = spare.Pop()) Use(std::move(*b));
//
// Nothing here waits: Pop on an empty stack says so. One goroutine that stops
// in the middle of an operation, preempted or not, holds up nobody.
//
// Elements must be nothrow-move-constructible; they may be move-only. Stack is
// never copied or moved. Nobody may be using a stack that is being destroyed;
// elements that are left are destroyed with it. The stack keeps the memory for
// as many elements as it once held, until it is destroyed.
//
// Memory ordering: a Push happens before the Pop that returns its element.
//
// Source: R. K. Treiber, Systems Programming: Coping with Parallelism, 1986.
#ifndef GUMP_STACK_H_
#define GUMP_STACK_H_

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "gump/internal/linkname.h"
#include "gump/internal/node_arena.h"

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
  // cannot; v is destroyed then.
  void Push(T v) {
    const uint32_t fresh = arena_.Alloc();
    Node& node = arena_[fresh];
    ::new (std::addressof(node.value)) T(std::move(v));
    TaggedIndex top = top_.load(rt::relaxed);  // a guess; the CAS decides
    do {
      node.next.store(top.index, rt::relaxed);  // published by the CAS
      // Release: publishes the node and its value; pairs with Pop. Those below
      // stay published, because every change of top_ is a read-modify-write.
    } while (!top_.casWeak(top, top.Successor(fresh), rt::release));
  }

  // Pop takes the top element off; nullopt: the stack was empty.
  [[nodiscard]] std::optional<T> Pop() noexcept {
    TaggedIndex top = top_.load(rt::acquire);  // pairs with Push: to read next
    while (top.index != internal::kNoNode) {
      Node& node = arena_[top.index];
      // Relaxed: may be another life's of the node; then the tag has changed
      // and the CAS fails.
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

  // The same into a variable. False: the stack was empty, out is untouched.
  // Throws what T's move assignment throws; the element is lost then.
  [[nodiscard]] bool Pop(T& out) {
    std::optional<T> v = Pop();
    if (v.has_value()) out = std::move(*v);
    return v.has_value();
  }

  // Empty tells whether there is nothing on the stack now. Acquire: pairs with
  // Push and Pop, so that what was popped before is known to be.
  [[nodiscard]] bool Empty() const noexcept {
    return top_.load(rt::acquire).index == internal::kNoNode;
  }

 private:
  using TaggedIndex = internal::TaggedIndex;

  struct Node {
    Node() {}
    ~Node() {}
    rt::Atomic<uint32_t> next;  // the one below
    rt::Atomic<uint32_t> free_next;
    union {
      T value;  // there from Push until Pop
    };
  };

  internal::NodeArena<Node> arena_;
  alignas(128) rt::Atomic<TaggedIndex> top_;
};

}  // namespace gump::sync

#endif  // GUMP_STACK_H_
