// Status words of Gs and Ps. Every transition is checked against the diagrams
// in g.h and runtime2.h, in release builds too. A wrong transition is the
// earliest visible sign of a double wake-up or a lost owner. The paths of a
// switch make the usual transitions themselves, and come here for all others
// (isPlain).
#include "runtime/diag/goroutine_profile.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/trace.h"
#include "runtime/sched/hibernate.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/tracking.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

Atomic<int32_t> scanners;

namespace {

constexpr uint32_t bit(uint32_t s) { return 1u << s; }

// The bits that readgstatus hides.
constexpr uint32_t kHiddenBits = kGtracked | kGhibernated;

// kLegalG[from] is the set of statuses that may follow.
constexpr uint32_t kLegalG[] = {
    /* kGidle */ bit(kGdead),
    /* kGrunnable */ bit(kGrunning),
    /* kGrunning */ bit(kGrunnable) | bit(kGsyscall) | bit(kGwaiting) |
        bit(kGdead),
    /* kGsyscall */ bit(kGrunning) | bit(kGrunnable),
    /* kGwaiting */ bit(kGrunnable),
    /* 5, unused */ 0,
    /* kGdead */ bit(kGrunnable) | bit(kGsyscall),
};

// kLegalP[from] is the same for Ps.
constexpr uint32_t kLegalP[] = {
    /* kPidle */ bit(kPrunning) | bit(kPgcstop),
    /* kPrunning */ bit(kPidle) | bit(kPsyscall) | bit(kPgcstop),
    /* kPsyscall */ bit(kPidle) | bit(kPrunning) | bit(kPgcstop),
    /* kPgcstop */ bit(kPidle) | bit(kPrunning) | bit(kPdead),
    /* kPdead */ bit(kPgcstop),
};

[[noreturn]] GUMP_NOINLINE void badG(const G* gp, uint32_t oldval,
                                     uint32_t newval) {
  printf("runtime: casgstatus goid=%U %x->%x but status is %x\n", gp->goid,
         oldval, newval, gp->atomicstatus.load(acquire));
  fatalthrow("casgstatus: bad transition");
}

[[noreturn]] GUMP_NOINLINE void badP(const P* pp, uint32_t oldval,
                                     uint32_t newval) {
  printf("runtime: P%d status %u->%u but is %u\n", pp->id, oldval, newval,
         pp->status.load(acquire));
  fatalthrow("bad P status transition");
}

// noScanner returns true if no thread can be setting a scan bit now. For that
// we must hold a P, and scanners must be 0. Other threads set scan bits only
// while the world is stopped, or after they have raised scanners and every P
// has passed a safe point since. (If the process is dying, they wait a
// millisecond instead.) A foreign thread that is being lent a G has no M yet,
// and so no P.
// On: any.  P: either.  Locks: none.  Parks: no.
bool noScanner() {
  // Pairs with the decrement, so a thread that sees 0 sees no scan bit either.
  if (GUMP_UNLIKELY(scanners.load(acquire) != 0)) return false;
  const G* gp = getg();
  return gp != nullptr && gp->m->p != nullptr;
}

// scanWait waits while another thread holds the scan bit of gp, and returns the
// status, which is oldval, perhaps with hidden bits. It throws if the status is
// any other, apart from the scan bit.
// On: any.  P: either.  Locks: none.  Parks: no.
GUMP_NOINLINE uint32_t scanWait(G* gp, uint32_t oldval, uint32_t newval) {
  for (int spins = 0;; spins++) {
    uint32_t s = gp->atomicstatus.load(acquire);
    if ((s & ~kHiddenBits) == oldval) return s;
    if ((s & ~kHiddenBits) != (oldval | kGscan)) {
      badG(gp, oldval, newval);
    }
    // The holder may be a thread of a lower real-time priority than ours, and
    // on our processor. Then it runs only while we sleep.
    if (spins < 1000) {
      procyield(1);
    } else if (spins < 1100) {
      osyield();
    } else {
      usleep(50);
    }
  }
}

// moveSlowly is casgstatus if gp is tracked or hibernated, or if another thread
// holds its scan bit. It throws if gp has a wrong status.
// On: any.  P: either.  Locks: none.  Parks: no.
GUMP_NOINLINE void moveSlowly(G* gp, uint32_t oldval, uint32_t newval) {
  for (;;) {
    // Each time anew, because a scanner may make gp tracked.
    const uint32_t from = scanWait(gp, oldval, newval);
    const bool tracked = (from & kGtracked) != 0;
    const uint32_t to =
        tracked && staysTracked(oldval, newval) ? newval | kGtracked : newval;
    // acq_rel as in casgstatus. If it fails, a thread has set the scan bit.
    if (!gp->atomicstatus.cas(from, to, acq_rel)) continue;
    // No thread has queued gp yet, so its stack is there before it runs.
    if ((from & kGhibernated) != 0) wakeStack(gp);
    if (tracked) trackAfter(gp, oldval, newval);
    return;
  }
}

}  // namespace

