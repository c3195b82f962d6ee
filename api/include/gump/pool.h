// sync::Pool: a cache of objects that are dear to make and cheap to clean.
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
// Get may return any object that was Put, or a new one: nothing is said about
// which, or how long the pool keeps an object. An object belongs to the pool
// between Put and Get, and to the caller otherwise; the pool deletes what it
// drops, at an arbitrary time, on an arbitrary goroutine.
//
// Each P has its own cache, so that goroutines on different Ps do not meet; an
// empty cache takes from the others. Plain threads share one cache, behind a
// lock. At each reclamation cycle (a call of runtime::GC() or
// debug::FreeOSMemory(); one comes by itself two minutes after the last) what
// was not used since the last cycle is dropped, and what was put since then
// becomes the candidate for the next: an object that nobody gets survives one
// cycle and not two.
//
// Neither Get nor Put parks for long: they do at most for the lock that plain
// threads share.
//
// Memory ordering: a Put happens before the Get that returns its object.
//
// The algorithm is that of Go's sync.Pool; see api/pool.cc.
#ifndef GUMP_POOL_H_
#define GUMP_POOL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gump/internal/linkname.h"
#include "gump/mutex.h"

namespace gump::sync {

namespace internal {

struct PoolLocal;
struct PoolGarbage;

// PoolCore is a pool of pointers, the same for every type.
class PoolCore {
 public:
  explicit constexpr PoolCore(void (*destroy)(void*)) noexcept
      : destroy_(destroy) {}
  ~PoolCore();  // nobody may be using the pool
  PoolCore(const PoolCore&) = delete;
  PoolCore& operator=(const PoolCore&) = delete;

  [[nodiscard]] void* Get() noexcept;  // nullptr: empty
  void Put(void* item) noexcept;       // item is not nullptr

 private:
  friend struct PoolRegistry;
  // Segment k holds the slots of the 2^k Ps with id + 1 in [2^k, 2^(k+1)). It
  // is made when a P of that range first needs it and stays until the end, so
  // that slots never move while GOMAXPROCS changes.
  static constexpr size_t kSegments = 11;  // 1,024 Ps and some

  PoolLocal* Local(uint32_t pid) const noexcept;
  bool Grow(uint32_t pid) noexcept;
  void* GetSlow(uint32_t pid, uint32_t phase) noexcept;
  void* Steal(uint32_t first, uint32_t generation) noexcept;
  void* GetShared(bool may_steal) noexcept;
  void PutShared(void* item) noexcept;
  [[nodiscard]] bool DetachNext(PoolGarbage* out) noexcept;

  rt::Atomic<PoolLocal*> segments_[kSegments];  // nullptr until Grow
  rt::Atomic<uint32_t> limit_;  // slots beyond are unused; only grows
  // Which generation is the primary one (bit 0), and whether the other one, the
  // victims, may be taken from (bit 1). Written by the registry.
  rt::Atomic<uint32_t> phase_;

  Mutex shared_mu_;  // guards shared_, and keeps Detach away from plain threads
  std::vector<void*> shared_[2];  // of plain threads, by generation
  rt::Atomic<uint32_t> nshared_;  // their number; written under shared_mu_

  void (*const destroy_)(void*);
  PoolCore* next_ = nullptr;  // registry; guarded by its lock, like the rest
  PoolCore* prev_ = nullptr;
  rt::Atomic<bool> registered_;  // set once, under that lock
  // The next slot whose victims a round has to detach.
  static constexpr uint32_t kNotRetiring = UINT32_MAX;
  uint32_t retire_next_ = kNotRetiring;
};

}  // namespace internal

// Pool<T> caches objects of type T. All functions may be called from goroutines
// and from plain threads.
template <class T>
class Pool {
 public:
  // A pool whose Get returns nullptr when it is empty.
  Pool() : Pool(std::function<std::unique_ptr<T>()>()) {}
  // A pool whose Get calls make() when it is empty.
  explicit Pool(std::function<std::unique_ptr<T>()> make)
      : New(std::move(make)),
        core_([](void* p) { delete static_cast<T*>(p); }) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Get takes an object out of the pool; failing that, New(); failing that,
  // nullptr. Throws what New throws.
  [[nodiscard]] std::unique_ptr<T> Get() {
    if (void* p = core_.Get()) [[likely]] {
      return std::unique_ptr<T>(static_cast<T*>(p));
    }
    return New ? New() : nullptr;
  }

  // Put gives an object to the pool, which deletes it at once if it has no
  // memory to keep it. nullptr is ignored.
  void Put(std::unique_ptr<T> item) {
    if (item != nullptr) core_.Put(item.release());
  }

  // Makes an object when there is none. To be set before the first Get.
  std::function<std::unique_ptr<T>()> New;

 private:
  internal::PoolCore core_;
};

}  // namespace gump::sync

#endif  // GUMP_POOL_H_
