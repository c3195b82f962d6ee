// NodeArena: memory for the nodes of one lock-free container.
//
// Nodes are named by index. Their memory is not given back before the arena is
// destroyed. A reader that comes too late still finds a node there, though
// perhaps one in another use. Its compare-and-swap then fails. So no reader has
// to announce the node that it reads, and goroutines and plain threads are
// treated alike. The price is that a container keeps the memory that it once
// needed.
//
// A TaggedIndex is an index with a tag: the number of changes of its word. If
// an index has come back in between (the ABA problem), the tag differs, and a
// compare-and-swap fails. The tag is the same only after a multiple of 2^32
// changes.
//
// Free nodes are on a stack: R. K. Treiber, Systems Programming: Coping with
// Parallelism, 1986.
#ifndef GUMP_INTERNAL_NODE_ARENA_H_
#define GUMP_INTERNAL_NODE_ARENA_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "gump/internal/atomic.h"

#pragma GCC visibility push(default)

namespace gump::sync::internal {

inline constexpr uint32_t kNoNode = UINT32_MAX;

struct alignas(8) TaggedIndex {
  uint32_t index = kNoNode;
  uint32_t tag = 0;

  // Successor is the value that follows this one in its word, with index next.
  TaggedIndex Successor(uint32_t next) const { return {next, tag + 1}; }
  friend bool operator==(TaggedIndex, TaggedIndex) = default;
};

// NodeArena holds Nodes. A Node has a default constructor, and a member
// `rt::Atomic<uint32_t> free_next` for the arena to use. A node is constructed
// once and keeps its contents while it is free.
template <class Node>
class NodeArena {
 public:
  NodeArena() noexcept = default;
  ~NodeArena() {
    // Relaxed: the destruction of the container is ordered after all its users.
    for (auto& s : segments_) delete[] s.load(rt::relaxed);
  }
  NodeArena(const NodeArena&) = delete;
  NodeArena& operator=(const NodeArena&) = delete;

  // Returns the node with index i. Requires: Alloc has returned i before.
  Node& operator[](uint32_t i) const noexcept {
    // Relaxed: the caller got the index, by an acquire, from a thread that had
    // seen the segment.
    return segments_[Segment(i)].load(rt::relaxed)[Offset(i)];
  }

  // Alloc returns the index of a node, which then belongs to the caller. It is
  // lock-free except when it allocates memory. Throws std::bad_alloc.
  uint32_t Alloc() {
    TaggedIndex top = free_.load(rt::acquire);  // pairs with Free
    while (top.index != kNoNode) {
      // Relaxed: if another thread has taken the node, the CAS fails.
      const uint32_t next = (*this)[top.index].free_next.load(rt::relaxed);
      // Acquire: pairs with the release in Free, also for later loads.
      if (free_.cas(top, top.Successor(next), rt::acquire)) return top.index;
      top = free_.load(rt::acquire);
    }
    return AllocFresh();
  }

  // Free takes back a node. Afterwards a thread may use the node only to find
  // out that it came too late. Lock-free.
  void Free(uint32_t i) noexcept {
    TaggedIndex top = free_.load(rt::relaxed);  // a guess; the CAS decides
    do {
      (*this)[i].free_next.store(top.index, rt::relaxed);  // published below
      // Release: orders all use of the node before its next use.
    } while (!free_.casWeak(top, top.Successor(i), rt::release));
  }

 private:
  // Segment k holds 32 << k nodes.
  static constexpr int kFirstBits = 5;
  static constexpr uint64_t kFirst = uint64_t{1} << kFirstBits;
  static constexpr size_t kSegments = 27;
  static constexpr uint64_t kMaxNodes = (kFirst << kSegments) - kFirst;

  static size_t Segment(uint64_t i) {
    return static_cast<size_t>(63 - kFirstBits - std::countl_zero(i + kFirst));
  }
  static size_t Offset(uint64_t i) {
    return i + kFirst - (kFirst << Segment(i));
  }

  uint32_t AllocFresh() {
    uint64_t i = fresh_.load(rt::acquire);  // pairs with the CAS below
    do {
      if (i >= kMaxNodes) throw std::bad_alloc();
      MakeSegment(Segment(i));
      // Acq_rel: the next caller also sees the segments that we have seen.
    } while (!fresh_.casWeak(i, i + 1, rt::acq_rel));
    return static_cast<uint32_t>(i);
  }

  void MakeSegment(size_t k) {
    if (segments_[k].load(rt::acquire) != nullptr) return;
    auto made = std::make_unique<Node[]>(kFirst << k);
    // Release: publishes the nodes. If several threads race here, one wins.
    if (segments_[k].cas(nullptr, made.get(), rt::release)) {
      (void)made.release();
    } else {
      (void)segments_[k].load(rt::acquire);  // sees the winner's nodes
    }
  }

  rt::Atomic<Node*> segments_[kSegments];
  alignas(128) rt::Atomic<TaggedIndex> free_;
  rt::Atomic<uint64_t> fresh_;  // nodes from here on have never been used
};

}  // namespace gump::sync::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_NODE_ARENA_H_
