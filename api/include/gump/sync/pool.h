// sync::Pool: a cache of objects that are expensive to make and cheap to clean.
//
//   sync::Pool<std::string> buffers{
//       [] { return std::make_unique<std::string>(); }};
//   void Reply(Conn& c) {
//     std::unique_ptr<std::string> b = buffers.Get();
//     b->clear();
//     …
//     buffers.Put(std::move(b));
//   }
//
// Get returns some object that was Put, or a new one. The pool does not promise
// which object it returns, or how long it keeps one. An object belongs to the
// pool between Put and Get, and to the caller otherwise. The pool deletes the
// objects that it drops, at an arbitrary time and on an arbitrary goroutine.
//
// Each P has its own cache, so goroutines on different Ps do not contend. When
// that cache is empty, Get takes from the caches of the others. Plain threads
// share one cache, behind a lock.
//
// Objects age with the reclamation cycles. A cycle runs when the program calls
// runtime::GC() or debug::FreeOSMemory(), and by itself two minutes after the
// last. Each cycle drops the objects that were not used since the last cycle.
// The objects that were put since then are the candidates for the next cycle.
// So an object that no Get takes survives one cycle but not two.
//
// Get and Put park at most for the lock that plain threads share, and never
// for long.
//
// Memory ordering: a Put happens before the Get that returns its object.
//
// The algorithm is that of Go's sync.Pool; see api/sync/pool.cc.
#ifndef GUMP_SYNC_POOL_H_
#define GUMP_SYNC_POOL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gump/internal/atomic.h"
#include "gump/sync/mutex.h"

namespace gump::sync {

namespace internal {

struct PoolLocal;
struct PoolGarbage;

// PoolCore is a pool of pointers. It is the same for every type.
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
  static constexpr size_t kSegments = 11;  // 1,024 Ps and some

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

  Mutex shared_mu_;  // guards shared_, and keeps Detach away from plain threads
  std::vector<void*> shared_[2];  // items of plain threads, by generation
  rt::Atomic<uint32_t> nshared_;  // their number; written under shared_mu_

  void (*const destroy_)(void*);
  // The registry's list. The registry's lock guards it and all that follows.
  PoolCore* next_ = nullptr;
  PoolCore* prev_ = nullptr;
  rt::Atomic<bool> registered_;  // set once, under the registry's lock
  // The next slot from which the registry's round has to detach the victims.
  static constexpr uint32_t kNotRetiring = UINT32_MAX;
  uint32_t retire_next_ = kNotRetiring;
};

}  // namespace internal

// Pool<T> caches objects of type T. All functions may be called from goroutines
// and from plain threads.
template <class T>
class Pool {
 public:
  // Makes a pool. When it is empty, Get returns nullptr.
  Pool() : Pool(std::function<std::unique_ptr<T>()>()) {}
  // Makes a pool. When it is empty, Get calls make().
  explicit Pool(std::function<std::unique_ptr<T>()> make)
      : New(std::move(make)),
        core_([](void* p) { delete static_cast<T*>(p); }) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Get takes an object out of the pool. If the pool is empty, it returns
  // New(), or nullptr if New is empty. Throws what New throws.
  [[nodiscard]] std::unique_ptr<T> Get() {
    if (void* p = core_.Get()) [[likely]] {
      return std::unique_ptr<T>(static_cast<T*>(p));
    }
    return New ? New() : nullptr;
  }

  // Put gives an object to the pool. If the pool has no memory to keep it, it
  // deletes the object at once. nullptr is ignored.
  void Put(std::unique_ptr<T> item) {
    if (item != nullptr) core_.Put(item.release());
  }

  // Makes an object when the pool is empty. Set it before the first Get.
  std::function<std::unique_ptr<T>()> New;

 private:
  internal::PoolCore core_;
};

}  // namespace gump::sync

#endif  // GUMP_SYNC_POOL_H_
