// The deadlock detector, and the scheduler's trace.
//
// checkdead is asked under sched.lock whenever an M goes idle for good. While
// main runs it counts Ms (findDead). After main it also looks at plain threads,
// which park without that lock (findDeadAfterMain, where the protocol stands:
// F1 to F4, L1 to L3).
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/netpoll.h"
#include "runtime/os_linux.h"
#include "runtime/panic.h"
#include "runtime/print.h"
#include "runtime/proc.h"
#include "runtime/sanitizer.h"
#include "runtime/stack.h"

namespace gump::rt {

// ---- checkdead --------------------------------------------------------------

namespace {

struct Census {
  int32_t waiting = 0;
  int32_t runnable = 0;  // on a queue, for a thread or for a stack
  // Running or in a system call, although no thread is.
  const G* busy = nullptr;
};

void countG(G* gp, void* arg) {
  auto* c = static_cast<Census*>(arg);
  const uint32_t status = readgstatus(gp) & ~uint32_t{kGscan};
  if (status == kGidle || status == kGdead || gp->systemG) return;
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

// How long goroutines that have no stack are given, while nobody runs, before
// that is taken for a deadlock: ns, and looks, of which there are some for each
// try, since the threads that try may get no time.
constexpr int64_t kStackPatience = 100'000'000;
constexpr int32_t kStackLooks = 30;
int32_t stackWaitLooks ABSL_GUARDED_BY(sched.lock) = 0;
int64_t stackWaitBegan ABSL_GUARDED_BY(sched.lock) = 0;
uint32_t stackWaitSlices ABSL_GUARDED_BY(sched.lock) = 0;  // slicesBegun then

// slicesBegun changes when somebody has run. Nobody does now.
uint32_t slicesBegun() {
  uint32_t sum = 0;
  const int32_t n = gomaxprocs.load(relaxed);
  for (int32_t i = 0; i < n; i++) sum += allp[i]->schedtick.load(relaxed);
  return sum;
}

// stackMayCome tells whether goroutines wait for a stack, and not for long yet:
// what the kernel refuses now it may give when sysmon has it tried again. Each
// time somebody has run, another wait begins.
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
  return now - stackWaitBegan < kStackPatience || stackWaitLooks < kStackLooks;
}

// running is how many Ms could still wake somebody.
int64_t running() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  return mcount() - sched.nmidle - sched.nmidlelocked - sched.nmsys;
}

// threadCount is how many threads the process has; 0: not to be known.
int64_t threadCount() {
  struct stat st;
  if (stat("/proc/self/task", &st) != 0) return 0;
  // A directory's links: itself, its name, and one for each subdirectory.
  return static_cast<int64_t>(st.st_nlink) - 2;
}

// anyStrangers tells whether the process has threads that are neither ours nor
// known to us: a plain thread is noticed only when it first uses the runtime,
// and until then a goroutine may rightly wait for it. Inert threads wake
// nobody: who waits for what the kernel's workers do waits for a completion,
// which some other thread has to take. They are left out if we look `closely`.
//
// Threads come and go meanwhile, and a mistake may only delay the report. So we
// do not look for strangers, of whom a listing may miss some, but subtract
// inert threads from the count, and only those that are listed before it and
// after it: they were there when it was made. One that is missed, or finds no
// room, makes us wait.
bool anyStrangers(bool closely) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  const int64_t ours = mcount() + sched.nmextra + kSanitizerThreads;
  if (threadCount() <= ours) return false;  // without /proc we see none
  if (!closely) return true;
  constexpr size_t kMost = 64;
  int32_t before[kMost];
  int32_t after[kMost];
  const size_t n = inertThreads(before, kMost);
  const int64_t threads = threadCount();
  int32_t* const end = after + inertThreads(after, kMost);
  const auto stayed = std::count_if(before, before + n, [&](int32_t tid) {
    return std::find(after, end, tid) != end;
  });
  return threads == 0 || threads - stayed > ours;  // 0: it has just been there
}

// claimReport makes this thread the one that reports: whoever takes the lock
// next would find the same, and print between our lines. It drops the lock,
// which the dump of scheddetail wants.
void claimReport() ABSL_UNLOCK_FUNCTION(sched.lock) {
  sched.foundDead = true;
  unlock(&sched.lock);
}

