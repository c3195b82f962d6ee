// The slow paths of sync::RWMutex. The state word is described in
// gump/sync/rwmutex.h.
//
// A writer first excludes the other writers (w_). It then closes the lock: it
// sets kClosed, and waits for as many readers as there were at that moment. To
// do so it writes the number of these readers, negated, to the upper half, in
// which readers count up when they leave, and sets kCounted. A reader changes
// both halves in one addition. So exactly one reader, the last, finds in the
// result of its own addition that the upper half is 0, and wakes the writer. It
// does not look at the object again, which may be gone once the writer is
// awake.
//
// Between the two steps (closed, not counted) readers that leave wake no
// writer. The upper half has counted them, so the writer subtracts them in the
// second step. That step is a CAS, which others make fail. But when the lock is
// closed, each reader makes it fail at most twice: it leaves, and comes again
// to wait. If the writer finds no reader, it does both steps in one CAS.
//
// Readers that come while the lock is closed are counted, and wait on
// reader_sem_. When the writer opens the lock again they hold it, and the next
// writer waits for them. So while kCounted is set, the readers that wait are
// the lower count less the number of those that must still leave.
//
// Unlike Go, Unlock lets writers in (w_) before it wakes the readers. As soon
// as Unlock has opened the lock, a new reader may get in, and destroy the
// object. After that moment Unlock touches the object only to unlock w_. The
// destructor can wait for that (WaitForUnlock). The order of the
// critical sections is the same as in Go: the next writer waits for the readers
// that are being woken.
//
// Go has two words, from which no writer can tell how many of the readers hold
// the lock and how many wait. So a writer could not give up.
//
// A writer gives up with one CAS, which opens the lock again. If the last
// reader has left, it is about to wake the writer, which waits for that and has
// the lock. No other thread waits on writer_sem_, because w_ is held.
//
// A reader that waits gives up with a CAS that subtracts it from those that
// wait. Let T be the number of threads in RLockSlow, W the number of those that
// wait according to the word, and C the number of wake-ups that have been
// promised and not consumed. Then T = W + C. If W > 0, the reader subtracts
// itself, and the other T - 1 threads consume the C wake-ups, which are bound
// to no thread. If W == 0, each of the T threads has a wake-up, and this one
// waits for its own, and then has the lock. A reader that comes later may take
// that wake-up and be counted in W instead, so the reader waits for a moment at
// a time (kMoment) and looks again. It also does so between the two steps of a
// writer, when W is not known.
#include "gump/sync/rwmutex.h"

#include "gump/internal/linkname_panic.h"
#include "gump/internal/linkname_runtime.h"
#include "gump/internal/linkname_sync.h"

