// The figures of the runtime, for gump/metrics.h.
//
// No reader stops the world or holds a lock for long. Some figures are taken
// under sched.lock, as in Go, so that neither the global queue nor the number
// of Ps changes meanwhile. The local queues do change, so counts of goroutines
// by their state are approximate. Which goroutines run, and which are in calls,
// is found by a walk over all threads. The alternative, a counter that each
// declared call changes, would cost each call two instructions.
#include <pthread.h>

#include <algorithm>

#include "gump/internal/linkname_metrics.h"
#include "runtime/diag/stats.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/group.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/rt0.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stack.h"
#include "runtime/sched/thread.h"
#include "runtime/sched/timehist.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/os_linux.h"

namespace gump::rt {

namespace {

// Unless they say otherwise, these functions have this context:
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.

// perP calls f with every P that there is or has been.
template <class F>
void perP(F&& f) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  // Written under sched.lock, and never unset.
  for (int32_t i = 0; i < kMaxGomaxprocs && allp[i] != nullptr; i++) {
    f(allp[i]);
  }
}

// countRunnable counts the goroutines in the queues of the scheduler.
uint64_t countRunnable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  // Each figure stands for itself, so relaxed is enough.
  int64_t n = globalSize(relaxed) + sched.nostack.size;
  perP([&n](const P* pp) {
    n += int64_t{runqlen(pp)} + pp->nyielded.load(relaxed);
    if (pp->runnext.load(relaxed) != nullptr) n++;
  });
  return static_cast<uint64_t>(n);
}

// countOnThreads counts the goroutines that are on threads: running, or in a
// call without a P.
// Locks: none.
void countOnThreads(SchedMetrics* out) {
  // Pairs with mcommoninit.
  for (const M* mp = allm.load(acquire); mp != nullptr; mp = mp->alllink) {
    const G* gp = mp->curg.load(acquire);  // pairs with execute
    if (gp == nullptr || gp->foreign) continue;
    const uint32_t status = readgstatus(gp) & ~uint32_t{kGscan};
    // A hint: whether it is presumed blocked may change at any time.
    const bool presumed = (mp->presumed.load(relaxed) & kPresumedTaken) != 0;
    if (status == kGsyscall || (status == kGrunning && presumed)) {
      out->not_in_go++;
    } else if (status == kGrunning) {
      out->running++;
    }
  }
}

// threadStackBytes is the stack size of a thread of the runtime.
// Locks: none.
uint64_t threadStackBytes() {
  size_t size = 0;
  pthread_attr_t attr;
  if (pthread_attr_init(&attr) != 0) return 0;
  pthread_attr_getstacksize(&attr, &size);
  pthread_attr_destroy(&attr);
  return size;
}

}  // namespace

uint64_t timeHistLowerBound(size_t i) noexcept {
  return TimeHistogram::lowerBound(i);
}

void readTimeHist(TimeHist which, uint64_t* counts) noexcept {
  std::fill_n(counts, kTimeHistCounts, uint64_t{0});
  if (which == TimeHist::kStopping) return stats.stopping.addTo(counts);
  if (which == TimeHist::kStopped) return stats.stopped.addTo(counts);
  schedinit();
  // The histograms have no lock, but the list of Ps has. There are at most
  // 1024, and a reader must not keep the lock for as long as all of them take.
  int32_t n = 0;
  {
    LockScope l(&sched.lock);
    perP([&n](const P*) { n++; });
  }
  for (int32_t i = 0; i < n; i++) allp[i]->timeToRun.addTo(counts);
}

