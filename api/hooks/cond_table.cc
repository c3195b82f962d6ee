// A goroutine of a home does not wait in libc's condition variable. It has an
// entry under the variable's address in a table of the hooks:
//
//   waiter (on a home)                  signaller (any thread)
//     C1  the bucket's waiters++          S1  libc's signal
//     C2  entry into the table            S2  no waiters? done
//     C3  unlock the mutex (libc)         S3  take one entry, or all, out of
//     C4  park                                the table, and wake them
//     C5  out of the table, if still in
//     C6  lock the mutex (libc)
//
// No wake-up is lost. By POSIX, a thread counts as waiting for a thread that
// takes the mutex after the waiter has given it back. Such a signaller comes
// after C3, so S2 sees C1, and S3 finds the entry of C2. A signal wakes one
// thread that waits in libc and one entry, so one waiter more than it must.
// POSIX allows that.
//
// A signal is not used up by a waiter whose time is over: C5 is under the lock
// of the table. If the entry is gone, a signaller has taken it, and the waiter
// returns 0.
//
// After S3 the signaller does not touch the variable, so the waiter may destroy
// it.
#include "api/hooks/cond_table.h"

#include <cstddef>

#include "api/hooks/waking.h"
#include "gump/internal/linkname_sync.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/threadhooks.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/tls.h"

namespace gump::hooks {

struct alignas(64) CondWaiter::Bucket {
  void Link(CondWaiter* w);
  void Unlink(CondWaiter* w);

  // Guards the list of waiters. Forbidden while holding it: malloc, readying a
  // goroutine.
  rt::Mutex lock{rt::LockRank::kLeaf};
  rt::Atomic<int64_t> waiters;
  CondWaiter* first = nullptr;  // in order of arrival
  CondWaiter* last = nullptr;
};

void CondWaiter::Bucket::Link(CondWaiter* w) {
  w->queued_ = true;
  w->prev_ = last;
  (last == nullptr ? first : last->next_) = w;
  last = w;
}

void CondWaiter::Bucket::Unlink(CondWaiter* w) {
  w->queued_ = false;
  (w->prev_ == nullptr ? first : w->prev_->next_) = w->next_;
  (w->next_ == nullptr ? last : w->next_->prev_) = w->prev_;
}

CondWaiter::Bucket* CondWaiter::BucketOf(const void* cond) {
  constexpr size_t kBuckets = 251;
  static constinit Bucket buckets[kBuckets];
  return &buckets[(reinterpret_cast<uintptr_t>(cond) >> 4) % kBuckets];
}

// ---- Waiting ----------------------------------------------------------------

CondWaiter::CondWaiter(const void* cond) : cond_(cond) {
  Bucket* b = BucketOf(cond_);
  b->waiters.add(1, rt::seq_cst);  // C1
  const Waking here;
  rt::lock(&b->lock);
  b->Link(this);  // C2
  rt::unlock(&b->lock);
}

void CondWaiter::Wait() {
  rt::semacquire(&woken_, /*lifo=*/false, rt::SemaReason::kCondWait);
  BucketOf(cond_)->waiters.add(-1, rt::relaxed);
}

bool CondWaiter::WaitUntil(int64_t when) {
  if (!rt::semacquireUntil(&woken_, /*lifo=*/false, rt::SemaReason::kCondWait,
                           when)) {
    return false;
  }
  BucketOf(cond_)->waiters.add(-1, rt::relaxed);
  return true;
}

bool CondWaiter::Leave() {
  Bucket* b = BucketOf(cond_);
  bool queued;
  {
    const Waking here;
    rt::lock(&b->lock);
    queued = queued_;
    if (queued) b->Unlink(this);  // C5
    rt::unlock(&b->lock);
  }
  if (!queued) {
    Wait();  // the signaller is about to wake us
    return false;
  }
  b->waiters.add(-1, rt::relaxed);
  return true;
}

// ---- Signalling -------------------------------------------------------------

bool CondIsAwaited(const void* cond) {
  CondWaiter::Bucket* b = CondWaiter::BucketOf(cond);
  const rt::LockScope l(&b->lock);
  for (const CondWaiter* w = b->first; w != nullptr; w = w->next_) {
    if (w->cond_ == cond) return true;
  }
  return false;
}

namespace {

// DieIfInThreadHook ends the process if the caller is a thread hook of the
// program. A hook can ready no goroutine, so its signal would be lost.
void DieIfInThreadHook(const void* cond) {
  const rt::G* gp = rt::getg();
  if (!rt::inOwnProcess() || gp == nullptr || !rt::inThreadHook(gp->m)) return;
  if (CondIsAwaited(cond)) rt::dieInThreadHook();
}

}  // namespace

void CondSignalled(const void* cond, bool all) {
  CondWaiter::Bucket* b = CondWaiter::BucketOf(cond);
  if (b->waiters.load(rt::seq_cst) == 0) return;  // S2
  CondWaiter* taken = nullptr;
  CondWaiter** end = &taken;
  const Waking here;
  if (here.inside()) return DieIfInThreadHook(cond);
  rt::lock(&b->lock);
  for (CondWaiter *w = b->first, *next; w != nullptr; w = next) {  // S3
    next = w->next_;
    if (w->cond_ != cond) continue;
    b->Unlink(w);
    w->next_ = nullptr;
    *end = w;
    end = &w->next_;
    if (!all) break;
  }
  rt::unlock(&b->lock);
  while (taken != nullptr) {
    CondWaiter* w = taken;
    taken = w->next_;  // w is gone when it is awake
    rt::semrelease(&w->woken_, /*handoff=*/false);
  }
}

}  // namespace gump::hooks