namespace gump::sync {

void RWMutex::RLockSlow() noexcept {
  rt::semacquire(&reader_sem_, /*lifo=*/false, rt::SemaReason::kRWMutexRLock);
}

bool RWMutex::TryRLock() noexcept {
  uint64_t v = state_.load(rt::relaxed);  // a guess; the CAS decides
  while (!Closed(v)) {
    // Acquire: pairs with the release in Unlock.
    if (state_.casWeak(v, v + kReader, rt::acquire)) return true;
  }
  return false;
}

bool RWMutex::RLockFor(int64_t ns) noexcept {
  constexpr auto kReason = rt::SemaReason::kRWMutexRLock;
  if (ns <= 0) return false;
  const int64_t when = rt::semaDeadline(kReason, ns);
  // Acquire: as in RLock.
  if (!Closed(state_.add(kReader, rt::acquire))) return true;
  if (rt::semacquireUntil(&reader_sem_, /*lifo=*/false, kReason, when)) {
    return true;
  }
  while (!RGiveUp()) {
    if (rt::semacquireUntil(&reader_sem_, /*lifo=*/true, kReason,
                            rt::semaDeadline(kReason, Mutex::kMoment))) {
      return true;
    }
  }
  return false;
}

// RGiveUp subtracts the caller from the readers that wait. Returns false if a
// wake-up is, or may be, on its way to the caller.
bool RWMutex::RGiveUp() noexcept {
  uint64_t v = state_.load(rt::relaxed);  // a guess; the CAS decides
  while (Closed(v) && (v & kCounted) != 0 && Readers(v) > ToLeave(v)) {
    // Relaxed: a caller that has not got the lock is ordered by nothing.
    if (state_.casWeak(v, v - kReader, rt::relaxed)) return true;
  }
  return false;
}

// RUnlockSlow completes an RUnlock that found `old`.
void RWMutex::RUnlockSlow(uint64_t old) noexcept {
  if (Readers(old) == 0) rt::fatalError("sync: RUnlock of unlocked RWMutex");
  if ((old & kCounted) == 0 || ToLeave(old) != 1) return;
  rt::semrelease(&writer_sem_, /*handoff=*/false);
}

void RWMutex::Lock() noexcept {
  w_.Lock();
  (void)Close(Mutex::kNever);
}

bool RWMutex::TryLock() noexcept {
  if (!w_.TryLock()) return false;
  uint64_t v = state_.load(rt::relaxed);  // a guess; the CAS decides
  while (Readers(v) == 0) {
    // Acquire: pairs with the release in RUnlock and Unlock.
    if (state_.casWeak(v, kClosed | kCounted, rt::acquire)) return true;
  }
  w_.Unlock();
  return false;
}

bool RWMutex::LockFor(int64_t ns) noexcept {
  if (ns <= 0) return false;
  const int64_t when = rt::semaDeadline(rt::SemaReason::kRWMutexLock, ns);
  return (w_.TryLock() || w_.LockUntil(when)) && Close(when);
}

// Close closes the lock and waits until its readers have left. Returns false if
// the time `when` has come before that. The lock is then open again, and w_
// unlocked.
bool RWMutex::Close(int64_t when) noexcept {
  constexpr auto kReason = rt::SemaReason::kRWMutexLock;
  uint64_t v = state_.load(rt::relaxed);  // a guess; the CAS decides
  // Acquire, also below: pairs with the release in RUnlock and Unlock.
  if (Readers(v) == 0 && state_.cas(v, kClosed | kCounted, rt::acquire)) {
    return true;
  }
  // Relaxed: the CAS below acquires.
  v = state_.add(kClosed, rt::relaxed) - kClosed;
  const uint32_t end = Left(v) + Readers(v);  // Left(v) when all have left
  uint32_t to_leave;
  v += kClosed;
  do {
    to_leave = end - Left(v);
  } while (!state_.casWeak(v, Counted(v, -to_leave), rt::acquire));
  if (to_leave == 0) return true;
  if (when == Mutex::kNever) {
    rt::semacquire(&writer_sem_, /*lifo=*/false, kReason);
  } else if (!rt::semacquireUntil(&writer_sem_, /*lifo=*/false, kReason,
                                  when) &&
             GiveUp()) {
    return false;
  }
  // Acquire: pairs with the release in every RUnlock. The semaphore orders us
  // only after the last one.
  (void)state_.load(rt::acquire);
  return true;
}

// GiveUp opens the lock again, for a writer whose time has come. Returns false
// if all readers have left. The caller then has the lock.
bool RWMutex::GiveUp() noexcept {
  uint64_t v = state_.load(rt::relaxed);  // a guess; the CAS decides
  do {
    if (ToLeave(v) == 0) {
      rt::semacquire(&writer_sem_, /*lifo=*/false,
                     rt::SemaReason::kRWMutexLock);
      return false;
    }
    // Relaxed: the caller has written nothing that readers must see.
  } while (!state_.casWeak(v, v & ~(kClosed | kCounted), rt::relaxed));
  const uint32_t waiting = Readers(v) - ToLeave(v);
  w_.UnlockAndStay();  // as in Unlock
  if (waiting > 0) rt::semreleaseN(&reader_sem_, waiting);
  return true;
}

void RWMutex::Unlock() noexcept {
  // Release: pairs with the acquire in RLock.
  const uint64_t v = state_.add(-(kClosed | kCounted), rt::release);
  if (!Closed(v + (kClosed | kCounted))) {
    rt::fatalError("sync: Unlock of unlocked RWMutex");
  }
  // The caller must not be stopped here: the readers have the lock and do not
  // know it.
  w_.UnlockAndStay();
  // Readers that are still to be woken are inside RLock. The object is alive
  // until the last of them is awake, and a semaphore needs only its address.
  if (Readers(v) > 0) rt::semreleaseN(&reader_sem_, Readers(v));
}

// WaitForUnlock runs when the object is destroyed while w_ is held. There are
// two cases. If the lock is held for writing (it is closed), it returns at
// once, because the program may destroy a lock that it holds. Otherwise an
// Unlock that let the destroyer in is between its two steps. It takes the
// second step without entering the runtime, so this wait is short.
void RWMutex::WaitForUnlock() noexcept {
  // Relaxed: the caller has already seen the addition in Unlock that let it in.
  while (!Closed(state_.load(rt::relaxed)) && w_.Held()) rt::gosched();
}

Locker RWMutex::RLocker() noexcept {
  return Locker(
      this, [](void* p) { static_cast<RWMutex*>(p)->RLock(); },
      [](void* p) { static_cast<RWMutex*>(p)->RUnlock(); });
}

}  // namespace gump::sync
