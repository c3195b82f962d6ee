// ListChain: the mechanism of sync::List. gump/sync/list.h describes its
// purpose and names the source of the algorithm.
#ifndef GUMP_INTERNAL_LIST_CHAIN_H_
#define GUMP_INTERNAL_LIST_CHAIN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "gump/internal/atomic.h"
#include "gump/internal/node_arena.h"

#pragma GCC visibility push(default)

namespace gump::sync::internal {

// ListChain is a chain of nodes. Nodes are named by index. A caller holds a
// node if it has a reference to the node. It gives up the reference by Drop.
template <class T>
class ListChain {
 public:
  static constexpr uint32_t kHead = kNoNode;  // the position before the first

  ListChain() noexcept = default;
  ~ListChain() { Drop(IndexOf(head_.load(rt::relaxed))); }  // after all users
  ListChain(const ListChain&) = delete;
  ListChain& operator=(const ListChain&) = delete;

  // Make returns a node with value v that is not in the chain yet. The caller
  // holds it, and one of the Insert functions then puts it in.
  uint32_t Make(T v);
  bool InsertNext(uint32_t at, uint32_t i) noexcept;
  void InsertLast(uint32_t i) noexcept;
  bool RemoveNode(uint32_t i) noexcept;
  bool Advance(uint32_t* at, bool* astray = nullptr) noexcept;
  void Drop(uint32_t i) noexcept;

  // Hold adds a reference to a node that the caller holds already. Relaxed: it
  // publishes nothing.
  void Hold(uint32_t i) noexcept { arena_[i].refs.add(1, rt::relaxed); }
  T& Value(uint32_t i) const noexcept { return arena_[i].value; }
  // Relaxed: a count, which orders nothing.
  size_t Len() const noexcept { return len_.load(rt::relaxed); }

  // Cursor is a position of a walk: the node that it holds, or kHead.
  struct Cursor {
    ListChain* chain;
    uint32_t at = kHead;
    ~Cursor() { chain->Drop(at); }
  };

 private:
  using Link = uint64_t;  // the index of the next node, and perhaps the mark
  static constexpr uint32_t kEnd = kNoNode;  // as a successor
  static constexpr Link kMark = Link{1} << 32;
  static uint32_t IndexOf(Link link) { return static_cast<uint32_t>(link); }
  static bool Marked(Link link) { return (link & kMark) != 0; }

  // (L1) An element is removed by marking its link, which never changes again.
  //      Later walks take the node out of the chain by a CAS on the link before
  //      it, which must not be marked. So a node that was put in and is not
  //      marked can be reached from head_.
  // (L2) A node lives while refs is above 0. Each link to it counts one, even
  //      the link of a removed node. Each Element and each position of a walk
  //      counts one.
  // (L3) TryHold may get a reference to a node that has been reused. The node
  //      is the right one if afterwards the link still leads there (L2), or if
  //      its life is the expected one.
  struct Node {
    Node() {}
    ~Node() {}
    rt::Atomic<Link> next;
    // A hint: a node that was the predecessor at some time. tag is its life.
    rt::Atomic<TaggedIndex> before;
    rt::Atomic<uint32_t> refs;
    rt::Atomic<uint32_t> life;  // number of times that the node has been used
    rt::Atomic<bool> linked;    // false: out of the chain; may be set late
    rt::Atomic<uint32_t> free_next;
    union {
      T value;  // constructed while refs is above 0
    };
  };

  rt::Atomic<Link>& NextOf(uint32_t at) {
    return at == kHead ? head_ : arena_[at].next;
  }
  TaggedIndex HintOf(uint32_t at) {  // at is held, so life does not change
    return {at, at == kHead ? 0 : arena_[at].life.load(rt::relaxed)};
  }

  void Unlink(uint32_t at, uint32_t i, uint32_t next) noexcept;
  bool TryHold(uint32_t i) noexcept;
  uint32_t FollowHint(TaggedIndex hint) noexcept;

