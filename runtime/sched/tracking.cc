#include "runtime/sched/tracking.h"

#include "runtime/diag/stats.h"
#include "runtime/sched/rand.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/waitreason.h"
#include "runtime/sys/os_linux.h"

namespace gump::rt {

uint8_t trackBegin(M* mp, P* pp) {
  const uint32_t weight = pp->pace.begin(nanotime());
  pp->untilTracked = pp->pace.next(cheaprand(mp));
  return static_cast<uint8_t>(weight);
}

void trackNext(G* gp, uint8_t weight) {
  gp->trackedWeight = weight;
  // gp is running, so only we change its status. Pairs as in casgstatus.
  gp->atomicstatus.store(kGrunning | kGtracked, release);
}

void trackLockWait(G* gp) {
  if (gp->m->p == nullptr) return;  // it may not park: see parkWithoutP
  gp->lockWaitTracked = true;
  gp->waitsince = nanotime();
  // gp is running, so only we change its status. Pairs as in casgstatus.
  gp->atomicstatus.store(kGrunning | kGtracked, release);
}

void trackAfter(G* gp, uint32_t oldval, uint32_t newval) {
  if (newval == kGrunnable) {
    if (gp->trackedWeight == 0 && !gp->lockWaitTracked) {  // noteWaitSince
      gp->waitsince = 0;
      return;
    }
    const int64_t now = nanotime();
    if (gp->lockWaitTracked) {
      gp->lockWaitTracked = false;
      stats.mutexWaitNS.add((now - gp->waitsince) * int64_t{kTrackingPeriod},
                            relaxed);  // a figure
    }
    gp->waitsince = now;
  } else if (oldval == kGrunnable && newval == kGrunning) {
    const int64_t since = gp->waitsince;
    const uint8_t weight = gp->trackedWeight;
    gp->waitsince = 0;
    gp->trackedWeight = 0;
    // releasePreempted lets gp go on without a P, because main has ended. No
    // scheduler had anything to do with that.
    if (weight == 0 || gp->m == nullptr || gp->m->p == nullptr) return;
    gp->m->p->timeToRun.recordOwned(nanotime() - since, weight);
  }
}

MutexWait::MutexWait(WaitReason reason)
    : since_(isMutexWait(reason) ? nanotime() : 0) {}

void MutexWait::end() const {
  if (since_ == 0) return;
  stats.mutexWaitNS.add(nanotime() - since_, relaxed);  // a figure
}

void noteWaitSince(G* gp, int64_t now) {
  if (gp->waitsince != 0) return;
  gp->waitsince = now;
  // The end of the wait of a tracked goroutine resets waitsince. We hold the
  // scan bit, so no other thread changes the status. (While the process dies, a
  // waker may have overlooked the bit. Then gp is tracked in another status,
  // which is no harm.) The release of the bit publishes what we write.
  gp->atomicstatus.or_(kGtracked, relaxed);
}

}  // namespace gump::rt
