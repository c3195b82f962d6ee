// Stealing: step 5 of findRunnable.
//
// With several nodes, a thief looks at the Ps of its own node in every pass,
// and at those of the others, the nearest first, only in the last one. There it
// takes goroutines only if N2 of proc_node.cc allows that.
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc_find.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/rand.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/time.h"

namespace gump::rt {

namespace {

constexpr int kPasses = 4;

// Thief is what the passes share.
struct Thief {
  M* mp;
  P* pp;
  Clock* clock;
  Runnable* out;
  bool ranTimers = false;
  bool stole = false;  // out->gp is from the ring or the runnext of a victim
};

// tryVictim steals from allp[id]. In the last pass, `last`, it also takes
// timers and runnext. If other is not nullptr, the victim is of that other
// node.
//
// It reads nothing of a P that is idle and has no timers. With many Ps, most
// are such, and their lines lie in the caches of other processors.
GUMP_ALWAYS_INLINE Find tryVictim(Thief* t, uint32_t id, bool last,
                                  const SchedNode* other) {
  P* victim = allp[id];
  if (victim == t->pp) return Find::kNothing;
  if (last && stealTimers(id, t->clock)) {
    // They may have readied Gs onto our own ring. Take these first, because
    // runqsteal requires that our ring is empty.
    RunqGet local = runqget(t->pp);
    if (local.gp != nullptr) {
      *t->out = {local.gp, /*inheritTime=*/false};
      return Find::kFound;
    }
    t->ranTimers = true;
  }
  if (idlepMask.read(id) || (other != nullptr && !mayTakeFrom(other, victim))) {
    return Find::kNothing;
  }
  t->out->gp = runqsteal(t->pp, victim, /*stealRunNextG=*/last);
  t->stole = t->out->gp != nullptr;
  return t->stole ? Find::kFound : Find::kNothing;
}

// pass tries the count Ps from allp[first] on.
GUMP_ALWAYS_INLINE Find pass(Thief* t, int32_t first, int32_t count, bool last,
                             const SchedNode* other = nullptr) {
  for (RandomOrder order(static_cast<uint32_t>(count), t->mp); !order.done();
       order.next()) {
    // Pairs with stopTheWorld.
    if (sched.gcwaiting.load(acquire)) return Find::kAgain;
    const uint32_t id = static_cast<uint32_t>(first) + order.position();
    const Find f = tryVictim(t, id, last, other);
    if (f != Find::kNothing) return f;
  }
  return Find::kNothing;
}

void countSteal(const Thief& t, bool across) {
  if (!t.stole) return;
  NodeCounts* c = &t.pp->counts;
  // Written by us only.
  c->steals.store(c->steals.load(relaxed) + 1, relaxed);
  if (across) c->stealsAcross.store(c->stealsAcross.load(relaxed) + 1, relaxed);
}

// stealOnNodes is stealWork with several nodes.
GUMP_NOINLINE Find stealOnNodes(Thief* t) {
  // We hold a P, so the world is not stopped.
  const SchedNode* own = nodeOf(t->pp);
  // If no other P of the node runs, there is nothing to take from them but
  // timers. npidle is a hint.
  const bool alone = own->npidle.load(relaxed) >= own->nprocs.load(relaxed) - 1;
  for (int i = alone ? kPasses - 1 : 0; i < kPasses; i++) {
    const Find f = pass(t, own->firstP.load(relaxed), own->nprocs.load(relaxed),
                        /*last=*/i == kPasses - 1);
    countSteal(*t, /*across=*/false);
    if (f != Find::kNothing) return f;
  }
  const int32_t n = sched.nnodes.load(relaxed);  // as above
  for (int32_t k = 1; k < n; k++) {
    const SchedNode* np = &sched.nodes[own->nearest[k].load(relaxed)];
    const Find f = pass(t, np->firstP.load(relaxed), np->nprocs.load(relaxed),
                        /*last=*/true, np);
    countSteal(*t, /*across=*/true);
    if (f != Find::kNothing) return f;
  }
  return t->ranTimers ? Find::kAgain : Find::kNothing;
}

}  // namespace

Find stealWork(M* mp, P* pp, Clock* clock, Runnable* out) {
  Thief t{mp, pp, clock, out};
  if (severalNodes()) return stealOnNodes(&t);
  // As in stealOnNodes.
  const int32_t count = gomaxprocs.load(relaxed);
  for (int i = 0; i < kPasses; i++) {
    const Find f = pass(&t, 0, count, /*last=*/i == kPasses - 1);
    if (f != Find::kNothing) return f;
  }
  return t.ranTimers ? Find::kAgain : Find::kNothing;
}

bool stealTimers(uint32_t id, Clock* clock) {
  if (!timerpMask.read(id)) return false;
  const TimerCheck check = timersCheck(&allp[id]->timers, &clock->now,
                                       /*tidy=*/idlepMask.read(id));
  clock->lower(check.next);
  // The timers have woken no M for the goroutines that they readied. No wakep
  // is needed here: a thief spins, so it wakes the next spinner when it finds
  // work. endSchedule calls wakep itself if the next Run has begun.
  return check.ran;
}

}  // namespace gump::rt
