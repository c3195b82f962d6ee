// The slow path of sync::Once. The first caller runs f with mu_ held, and the
// others wait for mu_. done_ is set after f has ended, not before, because a
// caller on the fast path must find all that f did.
#include "gump/sync/once.h"

#include "gump/internal/atomic.h"

namespace gump::sync {

void Once::DoSlow(void (*call)(void*), void* f) {
  // Destructors, because f may leave by an exception or by Goexit.
  struct Unlock {
    Mutex& mu;
    ~Unlock() { mu.Unlock(); }
  };
  struct SetDone {
    rt::Atomic<uint32_t>& done;
    ~SetDone() { done.store(1, rt::release); }  // pairs with the load in Do
  };
  mu_.Lock();
  Unlock unlock{mu_};
  if (done_.load(rt::relaxed) != 0) return;  // written under mu_
  SetDone set_done{done_};
  call(f);
}

}  // namespace gump::sync
