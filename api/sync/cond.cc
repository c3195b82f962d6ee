// sync::Cond, on the notification lists of runtime/wait/notify_list.cc. A
// waiter draws its ticket while it holds L. So each Signal by a later holder of
// L counts this waiter in, even before the waiter sleeps. No wake-up between
// Unlock and sleep is lost.
//
// A context wakes the waiters by a Broadcast in a goroutine of its own, which
// does not hold L. CondWatch::Wait first draws its ticket and then reads
// `done`. That goroutine first sets `done` and then broadcasts. Both access
// `done` under the mutex of Shared. So either the waiter sees `done`, or the
// Broadcast sees the ticket. The goroutine may run when the Wait is over and
// the Cond is gone. For this case the destructor of CondWatch clears
// Shared::cond, under that mutex.
#include "gump/sync/cond.h"

#include <memory>
#include <mutex>

#include "gump/context.h"
#include "gump/internal/linkname_sync.h"
#include "gump/sync/mutex.h"

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

namespace gump::internal {

struct CondWatch::Shared {
  sync::Mutex mu;  // guards the rest; may be locked while L is held
  sync::Cond* cond;
  bool done = false;
};

CondWatch::CondWatch(sync::Cond* cond, const context::Context& ctx)
    : shared_(std::make_shared<Shared>()) {
  shared_->cond = cond;
  shared_->done = !ctx.Err().ok();
  if (shared_->done) return;
  stop_ = context::AfterFunc(ctx, [shared = shared_] {
    std::scoped_lock hold(shared->mu);
    shared->done = true;
    if (shared->cond != nullptr) shared->cond->Broadcast();
  });
}

CondWatch::~CondWatch() {
  stop_();
  std::scoped_lock hold(shared_->mu);
  shared_->cond = nullptr;
}

bool CondWatch::Wait() {
  sync::Cond* cond = shared_->cond;  // only the destructor changes it
  const uint32_t ticket = rt::notifyListAdd(&cond->notify_);
  bool done;
  {
    std::scoped_lock hold(shared_->mu);
    done = shared_->done;
  }
  // A ticket that is left behind would use up a later Signal. After this
  // Broadcast the wait below returns at once.
  if (done) cond->Broadcast();
  cond->L.Unlock();
  rt::notifyListWait(&cond->notify_, ticket);
  cond->L.Lock();
  return !done;
}

}  // namespace gump::internal