uint32_t readgstatus(const G* gp) {
  // Pairs with the stores in casgstatus, because the status guards G's fields.
  return gp->atomicstatus.load(acquire) & ~kHiddenBits;
}

namespace {
// moveStatus is setgstatus. It is inlined in casgstatus, too.
GUMP_ALWAYS_INLINE void moveStatus(G* gp, uint32_t oldval, uint32_t newval) {
  if (GUMP_UNLIKELY(oldval > kGdead || (kLegalG[oldval] & bit(newval)) == 0)) {
    badG(gp, oldval, newval);
  }
  if ((oldval == kGwaiting || oldval == kGsyscall) && !noScanner()) {
    // The holder of the scan bit competes with us. acq_rel: we see all
    // that the parker wrote before it parked, and a thread that sees the new
    // status sees all that we wrote.
    if (GUMP_UNLIKELY(!gp->atomicstatus.cas(oldval, newval, acq_rel))) {
      moveSlowly(gp, oldval, newval);
    }
    return;
  }
  // No scan bit can be set here, so no other thread changes the status. If it
  // is kGwaiting, only the waker that took the G off its queue changes it. Any
  // other status is changed only by the G's owner. So a checked store is
  // enough. Acquire as above.
  if (GUMP_UNLIKELY(gp->atomicstatus.load(acquire) != oldval)) {
    moveSlowly(gp, oldval, newval);
    return;
  }
  // Pairs with the acquire of the cas above and of readgstatus.
  gp->atomicstatus.store(newval, release);
}
}  // namespace

void casgstatus(G* gp, uint32_t oldval, uint32_t newval) {
  if (const uint32_t hints = traceHints(); GUMP_UNLIKELY(hints != 0)) {
    if ((hints & kProfileHint) != 0) profileBefore(gp, oldval, newval);
    traceStatus(gp, oldval, newval);
    return;
  }
  moveStatus(gp, oldval, newval);
}

void setgstatus(G* gp, uint32_t oldval, uint32_t newval) {
  moveStatus(gp, oldval, newval);
}

bool castogscanstatus(G* gp, uint32_t oldval) {
  if (oldval != kGwaiting && oldval != kGsyscall) {
    fatalthrow("castogscanstatus: bad status");
  }
  const uint32_t tracked = oldval | kGtracked;
  // All pair with the parker's release. As long as gp is parked or in a call,
  // it does not lose a hidden bit, and only a scanner gives it one.
  return gp->atomicstatus.cas(oldval, oldval | kGscan, acquire) ||
         gp->atomicstatus.cas(tracked, tracked | kGscan, acquire) ||
         // A hibernated goroutine is tracked.
         gp->atomicstatus.cas(tracked | kGhibernated,
                              tracked | kGhibernated | kGscan, acquire);
}

void casfrom_Gscanstatus(G* gp, uint32_t oldval) {
  // Relaxed: no other thread changes the status while we hold the bit.
  const uint32_t held = gp->atomicstatus.load(relaxed);
  // Pairs with the acq_rel of a thread that leaves the status.
  if (((held & ~kHiddenBits) != (oldval | kGscan) ||
       !gp->atomicstatus.cas(held, held & ~uint32_t{kGscan}, release)) &&
      !isPanicking()) {  // then a waker may have overlooked the bit: noScanner
    badG(gp, oldval | kGscan, oldval);
  }
}

bool pcasstatus(P* pp, uint32_t oldval, uint32_t newval) {
  if (GUMP_UNLIKELY(oldval > kPdead || (kLegalP[oldval] & bit(newval)) == 0)) {
    badP(pp, oldval, newval);
  }
  // The winner owns the P, and all that its last owner wrote.
  return pp->status.cas(oldval, newval, acq_rel);
}

bool takeFromCall(P* pp, uint32_t newval) {
  return mayTrace() ? traceTakeP(pp, newval)
                    : pcasstatus(pp, kPsyscall, newval);
}

void setPStatus(P* pp, uint32_t oldval, uint32_t newval) {
  if (GUMP_UNLIKELY(oldval > kPdead || (kLegalP[oldval] & bit(newval)) == 0 ||
                    pp->status.load(relaxed) != oldval)) {
    badP(pp, oldval, newval);
  }
  // Publishes the P to the thread that takes it with pcasstatus.
  pp->status.store(newval, release);
}

}  // namespace gump::rt
