// The order of the runtime's locks, in one place, checked at run time in builds
// with GUMP_LOCKRANK.
//
// A thread that holds a lock of rank R may acquire a lock of rank S only if
// kLockOrder says R < S (transitively). A leaf lock may be taken under any
// lock, and no lock may be taken under it. select takes several channel locks
// at a time, in address order. That is the one rank that may follow itself.
#ifndef RUNTIME_SYS_LOCKRANK_H_
#define RUNTIME_SYS_LOCKRANK_H_

#include <cstdint>

namespace gump::rt {

class Mutex;

enum class LockRank : uint8_t {
  kTimerSend,   // sending from, or changing, the timer of a channel
  kHchan,       // a channel; several in address order
  kSemaRoot,    // a bucket of the semaphore table
  kNotifyList,  // a condition variable's list
  kPollNumber,  // a descriptor number, on which os::Poll waits
  kPollDesc,    // an open descriptor
  kSched,       // sched.lock
  kTimers,      // the timers of a P
  kTimer,       // a timer
  kGFree,       // global free list of Gs
  kAllg,        // slabs of Gs
  kStack,       // global stack pools
  kPollCache,   // the free list of PollDescs
  kMem,         // slab allocator
  kLeaf,        // under any lock; no lock under it
};
inline constexpr int kNumLockRanks = static_cast<int>(LockRank::kLeaf) + 1;

#if defined(GUMP_LOCKRANK)
void lockrankAcquire(const Mutex* l, LockRank rank);
void lockrankRelease(const Mutex* l, LockRank rank);
#else
inline void lockrankAcquire(const Mutex*, LockRank) {}
inline void lockrankRelease(const Mutex*, LockRank) {}
#endif

}  // namespace gump::rt

#endif  // RUNTIME_SYS_LOCKRANK_H_
