// sync::Cond over the notification lists of runtime/sema.cc. The ticket is
// drawn while L is held, so every Signal that follows in the order of L counts
// this waiter in, even before it sleeps: no wake-up between Unlock and sleep is
// lost.
#include "gump/cond.h"

#include "gump/internal/linkname.h"

namespace gump::sync {

void Cond::Wait() {
  const uint32_t ticket = rt::notifyListAdd(&notify_);
  L.Unlock();
  rt::notifyListWait(&notify_, ticket);
  L.Lock();
}

void Cond::Signal() noexcept { rt::notifyListNotifyOne(&notify_); }

void Cond::Broadcast() noexcept { rt::notifyListNotifyAll(&notify_); }

}  // namespace gump::sync