  NodeArena<Node> arena_;
  rt::Atomic<Link> head_{kEnd};   // never marked
  rt::Atomic<TaggedIndex> tail_;  // a hint: a node that was the last one once
  rt::Atomic<size_t> len_;
};

// Make returns a node with two references: one for the link, one for an
// Element.
template <class T>
uint32_t ListChain<T>::Make(T v) {
  const uint32_t i = arena_.Alloc();
  Node& n = arena_[i];
  if constexpr (std::is_nothrow_move_constructible_v<T>) {
    ::new (std::addressof(n.value)) T(std::move(v));
  } else {
    try {
      ::new (std::addressof(n.value)) T(std::move(v));
    } catch (...) {
      arena_.Free(i);
      throw;
    }
  }
  // Relaxed: the node is ours alone until it is linked. The store to refs
  // publishes these values to threads that follow an old index or hint.
  n.next.store(kEnd, rt::relaxed);
  n.before.store({}, rt::relaxed);
  n.linked.store(true, rt::relaxed);
  n.life.store(n.life.load(rt::relaxed) + 1, rt::relaxed);
  // A store, because no thread counts up from 0. Release: pairs with TryHold,
  // which then sees the new life, and that the links to the old one are gone.
  n.refs.store(2, rt::release);
  return i;
}

// InsertNext puts node i behind `at`. Returns false if `at` is removed. The
// link of `at` holds a reference to its successor. That reference passes to the
// link of i.
template <class T>
bool ListChain<T>::InsertNext(uint32_t at, uint32_t i) noexcept {
  Node& n = arena_[i];
  n.before.store(HintOf(at), rt::release);   // as all hints: see RemoveNode
  len_.add(1, rt::relaxed);                  // before a thread can remove it
  Link next = NextOf(at).load(rt::relaxed);  // a guess; the CAS decides
  do {
    if (Marked(next)) {
      len_.add(static_cast<size_t>(-1), rt::relaxed);
      n.next.store(kEnd, rt::relaxed);  // this link holds no reference
      Drop(i);                          // the reference for the link
      return false;
    }
    n.next.store(next, rt::relaxed);  // published by the CAS
    // Release: publishes the node; pairs with Advance. Acquire: for the
    // successor's segment, which we are about to touch.
  } while (!NextOf(at).casWeak(next, i, rt::acq_rel));
  // The successor may be another node by now, or free. A hint that is stored
  // there leads nowhere.
  if (next != kEnd) {
    arena_[IndexOf(next)].before.store(HintOf(i), rt::release);
  }
  return true;
}

// InsertLast puts node i at the end.
template <class T>
void ListChain<T>::InsertLast(uint32_t i) noexcept {
  len_.add(1, rt::relaxed);                             // as in InsertNext
  Cursor c{this, FollowHint(tail_.load(rt::acquire))};  // pairs with the store
  for (;;) {
    while (Advance(&c.at)) {
    }
    arena_[i].before.store(HintOf(c.at), rt::release);
    // Release: publishes the node; pairs with Advance.
    if (NextOf(c.at).cas(kEnd, i, rt::release)) break;
    // Another thread has inserted a node there, or removed the last one. In the
    // second case the predecessor of the removed node is found from the front.
    if (Marked(NextOf(c.at).load(rt::relaxed))) {
      Drop(std::exchange(c.at, kHead));
    }
  }
  tail_.store(HintOf(i), rt::release);  // it is linked: see FollowHint
}
// RemoveNode marks node i, which the caller holds. Returns false if another
// thread has marked it. After marking, it walks until the node is out of the
// chain. There are two ways to know that. The node was unlinked. Or a walk from
// the front to the end has passed its former place and not found it. Such a
// walk counts only if it never went astray (see Advance). Each further walk
// means that another thread has removed a node in between, so RemoveNode does
// not wait for a stopped thread.
template <class T>
bool ListChain<T>::RemoveNode(uint32_t i) noexcept {
  Node& n = arena_[i];
  Link next = n.next.load(rt::relaxed);  // a guess; the CAS decides
  do {
    if (Marked(next)) return false;
    // Release: pairs with a thread that finds the node removed. Acquire: the
    // thread that takes the node out passes on the successor.
  } while (!n.next.casWeak(next, next | kMark, rt::acq_rel));
  len_.add(static_cast<size_t>(-1), rt::relaxed);
  // Acquire: pairs with the release of every hint. The thread that stored the
  // hint had seen the segment of the node that it names.
  Cursor c{this, FollowHint(n.before.load(rt::acquire))};
  bool astray = c.at != kHead;  // the hint may be wrong
  // Relaxed: it only saves steps. A thread that has taken the node out may not
  // have stored this yet.
  while (n.linked.load(rt::relaxed)) {
    if (Advance(&c.at, &astray)) continue;
    if (!astray) break;
    astray = false;
    Drop(std::exchange(c.at, kHead));
  }
  return true;
}

// Advance moves *at to the next element, and takes out the removed nodes on the
// way. The caller then holds the node *at, and no longer the one before.
// Returns false if there is no next element. *at is then on the last node of
// the chain. *astray becomes true if *at was removed while the walk stood
// there. Then the walk may have left removed nodes in the chain, and *at may be
// the last of a part that is no longer in the chain.
template <class T>
bool ListChain<T>::Advance(uint32_t* at, bool* astray) noexcept {
  for (;;) {
    rt::Atomic<Link>& from = NextOf(*at);
    const Link link = from.load(rt::acquire);  // pairs with the inserting CAS
    const uint32_t i = IndexOf(link);
    if (astray != nullptr && Marked(link)) *astray = true;
    if (i == kEnd) return false;
    if (!TryHold(i)) continue;  // no link leads there any more
    // (L3). Acquire, as above. If TryHold read a value that was stored after i
    // was taken out, this load sees that the link has changed. If not, our
    // reference was in time.
    if (from.load(rt::acquire) != link) {
      Drop(i);
      continue;
    }
    const Link next = arena_[i].next.load(rt::acquire);  // pairs with the mark
    if (Marked(next) && !Marked(link)) {
      Unlink(*at, i, IndexOf(next));
      Drop(i);
      continue;
    }
    // If *at is removed itself, the walk goes on through other removed nodes.
    Drop(std::exchange(*at, i));
    if (!Marked(next)) return true;
  }
}

// Unlink takes i out of the chain behind `at`, if it is still there. The caller
// holds i, which is marked.
template <class T>
void ListChain<T>::Unlink(uint32_t at, uint32_t i, uint32_t next) noexcept {
  // i's link has a reference to the successor and does not change (L1).
  if (next != kEnd) Hold(next);
  // Release: pairs with Advance, for the successor and all nodes behind it.
  if (!NextOf(at).cas(i, next, rt::acq_rel)) {
    Drop(next);
    return;
  }
  if (next != kEnd) arena_[next].before.store(HintOf(at), rt::release);
  arena_[i].linked.store(false, rt::relaxed);  // see RemoveNode
  Drop(i);                                     // the reference of the link
}

// TryHold adds a reference if the node has any. Returns whether it did.
template <class T>
bool ListChain<T>::TryHold(uint32_t i) noexcept {
  rt::Atomic<uint32_t>& refs = arena_[i].refs;
  uint32_t n = refs.load(rt::relaxed);  // a guess; the CAS decides
  while (n != 0) {
    // Acquire: pairs with Make and Drop (L3).
    if (refs.casWeak(n, n + 1, rt::acquire)) return true;
  }
  return false;
}

// FollowHint returns the node that the hint names, with a reference, or kHead.
// Hints are made only of nodes that have been put in. So a node with the right
// life has been put in (L3), and is a place to start from unless it is removed
// (L1).
template <class T>
uint32_t ListChain<T>::FollowHint(TaggedIndex hint) noexcept {
  if (hint.index == kHead || !TryHold(hint.index)) return kHead;
  Node& n = arena_[hint.index];
  // Relaxed: ordered by TryHold. If the mark comes later, the walk notices it.
  if (n.life.load(rt::relaxed) == hint.tag &&
      !Marked(n.next.load(rt::relaxed))) {
    return hint.index;
  }
  Drop(hint.index);
  return kHead;
}

// Drop gives up a reference, unless i is no node. The last Drop destroys the
// value, and gives up the reference that the node's link held.
template <class T>
void ListChain<T>::Drop(uint32_t i) noexcept {
  while (i != kNoNode) {
    Node& n = arena_[i];
    // Acq_rel: all use of the value is ordered before its destruction.
    if (n.refs.add(static_cast<uint32_t>(-1), rt::acq_rel) != 0) return;
    const uint32_t next = IndexOf(n.next.load(rt::relaxed));  // ours alone
    n.value.~T();
    arena_.Free(i);
    i = next;
  }
}

}  // namespace gump::sync::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_LIST_CHAIN_H_
