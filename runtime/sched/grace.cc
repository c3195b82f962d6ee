// Retaking the P of a goroutine that does not enter the runtime by itself,
// either because it is asleep in an undeclared system call or because it
// computes.
//
// m.locks tells where a thread is. Above 0, it is in the runtime, will soon
// reach a point where it looks at the requests, and is left alone. At 0, and
// with a goroutine in m.curg, it is in code of the program, which never touches
// the P. So the P can be taken without its help.
//
// Presumed blocked. The asker and the goroutine agree by an asymmetric Dekker:
//
//   asker (presumeBlocked)               goroutine (acquirem, the handler)
//     A1  presumed: kNot → kAsked          B1  locks = 1
//     A2  asymmetricHeavy                  B2  asymmetricLight
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
// Preempted in place. A thread that runs is sent SIGURG. The handler acts if it
// has interrupted the goroutine's own code (locks == 0, and no other handler).
// That code may be on the goroutine's stack or on one that the program has
// made. The handler
//  * puts the goroutine on the global queue, bound to its thread as by
//    LockOSThread,
//  * lets go of the P,
//  * sleeps inside the handler until a scheduler hands the thread a P for this
//    goroutine.
// The interrupted code may hold any lock and be in the middle of malloc: it
// continues on the same thread as if nothing had happened. This is
// KLT-switching of Shiina, Iwasaki, Taura and Balaji, "Lightweight Preemptive
// User-Level Threads", PPoPP 2021.
//
// A goroutine preempted while holding a lock always runs again: the global
// queue is FIFO. (A goroutine that returned its P to a stop-the-world goes back
// to the front, but not twice in a row; see requeueDuringStop.) Other
// goroutines that block on that lock are presumed blocked and lose their Ps.
// The template thread may block on the lock too, for example on malloc's in
// pthread_create. So if there is no idle thread for a P, the P goes to the
// oldest goroutine preempted in place, and a thread is only ordered (startm). A
// P that waits for a thread which does not come is taken back (takeStartingP).
//
// Invariants:
//  (P1) presumed is kTaken only from A4 until its M comes in. Meanwhile M.p is
//       not the M's own, and nothing looks at it before reenter clears it.
//  (P2) In the handler m.locks is 1 and the current G is g0, although the stack
//       is the signal stack.
//  (P3) The handler does not allocate. It takes only the runtime's own locks,
//       which the interrupted code cannot hold (locks == 0).
//  (P4) Only its thread resumes a G with inPlace set. From before the G is
//       queued until it runs again, gp->sched has the handler's context, which
//       is on the signal stack. From there dumps walk into the code that was
//       interrupted.
//  (P5) Only one asker asks at a time. With two, one might take the other's
//       kAsked for its own, long after its A3, or look at a P that the other
//       has taken but not yet marked.
//  (P6) Each kPresumedTaken of an M has a generation above its bits, and the P
//       remembers it (takenAs). A generation is used again only after 2^28
//       questions. Without it, an asker that gives a P back could mistake a
//       later loss, of another P, for its own (ABA).
//
// Rejected:
//  * Rewriting the interrupted context to call a function, as Go does. C++ code
//    has no map of the places where that is safe.
//  * Preempting only outside of libc. Code that is always inside would never
//    yield, and finding out costs a table.
#include <signal.h>

#include <algorithm>
#include <cstring>

#include "runtime/diag/fuzzsched.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/stats.h"
#include "runtime/sched/proc.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/print.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/signal.h"

