// Mutex and Note: what threads of the runtime wait on. Both block the thread,
// never just the goroutine; user code sees neither. See lock_futex.cc for the
// protocols and their lost-wakeup proofs.
#ifndef RUNTIME_LOCK_FUTEX_H_
#define RUNTIME_LOCK_FUTEX_H_

#include "absl/base/thread_annotations.h"
#include "runtime/atomic.h"
#include "runtime/base.h"
#include "runtime/lockrank.h"

namespace gump::rt {

// asymmetricLight is the cheap side of an asymmetric Dekker pair: between a
// store and a load of another word, it orders the two against a thread that
// calls asymmetricHeavy between its own. It costs nothing where membarrier(2)
// works. Defined here because it sits in every unlock; asymmetricHeavy is in
// os_linux.h.
extern bool haveMembarrier;  // written once, before the second thread exists
GUMP_ALWAYS_INLINE void asymmetricLight() {
  if (GUMP_LIKELY(haveMembarrier)) {
    compilerFence();
  } else {
    fence(seq_cst);
  }
}

// Mutex is the runtime's own lock: Go's runtime.mutex. Held for tens of
// nanoseconds, by code that neither parks nor calls malloc nor runs user code
// (element moves inside a channel excepted). While one is held, m.locks > 0, so
// the holder is not preempted.
class ABSL_LOCKABLE Mutex {
 public:
  explicit constexpr Mutex(LockRank rank = LockRank::kLeaf) : rank_(rank) {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

 private:
  friend void lock(Mutex* l);
  friend bool trylock(Mutex* l);
  friend void unlock(Mutex* l);
  friend void lockSlow(Mutex* l);
  friend void unlockSlow(Mutex* l);

  Atomic<uint32_t> key_;  // 0 free, 1 held; the futex word. Taken by
                          // cas-acquire, given back by store-release.
  const LockRank rank_;
};

// Threads in lockSlow that sleep or are about to, by a hash of the lock's
// address; may be too high, never too low. Not in the Mutex, because unlock
// looks at it when the lock may already belong to somebody who frees it.
inline constexpr size_t kLockSleeperSlots = 256;
extern Atomic<uint32_t> lockSleepers[kLockSleeperSlots];
inline Atomic<uint32_t>* lockSleepersOf(const Mutex* l) {
  return &lockSleepers[(reinterpret_cast<uintptr_t>(l) / kCacheLine) %
                       kLockSleeperSlots];
}

// lockSlow is lock when it is held; unlockSlow wakes one sleeper. Both:
// On: any.  P: either.  Locks: takes l; none.  Parks: no (blocks the thread).
void lockSlow(Mutex* l);
void unlockSlow(Mutex* l);

// lock acquires l.
// On: any.  P: either.  Locks: takes l.  Parks: no (blocks the thread).
inline void lock(Mutex* l) ABSL_EXCLUSIVE_LOCK_FUNCTION(l)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // implements the capability
  lockrankAcquire(l, l->rank_);
  // Pairs with store-release in unlock.
  if (GUMP_UNLIKELY(!l->key_.cas(0, 1, acquire))) {
    lockSlow(l);
  }
}
// trylock acquires l if it is free.
// On: any.  P: either.  Parks: no.
inline bool trylock(Mutex* l) ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true, l)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // implements the capability
  if (!l->key_.cas(0, 1, acquire)) return false;
  lockrankAcquire(l, l->rank_);
  return true;
}
// unlock releases l.
// On: any.  P: either.  Parks: no.
inline void unlock(Mutex* l) ABSL_UNLOCK_FUNCTION(l)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // implements the capability
  lockrankRelease(l, l->rank_);
  l->key_.store(0, release);
  // store key, then load sleepers / lockSlow: add sleepers, asymmetricHeavy,
  // then load key. *l is not touched again: it may be gone (L4).
  asymmetricLight();
  if (GUMP_UNLIKELY(lockSleepersOf(l)->load(relaxed) != 0)) unlockSlow(l);
}

// Note is a one-shot event: one sleeper, one wake-up, then noteclear. The
// wake-up may precede the sleep.
struct Note {
  Atomic<uint32_t> key;  // 0 clear, 1 signalled; the futex word
};

void noteclear(Note* n);   // only when nobody can be sleeping or waking
void notewakeup(Note* n);  // any thread. Throws "notewakeup - double wakeup"
void notesleep(Note* n);   // blocks the thread until the wake-up
// notetsleep sleeps at most ns nanoseconds (negative: for ever); true if the
// note was signalled.
bool notetsleep(Note* n, int64_t ns);

}  // namespace gump::rt

#endif  // RUNTIME_LOCK_FUTEX_H_
