#include "runtime/diag/stats.h"

#include "runtime/sched/deadlock.h"
#include "runtime/sched/group.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/rt0.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/thread.h"

namespace gump::rt {

Stats stats;

namespace {

// runnableCount returns how many goroutines wait in queues.
int32_t runnableCount() {
  int32_t n =
      globalSize(relaxed) + sched.nnostack.load(relaxed) + groupsQueued();
  for (int32_t i = 0; i < gomaxprocs.load(acquire); i++) {
    const P* pp = allp[i];  // pairs with procresize
    n += static_cast<int32_t>(runqlen(pp)) + pp->nyielded.load(relaxed);
    if (pp->runnext.load(relaxed) != nullptr) n++;
  }
  return n;
}

void readNodeStats(SchedStats* out) {
  out->nodes = sched.nnodes.load(relaxed);
  // Ps beyond GOMAXPROCS keep what they have counted. Acquire: see procresize.
  const int32_t n = gomaxprocsEver.load(acquire);
  for (int32_t i = 0; i < n; i++) {
    const NodeCounts& c = allp[i]->counts;
    out->node_runs += c.runs.load(relaxed);
    out->node_moves += c.moves.load(relaxed);
    out->node_steals += c.steals.load(relaxed);
    out->node_steals_across += c.stealsAcross.load(relaxed);
  }
}

}  // namespace

void readSchedStats(SchedStats* out) noexcept {
  schedinit();
  {
    LockScope l(&sched.lock);
    out->threads = static_cast<int32_t>(mcount());
    out->idle_threads = sched.nmidle;
  }
  // Each figure stands for itself, so relaxed is enough.
  out->procs = gomaxprocs.load(relaxed);
  out->idle_procs = sched.npidle.load(relaxed);
  out->spinning_threads = sched.nmspinning.load(relaxed);
  out->goroutines = gcount();
  out->runnable = runnableCount();
  out->preempted_in_place = sched.ninplace.load(relaxed);
  out->presumed_blocked = sched.npresumed.load(relaxed);
  out->preemptions = stats.preemptions.load(relaxed);
  out->presumptions = stats.presumptions.load(relaxed);
  out->world_stops = stats.worldStops.load(relaxed);
  out->world_stop_ns = stats.worldStopNS.load(relaxed);
  out->forced_reclaim_cycles = stats.forcedCycles.load(relaxed);
  out->reclaim_cycles =
      stats.requestedCycles.load(relaxed) + out->forced_reclaim_cycles;
  out->reclaim_worker_slabs = stats.workerSlabs.load(relaxed);
  out->stack_bytes_reclaimed = stats.stackBytes.load(relaxed);
  out->threads_retired = stats.retiredMs.load(relaxed);
  out->stalls = stats.stalls.load(relaxed);
  out->stale_events = stats.staleEvents.load(relaxed);
  readNodeStats(out);
}

}  // namespace gump::rt
