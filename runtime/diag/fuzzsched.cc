// Invariants:
//  (Z1) fuzzPut and the moves may queue a goroutine elsewhere than runqput
//       would. They publish it as the callers of runqput expect: by a seq_cst
//       operation, or under sched.lock, before the caller goes on to wakep.
//  (Z2) No goroutine is held back for good. Every decision is drawn at random
//       each time, so each outcome comes sooner or later.
//  (Z3) Goroutines that are preempted in place, and those on their way through
//       the global queue, keep their order. The scheduler promises that their
//       turn comes.
#include "runtime/diag/fuzzsched.h"

#include "runtime/diag/debugvars.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/rand.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

// xorshift steps and returns a state. The state is not 0 and never becomes 0.
uint32_t xorshift(uint32_t* state) {
  uint32_t x = *state;
  x ^= x << 13;
  x ^= x >> 17;
  x ^= x << 5;
  *state = x;
  return x;
}

// giveAway lets another M run gp.
void giveAway(G* gp) {
  {
    LockScope l(&sched.lock);
    globrunqput(gp);
  }
  wakep();  // not all callers do: goreadyQuiet relies on this P's owner
}

}  // namespace

uint32_t fuzzSeed(int64_t id) {
  // splitmix64: neighbouring seeds and ids give unrelated states.
  uint64_t z = (static_cast<uint64_t>(debug.fuzzsched) << 32) +
               static_cast<uint64_t>(id) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  const auto seed = static_cast<uint32_t>(z ^ (z >> 31));
  return seed == 0 ? 1 : seed;
}

bool fuzzOneIn(P* pp, uint32_t n) { return xorshift(&pp->fuzz) % n == 0; }

void fuzzDelay() {
  G* gp = getg();
  if (gp == nullptr || gp->m == nullptr) return;
  M* mp = gp->m;
  const uint32_t r = mp->p != nullptr ? xorshift(&mp->p->fuzz) : cheaprand(mp);
  const uint32_t amount = r >> 8;
  switch (r % 16) {
    case 0:
    case 1:
      procyield(static_cast<int>(amount % 256));
      return;
    case 2:
      osyield();
      return;
    case 3:
      if (amount % 8 == 0) usleep(1 + amount % 32);
      return;
    default:
      return;
  }
}

void fuzzPut(P* pp, G* gp, bool next) {
  fuzzDelay();
  if (fuzzOneIn(pp, 8)) {
    giveAway(gp);
  } else {
    runqputNow(pp, gp, next && fuzzOneIn(pp, 2));
    fence(seq_cst);  // (Z1): the ring's store is only a release
  }
  fuzzDelay();
}

void fuzzTurn(P* pp) {
  fuzzDelay();
  for (int i = 0; i < 3 && fuzzOneIn(pp, 2); i++) {
    G* gp = runqget(pp).gp;
    if (gp == nullptr) return;
    runqputNow(pp, gp, /*next=*/false);
  }
  if (!fuzzOneIn(pp, 8)) return;
  if (G* gp = runqget(pp).gp) {
    giveAway(gp);
    fuzzDelay();
  }
}

bool fuzzMoves(const M* mp, const G* gp) {
  return peek(gp->fuzzM) == fuzzMName(mp) && !soleP() && threadForP() &&
         !fuzzOneIn(mp->p, 8);
}

void fuzzMove(G* gp) {
  P* pp = getg()->m->p;
  if (fuzzOneIn(pp, 2)) {
    giveAway(gp);
    if (fuzzOneIn(pp, 2)) return;  // another G is next here, or gp again
  } else {
    runqputNow(pp, gp, /*next=*/true);
    fence(seq_cst);  // (Z1), although the steps below publish it too
    wakep();         // the M that gets the P may first run another goroutine:
                     // one that was preempted in place
  }
  // Another M is given the P, no matter what the other Ps do in the
  // meantime. This M finds no work until it is given a P.
  handoffp(releasep());
  stopm();
}

void fuzzExecuted(G* gp) {
  gp->fuzzM = fuzzMName(gp->m);
  gp->preempt.store(true, relaxed);  // see runtimeEntrySlow
}

bool fuzzYields() {
  M* mp = acquirem();
  P* pp = mp->p;
  // Another thread may have asked for a yield, too.
  const bool yes =
      pp != nullptr && (pp->preempt.load(relaxed) || fuzzOneIn(pp, 8));
  if (!yes) fuzzDelay();
  releasem(mp);
  return yes;
}

}  // namespace gump::rt
