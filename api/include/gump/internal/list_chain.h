// ListChain: the mechanism of sync::List; gump/list.h says what for, and whose
// algorithm it is.
#ifndef GUMP_INTERNAL_LIST_CHAIN_H_
#define GUMP_INTERNAL_LIST_CHAIN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "gump/internal/linkname.h"
#include "gump/internal/node_arena.h"

namespace gump::sync::internal {

// ListChain is a chain of nodes, named by index, which callers hold: they have
// a reference that they give up by Drop.
template <class T>
class ListChain {
 public:
  static constexpr uint32_t kHead = kNoNode;  // the position before the first

  ListChain() noexcept = default;
  ~ListChain() { Drop(IndexOf(head_.load(rt::relaxed))); }  // after all users
  ListChain(const ListChain&) = delete;
  ListChain& operator=(const ListChain&) = delete;

  // Make returns a node with value v, not in the chain yet, for one of the
  // Insert functions to put in; the caller holds it then.
  uint32_t Make(T v);
  bool InsertNext(uint32_t at, uint32_t i) noexcept;
  void InsertLast(uint32_t i) noexcept;
  bool RemoveNode(uint32_t i) noexcept;
  bool Advance(uint32_t* at, bool* astray = nullptr) noexcept;
  void Drop(uint32_t i) noexcept;

  // Hold adds a reference to one that the caller has. Relaxed: it publishes
  // nothing.
  void Hold(uint32_t i) noexcept { arena_[i].refs.add(1, rt::relaxed); }
  T& Value(uint32_t i) const noexcept { return arena_[i].value; }
  // Relaxed: a count, which orders nothing.
  size_t Len() const noexcept { return len_.load(rt::relaxed); }

