// PoolCore: the mechanism of sync::Pool. gump/sync/pool.h describes its
// purpose, and api/sync/pool.cc its algorithm.
#ifndef GUMP_INTERNAL_POOL_CORE_H_
#define GUMP_INTERNAL_POOL_CORE_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/atomic.h"
#include "gump/sync/mutex.h"

#pragma GCC visibility push(default)

namespace gump::sync::internal {

struct PoolLocal;
struct PoolGarbage;

// PoolItems is a stack of items. PoolCore is part of the programs' classes, so
// it has no container of the standard library as a member. With
// -D_GLIBCXX_DEBUG, those have another size in the program than in the library.
struct PoolItems {
  void** items = nullptr;
  size_t size = 0;
  size_t capacity = 0;

  [[nodiscard]] bool Push(void* item) noexcept;   // false: no memory
  void* Pop() noexcept { return items[--size]; }  // Requires: size is not 0.
};

// PoolCore is a pool of pointers, and so the same for every T.
class PoolCore {
 public:
  explicit constexpr PoolCore(void (*destroy)(void*)) noexcept
      : destroy_(destroy) {}
  ~PoolCore();  // Requires: no goroutine or thread is using the pool.
  PoolCore(const PoolCore&) = delete;
  PoolCore& operator=(const PoolCore&) = delete;

  [[nodiscard]] void* Get() noexcept;  // returns nullptr if it finds no item
  void Put(void* item) noexcept;       // Requires: item is not nullptr.

 private:
  friend struct PoolRegistry;
  // Segment k holds the slots of the 2^k Ps with id + 1 in [2^k, 2^(k+1)). It
  // is made when a P of that range first needs it, and it stays until the end.
  // So slots never move when GOMAXPROCS changes.
  static constexpr size_t kSegments = 11;  // for 2,047 Ps

  PoolLocal* Local(uint32_t pid) const noexcept;
  bool Grow(uint32_t pid) noexcept;
  void* GetSlow(uint32_t pid, uint32_t phase) noexcept;
  void* Steal(uint32_t first, uint32_t generation) noexcept;
  void* GetShared(bool may_steal) noexcept;
  void PutShared(void* item) noexcept;
  [[nodiscard]] bool DetachNext(PoolGarbage* out) noexcept;

  rt::Atomic<PoolLocal*> segments_[kSegments];  // nullptr until Grow
  rt::Atomic<uint32_t> limit_;  // slots beyond it are unused; it only grows
  // Bit 0 is the index of the primary generation. Bit 1 is set if items may be
  // taken from the other generation, the victims. Written by the registry.
  rt::Atomic<uint32_t> phase_;

  // Guards shared_, and keeps DetachNext from running at the same time as a
  // plain thread.
  Mutex shared_mu_;
  PoolItems shared_[2];           // items of plain threads, by generation
  rt::Atomic<uint32_t> nshared_;  // their number; written under shared_mu_

  void (*const destroy_)(void*);
  // The registry's list of pools. The registry's lock guards it and all members
  // below.
  PoolCore* next_ = nullptr;
  PoolCore* prev_ = nullptr;
  rt::Atomic<bool> registered_;  // set once, under the registry's lock
  // The slot from which the registry's round will detach the victims next.
  static constexpr uint32_t kNotRetiring = UINT32_MAX;
  uint32_t retire_next_ = kNotRetiring;
};

}  // namespace gump::sync::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_POOL_CORE_H_
