// Declared system calls: a goroutine that is about to block in the kernel lets
// go of its P, so that other threads may take it.
//
// Protocol: entersyscall unlinks P and M and then stores kPsyscall. That store
// publishes the P. From then on the P belongs to the thread that wins the CAS
// away from kPsyscall. The competitors are this thread on its way back
// (exitsyscall), sysmon's retake, a stop-the-world, and forEachP. The M
// remembers the P in oldp and tries it first. Only the outermost of nested
// calls does all that.
//
// sysmon sees only after some 50 µs that a call blocks: that is its sleep, and
// what the kernel adds. If many goroutines block, some wait in queues
// meanwhile, and each of them would wait for sysmon to retake the P of the one
// before. So a goroutine whose last call was long expects the next one to be
// long, too. If goroutines wait when it begins, it hands its P on at once
// (handOnAtOnce). It does what sysmon would do, only earlier: it takes the
// published P by the same CAS, and calls handoffp. A short call ends the
// expectation. So a wrong guess costs one hand-over per change between long and
// short calls, and a goroutine whose calls are short pays nothing.
//
// If no goroutine waits, the P stays in kPsyscall, and with it the chance that
// no thread has to be woken: the next goroutine that comes back from a call may
// find it in its own oldp.
#include <utility>

#include "runtime/diag/fuzzsched.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/parklocks.h"
#include "runtime/diag/trace.h"
#include "runtime/sched/group.h"
#include "runtime/sched/home.h"
#include "runtime/sched/locked.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/preempt.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/switch.h"
#include "runtime/sched/syscall.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

// wakeSysmon is wakeSysmonLocked for a caller without the lock.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void wakeSysmon() {
  LockScope l(&sched.lock);
  wakeSysmonLocked();
}

// entersyscallStopped gives the P to the thread that is stopping the world, if
// that thread has not taken it already.
// On: user.  P: pp, published.  Locks: takes sched.lock.  Parks: no.
void entersyscallStopped(P* pp) {
  LockScope l(&sched.lock);
  if (sched.stopwait > 0 && takeFromCall(pp, kPgcstop)) {
    pp->syscalltick.add(1, relaxed);
    if (--sched.stopwait == 0) notewakeup(&sched.stopnote);
  }
}

// A call that lasts for less than this, in ns, is short: sysmon would not have
// retaken the P before its end.
constexpr int64_t kShortCallNS = 20'000;

// handOnAtOnce retakes the caller's P, as sysmon might do later.
// On: user; m.locks > 0.  P: pp, published.  Locks: takes sched.lock.
// Parks: no.
void handOnAtOnce(P* pp) {
  if (!takeFromCall(pp, kPidle)) return;
  pp->syscalltick.add(1, relaxed);  // as retakeSyscall
  handoffp(pp);
}

// entersyscallLong begins a call that is expected to be long.
// On, P, Locks, Parks: as handOnAtOnce.
GUMP_NOINLINE void entersyscallLong(M* mp, P* pp) {
  mp->callBegan = nanotime();
  // Hints. If they miss a goroutine, sysmon will see it.
  if (!runqempty(pp) || queuedOn(nodeOf(pp)) > 0) handOnAtOnce(pp);
}

// learnFromCall notes whether the call of gp was long. It has lost its P, or
// was expected to be long.
// On: user; m.locks is 1.  P: either.  Locks: none.  Parks: no.
GUMP_NOINLINE void learnFromCall(G* gp, M* mp) {
  // If the P was taken from outside, the call was long, or a stop of the world
  // came. Then the next call corrects the guess.
  const int64_t began = std::exchange(mp->callBegan, 0);
  gp->callsBlock = began == 0 || nanotime() - began >= kShortCallNS;
}

// leaveGroup gives up the slot of gp, which is in a system call and still has
// its P.
// On: user; m.locks > 0.  P: needed.  Locks: takes sched.lock.  Parks: no.
GUMP_NOINLINE void leaveGroup(const G* gp) {
  if (Group* g = groupOf(gp)) groupLeave(g);
}

// leaveAfterMain hands oldp on if it is still published. Main has ended, so the
// caller gets no P and waits for the next Run. If oldp stayed published, it
// would be the P of a call in which no thread is any more. In a trace, a call
// that ends without its P must have lost that P first.
// On: user; m.locks is 1.  P: none; oldp may be published, or nullptr.
// Locks: takes sched.lock.  Parks: no.
GUMP_NOINLINE void leaveAfterMain(P* oldp) {
  if (oldp == nullptr || !takeFromCall(oldp, kPidle)) return;
  oldp->syscalltick.add(1, relaxed);  // as retakeSyscall
  handoffp(oldp);
}

