// Start-up and the end of main.
//
// The runtime starts when it is first needed, on whichever thread that is. That
// may be Run, go(), or a channel operation on a foreign thread (library mode),
// even in a static constructor. All its state is constant-initialised and never
// destroyed.
//
// Run lends its thread to the scheduler as m0 and makes its function goroutine
// 1. When that function has returned, nothing is scheduled any more: endMain
// sets mainEnded, and each M idles its P at its next schedule. m0 leaves the
// scheduler and Run returns. Goroutines that are left over stay queued or
// parked, and go on in a later Run.
#include "runtime/sched/rt0.h"

#include <pthread.h>

#include "runtime/diag/debugger.h"
#include "runtime/diag/debugvars.h"
#include "runtime/diag/fuzzsched.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/parklocks.h"
#include "runtime/sched/affinity.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/hibernate.h"
#include "runtime/sched/locked.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/numa.h"
#include "runtime/sched/preempt.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stack.h"
#include "runtime/sched/switch.h"
#include "runtime/sched/sysmon.h"
#include "runtime/sched/thread.h"
#include "runtime/sched/threadhooks.h"
#include "runtime/sys/cgroup_linux.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/fpmodes.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/signal.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/sema.h"

namespace gump::rt {

Atomic<int32_t> ncpu;

namespace {

pthread_once_t initOnce = PTHREAD_ONCE_INIT;
Atomic<bool> initialised;

// doSchedinit runs once, on a thread of the user's, before any thread of ours.
void doSchedinit() {
  lookAtStandard();
  sanitizerCheckProgram();
  sealThreadHooks();
  parsedebugvars();
  sleepsInit();
  inheritFpModes();
  taskDirInit();
  membarrierInit();
  forkinit();
  threadsinit();
  meminit();
  stackinit();
  hibernateinit();
  const int32_t processors = getproccount();
  ncpu.store(processors, relaxed);  // plain threads may read it meanwhile
  topologyInit();
  affinityInit();
  defaultGOMAXPROCSInit();
  sched.goidgen.store(kMainGoid, relaxed);  // the last one given out
  sched.lastpoll.store(nanotime(), relaxed);
  int32_t procs = parseGOMAXPROCS(gogetenv("GOMAXPROCS", "GUMP_MAXPROCS"));
  bool custom = procs > 0;
  if (!custom) procs = defaultGOMAXPROCS(processors);
  mcommoninit(&m0, /*id=*/0);
  {
    LockScope l(&sched.lock);
    sched.mnext = 1;
    sched.customGOMAXPROCS = custom;
  }
  // procresize needs an M that holds no P. The thread has no M yet, so m0's g0
  // stands in for it.
  G* self = getg();
  setg(&m0.g0);
  {
    LockScope l(&sched.lock);
    P* runnable = procresize(procs);
    if (runnable != nullptr) fatalthrow("schedinit: P with work");
  }
  initsig();
  parklocksinit();
  startTemplateThread();
  newSystemM(sysmon, "gump-sysmon");
  setg(self);
  keepDebuggerTable();
  initialised.store(true, release);
}

// enterScheduler is how m0 begins. If main has not been queued (g0->param), m0
// runs it. Otherwise m0 waits for main, as for any goroutine that is locked to
// its thread.
G* enterScheduler(G* g0) {
  auto* gp = static_cast<G*>(g0->param);
  g0->param = nullptr;
  if (gp != nullptr) {
    if (G* next = fuzzExecute(gp, /*inheritTime=*/false)) return next;
    // There was no memory for its stack. It waits for some.
  }
  return schedule();
}

}  // namespace

void schedinit() {
  // Pairs with the release at the end of doSchedinit.
  if (GUMP_LIKELY(initialised.load(acquire))) return;
  dieIfForked();
  pthread_once(&initOnce, doSchedinit);
}

void unsetInitialised() { initialised.store(false, relaxed); }

void endMain() {
  M* mp = getg()->m;
  flushYielded(mp->p);  // goroutines preempted in place may be among them
  LockScope l(&sched.lock);
  // Pairs with findRunnable. An M looks at mainEnded under sched.lock before it
  // sleeps, so store it under that lock. seq_cst for findDeadAfterMain and
  // semrelease.
  sched.mainEnded.store(true, seq_cst);
  preemptall();
  releasePreempted();
  if (mp != &m0) wakeM0ToLeave();
}

namespace {

// attachM0 makes this thread m0. Returns false if another thread is m0.
bool attachM0() {
  LockScope l(&sched.lock);
  if (sched.m0attached) return false;
  sched.m0attached = true;
  return true;
}

void detachM0() {
  LockScope l(&sched.lock);
  sched.m0attached = false;
  // From the end of main until here checkdead was silent, because m0 was still
  // attached. So look again now.
  checkdead();
}

// newMain makes the goroutine of Run, with a stack as large as a thread's.
G* newMain(const FuncType* ft, void* closure, uintptr_t pc) {
  size_t size = 8 << 20;
  pthread_attr_t attr;
  if (pthread_attr_init(&attr) == 0) {
    // The default for new threads: RLIMIT_STACK at program start.
    pthread_attr_getstacksize(&attr, &size);
    pthread_attr_destroy(&attr);
  }
  SpawnOptions o;
  o.stack_size = size;
  G* gp = newproc1(ft, closure, &o, pc);
  if (gp == nullptr) fatalthrow("Run: no memory for the main goroutine");
  gp->careful = true;
  gp->goid = kMainGoid;
  gp->parentGoid = 0;
  casgstatus(gp, kGdead, kGrunnable);
  return gp;
}

// lockMain binds main to m0 until main begins (mainBegins). If the caller of
// Run has called LockOSThread, main stays bound and takes over the lock count.
// That corresponds to the init functions of a Go program, which run on the main
// thread before main.
void lockMain(G* gp, const G* caller) {
  if (m0.lockedg != nullptr) fatalthrow("Run: m0 is locked");
  m0.lockedExt = caller == nullptr ? 0 : caller->m->lockedExt;
  m0.lockedg = gp;
  gp->lockedm = &m0;
}

}  // namespace

void mainBegins(G* gp) {
  M* mp = acquirem();  // preemptInPlace writes the same pair
  if (mp->lockedg == gp && mp->lockedExt == 0) {
    mp->lockedg = nullptr;
    gp->lockedm = nullptr;
  }
  releasem(mp);
}

bool runMain(const FuncType* ft, void* closure, uintptr_t pc) noexcept {
  schedinit();
  G* self = getg();  // nullptr, or this thread's pseudo-G
  // Inside a goroutine: a Run is active, or library mode.
  if (self != nullptr && !self->foreign) return false;
  if (!attachM0()) return false;
  if (self != nullptr) {
    // While the thread is m0 it is not a foreign thread, and its pseudo-G must
    // not hide a deadlock.
    LockScope l(&sched.lock);
    sched.nmextra--;
  }
  // If library mode has begun earlier, new goroutines had the floating-point
  // modes of the thread on which it began. From now on they have this thread's.
  inheritFpModes();
  setg(&m0.g0);
  m0.locks.store(1, relaxed);  // (K3) of proc_park.cc
  minit(&m0);
  // The caller may be inside a catch block. So save the thread's exception
  // globals and errno, and restore them afterwards. The goroutines that m0 runs
  // have their own.
  const EhGlobals eh = *m0.eh;
  const int savedErrno = *m0.errnoAddr;
  *m0.eh = EhGlobals();
  threadStarts();
  G* gp = newMain(ft, closure, pc);
  lockMain(gp, self);
  // Library mode may keep every P busy.
  P* pp = nullptr;
  {
    LockScope l(&sched.lock);
    // Stored under the lock, because endSchedule looks again under the lock. An
    // M that looks later keeps its P, and finds main in the global queue. An M
    // that looked earlier has idled its P, and pidleget finds the P.
    sched.mainEnded.store(false, release);  // pairs with findRunnable
    pp = pidleget(&sched.nodes[0]);
    if (pp == nullptr) {
      globrunqputhead(gp);
    } else {
      m0.g0.param = gp;
    }
  }
  if (pp != nullptr) {
    acquirep(pp);
    wakepAnywhere();  // leftovers of an earlier Run may be queued
  }
  gumpMstart(&m0.g0, enterScheduler);
  semaMainEnded();
  threadEnds();
  *m0.eh = eh;
  *m0.errnoAddr = savedErrno;
  unminit(&m0);
  setg(self);
  if (self != nullptr) {
    LockScope l(&sched.lock);
    sched.nmextra++;
  }
  detachM0();
  return true;
}

int32_t numCPU() noexcept {
  schedinit();
  return ncpu.load(relaxed);  // constant since schedinit
}

int32_t numGoroutine() noexcept {
  schedinit();
  int32_t n = gcount();
  return n < 1 ? 1 : n;
}

uint64_t currentGoid() noexcept {
  G* gp = getg();
  return gp == nullptr ? 0 : gp->goid;
}

}  // namespace gump::rt