  // Cursor is a position of a walk: a node, held, or kHead.
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
  //      Who walks by takes the node out of the chain, by a CAS on the link
  //      before it, which must not be marked. So a node that was put in and is
  //      not marked can be reached from head_.
  // (L2) A node lives while refs is above 0. Each link to it counts one, be it
  //      of a removed node; so does each Element and each position of a walk.
  // (L3) TryHold may get hold of the wrong life of a node. It is the right one
  //      if afterwards the link still leads there (L2), or the life is as told.
  struct Node {
    Node() {}
    ~Node() {}
    rt::Atomic<Link> next;
    rt::Atomic<TaggedIndex> before;  // a hint: was before this; tag: its life
    rt::Atomic<uint32_t> refs;
    rt::Atomic<uint32_t> life;  // how often the node has been used
    rt::Atomic<bool> linked;    // false: out of the chain; may say so late
    rt::Atomic<uint32_t> free_next;
    union {
      T value;  // there while refs is above 0
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
  rt::Atomic<TaggedIndex> tail_;  // a hint: was the last once
  rt::Atomic<size_t> len_;
};

// Make returns a node that is held twice: for the link and for an Element.
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
  // Relaxed: ours alone until linked, and published with refs for the curious.
  n.next.store(kEnd, rt::relaxed);
  n.before.store({}, rt::relaxed);
  n.linked.store(true, rt::relaxed);
  n.life.store(n.life.load(rt::relaxed) + 1, rt::relaxed);
  // A store, because nobody counts up from 0. Release: pairs with TryHold, who
  // sees the new life, and that the links to the old one are gone.
  n.refs.store(2, rt::release);
  return i;
}

// InsertNext puts node i behind `at`, unless that is removed. The reference of
// at's link to its successor becomes that of i's link.
template <class T>
bool ListChain<T>::InsertNext(uint32_t at, uint32_t i) noexcept {
  Node& n = arena_[i];
  n.before.store(HintOf(at), rt::release);   // as all hints: see RemoveNode
  len_.add(1, rt::relaxed);                  // before anybody can remove it
  Link next = NextOf(at).load(rt::relaxed);  // a guess; the CAS decides
  do {
    if (Marked(next)) {
      len_.add(static_cast<size_t>(-1), rt::relaxed);
      n.next.store(kEnd, rt::relaxed);  // counts nothing
      Drop(i);                          // the link's
      return false;
    }
    n.next.store(next, rt::relaxed);  // published by the CAS
    // Release: publishes the node; pairs with Advance. Acquire: the successor's
    // segment, which we are about to touch.
  } while (!NextOf(at).casWeak(next, i, rt::acq_rel));
  // The successor may be another node by now, or free: then this is a hint
  // that leads nowhere.
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
    // Somebody has put one there, or removed the last: that one's predecessor
    // is found from the front.
    if (Marked(NextOf(c.at).load(rt::relaxed))) {
      Drop(std::exchange(c.at, kHead));
    }
  }
  tail_.store(HintOf(i), rt::release);  // it is linked: see FollowHint
}

// RemoveNode marks node i, which is held; false: somebody else has. Then it
// sees to it that the node is out of the chain: a walk from the front to the
// end, never astray, has passed the place where it was, and it is not there any
// more. Each further walk means that somebody has removed a node meanwhile; so
// it waits for nobody.
template <class T>
bool ListChain<T>::RemoveNode(uint32_t i) noexcept {
  Node& n = arena_[i];
  Link next = n.next.load(rt::relaxed);  // a guess; the CAS decides
  do {
    if (Marked(next)) return false;
    // Release: pairs with who finds it removed. Acquire: who takes the node out
    // hands on the successor.
  } while (!n.next.casWeak(next, next | kMark, rt::acq_rel));
  len_.add(static_cast<size_t>(-1), rt::relaxed);
  // Acquire: pairs with the release of every hint; the segment of the node that
  // it means has been seen by who left it.
  Cursor c{this, FollowHint(n.before.load(rt::acquire))};
  bool astray = c.at != kHead;  // the hint may be wrong
  // Relaxed: it only saves steps. Who has taken the node out may not have come
  // to say so.
  while (n.linked.load(rt::relaxed)) {
    if (Advance(&c.at, &astray)) continue;
    if (!astray) break;
    astray = false;
    Drop(std::exchange(c.at, kHead));
  }
  return true;
}

// Advance moves *at to the next element, which it takes hold of, and takes out
// the removed ones on the way. False: there is none, and *at is on the last
// node of the chain. *astray becomes true if *at was removed while the walk
// stood there: then removed ones may have been left, and *at be the last of
// nothing.
template <class T>
bool ListChain<T>::Advance(uint32_t* at, bool* astray) noexcept {
  for (;;) {
    rt::Atomic<Link>& from = NextOf(*at);
    const Link link = from.load(rt::acquire);  // pairs with the inserting CAS
    const uint32_t i = IndexOf(link);
    if (astray != nullptr && Marked(link)) *astray = true;
    if (i == kEnd) return false;
    if (!TryHold(i)) continue;  // no link leads there any more
    // (L3). Acquire, as above. If TryHold read what somebody wrote after taking
    // out i, this sees that; if not, our reference was in time.
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
    // If *at is removed itself, the way goes on through others that are.
    Drop(std::exchange(*at, i));
    if (!Marked(next)) return true;
  }
}

// Unlink takes i, which is held and marked, out of the chain behind `at`, if it
// is still there.
template <class T>
void ListChain<T>::Unlink(uint32_t at, uint32_t i, uint32_t next) noexcept {
  // i's link holds the successor and does not change (L1).
  if (next != kEnd) Hold(next);
  // Release: pairs with Advance, for the successor and all behind it.
  if (!NextOf(at).cas(i, next, rt::acq_rel)) {
    Drop(next);
    return;
  }
  if (next != kEnd) arena_[next].before.store(HintOf(at), rt::release);
  arena_[i].linked.store(false, rt::relaxed);  // see RemoveNode
  Drop(i);                                     // the link's
}

// TryHold counts one more reference, if there is any.
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

// FollowHint takes hold of the node that the hint means, or returns kHead.
// Hints are of nodes that have been put in, so one with the right life has been
// (L3), and is a place to start from unless it is removed (L1).
template <class T>
uint32_t ListChain<T>::FollowHint(TaggedIndex hint) noexcept {
  if (hint.index == kHead || !TryHold(hint.index)) return kHead;
  Node& n = arena_[hint.index];
  // Relaxed: ordered by TryHold. The mark: if it comes later, the walk notices.
  if (n.life.load(rt::relaxed) == hint.tag &&
      !Marked(n.next.load(rt::relaxed))) {
    return hint.index;
  }
  Drop(hint.index);
  return kHead;
}

// Drop gives up a reference, unless i is no node. The last one destroys the
// value, and gives up what the node's link held.
template <class T>
void ListChain<T>::Drop(uint32_t i) noexcept {
  while (i != kNoNode) {
    Node& n = arena_[i];
    // Acq_rel: what was done with the value is before its destruction.
    if (n.refs.add(static_cast<uint32_t>(-1), rt::acq_rel) != 0) return;
    const uint32_t next = IndexOf(n.next.load(rt::relaxed));  // ours alone
    n.value.~T();
    arena_.Free(i);
    i = next;
  }
}

}  // namespace gump::sync::internal

#endif  // GUMP_INTERNAL_LIST_CHAIN_H_
