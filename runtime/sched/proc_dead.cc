// The deadlock detector, and the scheduler's trace.
//
// checkdead is called under sched.lock whenever an M goes idle for good. While
// main runs, it counts Ms (findDead). After main, it also looks at foreign
// threads, which park without that lock. The protocol is at findDeadAfterMain:
// F1 to F4, L1 to L3.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/diag/panic.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/extram.h"
#include "runtime/sched/group.h"
#include "runtime/sched/mfinal.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sched/numa.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stack.h"
#include "runtime/sched/thread.h"
#include "runtime/sched/time.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/print.h"
#include "runtime/sys/sanitizer.h"

namespace gump::rt {

// ---- checkdead --------------------------------------------------------------

namespace {

// Unless they say otherwise, the functions of this section have this context:
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.

// Census counts the goroutines of the program, by status.
struct Census {
  int32_t waiting = 0;
  int32_t runnable = 0;  // in a queue, for a thread or for a stack
  // A goroutine with the status of one that runs, or is in a system call.
  const G* busy = nullptr;
};

// countG adds gp to the Census in arg.
// On: any.  P: either.  Locks: none.  Parks: no.
void countG(G* gp, void* arg) {
  auto* c = static_cast<Census*>(arg);
  const uint32_t status = readgstatus(gp) & ~uint32_t{kGscan};
  if (status == kGidle || status == kGdead || isSystemGoroutine(gp)) return;
  switch (status) {
    case kGwaiting:
      c->waiting++;
      break;
    case kGrunnable:
      c->runnable++;
      break;
    case kGrunning:
    case kGsyscall:
      c->busy = gp;
      break;
    default:
      break;
  }
}

// How long goroutines that have no stack may wait, while no goroutine runs,
// before that is a deadlock. Both limits must be reached: the time in ns, and
// the number of looks. For each try to get a stack there are several looks.
// They are counted because the threads that try may get no processor time.
constexpr int64_t kStackWait = 100'000'000;
constexpr int32_t kStackLooks = 30;
int32_t stackWaitLooks ABSL_GUARDED_BY(sched.lock) = 0;
int64_t stackWaitBegan ABSL_GUARDED_BY(sched.lock) = 0;
uint32_t stackWaitSlices ABSL_GUARDED_BY(sched.lock) = 0;  // slicesBegun then

// slicesBegun changes when a goroutine has run. None runs now.
uint32_t slicesBegun() {
  uint32_t sum = 0;
  const int32_t n = gomaxprocs.load(relaxed);
  for (int32_t i = 0; i < n; i++) sum += allp[i]->schedtick.load(relaxed);
  return sum;
}

// stackMayCome returns true if goroutines wait for a stack, but have not waited
// for long. The kernel may refuse memory now, and give it when sysmon has a
// goroutine try again. Each time a goroutine has run, a new wait begins.
bool stackMayCome() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (sched.nostack.empty()) return false;
  const int64_t now = nanotime();
  const uint32_t slices = slicesBegun();
  if (slices != stackWaitSlices) {
    stackWaitSlices = slices;
    stackWaitBegan = now;
    stackWaitLooks = 0;
  }
  stackWaitLooks++;
  return now - stackWaitBegan < kStackWait || stackWaitLooks < kStackLooks;
}

// running returns how many Ms could still wake a goroutine.
int64_t running() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  return mcount() - sched.nmidle - sched.nmidlelocked - sched.nmsys;
}

// hasUnknownThreads returns true if the process has threads that are neither
// ours nor known to us. A foreign thread is noticed only when it first uses the
// runtime, and until then a goroutine may rightly wait for it. If we look
// `closely`, inert threads do not count. Those run no code of the program
// (inertThreads), so they wake no goroutine. (Some are threads of the kernel
// that work for an io_uring. A goroutine that waits for such work is woken by
// the thread that takes its completion from the ring.)
//
// Threads come and go meanwhile. A mistake may delay the report of a deadlock,
// but it must not cause a report, which would end a program that is right. So
// we do not list the unknown threads, because a listing may miss some. Instead
// we subtract inert threads from the count of all threads. We subtract only
// those that are listed both before and after the count is made, because they
// were there when it was made. An inert thread that is not in both lists counts
// as unknown. inertThreads may have missed it, or had no room for it. If there
// is no count, because /proc is missing, we return true.
bool hasUnknownThreads(bool closely) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  const int64_t ours = mcount() + sched.nmextra + kSanitizerThreads;
  const int64_t all = threadCount();
  if (all != 0 && all <= ours) return false;
  if (all == 0 || !closely) return true;
  constexpr size_t kMost = 64;
  int32_t before[kMost];
  int32_t after[kMost];
  const size_t n = inertThreads(before, kMost);
  const int64_t threads = threadCount();
  int32_t* const end = after + inertThreads(after, kMost);
  const auto stayed = std::count_if(before, before + n, [&](int32_t tid) {
    return std::find(after, end, tid) != end;
  });
  return threads == 0 || threads - stayed > ours;  // 0: /proc is gone again
}

