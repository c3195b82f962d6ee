// A sync::Pool is a cache of objects that are expensive to make and cheap to
// clean.
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
// objects that it drops, at an arbitrary time and on an arbitrary goroutine or
// thread.
//
// Each P has its own cache, so goroutines on different Ps do not contend. When
// that cache is empty, Get takes from the caches of the others. Plain threads
// share one cache, behind a lock.
//
// Objects age with the reclamation cycles. A cycle runs when the program calls
// runtime::GC() or debug::FreeOSMemory(), and by itself two minutes after the
// last. An object that no Get takes survives the first cycle after its Put. The
// second cycle drops it.
//
// Get and Put park at most for the lock that plain threads share, and only for
// a few instructions.
//
// Requires: no goroutine or thread uses a pool that is being destroyed. The
// objects that are left are deleted with the pool.
//
// Memory ordering: a Put happens before the Get that returns its object.
//
// The algorithm is that of Go's sync.Pool; see api/sync/pool.cc.
#ifndef GUMP_SYNC_POOL_H_
#define GUMP_SYNC_POOL_H_

#include <functional>
#include <memory>
#include <utility>

#include "gump/internal/pool_core.h"

#pragma GCC visibility push(default)

namespace gump::sync {

// Pool<T> caches objects of type T. All functions may be called from goroutines
// and from plain threads. A Pool is never copied or moved.
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

  // Put gives an object to the pool. If there is no memory to keep the object,
  // the pool deletes it at once. nullptr is ignored.
  void Put(std::unique_ptr<T> item) {
    if (item != nullptr) core_.Put(item.release());
  }

  // New makes an object when the pool is empty. Requires: it is set before the
  // first Get.
  std::function<std::unique_ptr<T>()> New;

 private:
  internal::PoolCore core_;
};

}  // namespace gump::sync

#pragma GCC visibility pop

#endif  // GUMP_SYNC_POOL_H_