// exitsyscallFast tries to get a P without parking: oldp, if it is still
// published, or an idle one. oldp may be nullptr. Once main has ended, the
// caller gets none.
// On: user; m.locks is 1.  P: none; needed if it returns true.
// Locks: takes sched.lock.  Parks: no.
bool exitsyscallFast(P* oldp) {
  if (GUMP_UNLIKELY(sched.mainEnded.load(acquire))) {  // pairs with endMain
    leaveAfterMain(oldp);
    return false;
  }
  // Pairs with the store in entersyscall.
  if (oldp != nullptr && oldp->status.load(acquire) == kPsyscall &&
      (mayTrace() ? traceRegainP(oldp) : pcasstatus(oldp, kPsyscall, kPidle))) {
    wirep(oldp);
    return true;
  }
  // Another thread took it. Any idle P will do. npidle is a hint: the slow path
  // looks under the lock.
  if (sched.npidle.load(relaxed) == 0) return false;
  P* pp;
  {
    LockScope l(&sched.lock);
    pp = sched.mainEnded.load(relaxed) || sched.gcwaiting.load(relaxed)
             ? nullptr
             : pidleget(nodeOf(getg()));
  }
  if (pp == nullptr) return false;
  acquirep(pp);
  // pp has been idle, so this is a new slice. sysmon compares schedtick for
  // change only.
  pp->schedtick.store(pp->schedtick.load(relaxed) + 1, relaxed);
  if (GUMP_UNLIKELY(pp->records.load(relaxed) != 0)) recordExecuted(getg());
  return true;
}

// claimForLocked takes back a P that waits for a thread which does not come,
// because sysmon cannot give that P to an M that is locked (replaceStartingMs).
// Returns nullptr if there is none, or if threads are not short.
// On: g0.  P: none.  Locks: takes sched.lock.  Parks: no.
P* claimForLocked(const G* gp) {
  // Hints. If we miss a change, the thread that comes finds gp in the queue.
  if (GUMP_LIKELY(gp->lockedm == nullptr ||
                  !sched.threadsShort.load(relaxed))) {
    return nullptr;
  }
  P* pp = takeStartingP(StartingP::kAny);
  if (pp != nullptr && sched.mainEnded.load(acquire)) {  // pairs with endMain
    handoffp(pp);
    return nullptr;
  }
  return pp;
}

// resumeOrSchedule is execute, or schedule if the group of gp is full.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: blocks the thread.
G* resumeOrSchedule(G* gp) {
  G* next = fuzzExecute(gp, /*inheritTime=*/false);
  return GUMP_LIKELY(next != nullptr) ? next : schedule();
}

// exitsyscall0 queues gp, which is back from the kernel and has no P. Or gp has
// a P, but its group is full.
// On: g0.  P: either.  Locks: takes sched.lock.  Parks: blocks the thread.
G* exitsyscall0(G* gp) {
  M* mp = getg()->m;
  casgstatus(gp, kGsyscall, kGrunnable);
  dropg();
  if (GUMP_UNLIKELY(gp->special)) groupReady(gp);
  if (mp->p != nullptr) return resumeOrSchedule(gp);
  P* pp = claimForLocked(gp);
  bool locked = false;
  if (pp == nullptr) {
    LockScope l(&sched.lock);
    if (!sched.mainEnded.load(relaxed)) pp = pidleget(nodeOf(gp));
    if (pp == nullptr) {
      // From globrunqput on, gp may run elsewhere.
      locked = gp->lockedm != nullptr;
      if (locked) beginExclusive(mp, gp);
      globrunqput(gp);
    }
  }
  if (pp != nullptr) {
    acquirep(pp);
    return resumeOrSchedule(gp);
  }
  if (locked && mp->home != nullptr) {
    stoplockedm();
    endExclusive(mp);
    return fuzzExecute(gp, /*inheritTime=*/false);
  }
  if (locked) return schedule();  // which waits for gp's turn
  stopm();
  if (mp->p == nullptr) return nullptr;  // m0, woken to leave Run
  return schedule();
}