// dead reports that no thread runs and none will.
[[noreturn]] void dead(const Census& c, int32_t nostack)
    ABSL_UNLOCK_FUNCTION(sched.lock) {
  claimDeathAndUnlock(&sched.lock);
  if (c.busy != nullptr || c.runnable > nostack) {
    printf(
        "runtime: checkdead: no thread runs, yet %d goroutines are runnable, "
        "%d of them without a stack, %d in a full group; "
        "busy goroutine: %U\n",
        c.runnable, nostack, groupsQueued(),
        c.busy == nullptr ? uint64_t{0} : c.busy->goid);
    fatalthrow("checkdead: runnable g");
  }
  if (nostack > 0) {
    printf("runtime: %d goroutines cannot begin: %s\n", nostack,
           stackLastError());
    fatalAll(
        "all other goroutines are asleep and no memory for a stack - "
        "deadlock!");
  }
  if (c.waiting == 0) {
    fatalAll("no goroutines (main called runtime.Goexit) - deadlock!");
  }
  fatalAll("all goroutines are asleep - deadlock!");
}

// breakUselessPoll makes the last M that runs leave the poller if it polls for
// nothing. That M then looks again, and comes here. (Go reports the deadlock
// only when the timer would have been due.) That M sets lastpoll, and then asks
// isUselessPoll under this lock. So either the M finds that its poll is
// useless, or we find its lastpoll == 0.
void breakUselessPoll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (sched.lastpoll.load(relaxed) == 0 && isUselessPoll()) netpollBreak();
}

// awaitUnknownThreads makes sysmon look again, less and less often.
void awaitUnknownThreads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  sched.deadSuspect.store(true, relaxed);  // read by sysmon under this lock
  wakeSysmonLocked();
}

// foreignThreadsSleep returns true if all foreign threads that have used the
// library are parked in it. One that is not may wake the others.
bool foreignThreadsSleep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  bool all = true;
  forEachForeign(
      [](G* gp, void* result) {
        const uint32_t status = readgstatus(gp);  // dead: its thread has ended
        if (status == kGdead) return;
        if (status != kGwaiting || !gp->m->asleep.load(seq_cst)) {
          *static_cast<bool*>(result) = false;
        }
      },
      &all);
  return all;
}

// findDeadAfterMain is findDead when Run has returned. Goroutines are left over
// that no M runs, and foreign threads may wait for them. If no other thread is
// left, none can call Run again.
//
// Foreign threads park and wake up without sched.lock. The report must rest on
// one moment at which all of them sleep and none waits for a descriptor. So we
// look at them twice, and at the count of waiters in between:
//
//   thread (parkForeign)                  here, under sched.lock
//     F1  kGwaiting                         L1  all: kGwaiting, then asleep?
//     F2  commits; a waiter for a           L2  are there waiters?
//         descriptor has counted itself     L3  as L1
//     F3  asleep = true, under sched.lock
//     F4  woken: asleep = false
//         -- before its next F1 --
//
// A thread seen asleep at both L1 and L3 was asleep throughout. Had it been
// woken in between, L3 would have seen kGrunnable, kGrunning, or its next F1
// and with it F4's asleep = false. Its next F3 waits for our lock. So if it
// waits for a descriptor, it was counted at L2, because its waker readies it
// first and counts down second.
//
// For speed, F3 is done without the lock if the thread sees that main has not
// ended. All these accesses are seq_cst, so F4 and the next F1 to F3 cannot all
// come after L1. If F4 followed L1, it would also follow the store of
// mainEnded, which precedes L1, and the thread would have seen that store.
void findDeadAfterMain(bool closely) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (sched.nmextra == 0) return;
  if (running() > 0) {
    breakUselessPoll();
    return;
  }
  if (timersPending() || !foreignThreadsSleep() || netpollAnyWaiters() ||
      !foreignThreadsSleep()) {
    return;
  }
  if (hasUnknownThreads(closely)) {
    awaitUnknownThreads();
    return;
  }
  claimDeathAndUnlock(&sched.lock);
  fatalAll("all goroutines are asleep - deadlock!");
}

