// Mutex and Note, on which threads of the runtime wait. Both block the thread,
// not just the goroutine. User code sees neither. lock_futex.cc has the
// protocols, with proofs that no wake-up is lost.
#ifndef RUNTIME_SYS_LOCK_FUTEX_H_
#define RUNTIME_SYS_LOCK_FUTEX_H_

#include "absl/base/thread_annotations.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"
#include "runtime/sys/lockrank.h"

namespace gump::rt {

// asymmetricLight is the cheap side of an asymmetric barrier. A thread calls it
// between a store to one word and a load of another. A second thread stores to
// the other word, calls asymmetricHeavy, and loads the first. Then at least one
// of the two loads sees the other thread's store. asymmetricLight costs nothing
// where membarrier(2) works. It is defined here because every unlock contains
// it; asymmetricHeavy is in os_linux.h.
//
// A plain thread may lock a Mutex before the runtime is initialised, and while
// another thread initialises it. So asymmetricHeavy finds out whether
// membarrier(2) works unless it is known, and uses a fence only if it does not
// work. Then no thread ever sees kWorks, and both sides use fences. If it does
// work, asymmetricLight may do either.
enum class Membarrier : uint8_t { kUnknown, kDenied, kWorks };
extern Atomic<Membarrier> membarrierState;
// Relaxed: what the value says about the process is true from the store on. The
// model checker has a membarrier, and needs no point for a constant.
GUMP_ALWAYS_INLINE bool haveMembarrier() {
  return kModelBuild || membarrierState.load(relaxed) == Membarrier::kWorks;
}
GUMP_ALWAYS_INLINE void asymmetricLight() {
  if (GUMP_LIKELY(haveMembarrier())) {
    compilerFence();
  } else {
    fence(seq_cst);
  }
}

// Mutex is the runtime's own lock: Go's runtime.mutex. It is held for tens of
// nanoseconds, by code that does not park, call malloc or run user code (except
// for element moves inside a channel). While an M holds one, m.locks > 0, so
// the holder is not preempted.
class ABSL_LOCKABLE Mutex {
 public:
  explicit constexpr Mutex(LockRank rank = LockRank::kLeaf) : rank_(rank) {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

 private:
  friend void lock(Mutex* l);
  friend bool trylock(Mutex* l);
  friend void lockAfterTry(Mutex* l);
  friend bool unlockSilently(Mutex* l);
  friend void lockSlow(Mutex* l);
  friend void unlockSlow(Mutex* l);

  Atomic<uint32_t> key_;  // 0 free, 1 held. Taken by cas-acquire, released by
                          // store-release.
  const LockRank rank_;
};

// lockSleepers tells, by a hash of the lock's address, how many threads are in
// lockSlow, and for which lock (L1). It is not in the Mutex, because unlock
// reads it when another thread may already own the lock and free it.
inline constexpr size_t kLockSleeperSlots = 256;
extern Atomic<uint64_t> lockSleepers[kLockSleeperSlots];
inline Atomic<uint64_t>* lockSleepersOf(const Mutex* l) {
  return &lockSleepers[(reinterpret_cast<uintptr_t>(l) / kCacheLine) %
                       kLockSleeperSlots];
}

// lockSlow acquires a lock that is held. unlockSlow wakes a sleeper of l, if
// one has called. Both: On: any.  P: either.  Locks: takes l; none.  Parks: no
// (blocks the thread).
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
// lockAfterTry acquires l, on which trylock has just failed. It does not repeat
// the CAS at once, which would take the cache line from the holder.
// On: any.  P: either.  Locks: takes l.  Parks: no (blocks the thread).
inline void lockAfterTry(Mutex* l) ABSL_EXCLUSIVE_LOCK_FUNCTION(l)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // implements the capability
  lockrankAcquire(l, l->rank_);
  lockSlow(l);
}
// unlockSilently releases l and wakes no thread. Returns true if a thread may
// sleep in lockSlow. The caller must then call unlockSlow at once, and can make
// this rare call its last one (chan.cc).
// On: any.  P: either.  Parks: no.
[[nodiscard]] inline bool unlockSilently(Mutex* l) ABSL_UNLOCK_FUNCTION(l)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // implements the capability
  lockrankRelease(l, l->rank_);
  l->key_.store(0, release);
  // Here: store key, then load sleepers. lockSlow: add sleepers,
  // asymmetricHeavy, then load key. *l is not touched again, because it may be
  // gone (L6).
  asymmetricLight();
  return GUMP_UNLIKELY(lockSleepersOf(l)->load(relaxed) != 0);
}
// unlock releases l.
// On: any.  P: either.  Parks: no.
inline void unlock(Mutex* l) ABSL_UNLOCK_FUNCTION(l) {
  if (unlockSilently(l)) unlockSlow(l);
}

// Note is a one-shot event: one sleeper, one wake-up, then noteclear. The
// wake-up may come before the sleep.
struct Note {
  Atomic<uint32_t> key;  // 0 clear, 1 signalled; the futex word
};

void noteclear(Note* n);   // only when no thread can be sleeping or waking
void notewakeup(Note* n);  // any thread. Throws "notewakeup - double wakeup"
void notesleep(Note* n);   // blocks the thread until the wake-up
// notetsleep sleeps at most ns nanoseconds (negative: for ever). Returns true
// if the note was signalled.
bool notetsleep(Note* n, int64_t ns);

}  // namespace gump::rt

#endif  // RUNTIME_SYS_LOCK_FUTEX_H_
