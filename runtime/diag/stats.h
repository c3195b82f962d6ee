// The scheduler's statistics about itself, beyond the counts it needs.
#ifndef RUNTIME_DIAG_STATS_H_
#define RUNTIME_DIAG_STATS_H_

#include <cstdint>

#include "runtime/sched/timehist.h"
#include "runtime/sys/atomic.h"

namespace gump::rt {

// Stats are figures for humans. They are relaxed throughout, and no decision
// depends on them. None is on a hot path: each is counted up at most once per
// thousands of instructions.
struct Stats {
  Atomic<uint64_t> preemptions;   // in place
  Atomic<uint64_t> presumptions;  // that a goroutine is blocked
  Atomic<uint64_t> worldStops;
  Atomic<uint64_t> worldStopNS;  // until the world stood still
  TimeHistogram stopping;        // the same, as a distribution
  TimeHistogram stopped;         // until the world was started again
  // Cycles of reclamation that are complete: by the program's wish, and because
  // of the time.
  Atomic<uint64_t> requestedCycles;
  Atomic<uint64_t> forcedCycles;
  Atomic<uint64_t> workerSlabs;  // slabs of Gs that workers handled
  Atomic<uint64_t> stackBytes;   // given back below parked goroutines
  Atomic<uint64_t> hibernated;   // stacks that were taken away
  Atomic<uint64_t> stackFaults;  // of these, those that a fault brought back
  Atomic<uint64_t> stackTables;  // page tables of stacks that were freed
  Atomic<uint64_t> retiredMs;
  Atomic<uint64_t> stalls;       // see Watchdog in sysmon.cc
  Atomic<uint64_t> staleEvents;  // for a descriptor that no longer exists
  // Time that goroutines and foreign threads have waited for Mutexes and
  // RWMutexes, and threads have slept for locks of the runtime; an estimate
  // (tracking.h).
  Atomic<int64_t> mutexWaitNS;
  Atomic<uint64_t> finalizersQueued;
  Atomic<uint64_t> finalizersExecuted;
  // The poller: polls that may block; breaks that ended one, or the next one;
  // goroutines that a poll has made runnable.
  Atomic<uint64_t> blockingPolls;
  Atomic<uint64_t> pollBreaks;
  Atomic<uint64_t> polledReady;
  // The ring: how often its thread has entered the kernel; calls (reads, writes
  // and syncs) that it has handed to the kernel; those that are complete.
  Atomic<uint64_t> ringEnters;
  Atomic<uint64_t> ringCalls;
  Atomic<uint64_t> ringCompleted;
};
extern Stats stats;

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_STATS_H_