// findDead is both checkdead and recheckdead. checkdead is called whenever a
// thread goes idle for good or turns out to be one of the runtime's own.
//
// findDead counts the Ms that are not idle. When there is none, no thread is
// left to wake the goroutines that wait. A thread that wakes an M, or is about
// to make one, has counted it as running before it drops sched.lock. So a
// hand-over never looks like the end.
//
// findDead is silent
//  * while a foreign thread that has used the runtime lives, because it may
//    come back and wake any goroutine (as in Go, with C threads);
//  * if there has been no Run yet, for the same reason;
//  * if the process is ending anyway.
void findDead(bool closely) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (isDeathClaimed() || isPanicking()) return;
  const bool ended = sched.mainEnded.load(relaxed);  // written under sched.lock
  if (ended && !sched.m0attached) findDeadAfterMain(closely);
  if (ended || !sched.m0attached || sched.nmextra > 0) return;
  int64_t run = running();
  if (run > 0) {
    breakUselessPoll();
    return;
  }
  if (run < 0) {
    int64_t count = mcount();
    int32_t idle = sched.nmidle;
    int32_t locked = sched.nmidlelocked;
    int32_t sys = sched.nmsys;
    claimDeathAndUnlock(&sched.lock);
    printf("runtime: checkdead: nmidle=%d nmidlelocked=%d mcount=%D nmsys=%d\n",
           idle, locked, count, sys);
    fatalthrow("checkdead: inconsistent counts");
  }
  // A timer will still fire. The M that sleeps for it is about to do so, or has
  // just been woken.
  if (timersPending()) return;
  if (hasUnknownThreads(closely) || stackMayCome()) {
    // An unknown thread may be about to call us, or there may be memory again.
    awaitUnknownThreads();
    return;
  }
  Census c;
  forEachG(countG, &c);
  dead(c, sched.nostack.size);
}

}  // namespace

bool timersPending() {
  const int32_t n = gomaxprocs.load(relaxed);
  for (int32_t i = 0; i < n; i++) {
    const Timers& ts = allp[i]->timers;
    if (static_cast<int32_t>(ts.len.load(relaxed)) > ts.zombies.load(relaxed)) {
      return true;
    }
  }
  return false;
}

bool isUselessPoll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  return running() == 1 && !netpollAnyWaiters() && !timersPending();
}

void checkdead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  findDead(/*closely=*/false);
}

void recheckdead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  findDead(/*closely=*/true);
}

void incidlelocked(int32_t v) {
  LockScope l(&sched.lock);
  sched.nmidlelocked += v;
  if (v > 0) checkdead();
}

void becomeSystemThread() {
  LockScope l(&sched.lock);
  sched.nmsys++;
  checkdead();
}

void checkIdleLists() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  // Counted down, so that the loop ends even if the links form a ring.
  int32_t ps = sched.npidle.load(relaxed);  // written under sched.lock
  int32_t ms = sched.nmidle;
  const int32_t nodes = sched.nnodes.load(relaxed);  // as above
  for (int32_t k = 0; k < nodes; k++) {
    const P* pp = sched.nodes[k].pidle;
    for (; pp != nullptr && ps > 0; pp = pp->link, ps--) {
      if (pp->status.load(relaxed) != kPidle || !runqempty(pp)) {
        fatalthrow("checkIdleLists: idle P that is not");
      }
    }
    if (pp != nullptr) fatalthrow("checkIdleLists: bad npidle");
    const M* mp = sched.nodes[k].midle;
    for (; mp != nullptr && ms > 0; mp = mp->schedlink) ms--;
    if (mp != nullptr) fatalthrow("checkIdleLists: bad nmidle");
  }
  if (ps != 0) fatalthrow("checkIdleLists: bad npidle");
  if (ms != 0) fatalthrow("checkIdleLists: bad nmidle");
  // Each P is idle, running or in a system call. It may be stopped only while
  // gcwaiting is set, which changes under sched.lock. A P becomes kPidle before
  // it is put on the list, so the list may lack an idle P.
  const int32_t procs = gomaxprocs.load(relaxed);  // written under sched.lock
  for (int32_t i = 0; i < procs; i++) {
    const uint32_t status = allp[i]->status.load(relaxed);  // as above
    if (status == kPdead ||
        (status == kPgcstop && !sched.gcwaiting.load(relaxed))) {
      fatalthrow("checkIdleLists: lost P");
    }
  }
}

