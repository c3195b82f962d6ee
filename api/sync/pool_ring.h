// The queues of a slot of a sync::Pool, for items that do not fit into `own`
// (pool.cc): a ring, and a chain of rings. (I1) and (I2) are those of pool.cc.
#ifndef API_SYNC_POOL_RING_H_
#define API_SYNC_POOL_RING_H_

#include <cstdint>
#include <new>
#include <utility>

#include "gump/internal/atomic.h"

namespace gump::sync::internal {

// PoolRing is a queue of fixed size. It has one producer, which pushes and pops
// at the head, and any number of thieves, which pop at the tail.
class PoolRing {
 public:
  static constexpr uint32_t kMinSize = 8;
  static constexpr uint32_t kMaxSize = 1U << 30;

  // Make returns a ring of size slots, a power of two, or nullptr if there is
  // no memory.
  static PoolRing* Make(uint32_t size) noexcept {
    auto* slots = new (std::nothrow) rt::Atomic<void*>[size];
    if (slots == nullptr) return nullptr;
    auto* ring = new (std::nothrow) PoolRing(slots, size);
    if (ring == nullptr) delete[] slots;
    return ring;
  }
  ~PoolRing() { delete[] slots_; }
  PoolRing(const PoolRing&) = delete;
  PoolRing& operator=(const PoolRing&) = delete;

  uint32_t size() const { return size_; }

  // PushHead adds item. Returns false if the ring is full. Only the producer
  // calls it.
  bool PushHead(void* item) noexcept {
    // Acquire: pairs with the CAS in PopTail.
    const uint64_t ends = ends_.load(rt::acquire);
    if (head(ends) - tail(ends) == size_) return false;
    rt::Atomic<void*>& slot = slots_[head(ends) & (size_ - 1)];
    // A thief may have taken the index but not yet emptied the slot. Acquire:
    // pairs with its store.
    if (slot.load(rt::acquire) != nullptr) return false;
    slot.store(item, rt::relaxed);     // published by the next line
    ends_.add(kHeadOne, rt::release);  // pairs with the load in PopTail
    return true;
  }

  // PopHead removes the item pushed last, or returns nullptr if there is none.
  // Only the producer calls it.
  void* PopHead() noexcept {
    uint64_t ends = ends_.load(rt::relaxed);  // the CAS decides
    for (;;) {
      if (head(ends) == tail(ends)) return nullptr;
      // The CAS takes the slot from the thieves, which see our slots only
      // through PushHead. Acq_rel is stronger than needed, but costs nothing.
      if (!ends_.casWeak(ends, ends - kHeadOne, rt::acq_rel)) continue;
      rt::Atomic<void*>& slot = slots_[(head(ends) - 1) & (size_ - 1)];
      void* item = slot.load(rt::relaxed);  // we stored it, and own it again
      slot.store(nullptr, rt::relaxed);
      return item;
    }
  }

  // PopTail removes the item pushed first, or returns nullptr if there is none.
  // Any thread may call it.
  void* PopTail() noexcept {
    // Acquire: pairs with the add in PushHead.
    uint64_t ends = ends_.load(rt::acquire);
    for (;;) {
      if (head(ends) == tail(ends)) return nullptr;
      // Only the half of the tail may change, without a carry into the head.
      const uint64_t next =
          (ends & ~uint64_t{UINT32_MAX}) | uint32_t{tail(ends) + 1};
      // Release: pairs with the load in PushHead. Acquire: pairs with the add
      // in PushHead. Since we loaded ends_, the producer may have popped this
      // index and pushed it again.
      if (!ends_.cas(ends, next, rt::acq_rel)) {
        ends = ends_.load(rt::acquire);  // as above
        continue;
      }
      rt::Atomic<void*>& slot = slots_[tail(ends) & (size_ - 1)];
      void* item = slot.load(rt::relaxed);  // ordered by the CAS
      // Release: from here on the producer may use the slot. Pairs with the
      // load in PushHead.
      slot.store(nullptr, rt::release);
      return item;
    }
  }

  PoolRing* older = nullptr;    // half the size; set before publication
  rt::Atomic<PoolRing*> newer;  // twice the size; set once, by the producer

 private:
  PoolRing(rt::Atomic<void*>* slots, uint32_t size) noexcept
      : slots_(slots), size_(size) {}

  // ends_:  | head : 32, next slot to fill | tail : 32, first full slot |
  // The indexes are not reduced: slot = index % size. They share one word, so
  // that the last item is not taken at both ends.
  static constexpr uint64_t kHeadOne = uint64_t{1} << 32;
  static uint32_t head(uint64_t ends) {
    return static_cast<uint32_t>(ends >> 32);
  }
  static uint32_t tail(uint64_t ends) { return static_cast<uint32_t>(ends); }

  rt::Atomic<uint64_t> ends_;
  rt::Atomic<void*>* const slots_;
  const uint32_t size_;
};

// PoolChain is a queue without a limit: rings, each twice the size of the one
// before. Like a ring, it has one producer and any number of thieves.
class PoolChain {
 public:
  // PushHead adds item and returns 0. If the newest ring is full, it adds the
  // ring *spare to the chain, and sets *spare to nullptr. If *spare is null or
  // too small for that, it adds nothing and returns the size of the ring that
  // it needs.
  uint32_t PushHead(void* item, PoolRing** spare) noexcept {
    if (head_ != nullptr && head_->PushHead(item)) return 0;
    uint32_t size = PoolRing::kMinSize;
    if (head_ != nullptr) {
      size = head_->size() < PoolRing::kMaxSize ? 2 * head_->size()
                                                : PoolRing::kMaxSize;
    }
    PoolRing* ring = *spare;
    if (ring == nullptr || ring->size() < size) return size;
    *spare = nullptr;
    static_cast<void>(ring->PushHead(item));  // it is empty
    ring->older = head_;
    // Release: each store publishes the ring, to a thief that comes along the
    // chain, or from its start.
    if (head_ != nullptr) {
      head_->newer.store(ring, rt::release);
    } else {
      tail_.store(ring, rt::release);
    }
    head_ = ring;
    return 0;
  }

  // PopHead removes the item pushed last, or returns nullptr if there is none.
  // Only the producer calls it.
  void* PopHead() noexcept {
    for (PoolRing* r = head_; r != nullptr; r = r->older) {
      if (void* item = r->PopHead()) return item;
    }
    return nullptr;
  }

  // PopTail removes the item pushed first, or returns nullptr if it saw none.
  // Any thread may call it.
  void* PopTail() noexcept {
    PoolRing* r = tail_.load(rt::acquire);  // pairs with PushHead, and the CAS
    while (r != nullptr) {
      // Load newer before looking into the ring. A ring that has a successor
      // gets no more items. So if it is then found empty, it stays empty.
      // Acquire: pairs with PushHead.
      PoolRing* newer = r->newer.load(rt::acquire);
      if (void* item = r->PopTail()) return item;
      if (newer == nullptr) return nullptr;
      // Release: passes on all that we acquired of the newer ring. The old one
      // stays (I2).
      static_cast<void>(tail_.cas(r, newer, rt::release));
      r = newer;
    }
    return nullptr;
  }

  // Take moves the rings out and returns the newest. Requires: no thread is
  // using them.
  PoolRing* Take() noexcept {
    tail_.store(nullptr, rt::relaxed);  // no thread is using it
    return std::exchange(head_, nullptr);
  }

 private:
  PoolRing* head_ = nullptr;    // newest; the producer's
  rt::Atomic<PoolRing*> tail_;  // oldest that may hold something
};

}  // namespace gump::sync::internal

#endif  // API_SYNC_POOL_RING_H_