namespace gump::rt {

namespace {
// ns after which a stop of the world assumes that a running thread computes,
// even if the thread has had no processor.
constexpr int64_t kStopPatience = 1'000'000;

int64_t gapFor(ForcePreempt how) {
  return how == ForcePreempt::kStop ? kStopGap : kForcePreemptGap;
}
}  // namespace

// ---- Presumed blocked -------------------------------------------------------

namespace {

// One asker at a time (P5). Nothing that waits is allowed meanwhile.
Atomic<bool> asking;

void beginAsking() {
  // Pairs with the release in endAsking. The asker is in the runtime, and done
  // in microseconds.
  while (!asking.cas(false, true, acquire)) osyield();
}
void endAsking() { asking.store(false, release); }

// tryPresume is A1 to A4 and the work that follows a yes.
bool tryPresume(P* pp, M* mp, G* gp) {
  const uint32_t tick = pp->schedtick.load(relaxed);
  const uint32_t mark = mp->presumed.load(relaxed) & kPresumedMarked;
  // A1. The CAS fails if the P is taken already.
  if (!mp->presumed.cas(mark, mark | kPresumedAsked, relaxed)) return false;
  asymmetricHeavy();  // A2
  // A3 comes after A2. The CAS of A4 decides.
  const bool away = mp->locks.load(acquire) == 0 &&
                    mp->curg.load(acquire) == gp && pp->m.load(acquire) == mp &&
                    pp->schedtick.load(acquire) == tick &&
                    pp->status.load(acquire) == kPrunning;
  // A4. acq_rel: we see the M's writes to the P, and reenter sees ours.
  const uint32_t taken =
      kPresumedTaken | (++mp->presumedGen << kPresumedGenShift);  // (P6)
  const uint32_t verdict = away ? taken : mark;
  if (!mp->presumed.cas(mark | kPresumedAsked, verdict, acq_rel)) return false;
  if (!away) return false;
  pp->takenAs = taken;
  sched.npresumed.add(1, relaxed);  // a hint for sysmon
  stats.presumptions.add(1, relaxed);
  pp->m.store(nullptr, relaxed);
  setPStatus(pp, kPrunning, kPidle);
  return true;
}

// tryGiveBack is giveBackP. Its caller is the one asker.
bool tryGiveBack(P* pp, M* mp) {
  setPStatus(pp, kPidle, kPrunning);
  pp->m.store(mp, release);  // as acquirep
  // Marked: the next entry of mp into the runtime need not do anything, but
  // must take the slow path, in case mp was marked before. acq_rel: as A4.
  if (mp->presumed.cas(pp->takenAs, kPresumedMarked, acq_rel)) {
    sched.npresumed.add(-1, relaxed);  // as above
    return true;
  }
  // mp has come in since, and knew that it had lost the P (endPresumption).
  pp->m.store(nullptr, relaxed);
  setPStatus(pp, kPrunning, kPidle);
  return false;
}

}  // namespace

bool giveBackP(P* pp, M* mp) {
  // No other asker may take pp from mp, to which it seems to belong here,
  // before it is settled whether mp has it. mp may be asleep again, with
  // another P.
  beginAsking();
  const bool given = tryGiveBack(pp, mp);
  endAsking();
  return given;
}

bool presumeBlocked(P* pp, M* mp, G* gp) {
  if (!haveMembarrier) return false;  // B2 would be no barrier
  // Pairs with the release in endAsking.
  if (!asking.cas(false, true, acquire)) return false;
  const bool taken = tryPresume(pp, mp, gp);
  endAsking();
  return taken;
}

namespace {

// endPresumption ends a presumption about mp, which is in the runtime again.
// Returns true if its P is gone.
bool endPresumption(M* mp) {
  for (;;) {
    // The answer to B3. Pairs with A4.
    const uint32_t s = mp->presumed.load(acquire);
    if (!mp->presumed.cas(s, kPresumedNot, acq_rel)) continue;
    if ((s & kPresumedTaken) == 0) return false;
    sched.npresumed.add(-1, relaxed);  // as above
    mp->p = nullptr;
    mp->oldp = nullptr;
    return true;
  }
}

// setInterrupted records, on gp's own thread, that gp is preempted in place.
// countEntry records that gp has entered the runtime by itself.
void setInterrupted(G* gp) {
  const uint32_t n = gp->interrupted.load(relaxed);  // written by its thread
  gp->interrupted.store(n | 1, release);  // pairs with the loads of EntryWatch
}
void countEntry(G* gp) {
  const uint32_t n = gp->interrupted.load(relaxed);  // as above
  gp->interrupted.store((n | 1) + 1, release);
}

}  // namespace

bool reenterNoPark(M* mp) {
  // (F1) of fork.cc. Written by this very thread.
  if ((mp->presumed.load(relaxed) & kPresumedForked) != 0) dieForked();
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

M* reenter(M* mp) {
  if (!reenterNoPark(mp)) return mp;
  casgstatus(getg(), kGrunning, kGsyscall);
  return exitsyscallNoP();
}

// ---- Where a thread is ------------------------------------------------------

namespace {

// fieldOf returns the text after "name:\t" in a file of such lines, or nullptr
// if there is no such line.
const char* fieldOf(const char* text, const char* name) {
  const size_t n = strlen(name);
  for (const char* line = text; line != nullptr;) {
    if (strncmp(line, name, n) == 0 && line[n] == ':') return line + n + 2;
    line = strchr(line, '\n');
    if (line != nullptr) line++;
  }
  return nullptr;
}

}  // namespace

ThreadState threadState(int32_t tid, uint64_t* sleeps) {
  char path[64];
  Writer w{.buf = path, .cap = sizeof(path) - 1, .fd = kNoFd};
  print(&w, "/proc/self/task/%d/status", tid);
  path[w.len] = '\0';
  char text[4096];
  const int64_t n = readFile(path, text, sizeof(text) - 1);
  if (n <= 0) return ThreadState::kUnseen;
  text[n] = '\0';
  const char* state = fieldOf(text, "State");
  const char* count = fieldOf(text, "voluntary_ctxt_switches");
  if (state == nullptr || count == nullptr) return ThreadState::kUnknown;
  *sleeps = 0;
  for (; *count >= '0' && *count <= '9'; count++) {
    *sleeps = 10 * *sleeps + static_cast<uint64_t>(*count - '0');
  }
  switch (*state) {
    case 'S':
    case 'D':
      return ThreadState::kAsleep;
    case 'R':
      return ThreadState::kRunning;
    default:
      return ThreadState::kUnknown;  // stopped, traced or dying
  }
}

// A thread that has woken only to go to sleep again must not be sent a signal,
// which could cut that sleep short. A thread that has woken but has no
// processor yet is still in the call in which it slept: poll would return EINTR
// although its time is up. Its CPU clock stands still, which distinguishes it
// from a thread that computes.
bool computes(M* mp, int32_t tid, uint64_t sleeps, ForcePreempt how) {
  const int64_t gap = gapFor(how);
  const int64_t now = nanotime();
  const int64_t cpu = threadCpuTime(tid);
  // Several threads may force the same goroutine at once. The acquire pairs
  // with the release below, so a count comes with its clocks, or with other
  // clocks of the same time awake.
  if (mp->forcePreemptSleeps.load(acquire) != sleeps ||
      mp->forcePreemptTime.load(relaxed) == 0) {
    mp->forcePreemptTime.store(now, relaxed);
    mp->forcePreemptCpu.store(cpu, relaxed);
    mp->forcePreemptSleeps.store(sleeps, release);
    return false;
  }
  const int64_t seen = now - mp->forcePreemptTime.load(relaxed);
  if (seen < gap) return false;
  // The thread last slept in our own handler.
  if (mp->resumedSleeps.load(relaxed) == sleeps) return true;
  // Half of it, because the hypervisor's share is on no clock. If the CPU clock
  // cannot be read (-1), the time awake has to do.
  return cpu < 0 || cpu - mp->forcePreemptCpu.load(relaxed) >= gap / 2 ||
         (how == ForcePreempt::kStop && seen >= kStopPatience);
}

namespace {

// stateByClock tells the state of mp's thread from the progress of its CPU
// clock since the last look, at least gap ns ago. A thread that has used
// nothing sleeps, or waits for a processor. It does not wait for our processor,
// because the thread that looks sleeps in between (except in the first 20 µs of
// a stop of the world). A thread computes if it has used nearly all of the
// time, or, beside others, a good part. In the second case a sleep may be cut
// short.
ThreadState stateByClock(M* mp, int32_t tid, int64_t gap) {
  constexpr int64_t kLateTimerNS = 100'000'000;
  constexpr int64_t kGoodPartNS = 1'000'000;
  const int64_t now = nanotime();  // first: CPU time used later counts as well
  const int64_t cpu = threadCpuTime(tid);
  if (cpu < 0) return ThreadState::kUnknown;
  // Several threads may look at once. A mixed pair costs one more look.
  const int64_t elapsed = now - mp->clockTime.load(relaxed);
  const int64_t used = cpu - mp->clockCpu.load(relaxed);
  if (elapsed < gap) return ThreadState::kUnknown;
  mp->clockTime.store(now, relaxed);
  mp->clockCpu.store(cpu, relaxed);
  if (elapsed >= kLateTimerNS) return ThreadState::kUnknown;
  if (used == 0) return ThreadState::kAsleep;
  return used >= std::min(elapsed - elapsed / 8, kGoodPartNS)
             ? ThreadState::kRunning
             : ThreadState::kUnknown;
}

// look returns the state of mp's thread. It says kRunning only if the thread
// has computed for long enough.
ThreadState look(M* mp, int32_t tid, ForcePreempt how) {
  uint64_t sleeps;
  const ThreadState state = threadState(tid, &sleeps);
  if (state == ThreadState::kUnseen) {
    return stateByClock(mp, tid, gapFor(how));
  }
  return state != ThreadState::kRunning || computes(mp, tid, sleeps, how)
             ? state
             : ThreadState::kUnknown;
}

}  // namespace

void preemptM(M* mp) {
  if (debug.asyncpreemptoff != 0) return;
  // At most one signal is on its way. This comes before the look at procid,
  // because minit writes procid before it clears signalSent. So a thread that
  // takes the struct over misses no signal. Where handlers are deferred, the
  // signal may be kept for a fibre that the thread has left meanwhile, and
  // handled only there. Then another is sent, to the fibre that the thread is
  // on now.
  // A signal that is a slice old was lost, for example to a handler in our
  // place, so send another. If the thread has merely had no processor, the
  // kernel merges the two, and no later sleep of the thread is cut short.
  const int64_t now = nanotime();
  const int64_t sent = mp->signalSent.load(relaxed);  // the CAS decides
  const bool due = sent == 0 || now - sent >= kForcePreemptNS;
  if (!(due && mp->signalSent.cas(sent, now, acq_rel)) &&
      !kSanitizerDefersHandlers) {
    return;
  }
  const int32_t tid = mp->procid.load(acquire);  // pairs with minit
  if (tid == 0) {
    mp->signalSent.store(0, relaxed);
  } else {
    tgkill(tid, SIGURG);
  }
}

M* forcePreempt(P* pp, ForcePreempt how) {
  M* mp = pp->m.load(acquire);  // pairs with acquirep
  if (mp == nullptr) return nullptr;
  G* gp = mp->curg.load(acquire);  // pairs with execute
  // In the scheduler, or elsewhere in the runtime: it looks at the request by
  // itself.
  if (gp == nullptr || mp->locks.load(relaxed) != 0) return nullptr;
  const int32_t tid = mp->procid.load(acquire);  // pairs with minit
  if (tid == 0) return nullptr;
  const ThreadState state = look(mp, tid, how);
  if (state == ThreadState::kAsleep && haveMembarrier) {
    const bool take = how == ForcePreempt::kStop || threadForP();
    return take && presumeBlocked(pp, mp, gp) ? mp : nullptr;
  }
  // Without membarrier a thread that sleeps is sent the signal too. Its call
  // may return EINTR; see docs/preemption.md.
  if (how != ForcePreempt::kIfAsleep &&
      (state == ThreadState::kAsleep || state == ThreadState::kRunning)) {
    preemptM(mp);
  }
  return nullptr;
}

void preemptPless() {
  // While a thread is being made, a running goroutine may hold a lock that
  // pthread_create waits for. The P that is meant for the new thread may be the
  // only one.
  if (sched.nmstarting.load(relaxed) > 0) return;  // a hint; asked again soon
  for (M* mp = allm.load(acquire); mp != nullptr;
       mp = mp->alllink) {  // pairs with mcommoninit
    // Hints: the handler decides.
    if ((mp->presumed.load(relaxed) & kPresumedTaken) == 0) continue;
    if (mp->locks.load(relaxed) != 0) continue;
    const int32_t tid = mp->procid.load(acquire);  // pairs with minit
    if (tid != 0 &&
        look(mp, tid, ForcePreempt::kHandOff) == ThreadState::kRunning) {
      preemptM(mp);
    }
  }
}

// ---- Preempted in place -----------------------------------------------------

namespace {

// pOf returns the P of mp, which is this thread's M, or nullptr if mp has none
// or it has been taken. The P may be taken at any time until endPresumption.
const P* pOf(const M* mp) {
  const bool taken = (mp->presumed.load(relaxed) & kPresumedTaken) != 0;
  return taken ? nullptr : mp->p;  // (P1)
}

// wanted tells whether there is a request for gp to stop.
bool wanted(const G* gp, const M* mp) {
  // These are requests. The threads that made them repeat them.
  if ((mp->presumed.load(relaxed) & kPresumedTaken) != 0) return true;
  return mp->p != nullptr &&
         (gp->preempt.load(relaxed) || mp->p->preempt.load(relaxed) ||
          sched.gcwaiting.load(relaxed) ||
          mp->p->runSafePointFn.load(relaxed) != 0);
}

// noMResumes tells whether a goroutine that is preempted in place now would
// never go on. That is so if main has ended, and neither a stop of the world
// nor a visit of its P, pp (nullptr: it was taken), is under way (the end of
// either would release it). For the handler the answer is a hint. queueInPlace
// asks again, under sched.lock.
bool noMResumes(const P* pp) {
  return sched.mainEnded.load(acquire) &&   // pairs with endMain
         !sched.gcwaiting.load(acquire) &&  // pairs with startTheWorld
         // Pairs with askEveryP.
         (pp == nullptr || pp->runSafePointFn.load(acquire) == 0);
}

// queueInPlace puts gp onto the global queue. Returns false if nothing would
// take gp from there, and then gp goes on as it is.
bool queueInPlace(G* gp) {
  // Main ends, and a stop begins and ends, under this lock. A visit does not
  // end before our P has been visited, which is after this section.
  LockScope l(&sched.lock);
  if (noMResumes(gp->m->p)) return false;
  casgstatus(gp, kGrunning, kGrunnable);
  dropg();
  globrunqput(gp);  // from here on a scheduler may hand us a P
  return true;
}

// preemptInPlace is the handler's sleep. It has a frame of its own: see
// sanitizerEnterSignal.
// On: the signal stack, (P2).  P: maybe lost.  Locks: takes sched.lock.
// Parks: blocks the thread.
void preemptInPlace(G* gp) {
  M* mp = gp->m;
  // Before the P changes hands, and before the presumption ends, because a
  // grace period looks at that first (awaitInterrupted).
  setInterrupted(gp);
  const bool lost =
      mp->presumed.load(relaxed) != kPresumedNot && endPresumption(mp);  // B3
  setg(&mp->g0);
  const bool locked = gp->lockedm != nullptr;
  gp->inPlace = true;
  sched.ninplace.add(1, relaxed);  // a hint
  stats.preemptions.add(1, relaxed);
  gp->lockedm = mp;
  mp->lockedg = gp;
  if (!lost) mp->p->preempt.store(false, relaxed);  // as in gopreempt
  if (queueInPlace(gp)) {
    if (lost) wakep();
    stoplockedm();
    if (mp->p != nullptr) {
      (void)fuzzExecute(gp, /*inheritTime=*/false);
    } else {  // releasePreempted has released gp
      gp->m = mp;
      mp->curg.store(gp, release);  // pairs with the acquire in preemptone
    }
  }
  // The next acquirem must take the slow path, if only to record that the
  // goroutine has entered the runtime.
  if (mp->p == nullptr) {
    markPLost(mp);
  } else {
    // A concurrent asker loses at its A4 because of this store.
    mp->presumed.store(kPresumedMarked, relaxed);
  }
  if (!locked) {
    gp->lockedm = nullptr;
    mp->lockedg = nullptr;
  }
  gp->inPlace = false;
  sched.ninplace.add(-1, relaxed);  // as above
  mp->resumedSleeps.store(ownSleeps(), relaxed);
  setg(gp);
}

}  // namespace

void releasePreempted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  GQueue rest;
  while (G* gp = sched.runq.pop()) {
    if (!gp->inPlace) {
      rest.pushBack(gp);
      continue;
    }
    M* mp = gp->lockedm;
    casgstatus(gp, kGrunnable, kGrunning);
    gp->putBack = false;
    sched.nmidlelocked--;  // as startlockedm
    notewakeup(&mp->park);
  }
  sched.runq = rest;
  sched.runqsize.store(rest.size, relaxed);  // a hint outside the lock
}

bool mayLeaveStackAt(const M* mp, uintptr_t sp) {
  return !kSanitizerBuild && sp - mp->signalStackLo >= mp->signalStackSize &&
         !isPanickingHere();
}

void preemptedBySignal(uintptr_t sp) {
  G* gp = getg();
  if (gp == nullptr || gp->m == nullptr) return;
  M* mp = gp->m;
  mp->signalSent.store(0, relaxed);  // see preemptM
  if (gp->foreign || gp == &mp->g0 || mp->curg.load(relaxed) != gp ||
      mp->locks.load(relaxed) != 0) {
    return;
  }
  const bool onOther = !onOwnStack(gp, sp);
  if (onOther && !mayLeaveStackAt(mp, sp)) return;
  gp->onOtherStack = onOther;
  mp->locks.store(1, relaxed);  // B1
  asymmetricLight();            // B2
  // In a child of fork no thread would wake us, even before its handler has
  // run.
  if (wanted(gp, mp) && !noMResumes(pOf(mp)) && inOwnProcess()) {
    sanitizerEnterSignal(gp, mp);
    gumpCallSaved(preemptInPlace, gp);  // (P4)
    sanitizerLeaveSignal(gp);
  }
  gp->onOtherStack = false;
  mp->locks.store(0, release);  // as releasem
}

// ---- Grace periods ----------------------------------------------------------

namespace {

// lostItsP tells whether gp's P was taken, and perhaps given back, and gp has
// not entered the runtime since. gp does not know yet, so its M tells.
bool lostItsP(const G* gp) {
  const M* mp = peek(gp->m);
  constexpr uint32_t kLost = kPresumedTaken | kPresumedMarked;
  return mp != nullptr && mp->curg.load(acquire) == gp &&
         (mp->presumed.load(acquire) & kLost) != 0;
}

}  // namespace

// A goroutine that has lost its P goes from lost to interrupted without an
// entry if it wakes up, computes, and is preempted. That may happen between our
// looks at the one and the other. So the first odd number from the beginning of
// the watch on does not show an entry. Every higher number does.
EntryWatch::EntryWatch(const G* g)
    : gp(g), n(g->interrupted.load(acquire) | 1) {}  // see setInterrupted

bool EntryWatch::entered() {
  const bool lost = lostItsP(gp);
  // The thread writes interrupted first, so we read it last. For the first look
  // the order of the writes is enough, because a goroutine that was lost wrote
  // the two in order (endPresumption). Before a later look the goroutine may
  // have entered the runtime. Its M is written with no order of its own, so
  // that look needs a barrier.
  if (!lost && looked) {
    asymmetricHeavy();
  } else {
    fence(acquire);
  }
  looked = true;
  const uint32_t now = gp->interrupted.load(acquire);  // see setInterrupted
  return static_cast<int32_t>(now - n) > 0 || (!lost && now % 2 == 0);
}

void awaitInterrupted() {
  forEachG(
      [](G* gp, void*) {
        EntryWatch watch(gp);
        while (!watch.entered()) {
          // It may sleep for hours, and no thread will tell us. So wait without
          // the P.
          entersyscall();
          usleep(1000);
          exitsyscall();
        }
      },
      nullptr);
}

}  // namespace gump::rt