// ---- schedtrace -------------------------------------------------------------

namespace {

int64_t traceStart;  // time of the first trace; guarded by sched.lock

const char* boolText(bool b) { return b ? "true" : "false"; }

// printId prints "m=3" or "m=nil".
void printId(Writer* w, const char* key, bool some, int64_t id) {
  if (some) {
    print(w, " %s=%D", key, id);
  } else {
    print(w, " %s=nil", key);
  }
}

void traceQueues(Writer* w, int32_t n) {
  print(w, " [");
  for (int32_t i = 0; i < n; i++) print(w, " %u", runqlen(allp[i]));
  print(w, " ] schedticks=[");
  for (int32_t i = 0; i < n; i++) {
    print(w, " %u", allp[i]->schedtick.load(relaxed));  // a trace
  }
  print(w, " ]\n");
}

void traceP(Writer* w, int32_t i) {
  const P* pp = allp[i];
  const M* mp = pp->m.load(acquire);
  print(w, "  P%d: status=%u schedtick=%u syscalltick=%u", i,
        pp->status.load(relaxed), pp->schedtick.load(relaxed),  // a trace
        pp->syscalltick.load(relaxed));
  printId(w, "m", mp != nullptr, mp == nullptr ? 0 : mp->id);
  print(w, " runqsize=%u gfreecnt=%u timerslen=%u", runqlen(pp),
        peek(pp->gFreeN), pp->timers.len.load(relaxed));
  if (severalNodes()) print(w, " node=%d", pp->node.load(relaxed));
  print(w, "\n");
}

// traceNode prints a line that Go does not have, if there are several nodes.
// Locks: caller holds sched.lock, or is alone.
void traceNode(Writer* w, int32_t k) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const SchedNode& n = sched.nodes[k];
  int32_t ms = 0;
  for (const M* mp = n.midle; mp != nullptr && ms < sched.nmidle;
       mp = mp->schedlink) {
    ms++;
  }
  uint64_t runs = 0;
  uint64_t moves = 0;
  uint64_t steals = 0;
  uint64_t across = 0;
  for (int32_t i = n.firstP.load(relaxed);
       i < n.firstP.load(relaxed) + n.nprocs.load(relaxed); i++) {
    const NodeCounts& c = allp[i]->counts;  // a trace
    runs += c.runs.load(relaxed);
    moves += c.moves.load(relaxed);
    steals += c.steals.load(relaxed);
    across += c.stealsAcross.load(relaxed);
  }
  print(w,
        "  N%d: id=%d firstp=%d procs=%d idleprocs=%d idlethreads=%d "
        "spinningthreads=%d needspinning=%u runqsize=%d gfreecnt=%d",
        // A trace.
        k, topology.nodes[n.topologyIndex.load(relaxed)].id,
        n.firstP.load(relaxed), n.nprocs.load(relaxed), n.npidle.load(relaxed),
        ms, n.nmspinning.load(relaxed), n.needspinning.load(relaxed),
        n.runqsize.load(relaxed),
        sched.gPools[n.topologyIndex.load(relaxed)].n.load(relaxed));
  print(w, " runs=%U moves=%U steals=%U stealsacross=%U\n", runs, moves, steals,
        across);
}

void traceM(Writer* w, const M* mp) {
  const P* pp = peek(mp->p);
  const G* curg = mp->curg.load(acquire);
  const G* lockedg = peek(mp->lockedg);
  int32_t locks = mp->locks.load(relaxed);  // a trace
  // (K3) of proc_park.cc counts one on g0, and Go counts none.
  if (curg == nullptr && locks > 0) locks--;
  print(w, "  M%D:", mp->id);
  printId(w, "p", pp != nullptr, pp == nullptr ? 0 : pp->id);
  printId(w, "curg", curg != nullptr,
          curg == nullptr ? 0 : static_cast<int64_t>(peek(curg->goid)));
  print(w,
        " mallocing=0 throwing=%d preemptoff= locks=%d dying=%d spinning=%s "
        "blocked=%s",
        // A trace.
        peek(mp->throwing), locks, peek(mp->dying),
        boolText(peek(mp->spinning)), boolText(mp->blocked.load(relaxed)));
  printId(w, "lockedg", lockedg != nullptr,
          lockedg == nullptr ? 0 : static_cast<int64_t>(peek(lockedg->goid)));
  print(w, "\n");
}

