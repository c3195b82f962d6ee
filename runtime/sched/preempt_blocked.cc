// Presumed blocked: taking the P of a goroutine whose thread sleeps in an
// undeclared system call.
//
// The asker and the goroutine agree by an asymmetric Dekker:
//
//   asker (presumeBlocked)               goroutine (acquirem, the handler)
//     A1  presumed: kNot → kAsked          B1  locks = 1
//     A2  asymmetricHeavy                  B2  compilerFence
//     A3  locks == 0, same G, same slice?  B3  presumed != kNot ? reenter
//     A4  yes: kAsked → kTaken
//         no:  kAsked → kNot
//
// If A3 reads locks == 0, then B1 comes after A2, so B3 reads kAsked or a later
// value, and goes to reenter. There the goroutine tries kAsked → kNot, by CAS
// as A4 does, so one of the two wins. If the goroutine wins, it has its P as
// before. If the asker wins, it owns the P, and the goroutine continues as if
// it had returned from a declared system call after its P was retaken. If A3
// reads locks != 0, the goroutine may have passed B3 before A1, and nothing
// happens. No signal is sent, so no call of the program is interrupted.
//
// Invariants:
//  (P1) presumed is kTaken only from A4 until its M enters the runtime or the
//       handler. Meanwhile M.p is not the M's own, and nothing looks at it
//       before endPresumption clears it.
//  (P5) Only one asker asks at a time. With two, the A4 of one might succeed on
//       the kAsked of the other, long after its A3. Or one might look at a P
//       that the other has taken but not yet made kPidle.
//  (P6) Each kPresumedTaken of an M has a generation above its bits, and the P
//       remembers it (takenAs). A generation is used again only after 2^26
//       questions. Without generations, an asker that gives a P back could take
//       a later kPresumedTaken, set for another P, for the one of this P (ABA).
// (P2) to (P4) are those of preempt_signal.cc.
#include "runtime/diag/panic.h"
#include "runtime/diag/stats.h"
#include "runtime/diag/trace.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/group.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/preempt.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/syscall.h"
#include "runtime/sched/threadhooks.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

// ---- The asker --------------------------------------------------------------

namespace {

// asking is set while an asker runs tryPresume or tryGiveBack (P5). Neither of
// them waits. So beginAsking, which waits until another asker is done, waits
// only briefly. beginAsking and endAsking:
// On: any.  P: either.  Locks: none.  Parks: no.
Atomic<bool> asking;

void beginAsking() {
  // Pairs with the release in endAsking. The thread that has set `asking`
  // clears it within microseconds, if it has a processor. If its real-time
  // priority is lower than ours, and it is on our processor, it runs only while
  // we sleep.
  for (int tries = 0; !asking.cas(false, true, acquire); tries++) {
    if (tries < 100) {
      osyield();
    } else {
      usleep(50);
    }
  }
}
void endAsking() { asking.store(false, release); }

// The steps of presumeBlocked and giveBackP; their comments are below.
bool tryPresume(P* pp, M* mp, G* gp, Group** slotOf);
bool tryGiveBack(P* pp, M* mp);

}  // namespace

bool presumeBlocked(P* pp, M* mp, G* gp) {
  if (!haveMembarrier()) return false;  // B2 would be no barrier
  // Pairs with the release in endAsking.
  if (!asking.cas(false, true, acquire)) return false;
  Group* slotOf = nullptr;
  const bool taken = tryPresume(pp, mp, gp, &slotOf);
  endAsking();
  if (taken && GUMP_UNLIKELY(slotOf != nullptr)) groupTaken(slotOf);
  return taken;
}

bool giveBackP(P* pp, M* mp) {
  // tryGiveBack makes pp look as if it belonged to mp, although mp may be
  // asleep again with another P. No other asker may look at mp before that is
  // settled.
  beginAsking();
  const bool given = tryGiveBack(pp, mp);
  endAsking();
  return given;
}

