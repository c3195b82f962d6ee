// The window for gump/metrics.h: the figures of the runtime. linkname.h gives
// the rules.
#ifndef GUMP_INTERNAL_LINKNAME_METRICS_H_
#define GUMP_INTERNAL_LINKNAME_METRICS_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump::rt {

// The number of counts of a histogram of times: first the negative times, last
// those that are too long. timeHistLowerBound is the smallest time, in ns, that
// counts at place i. i is above 0 and below kTimeHistCounts.
inline constexpr size_t kTimeHistCounts = 162;
[[nodiscard]] uint64_t timeHistLowerBound(size_t i) noexcept;

enum class TimeHist : uint8_t {
  kTimeToRun,  // how long goroutines were runnable before they ran
  kStopping,   // from the beginning of a stop of the world until it is complete
  kStopped,    // from its beginning until the world is started again
};
// readTimeHist reads a histogram into counts, which has kTimeHistCounts
// elements.
void readTimeHist(TimeHist which, uint64_t* counts) noexcept;

// The figures of the runtime, in groups that are read together. While they are
// read, the program goes on: figures of one group fit together as far as their
// comments say, and those of different groups need not.

// SchedMetrics are the scheduler's counts. Each is what it was at some moment
// during the call.
struct SchedMetrics {
  uint64_t gomaxprocs = 0;
  uint64_t goroutines = 0;  // of the program
  uint64_t created = 0;  // since the process began, also those of the runtime
  // By state, also those of the runtime. running is at most gomaxprocs. Those
  // in the queues of groups are runnable. waiting is the rest, with those in
  // the queues of homes.
  uint64_t running = 0;
  uint64_t runnable = 0;
  uint64_t not_in_go = 0;  // in a declared call, or presumed blocked
  uint64_t waiting = 0;
  uint64_t threads = 0;  // those of the runtime, and the one of Run
  uint64_t idle_threads = 0;
  uint64_t idle_procs = 0;
  uint64_t spinning_threads = 0;
  uint64_t in_place = 0;  // goroutines that are preempted in place
  uint64_t presumed = 0;  // goroutines that are presumed blocked
  uint64_t cells = 0;     // for goroutines
  uint64_t timers = 0;    // in the heaps of the Ps
};
void readSchedMetrics(SchedMetrics* out) noexcept;

// CpuMetrics are times in ns, all at the same moment.
struct CpuMetrics {
  int64_t total = 0;  // GOMAXPROCS times the time since the runtime began
  int64_t idle = 0;   // that part of it in which Ps had no work
};
void readCpuMetrics(CpuMetrics* out) noexcept;

// MemoryMetrics are sizes and counts at the time of the call.
struct MemoryMetrics {
  uint64_t stack_bytes = 0;         // address space of goroutine stacks
  uint64_t stacks = 0;              // goroutine stacks that exist
  uint64_t stacks_free = 0;         // those of them that are in no use
  uint64_t metadata_bytes = 0;      // cells of goroutines, Ms and the like
  uint64_t thread_stack_bytes = 0;  // address space, the runtime's threads only
  uint64_t starting_size = 0;       // of a goroutine's stack by default
};
void readMemoryMetrics(MemoryMetrics* out) noexcept;

// EventMetrics count since the process began, except netpoll_waiters.
struct EventMetrics {
  uint64_t requested_cycles = 0;  // of reclamation, asked for by the program
  uint64_t forced_cycles = 0;     // those that ran only because of the time
  uint64_t reclaim_worker_slabs = 0;
  uint64_t stack_bytes_reclaimed = 0;
  uint64_t finalizers_queued = 0;
  uint64_t finalizers_executed = 0;
  uint64_t preemptions = 0;
  uint64_t presumptions = 0;
  uint64_t stalls = 0;
  uint64_t threads_retired = 0;
  int64_t mutex_wait_ns = 0;
  uint64_t netpoll_waiters = 0;
  uint64_t blocking_polls = 0;
  uint64_t poll_breaks = 0;
  uint64_t polled_ready = 0;
  uint64_t stale_events = 0;
  uint64_t ring_enters = 0;
  uint64_t ring_calls = 0;
  uint64_t ring_completed = 0;
};
void readEventMetrics(EventMetrics* out) noexcept;

}  // namespace gump::rt

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_LINKNAME_METRICS_H_
