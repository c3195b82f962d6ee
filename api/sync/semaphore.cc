// sync::Semaphore. A Waiter is a record on the stack of a goroutine or thread
// that waits. It has a channel that is closed when the waiter has its units.
//
// Invariants:
//  (S1) A waiter is in the list, or granted. The units of a granted waiter
//       count as held. Both change with mu_ held.
//  (S2) Granted waiters are told after mu_ is unlocked, from a list that only
//       the thread that granted them has. So a waiter that finds itself granted
//       waits until it is told. Release touches nothing of the Semaphore once a
//       waiter may go on.
#include "gump/sync/semaphore.h"

#include <utility>

#include "gump/panic.h"
#include "gump/select.h"

namespace gump::sync {

struct Semaphore::Waiter {
  explicit Waiter(int64_t units) : n(units), ready(make_chan<void>()) {}

  // Tell wakes the waiters of a list that Grant has returned.
  static void Tell(Waiter* w) {
    while (w != nullptr) {
      Waiter* next = w->next;
      const chan<void> c = w->ready;  // a copy: w is gone once it is awake
      c.Close();
      w = next;
    }
  }

  const int64_t n;
  const chan<void> ready;
  bool granted = false;
  Waiter* prev = nullptr;
  Waiter* next = nullptr;  // in the semaphore's list, or in a list of Grant
};

namespace {

void CheckWeight(int64_t n) {
  if (n < 0) panic("semaphore: negative weight");
}

bool IsDone(const recv_chan<void>& done) {
  return done.TryRecv().kind == RecvResult<void>::kClosed;
}

}  // namespace

// AcquireUnless takes n units. Returns false, and takes nothing, if done was
// closed.
bool Semaphore::AcquireUnless(const recv_chan<void>& done, int64_t n) {
  CheckWeight(n);
  if (IsDone(done)) return false;
  mu_.Lock();
  if (size_ - held_ >= n && first_ == nullptr) {
    held_ += n;
    mu_.Unlock();
    return true;
  }
  mu_.Unlock();
  if (n > size_) {  // queueing in vain would make others wait behind this
    (void)done.Recv();
    return false;
  }
  return Wait(done, n);
}

// Wait is AcquireUnless for a caller that has found that it probably must wait.
bool Semaphore::Wait(const recv_chan<void>& done, int64_t n) {
  Waiter w(n);  // allocates, so with no lock held
  mu_.Lock();
  w.prev = last_;
  (last_ != nullptr ? last_->next : first_) = &w;
  last_ = &w;
  Waiter* granted = Grant();  // units may have come back in between
  mu_.Unlock();
  Waiter::Tell(granted);

  select(Recv(w.ready, [] {}), Recv(done, [] {}));
  if (!IsDone(done)) return true;
  Withdraw(&w);
  return false;
}

// Withdraw takes a waiter out of the list, or releases the units granted to it.
void Semaphore::Withdraw(Waiter* w) {
  mu_.Lock();
  if (!w->granted) {
    Unlink(w);
    Waiter* granted = Grant();  // w may have blocked smaller requests
    mu_.Unlock();
    Waiter::Tell(granted);
    return;
  }
  mu_.Unlock();
  (void)w->ready.Recv();  // (S2)
  Release(w->n);
}

bool Semaphore::TryAcquire(int64_t n) {
  CheckWeight(n);
  mu_.Lock();
  const bool ok = size_ - held_ >= n && first_ == nullptr;
  if (ok) held_ += n;
  mu_.Unlock();
  return ok;
}

void Semaphore::Release(int64_t n) {
  CheckWeight(n);
  mu_.Lock();
  if (held_ < n) {
    mu_.Unlock();
    panic("semaphore: released more than held");
  }
  held_ -= n;
  Waiter* granted = Grant();
  mu_.Unlock();
  Waiter::Tell(granted);
}

// Grant gives free units to the waiters at the head of the list. Returns the
// list of waiters that got their units and have to be told. mu_ is held. A
// waiter never overtakes the first one, however few units it wants. Otherwise a
// stream of small requests would keep a large one waiting for ever.
Semaphore::Waiter* Semaphore::Grant() noexcept {
  Waiter* granted = nullptr;
  Waiter** end = &granted;
  while (first_ != nullptr && size_ - held_ >= first_->n) {
    Waiter* w = first_;
    Unlink(w);
    held_ += w->n;
    w->granted = true;
    *end = w;
    end = &w->next;
  }
  return granted;
}

// Unlink takes w out of the list. mu_ is held.
void Semaphore::Unlink(Waiter* w) noexcept {
  (w->prev != nullptr ? w->prev->next : first_) = w->next;
  (w->next != nullptr ? w->next->prev : last_) = w->prev;
  w->prev = w->next = nullptr;
}

}  // namespace gump::sync
