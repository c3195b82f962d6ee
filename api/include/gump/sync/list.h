// A sync::List is a lock-free linked list, which any number of goroutines and
// plain threads may walk through and change at the same time.
//
//   sync::List<Watcher> watchers;
//   sync::List<Watcher>::Element me = watchers.PushBack(Watcher(c));
//   watchers.Range([&](Watcher& w) { w.Tell(news); });
//   watchers.Remove(me);
//
// No operation waits. A goroutine that stops in the middle of an operation, or
// inside Range, preempted or not, delays no other goroutine.
//
// Elements may be of any type, copyable or not. The list hands out references
// to the values, and does not guard the values themselves. If several
// goroutines reach a value at once, the program must order their accesses.
//
// An Element is a handle, as cheap to copy as a shared_ptr. The value lives as
// long as an Element refers to it, even after its removal. A removed element
// also keeps alive the elements that followed it and are removed later. So do
// not keep an Element of a removed element for long.
//
// Requires: Elements do not outlive the list. No goroutine or thread uses a
// list that is being destroyed. A List is never copied or moved. Until its
// destruction the list keeps the memory for the largest number of elements that
// it ever held.
//
// Memory ordering: an insertion happens before any call that finds the element.
// A Remove happens before any call that finds the element removed.
//
// Source: T. L. Harris, A Pragmatic Implementation of Non-Blocking Linked-
// Lists, DISC 2001 (a removed node is marked in its own link), in the form of
// M. M. Michael, SPAA 2002 (a walk takes out the removed nodes that it passes).
// Nodes are counted as by J. D. Valois, PODC 1995, corrected by M. M. Michael
// and M. L. Scott, 1995.
#ifndef GUMP_SYNC_LIST_H_
#define GUMP_SYNC_LIST_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "gump/internal/list_chain.h"

#pragma GCC visibility push(default)

namespace gump::sync {

// List is the list described above. All functions may be called from goroutines
// and from plain threads; none parks.
template <class T>
class List {
 public:
  class Element;

  List() noexcept = default;
  List(const List&) = delete;
  List& operator=(const List&) = delete;

  // PushFront and PushBack put v at the front or the back, and return its
  // Element. They throw std::bad_alloc if the list has to grow and there is no
  // memory, and what T's move constructor throws.
  Element PushFront(T v) { return Insert(std::move(v), Chain::kHead); }
  Element PushBack(T v) {
    Element e(&chain_, chain_.Make(std::move(v)));
    chain_.InsertLast(e.node_);
    return e;
  }
  // InsertAfter puts v behind e. Returns a null Element, and inserts nothing,
  // if e is null or removed. Throws as PushFront does.
  Element InsertAfter(const Element& e, T v) {
    return e ? Insert(std::move(v), e.node_) : Element();
  }

  // Remove takes e out of the list. Returns false if e was not in the list any
  // more, or is null.
  bool Remove(const Element& e) { return e && chain_.RemoveNode(e.node_); }
  // RemoveIf removes the elements for which f(T&) returns true. Returns the
  // number of elements that this call has removed.
  template <class F>
  size_t RemoveIf(F&& f);
  // PopFront takes the first element out of the list and returns it. Returns
  // null if there was none.
  Element PopFront();
  // Front returns the first element, or null if there is none.
  [[nodiscard]] Element Front();

  // Range calls f(T&) for the elements, front to back, until f returns false.
  // An f that returns nothing sees all elements. An element that is inserted or
  // removed during the call may be seen or not. No element is seen twice. f may
  // change the list.
  template <class F>
  void Range(F&& f);

  // Len returns the number of elements. While other goroutines change the list,
  // it may also count elements that are about to be inserted.
  [[nodiscard]] size_t Len() const noexcept { return chain_.Len(); }

 private:
  using Chain = internal::ListChain<T>;
  using Cursor = typename Chain::Cursor;

  Element Insert(T v, uint32_t at);

  Chain chain_;
};

// Element is a handle of an element, or null. Several goroutines or threads may
// use one Element at the same time only if all of them call its const
// functions.
template <class T>
class List<T>::Element {
 public:
  // Makes a null Element.
  Element() noexcept = default;
  Element(const Element& o) noexcept : chain_(o.chain_), node_(o.node_) {
    if (*this) chain_->Hold(node_);
  }
  // Leaves o null.
  Element(Element&& o) noexcept
      : chain_(o.chain_), node_(std::exchange(o.node_, Chain::kHead)) {}
  Element& operator=(Element o) noexcept {
    std::swap(chain_, o.chain_);
    std::swap(node_, o.node_);
    return *this;
  }
  ~Element() {
    if (*this) chain_->Drop(node_);
  }

  // Returns false if the Element is null, and true even if its element was
  // removed.
  explicit operator bool() const noexcept { return node_ != Chain::kHead; }
  // Requires, for * and ->: the Element is not null.
  T& operator*() const { return chain_->Value(node_); }
  T* operator->() const { return std::addressof(**this); }
  // Elements are equal if they refer to the same element, or are both null.
  friend bool operator==(const Element& a, const Element& b) noexcept {
    return a.node_ == b.node_ && (!a || a.chain_ == b.chain_);
  }

 private:
  friend class List;
  // Takes over a reference to the node.
  Element(Chain* chain, uint32_t node) noexcept : chain_(chain), node_(node) {}

  Chain* chain_ = nullptr;
  uint32_t node_ = Chain::kHead;
};

// Insert puts v behind `at`. Returns a null Element if `at` is removed.
template <class T>
typename List<T>::Element List<T>::Insert(T v, uint32_t at) {
  Element e(&chain_, chain_.Make(std::move(v)));
  return chain_.InsertNext(at, e.node_) ? e : Element();
}

template <class T>
template <class F>
inline size_t List<T>::RemoveIf(F&& f) {
  size_t n = 0;
  for (Cursor c{&chain_}; chain_.Advance(&c.at);) {
    if (std::invoke(f, chain_.Value(c.at)) && chain_.RemoveNode(c.at)) n++;
  }
  return n;
}

template <class T>
inline typename List<T>::Element List<T>::PopFront() {
  for (;;) {
    Cursor c{&chain_};
    if (!chain_.Advance(&c.at)) return {};
    if (chain_.RemoveNode(c.at))
      return Element(&chain_, std::exchange(c.at, Chain::kHead));
  }
}

template <class T>
inline typename List<T>::Element List<T>::Front() {
  Cursor c{&chain_};
  if (!chain_.Advance(&c.at)) return {};
  return Element(&chain_, std::exchange(c.at, Chain::kHead));
}

template <class T>
template <class F>
inline void List<T>::Range(F&& f) {
  for (Cursor c{&chain_}; chain_.Advance(&c.at);) {
    if constexpr (std::is_void_v<std::invoke_result_t<F&, T&>>) {
      std::invoke(f, chain_.Value(c.at));
    } else {
      if (!std::invoke(f, chain_.Value(c.at))) return;
    }
  }
}

}  // namespace gump::sync

#pragma GCC visibility pop

#endif  // GUMP_SYNC_LIST_H_
