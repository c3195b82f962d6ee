// Grace periods: when memory that goroutines may still read can be deleted.
//
// A grace period is a time in which every P passes a safe point. Memory that
// was unlinked before a period began may be deleted when it has ended. The
// periods are numbered from 1. A thread that retires memory unlinks it and then
// reads gracesBegun. Any period with a higher number begins after that. The
// read and the beginning of a period are both read-modify-writes of
// gracesBegun, so the unlinking happens before the period. A goroutine that has
// passed its safe point in the period therefore finds the memory unlinked.
//
// A goroutine that has lost its P from outside may be in the middle of a read,
// although its P passes a safe point. So the period also waits until each such
// goroutine has entered the runtime by itself (awaitInterrupted). A goroutine
// that is preempted in place counts as one (G::interrupted).
#include "runtime/sched/grace.h"

#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stw.h"
#include "runtime/sys/os_linux.h"

namespace gump::rt {

namespace {

Atomic<uint64_t> gracesBegun;
// The last period that has ended. Only the finalizer goroutine touches it.
uint64_t graceEnded = 0;

void awaitInterrupted();  // see below

}  // namespace

uint64_t gracePeriodsBegun() noexcept { return gracesBegun.add(0, acq_rel); }

void awaitGracePeriod(uint64_t since) noexcept {
  if (graceEnded > since) return;
  const uint64_t number = gracesBegun.add(1, acq_rel);
  forEachP(WaitReason::kFlushProcCaches, [](P*) {});
  // Goroutines that have lost their P may still be reading.
  awaitInterrupted();
  graceEnded = number;
}

// ---- Goroutines that have lost their P --------------------------------------

namespace {

// lostItsP tells whether gp's P was taken, and perhaps given back, and gp has
// not entered the runtime since. gp does not know it yet, so we ask its M.
// On: any.  P: either.  Locks: none.  Parks: no.
bool lostItsP(const G* gp) {
  const M* mp = peek(gp->m);
  constexpr uint32_t kLost = kPresumedTaken | kPresumedMarked;
  return mp != nullptr && mp->curg.load(acquire) == gp &&
         (mp->presumed.load(acquire) & kLost) != 0;
}

}  // namespace

// A goroutine that has lost its P may wake up, compute, and be preempted in
// place. Then lostItsP becomes false and `interrupted` becomes odd, although
// the goroutine has not entered the runtime. That may happen between our looks
// at the two. So the first odd number since the watch began does not show an
// entry. Every higher number does.
EntryWatch::EntryWatch(const G* g)
    : gp(g), n(g->interrupted.load(acquire) | 1) {}  // as in entered

bool EntryWatch::entered() {
  const bool lost = lostItsP(gp);
  // A thread that is preempted in place writes `interrupted` first and
  // `presumed` second, so we read them in the other order. For the first look
  // an acquire is enough, because a goroutine that had lost its P wrote the two
  // in order (endPresumption). Before a later look the goroutine may have
  // entered the runtime and left its M. It leaves by plain writes (to G::m and
  // M::curg), which may overtake the write to `interrupted`. So a later look
  // needs a barrier.
  if (!lost && looked) {
    asymmetricHeavy();
  } else {
    fence(acquire);
  }
  looked = true;
  // Pairs with the stores in setInterrupted and countEntry.
  const uint32_t now = gp->interrupted.load(acquire);
  return static_cast<int32_t>(now - n) > 0 || (!lost && now % 2 == 0);
}

namespace {

// awaitInterrupted returns when every goroutine that had lost its P from
// outside at the time of the call has entered the runtime by itself, or ended.
// On: user.  P: needed.  Locks: none.  Parks: yields.
void awaitInterrupted() {
  forEachG(
      [](G* gp, void*) {
        EntryWatch watch(gp);
        while (!watch.entered()) {
          // It may sleep for hours, and no thread tells us when it enters the
          // runtime. So wait without the P.
          entersyscall();
          usleep(1000);
          exitsyscall();
        }
      },
      nullptr);
}

}  // namespace

}  // namespace gump::rt