void readSchedMetrics(SchedMetrics* out) noexcept {
  schedinit();
  *out = SchedMetrics();
  // Each figure stands for itself, so relaxed is enough throughout.
  countOnThreads(out);
  int64_t timers = 0;
  out->runnable = static_cast<uint64_t>(groupsQueued());
  {
    LockScope l(&sched.lock);
    out->gomaxprocs = static_cast<uint64_t>(gomaxprocs.load(relaxed));
    out->threads = static_cast<uint64_t>(mcount());
    out->idle_threads = static_cast<uint64_t>(sched.nmidle);
    out->runnable += countRunnable();
    out->created = sched.createdNoP.load(relaxed);
    perP([&](const P* pp) {
      out->created += pp->created.load(relaxed);
      timers += pp->timers.len.load(relaxed);
      timers -= pp->timers.zombies.load(relaxed);
    });
  }
  // A goroutine that changes its thread during the walk is seen twice.
  out->running = std::min(out->running, out->gomaxprocs);
  out->goroutines = static_cast<uint64_t>(gcount());
  const int32_t system = std::max(sched.ngsys.load(relaxed), 0);
  const uint64_t all = out->goroutines + static_cast<uint64_t>(system);
  const uint64_t others = out->running + out->runnable + out->not_in_go;
  out->waiting = all > others ? all - others : 0;
  const auto count = [](int64_t n) {
    return static_cast<uint64_t>(std::max(n, int64_t{0}));
  };
  out->idle_procs = count(sched.npidle.load(relaxed));
  out->spinning_threads = count(sched.nmspinning.load(relaxed));
  out->in_place = count(sched.ninplace.load(relaxed));
  out->presumed = count(sched.npresumed.load(relaxed));
  out->cells = gcountAll();
  out->timers = count(timers);
}

void readCpuMetrics(CpuMetrics* out) noexcept {
  schedinit();
  LockScope l(&sched.lock);
  const int64_t now = nanotime();
  // Changes under the lock only.
  out->total = sched.totalNS +
               (now - sched.resizeTime) * int64_t{gomaxprocs.load(relaxed)};
  out->idle = sched.idleNS;
  forEachIdleP([&](const P* pp) { out->idle += now - pp->idleSince; });
}

void readMemoryMetrics(MemoryMetrics* out) noexcept {
  schedinit();
  uint64_t threads = 0;
  {
    LockScope l(&sched.lock);
    // m0's thread is the program's.
    threads = static_cast<uint64_t>(mcount() - 1);
  }
  const StackStats s = stackReadStats();
  out->stack_bytes = s.mappedBytes;
  out->stacks = s.made;
  out->stacks_free = s.free;
  out->metadata_bytes = persistentBytes();
  out->thread_stack_bytes = threads * threadStackBytes();
  out->starting_size = defaultStackSize;
}

void readEventMetrics(EventMetrics* out) noexcept {
  // Each figure stands for itself.
  out->requested_cycles = stats.requestedCycles.load(relaxed);
  out->forced_cycles = stats.forcedCycles.load(relaxed);
  out->reclaim_worker_slabs = stats.workerSlabs.load(relaxed);
  out->stack_bytes_reclaimed = stats.stackBytes.load(relaxed);
  out->finalizers_executed = stats.finalizersExecuted.load(relaxed);
  out->finalizers_queued = stats.finalizersQueued.load(relaxed);
  out->preemptions = stats.preemptions.load(relaxed);
  out->presumptions = stats.presumptions.load(relaxed);
  out->stalls = stats.stalls.load(relaxed);
  out->threads_retired = stats.retiredMs.load(relaxed);
  out->mutex_wait_ns = stats.mutexWaitNS.load(relaxed);
  out->netpoll_waiters =
      static_cast<uint64_t>(std::max(netpollCountWaiters(), 0));
  out->blocking_polls = stats.blockingPolls.load(relaxed);
  out->poll_breaks = stats.pollBreaks.load(relaxed);
  out->polled_ready = stats.polledReady.load(relaxed);
  out->stale_events = stats.staleEvents.load(relaxed);
  out->ring_enters = stats.ringEnters.load(relaxed);
  out->ring_completed = stats.ringCompleted.load(relaxed);
  out->ring_calls = stats.ringCalls.load(relaxed);
}

}  // namespace gump::rt
