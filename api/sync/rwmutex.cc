// The slow paths of sync::RWMutex. The fields are described in
// gump/sync/rwmutex.h.
//
// A writer first excludes the other writers (w_). It then announces itself by
// making reader_count_ negative, and waits for as many readers as there were at
// that moment. Each of these readers sees the negative count when it leaves,
// and lowers reader_wait_. The reader that brings it to zero wakes the writer.
// The writer adds the number of readers after announcing itself, so
// reader_wait_ may pass through negative values. The reader or writer that
// makes it zero knows that all have left.
//
// Readers that come while the count is negative wait on reader_sem_. They are
// counted already. So when the writer restores the count they hold the lock,
// and the next writer waits for them.
//
// Unlike Go, Unlock lets writers in (w_) before it wakes the readers. As soon
// as Unlock has restored the count, a new reader may get in, and destroy the
// object. After that moment Unlock touches the object only to unlock w_. The
// destructor can wait for that (WaitForUnlock). The order of the
// critical sections is the same as in Go: the next writer waits for the readers
// that are being woken.
#include "gump/sync/rwmutex.h"

#include "gump/internal/linkname_panic.h"
#include "gump/internal/linkname_runtime.h"
#include "gump/internal/linkname_sync.h"

namespace gump::sync {

void RWMutex::RLockSlow() noexcept {
  rt::semacquire(&reader_sem_, /*lifo=*/false, rt::SemaReason::kRWMutexRLock);
}

bool RWMutex::TryRLock() noexcept {
  int32_t c = reader_count_.load(rt::relaxed);  // a guess; the CAS decides
  while (c >= 0) {
    // Acquire: pairs with the release in Unlock.
    if (reader_count_.casWeak(c, c + 1, rt::acquire)) return true;
  }
  return false;
}

void RWMutex::RUnlockSlow(int32_t r) noexcept {
  if (r + 1 == 0 || r + 1 == -kMaxReaders) {
    rt::fatalError("sync: RUnlock of unlocked RWMutex");
  }
  // Acq_rel: the release pairs with the acquire of the thread that makes it
  // zero. If that is a reader, it passes on what all readers did, by the
  // semaphore. If it is the writer, it goes on itself.
  if (reader_wait_.add(-1, rt::acq_rel) == 0) {
    rt::semrelease(&writer_sem_, /*handoff=*/false);
  }
}

void RWMutex::Lock() noexcept {
  w_.Lock();
  // Acquire: pairs with the release in RUnlock. Release: there is nothing to
  // publish yet, but readers that come now must be ordered after the last
  // Unlock.
  const int32_t r = reader_count_.add(-kMaxReaders, rt::acq_rel) + kMaxReaders;
  // Acquire: pairs with RUnlockSlow.
  if (r != 0 && reader_wait_.add(r, rt::acq_rel) != 0) {
    rt::semacquire(&writer_sem_, /*lifo=*/false, rt::SemaReason::kRWMutexLock);
  }
}

bool RWMutex::TryLock() noexcept {
  if (!w_.TryLock()) return false;
  // Acquire: pairs with the release in RUnlock; as in Lock.
  if (reader_count_.cas(0, -kMaxReaders, rt::acq_rel)) return true;
  w_.Unlock();
  return false;
}

void RWMutex::Unlock() noexcept {
  // Release: pairs with the acquire in RLock.
  const int32_t r = reader_count_.add(kMaxReaders, rt::release);
  if (r >= kMaxReaders) rt::fatalError("sync: Unlock of unlocked RWMutex");
  // The caller must not be stopped here: the readers have the lock and do not
  // know it.
  w_.UnlockAndStay();
  // Readers that are still to be woken are inside RLock. The object is alive
  // until the last of them is awake, and a semaphore needs only its address.
  if (r > 0) rt::semreleaseN(&reader_sem_, static_cast<uint32_t>(r));
}

// WaitForUnlock runs when the object is destroyed while w_ is held. There are
// two cases. If the lock is held for writing (the count is negative), it
// returns at once, because the program may destroy a lock that it holds.
// Otherwise an Unlock that let the destroyer in is between its two steps. It
// takes the second step without entering the runtime, so this wait is short.
void RWMutex::WaitForUnlock() noexcept {
  // Relaxed: the caller has already seen the addition in Unlock that let it in.
  while (reader_count_.load(rt::relaxed) >= 0 && w_.Held()) rt::gosched();
}

Locker RWMutex::RLocker() noexcept {
  return Locker(
      this, [](void* p) { static_cast<RWMutex*>(p)->RLock(); },
      [](void* p) { static_cast<RWMutex*>(p)->RUnlock(); });
}

}  // namespace gump::sync
