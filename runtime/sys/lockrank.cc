// The lock order, as the edges of a directed graph, and its check at run time.
//
// Invariants:
//  (R1) The graph has no cycle, and a leaf may be taken under every rank. Both
//       are checked when this file compiles.
//  (R2) M::ranksheld and M::locksheld list the locks that the thread of that M
//       holds, in the order of acquisition. Only that thread touches them.
//       Channel locks share one entry, which holds the one with the highest
//       address, because a select may hold tens of thousands of them. A lock
//       that gopark hands across the switch stays on the list, since g0
//       releases it on the same M.
//  (R3) A thread without an M is not checked. Before it is lent one, it runs no
//       code that holds two locks.
//
// Edges that may surprise:
//
//   sched < gFree, allg, stack
//       procresize creates and empties Ps while it holds sched.lock.
//   hchan, semaRoot, notifyList < sched
//       They may be held while a G is made runnable.
//   hchan < timers
//       A goroutine that waits on a channel of time first puts the channel's
//       timer into a heap.
//   pollNumber < sched
//       It is held while a G is made runnable, as hchan is.
//   pollDesc < sched, timers
//       A deadline is set together with the timer that keeps it.
//   sched < timers
//       The timers of a P are looked at when the P goes away or goes idle.
#include "runtime/sys/lockrank.h"

#include <cstddef>

#include "runtime/diag/panic.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/tls.h"

namespace gump::rt {
namespace {

struct LockEdge {
  LockRank before;  // may be held ...
  LockRank after;   // ... while this one is acquired
};

constexpr LockEdge kLockOrder[] = {
    {LockRank::kTimerSend, LockRank::kHchan},
    {LockRank::kHchan, LockRank::kSched},
    {LockRank::kSemaRoot, LockRank::kSched},
    {LockRank::kNotifyList, LockRank::kSched},
    {LockRank::kPollNumber, LockRank::kSched},
    {LockRank::kPollDesc, LockRank::kSched},
    {LockRank::kSched, LockRank::kGFree},
    {LockRank::kGFree, LockRank::kAllg},
    {LockRank::kSched, LockRank::kStack},
    {LockRank::kSched, LockRank::kTimers},
    {LockRank::kTimers, LockRank::kTimer},
    {LockRank::kTimer, LockRank::kLeaf},
    {LockRank::kAllg, LockRank::kMem},
    {LockRank::kStack, LockRank::kMem},
    {LockRank::kPollCache, LockRank::kMem},
    {LockRank::kMem, LockRank::kLeaf},
};

// LockGraph is the transitive closure of kLockOrder.
struct LockGraph {
  bool less[kNumLockRanks][kNumLockRanks] = {};