void traceG(G* gp, void* arg) {
  auto* w = static_cast<Writer*>(arg);
  const M* mp = peek(gp->m);
  const M* lockedm = peek(gp->lockedm);
  print(w, "  G%U: status=%u(%s)", peek(gp->goid), readgstatus(gp),
        waitReasonString(peek(gp->waitreason)));
  printId(w, "m", mp != nullptr, mp == nullptr ? 0 : mp->id);
  printId(w, "lockedm", lockedm != nullptr,
          lockedm == nullptr ? 0 : lockedm->id);
  print(w, "\n");
}

// traceLocked is schedtrace under the lock. The functions above print for it.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void traceLocked(bool detailed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  int64_t now = nanotime();
  if (traceStart == 0) traceStart = now;
  char buf[1024];
  Writer w{.buf = buf, .cap = sizeof(buf), .fd = kStderr};
  // Under sched.lock no resize is half done.
  int32_t n = gomaxprocs.load(relaxed);
  print(&w,
        "SCHED %Dms: gomaxprocs=%d idleprocs=%d threads=%D spinningthreads=%d "
        "needspinning=%u idlethreads=%d "
        "runqueue=%d",
        // A trace.
        (now - traceStart) / 1'000'000, n, sched.npidle.load(relaxed), mcount(),
        sched.nmspinning.load(relaxed), sched.needspinning.load(relaxed),
        sched.nmidle, globalSize(relaxed) + allp[0]->nyielded.load(relaxed));
  if (!detailed) {
    traceQueues(&w, n);
    flush(&w);
    return;
  }
  print(&w, " gcwaiting=%s nmidlelocked=%d stopwait=%d sysmonwait=%s\n",
        boolText(sched.gcwaiting.load(relaxed)), sched.nmidlelocked,
        sched.stopwait, boolText(sched.sysmonwait.load(relaxed)));
  const int32_t nodes = sched.nnodes.load(relaxed);  // as above
  for (int32_t k = 0; nodes > 1 && k < nodes; k++) traceNode(&w, k);
  for (int32_t i = 0; i < n; i++) traceP(&w, i);
  for (const M* mp = allm.load(acquire); mp != nullptr;
       mp = mp->alllink) {  // pairs with mcommoninit
    traceM(&w, mp);
  }
  traceGroups(&w);
  forEachG(traceG, &w);
  flush(&w);
}

}  // namespace

void schedtrace(bool detailed) {
  LockScope l(&sched.lock);
  if (!isPanicking()) traceLocked(detailed);  // not amid the stacks of a dump
}

void schedtraceCrash() ABSL_NO_THREAD_SAFETY_ANALYSIS {  // see the loop
  // The holder of the lock may be the thread that fails, or may wait for that
  // thread. It gets 10 ms to finish. Then the trace is taken without the lock.
  bool locked = trylock(&sched.lock);
  for (int i = 0; i < 10 && !locked; i++) {
    usleep(1000);
    locked = trylock(&sched.lock);
  }
  traceLocked(/*detailed=*/true);
  if (locked) unlock(&sched.lock);
}

// gcount is the number of goroutines of the program. The caller is one of them,
// so it is never less than 1.
int32_t gcount() {
  int64_t n =
      static_cast<int64_t>(gcountAll()) - sched.gFreeN.load(relaxed) -
      sched.ngsys.load(relaxed);  // approximate while others run, as in Go
  const int32_t procs = gomaxprocs.load(acquire);  // pairs with procresize
  for (int32_t i = 0; i < procs; i++) {
    n -= peek(allp[i]->gFreeN);
  }
  for (const M* mp = allm.load(acquire); mp != nullptr;
       mp = mp->alllink) {  // pairs with mcommoninit
    n -= peek(mp->gFreeN);
  }
  return n < 1 ? 1 : static_cast<int32_t>(n);
}

}  // namespace gump::rt