// awaitP makes gp, which is back from the kernel, wait for a P, or, if it has
// one, for a slot of its group. On a stack that the program made, gp stays on
// its thread, bound as by LockOSThread, because the code that made that stack
// may rely on the thread. Where such a stack may not be left, checkSP ends the
// process.
// On: user, m.locks == 1; afterwards 0.  P: either, and then one.
// Locks: takes sched.lock.  Parks: yes.
void awaitP(G* gp) {
  M* mp = gp->m;
  if (gp->lockedm == nullptr) checkHeldLocks(gp, "waits", "for a P");
  const auto sp = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (GUMP_LIKELY(onOwnStack(gp, sp)) || !mayLeaveStackAt(mp, sp)) {
    mcallAnnounced(exitsyscall0);
    return;
  }
  const bool locked = gp->lockedm != nullptr;
  gp->onOtherStack = true;
  gp->lockedm = mp;
  mp->lockedg = gp;
  mcallAnnounced(exitsyscall0);
  // The P may be gone again. That must be settled before we write lockedg and
  // lockedm, because preemptInPlace writes them too.
  const bool lost = acquiremNoPark(mp);
  gp->onOtherStack = false;
  if (!locked) {
    gp->lockedm = nullptr;
    mp->lockedg = nullptr;
  }
  endExclusive(mp);
  if (lost) markPLost(mp);
  releasem(mp);
}

}  // namespace

void entersyscall() noexcept {
  G* gp = runtimeEntry();
  const bool special = gp->special;
  if (GUMP_UNLIKELY(special) && gp->foreign) return;  // has no P to lose
  M* mp = acquirem();
  P* pp = mp->p;
  if (GUMP_UNLIKELY(pp == nullptr)) {  // gp is in a declared call already
    if (GUMP_UNLIKELY(++gp->nestedSyscalls == 0)) {
      fatal("gump::blocking nested 65,536 times");
    }
    releasem(mp);
    return;
  }
  if (GUMP_LIKELY(isPlain(gp, kGrunning))) {
    gp->atomicstatus.store(kGsyscall, release);  // as in casgstatus
  } else {
    casgstatus(gp, kGrunning, kGsyscall);
  }
  // sysmon sleeps deeply only while nothing runs.
  if (GUMP_UNLIKELY(sched.sysmonwait.load(relaxed))) wakeSysmon();
  // Pairs with forEachP.
  if (GUMP_UNLIKELY(pp->runSafePointFn.load(acquire) != 0)) runSafePointFn(pp);
  if (GUMP_UNLIKELY(special)) leaveGroup(gp);
  flushYielded(pp);  // from the store below on, any thread may own the P
  const bool hurry = GUMP_UNLIKELY(pp->fuzz != 0) && fuzzOneIn(pp, 4);
  const bool expectLong = GUMP_UNLIKELY(gp->callsBlock) && pp->fuzz == 0;
  mp->oldp = pp;
  mp->p = nullptr;
  pp->m.store(nullptr, relaxed);
  // seq_cst: store status, then read gcwaiting; the stopper stores gcwaiting,
  // then reads the status.
  pp->status.store(kPsyscall, seq_cst);
  if (GUMP_UNLIKELY(sched.gcwaiting.load(seq_cst))) entersyscallStopped(pp);
  if (GUMP_UNLIKELY(expectLong)) entersyscallLong(mp, pp);
  if (GUMP_UNLIKELY(hurry)) handOnAtOnce(pp);
  releasem(mp);
}

void exitsyscall() noexcept {
  G* gp = getg();
  if (gp->foreign) return;
  if (GUMP_UNLIKELY(gp->nestedSyscalls != 0)) {
    gp->nestedSyscalls--;
    return;
  }
  M* mp = acquirem();
  P* oldp = mp->oldp;
  mp->oldp = nullptr;
  const bool runs = exitsyscallFast(oldp);
  P* pp = mp->p;
  if (GUMP_UNLIKELY(pp != oldp || gp->callsBlock)) learnFromCall(gp, mp);
  if (GUMP_LIKELY(runs)) {
    // Only the owner of the P writes it: a thread that takes the P from a call
    // has won the status first.
    pp->syscalltick.store(pp->syscalltick.load(relaxed) + 1, relaxed);
    if (GUMP_LIKELY(!gp->special) || groupEnter(gp)) {
      if (GUMP_LIKELY(scanners.load(acquire) == 0 && isPlain(gp, kGsyscall))) {
        gp->atomicstatus.store(kGrunning, release);  // as in casgstatus
      } else {
        casgstatus(gp, kGsyscall, kGrunning);
      }
      releasem(mp);
      return;
    }
  }
  awaitP(gp);
}

M* exitsyscallNoP() {
  G* gp = getg();
  M* mp = gp->m;
  if (exitsyscallFast(nullptr) && (!gp->special || groupEnter(gp))) {
    casgstatus(gp, kGsyscall, kGrunning);
    return mp;
  }
  awaitP(gp);
  return acquirem();
}

}  // namespace gump::rt