namespace {

// tryPresume is A1 to A4 and the work that follows a yes. Its caller is the one
// asker. With the P goes the slot in the group of gp: *slotOf is that group, or
// nullptr.
// On: any, but mp's thread.  P: either.  Locks: none.  Parks: no.
bool tryPresume(P* pp, M* mp, G* gp, Group** slotOf) {
  const uint32_t tick = pp->schedtick.load(relaxed);
  const uint32_t mark =
      mp->presumed.load(relaxed) & (kPresumedMarked | kPresumedGiven);
  // A1. The CAS fails if the P is taken already.
  if (!mp->presumed.cas(mark, mark | kPresumedAsked, relaxed)) return false;
  asymmetricHeavy();  // A2
  // A3 comes after A2. The CAS of A4 decides.
  const bool away = mp->locks.load(acquire) == 0 &&
                    mp->curg.load(acquire) == gp && pp->m.load(acquire) == mp &&
                    pp->schedtick.load(acquire) == tick &&
                    pp->status.load(acquire) == kPrunning;
  // Once the CAS of A4 has succeeded, gp may end at any time. Its slot counts
  // until groupTaken, so the group's cell is not used again before that. If the
  // CAS fails, gp may be ending now, and the number may be of the past.
  const uint32_t group = away && peek(gp->special) ? peek(gp->group) : 0;
  if (group != 0) *slotOf = groupAt(group);
  // A4. acq_rel: we see the M's writes to the P, and reenter sees ours.
  const uint32_t taken =
      kPresumedTaken | (++mp->presumedGen << kPresumedGenShift);  // (P6)
  const uint32_t verdict = away ? taken : mark;
  TraceTaking trace(pp, mp, gp, !away || (mark & kPresumedGiven) != 0);
  if (!mp->presumed.cas(mark | kPresumedAsked, verdict, acq_rel)) return false;
  if (!away) return false;
  trace.taken();
  pp->takenAs = taken;
  sched.npresumed.add(1, relaxed);  // a hint for sysmon
  stats.presumptions.add(1, relaxed);
  pp->m.store(nullptr, relaxed);
  setPStatus(pp, kPrunning, kPidle);
  return true;
}

// tryGiveBack is giveBackP. Its caller is the one asker.
// On: any, but mp's thread.  P: either.  Locks: none.  Parks: no.
bool tryGiveBack(P* pp, M* mp) {
  // A goroutine of a group would need its slot back, too. If mp still has its
  // presumption, this is the goroutine that lost the P.
  const G* gp = mp->curg.load(acquire);  // pairs with execute
  if (gp != nullptr && peek(gp->special) && peek(gp->group) != 0) return false;
  setPStatus(pp, kPidle, kPrunning);
  pp->m.store(mp, release);  // as acquirep
  // A trace that begins meanwhile stops the world, and so takes the P again.
  const Presumed given = mayTrace() ? kPresumedGiven : kPresumedNot;
  // Marked, because mp may have been marked before. Then its next entry into
  // the runtime must take the slow path, to count the entry (countEntry).
  // acq_rel: as A4.
  if (mp->presumed.cas(pp->takenAs, kPresumedMarked | given, acq_rel)) {
    sched.npresumed.add(-1, relaxed);  // as above
    return true;
  }
  // mp has entered the runtime since, and found that it had lost the P
  // (endPresumption).
  pp->m.store(nullptr, relaxed);
  setPStatus(pp, kPrunning, kPidle);
  return false;
}

}  // namespace

// ---- The goroutine ----------------------------------------------------------

namespace {

// countEntry records that gp has entered the runtime by itself. EntryWatch
// reads it.
// On: user, gp itself.  P: maybe lost.  Locks: none.  Parks: no.
void countEntry(G* gp) {
  const uint32_t n = gp->interrupted.load(relaxed);  // written by its thread
  gp->interrupted.store((n | 1) + 1, release);       // pairs with EntryWatch
}

}  // namespace

M* reenter(M* mp) {
  if (!reenterNoPark(mp)) return mp;
  casgstatus(getg(), kGrunning, kGsyscall);
  return exitsyscallNoP();
}

bool reenterNoPark(M* mp) {
  // (F1) of fork.cc, and (T1) of threadhooks.cc. Written by this very thread.
  if ((mp->presumed.load(relaxed) & kPresumedForked) != 0) dieForked();
  if (inThreadHook(mp)) dieInThreadHook();
  const bool lost = endPresumption(mp);
  G* gp = getg();
  if (gp != &mp->g0) countEntry(gp);
  if (lost && mp->locks.load(relaxed) != 1) {
    fatalthrow("reenter: P lost in the runtime");
  }
  return lost;
}

void markPLost(M* mp) {
  // As if the P had just been taken (P1), although no P has this as its
  // takenAs.
  sched.npresumed.add(1, relaxed);  // a hint for sysmon
  // A concurrent asker loses at its A4 because of this store. Release: the
  // store does not move before the count of the entry.
  mp->presumed.store(kPresumedTaken, release);
}

bool endPresumption(M* mp) {
  for (;;) {
    // The answer to B3. Pairs with A4.
    const uint32_t s = mp->presumed.load(acquire);
    if (!mp->presumed.cas(s, kPresumedNot, acq_rel)) continue;
    if ((s & kPresumedTaken) == 0) {
      if ((s & kPresumedGiven) != 0 && mayTrace()) traceGiven();
      return false;
    }
    if (mayTrace()) traceLost();
    sched.npresumed.add(-1, relaxed);  // a hint for sysmon
    mp->p = nullptr;
    mp->oldp = nullptr;
    return true;
  }
}

}  // namespace gump::rt