// dead reports that no thread runs and none will.
[[noreturn]] void dead(const Census& c, int32_t nostack)
    ABSL_UNLOCK_FUNCTION(sched.lock) {
  claimReport();
  if (c.busy != nullptr || c.runnable > nostack) {
    printf(
        "runtime: checkdead: no thread runs, yet %d goroutines are runnable, "
        "%d of them without a stack; "
        "busy goroutine: %U\n",
        c.runnable, nostack, c.busy == nullptr ? uint64_t{0} : c.busy->goid);
    fatalthrow("checkdead: runnable g");
  }
  if (nostack > 0) {
    printf("runtime: %d goroutines cannot begin: %s\n", nostack,
           stackLastError());
    fatal(
        "all other goroutines are asleep and no memory for a stack - "
        "deadlock!");
  }
  if (c.waiting == 0) {
    fatal("no goroutines (main called runtime.Goexit) - deadlock!");
  }
  fatal("all goroutines are asleep - deadlock!");
}

// breakVainPoll lets the last M that runs look again, and come here, if it
// polls for nothing. (Unlike Go, which reports the deadlock when the timer
// would have been due.) It has set lastpoll before it asked the same question
// under this lock.
void breakVainPoll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (sched.lastpoll.load(relaxed) == 0 && pollsInVain()) netpollBreak();
}

// awaitStrangers has sysmon look again, ever more rarely.
void awaitStrangers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  sched.deadSuspect.store(true, relaxed);  // read by sysmon under this lock
  wakeSysmonLocked();
}

// plainThreadsSleep tells whether all plain threads that have used the library
// are parked in it. One that is not may wake the others.
bool plainThreadsSleep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
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

// findDeadAfterMain is findDead when Run has returned: goroutines are left
// over, which nobody runs, and plain threads may wait for them. If no other
// thread is left, none can call Run again.
//
// Plain threads park and wake up without sched.lock. So that the report rests
// on one moment at which all of them sleep and none waits for a descriptor,
// they are looked at twice, and the count of waiters in between:
//
//   thread (parkForeign)                  here, under sched.lock
//     F1  kGwaiting                         L1  all: kGwaiting, then asleep?
//     F2  commits; a waiter for a           L2  are there waiters?
//         descriptor has counted itself     L3  as L1
//     F3  asleep = true, under sched.lock
//     F4  woken: asleep = false
//         -- before its next F1 --
//
// Whom L1 and L3 both see asleep has slept all the time: had he been woken in
// between, L3 would have found kGrunnable, kGrunning, or his next F1 and with
// it F4; the next F3 waits for our lock. So at L2 he was counted if he waits
// for a descriptor, since whoever readies him does that first, and counts down
// second.
//
// F3 is without the lock if F sees that main has not ended, for speed. seq_cst:
// then F4 and F1 to F3 cannot both come after L1: F4 would follow L1, which
// follows the store of mainEnded, which F would then have seen.
void findDeadAfterMain(bool closely) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (sched.nmextra == 0) return;
  if (running() > 0) {
    breakVainPoll();
    return;
  }
  if (timersPending() || !plainThreadsSleep() || netpollAnyWaiters() ||
      !plainThreadsSleep()) {
    return;
  }
  if (anyStrangers(closely)) {
    awaitStrangers();
    return;
  }
  claimReport();
  fatal("all goroutines are asleep - deadlock!");
}

// findDead is checkdead, which is called whenever a thread goes idle for good
// or turns out to be the runtime's own, and recheckdead. It counts the Ms that
// are not idle; when there is none, nobody is left to wake the goroutines that
// wait. Whoever wakes an M, or is about to make one, has counted it as running
// before it drops sched.lock, so a hand-over never looks like the end.
//
// Silent while a plain thread that has used the runtime lives, since it may
// come back and wake anybody (Go, with C threads); when there has been no Run
// yet, for the same reason; and when the process is ending anyway.
void findDead(bool closely) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (sched.foundDead || isPanicking()) return;
  const bool ended = sched.mainEnded.load(relaxed);  // written under sched.lock
  if (ended && !sched.m0attached) findDeadAfterMain(closely);
  if (ended || !sched.m0attached || sched.nmextra > 0) return;
  int64_t run = running();
  if (run > 0) {
    breakVainPoll();
    return;
  }
  if (run < 0) {
    int64_t count = mcount();
    int32_t idle = sched.nmidle;
    int32_t locked = sched.nmidlelocked;
    int32_t sys = sched.nmsys;
    claimReport();
    printf("runtime: checkdead: nmidle=%d nmidlelocked=%d mcount=%D nmsys=%d\n",
           idle, locked, count, sys);
    fatalthrow("checkdead: inconsistent counts");
  }
  // Whoever sleeps until then is about to, or has just been woken.
  if (timersPending()) return;
  if (anyStrangers(closely) || stackMayCome()) {
    // One of them may be about to call us, or there is memory again.
    awaitStrangers();
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

bool pollsInVain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  return running() == 1 && !netpollAnyWaiters() && !timersPending();
}