  constexpr LockGraph() {
    for (const LockEdge& e : kLockOrder) {
      less[static_cast<size_t>(e.before)][static_cast<size_t>(e.after)] = true;
    }
    for (int via = 0; via < kNumLockRanks; via++) {
      for (int a = 0; a < kNumLockRanks; a++) {
        for (int b = 0; b < kNumLockRanks; b++) {
          less[a][b] = less[a][b] || (less[a][via] && less[via][b]);
        }
      }
    }
  }
  constexpr bool acyclic() const {
    for (int r = 0; r < kNumLockRanks; r++) {
      if (less[r][r]) return false;
    }
    return true;
  }
  constexpr bool leafIsLast() const {
    constexpr int kLast = static_cast<int>(LockRank::kLeaf);
    for (int r = 0; r < kNumLockRanks; r++) {
      if (less[kLast][r] || (r != kLast && !less[r][kLast])) return false;
    }
    return true;
  }
};

constexpr LockGraph kLockGraph;
static_assert(kLockGraph.acyclic());     // (R1)
static_assert(kLockGraph.leafIsLast());  // (R1)

}  // namespace

#if defined(GUMP_LOCKRANK)
namespace {

constexpr const char* kLockNames[] = {
    "timerSend", "hchan", "semaRoot",  "notifyList", "pollNumber",
    "pollDesc",  "sched", "timers",    "timer",      "gFree",
    "allg",      "stack", "pollCache", "mem",        "leaf",
};
static_assert(sizeof(kLockNames) / sizeof(kLockNames[0]) == kNumLockRanks);

constexpr size_t kMaxHeld = sizeof(M::ranksheld);

const char* lockName(LockRank rank) {
  return kLockNames[static_cast<size_t>(rank)];
}

M* currentM() {
  G* gp = getg();
  return gp == nullptr ? nullptr : gp->m;
}

[[noreturn]] void lockrankFail(const M* mp, size_t held, const Mutex* l,
                               LockRank rank) {
  printf("runtime: M%d acquires %s (%p) while holding %s (%p)\n",
         static_cast<int>(mp->id), lockName(rank), static_cast<const void*>(l),
         lockName(static_cast<LockRank>(mp->ranksheld[held])),
         mp->locksheld[held]);
  fatalthrow("lock ordering problem");
}

// mayFollow returns true if the holder of entry i may acquire l.
bool mayFollow(const M* mp, size_t i, const Mutex* l, LockRank rank) {
  const LockRank held = static_cast<LockRank>(mp->ranksheld[i]);
  if (held == LockRank::kHchan && rank == LockRank::kHchan) {
    return reinterpret_cast<uintptr_t>(mp->locksheld[i]) <
           reinterpret_cast<uintptr_t>(l);
  }
  return kLockGraph.less[static_cast<size_t>(held)][static_cast<size_t>(rank)];
}

}  // namespace

void lockrankAcquire(const Mutex* l, LockRank rank) {
  M* mp = currentM();
  if (mp == nullptr) return;  // (R3)
  // A goroutine's own code can be preempted at any point; see
  // preempt_signal.cc.
  if (mp->curg.load(relaxed) == getg() && !getg()->foreign &&
      mp->locks.load(relaxed) == 0) {
    printf("runtime: %s (%p) acquired with m.locks=0\n", lockName(rank),
           static_cast<const void*>(l));
    fatalthrow("lock taken by code that can be preempted");
  }
  for (size_t i = 0; i < mp->nlocksheld; i++) {
    if (!mayFollow(mp, i, l, rank)) lockrankFail(mp, i, l, rank);
  }
  if (rank == LockRank::kHchan && mp->nhchansheld++ > 0) {
    for (size_t i = 0; i < mp->nlocksheld; i++) {
      if (static_cast<LockRank>(mp->ranksheld[i]) == LockRank::kHchan) {
        mp->locksheld[i] = l;  // (R2): the highest so far
      }
    }
    return;
  }
  if (mp->nlocksheld == kMaxHeld) fatalthrow("too many locks held");
  mp->ranksheld[mp->nlocksheld] = static_cast<uint8_t>(rank);
  mp->locksheld[mp->nlocksheld] = l;
  mp->nlocksheld++;
}

void lockrankRelease(const Mutex* l, LockRank rank) {
  M* mp = currentM();
  if (mp == nullptr) return;  // (R3)
  for (size_t i = mp->nlocksheld; i-- > 0;) {
    if (static_cast<LockRank>(mp->ranksheld[i]) != rank) continue;
    if (rank == LockRank::kHchan) {
      if (--mp->nhchansheld > 0) return;
    } else if (mp->locksheld[i] != l) {
      continue;
    }
    mp->nlocksheld--;
    for (size_t k = i; k < mp->nlocksheld; k++) {
      mp->ranksheld[k] = mp->ranksheld[k + 1];
      mp->locksheld[k] = mp->locksheld[k + 1];
    }
    return;
  }
  printf("runtime: M%d releases %s (%p), which it does not hold\n",
         static_cast<int>(mp->id), lockName(rank), static_cast<const void*>(l));
  fatalthrow("unlock without matching lock acquire");
}
#endif  // GUMP_LOCKRANK

}  // namespace gump::rt
