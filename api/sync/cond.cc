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

// A TimedWaiter is in the list from its construction on, so before L is
// unlocked. Whether it is woken or its time passes is decided under the list's
// lock; runtime/wait/notify_list.cc has the argument.
class Cond::TimedWaiter {
 public:
  explicit TimedWaiter(Cond* cond) : cond_(cond) {
    rt::notifyListEnter(&cond_->notify_, &waiter_);
  }
  // If L.Unlock() throws, the caller does not wait, and a Signal that has found
  // it is for another.
  ~TimedWaiter() {
    if (!waited_ && !Leave()) cond_->Signal();
  }
  TimedWaiter(const TimedWaiter&) = delete;
  TimedWaiter& operator=(const TimedWaiter&) = delete;

  // Wait returns whether the waiter has been woken before the time `when`.
  bool Wait(int64_t when) {
    waited_ = true;
    return rt::semacquireUntil(&waiter_.woken, /*lifo=*/false,
                               rt::SemaReason::kCondWait, when) ||
           !Leave();
  }

 private:
  // Leave takes the waiter out of the list. If a notifier has done so, it waits
  // for that notifier, and returns false.
  bool Leave() {
    if (rt::notifyListLeave(&cond_->notify_, &waiter_)) return true;
    rt::semacquire(&waiter_.woken, /*lifo=*/false, rt::SemaReason::kCondWait);
    return false;
  }

  Cond* const cond_;
  rt::NotifyWaiter waiter_;
  bool waited_ = false;
};

bool Cond::WaitBy(int64_t when) {
  bool woken;
  {
    TimedWaiter waiter(this);
    L.Unlock();
    woken = waiter.Wait(when);
  }
  L.Lock();
  return woken;
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