void checkdead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  findDead(/*closely=*/false);
}

void recheckdead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  findDead(/*closely=*/true);
}

void checkIdleLists() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  // Counted down, so that a ring of links ends as well.
  int32_t ps = sched.npidle.load(relaxed);  // written under sched.lock
  const P* pp = sched.pidle;
  for (; pp != nullptr && ps > 0; pp = pp->link, ps--) {
    if (pp->status.load(relaxed) != kPidle || !runqempty(pp)) {
      fatalthrow("checkIdleLists: idle P that is not");
    }
  }
  if (pp != nullptr || ps != 0) fatalthrow("checkIdleLists: bad npidle");
  int32_t ms = sched.nmidle;
  const M* mp = sched.midle;
  for (; mp != nullptr && ms > 0; mp = mp->schedlink) ms--;
  if (mp != nullptr || ms != 0) fatalthrow("checkIdleLists: bad nmidle");
  // Each P is idle, running, in a system call, or stopped while the world is:
  // that changes under sched.lock. One that is idle may not be listed yet.
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
  print(w, " runqsize=%u gfreecnt=%u timerslen=%u\n", runqlen(pp),
        peek(pp->gFreeN), pp->timers.len.load(relaxed));
}

void traceM(Writer* w, const M* mp) {
  const P* pp = peek(mp->p);
  const G* curg = mp->curg.load(acquire);
  const G* lockedg = peek(mp->lockedg);
  int32_t locks = mp->locks.load(relaxed);    // a trace
  if (curg == nullptr && locks > 0) locks--;  // (K3): as Go has it, on g0 none
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

void traceLocked(bool detailed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  int64_t now = nanotime();
  if (traceStart == 0) traceStart = now;
  char buf[1024];
  Writer w{.buf = buf, .cap = sizeof(buf), .fd = kStderr};
  // Under sched.lock no resizing is half done.
  int32_t n = gomaxprocs.load(relaxed);
  print(&w,
        "SCHED %Dms: gomaxprocs=%d idleprocs=%d threads=%D spinningthreads=%d "
        "needspinning=%u idlethreads=%d "
        "runqueue=%d",
        // A trace.
        (now - traceStart) / 1'000'000, n, sched.npidle.load(relaxed), mcount(),
        sched.nmspinning.load(relaxed), sched.needspinning.load(relaxed),
        sched.nmidle, sched.runq.size + allp[0]->nyielded.load(relaxed));
  if (!detailed) {
    traceQueues(&w, n);
    flush(&w);
    return;
  }
  print(&w, " gcwaiting=%s nmidlelocked=%d stopwait=%d sysmonwait=%s\n",
        boolText(sched.gcwaiting.load(relaxed)), sched.nmidlelocked,
        sched.stopwait, boolText(sched.sysmonwait.load(relaxed)));
  for (int32_t i = 0; i < n; i++) traceP(&w, i);
  for (const M* mp = allm.load(acquire); mp != nullptr;
       mp = mp->alllink) {  // pairs with mcommoninit
    traceM(&w, mp);
  }
  forEachG(traceG, &w);
  flush(&w);
}

}  // namespace

void schedtrace(bool detailed) {
  LockScope l(&sched.lock);
  if (!isPanicking()) traceLocked(detailed);  // not between somebody's stacks
}

void schedtraceCrash() ABSL_NO_THREAD_SAFETY_ANALYSIS {  // see the loop
  // The lock's holder may be the one that fails, or may wait for it: it gets 10
  // ms to finish, and then the trace is taken without.
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
  return n < 1 ? 1 : static_cast<int32_t>(n);
}

}  // namespace gump::rt
