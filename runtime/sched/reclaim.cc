// The reclamation cycle, which stands where Go has its collector. It gives back
// to the kernel the memory and the threads that the program no longer uses.
//
// The cycle has five steps, in this order:
//  1. the hooks (sync::Pool ages its caches);
//  2. a safe point of every P, at which it hands in its cached stacks, and with
//     several NUMA nodes also its free cells;
//  3. the pages below the stack pointers of parked goroutines, slab by slab;
//  4. the unused stacks;
//  5. the unused threads.
// Goroutines run their cycles one at a time. Two minutes after the last cycle
// sysmon starts one (forceReclaim). A foreign thread runs a cycle by itself,
// perhaps beside that of another thread. It must not wait for a goroutine. Once
// main has ended, no goroutine runs until the next Run, which may never come.
// Two cycles at once do no harm: scanners is a count, a stack is touched under
// its G's scan bit, and the pools have locks.
//
// The slabs are dealt out (takeSlab) to the goroutine that runs the cycle and
// to its workers. There is a worker for each P but one. A worker is a system
// goroutine, parked in work.idle. Steps 6 and 9 of findRunnable fetch it for a
// P that has nothing else to do, and it stops as soon as the P has. A quarter
// of the Ps, including the cycle's own, begin to work on the slabs even if
// there is other work.
//
// A goroutine that parks may be woken at any time, so its stack is touched only
// under its scan bit, for which the waker waits. Wakers look for scan bits only
// while scanners is not 0. It is raised before the safe points, so a thread
// that has passed one sees it.
//
// Wake-ups. A worker parks under work.lock, and is fetched under it. For idle
// Ms, dealOut sets available before wakep, and an M that stops spinning looks
// at it afterwards (the essay in proc.cc). A worker that parks while there are
// slabs left sets available too, but does not call wakep. It parks because its
// P has other work, and when that is done the P looks. The cycle waits, under
// work.lock, for work.busy == 0. The thread that counts it down to 0 under the
// lock readies the cycle's goroutine.
#include "runtime/sched/reclaim.h"

#include "runtime/diag/panic.h"
#include "runtime/diag/stats.h"
#include "runtime/sched/gqueue.h"
#include "runtime/sched/hibernate.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stack.h"
#include "runtime/sched/stw.h"
#include "runtime/sched/thread.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

using Hook = void (*)();
constexpr int kMaxHooks = 16;
Atomic<Hook> hooks[kMaxHooks];

// One cycle at a time among goroutines; foreign threads do not take it.
Atomic<uint32_t> cyclesema{1};

using Visit = void (*)(G*, void*);

struct Work {
  Mutex lock{LockRank::kLeaf};
  Visit visit ABSL_GUARDED_BY(lock) = nullptr;  // what to do with each G
  GSlab* next ABSL_GUARDED_BY(lock) = nullptr;  // to be dealt out next
  int32_t busy ABSL_GUARDED_BY(lock) = 0;       // slabs that are worked on
  // The goroutine that runs the cycle and waits for busy == 0, or nullptr.
  G* waiter ABSL_GUARDED_BY(lock) = nullptr;
  GList idle ABSL_GUARDED_BY(lock);  // parked workers
  int32_t nworkers ABSL_GUARDED_BY(lock) = 0;
};
Work work;
// available says that there are slabs to be dealt out, and a parked worker. It
// is for findRunnable, which has no lock. Written under work.lock.
Atomic<bool> available;

void updateAvailable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(work.lock) {
  // Pairs with reclaimWorkAvailable.
  available.store(work.next != nullptr && !work.idle.empty(), release);
}

Atomic<int64_t> lastCycle;    // nanotime of the end of the last cycle; 0: none
Atomic<bool> forcingReclaim;  // the goroutine of forceReclaim is on its way

// ---- A slab of goroutines ---------------------------------------------------

// giveBackStack drops the pages below gp's stack pointer, if gp is parked.
void giveBackStack(G* gp, void*) {
  // Hints. We look again under the scan bit.
  if (readgstatus(gp) != kGwaiting || peek(gp->stack.lo) == 0) return;
  M* mp = acquirem();  // gp's waker waits for us
  if (castogscanstatus(gp, kGwaiting)) {
    if (!gp->foreign && gp->stack.lo != 0 && gp->sched.fresh == 0) {
      stats.stackBytes.add(stackGiveBack(gp), relaxed);  // a figure
    }
    casfrom_Gscanstatus(gp, kGwaiting);
  }
  releasem(mp);
}

// takeSlab deals out a slab, or returns nullptr if there is none left. It
// stores in *visit what is to be done. done ends the work on a slab.
GSlab* takeSlab(Visit* visit) {
  LockScope l(&work.lock);
  *visit = work.visit;
  GSlab* slab = work.next;
  if (slab == nullptr) return nullptr;
  work.next = nextGSlab(slab);
  updateAvailable();
  work.busy++;
  return slab;
}

void done() {
  G* waiter = nullptr;
  {
    LockScope l(&work.lock);
    if (--work.busy == 0) {
      waiter = work.waiter;
      work.waiter = nullptr;
    }
  }
  if (waiter != nullptr) goready(waiter);
}

// ---- Workers ----------------------------------------------------------------

bool workerParkCommit(G* gp, void*)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // releases the lock of parkWorker
  work.idle.push(gp);
  updateAvailable();
  unlock(&work.lock);
  return true;
}

void parkWorker() ABSL_NO_THREAD_SAFETY_ANALYSIS {  // as above
  (void)acquirem();
  lock(&work.lock);
  gopark(workerParkCommit, nullptr, WaitReason::kGCWorkerIdle);
}

// othersWait tells whether the caller's P has other work.
bool othersWait() {
  M* mp = acquirem();
  const bool waits = (mp->p != nullptr && !runqempty(mp->p)) ||
                     // Hints: asked again after the next slab.
                     globalSize(relaxed) > 0 || sched.gcwaiting.load(relaxed);
  releasem(mp);
  return waits;
}

void reclaimWorker(void*) {
  for (;;) {
    parkWorker();
    Visit visit;
    while (GSlab* slab = takeSlab(&visit)) {
      forEachGIn(slab, visit, nullptr);
      stats.workerSlabs.add(1, relaxed);  // a figure
      done();
      if (othersWait()) break;
    }
  }
}

constexpr FuncType kWorker = systemFunc(reclaimWorker);

// startWorkers makes sure that there is a worker for every P but one. (There
// may be fewer if there is no memory.)
void startWorkers() {
  for (;;) {
    {
      LockScope l(&work.lock);
      // Relaxed: the number of Ps may change again before the workers run.
      if (work.nworkers >= gomaxprocs.load(relaxed) - 1) return;
      work.nworkers++;
    }
    if (startSystemG(&kWorker)) continue;
    LockScope l(&work.lock);
    work.nworkers--;
    return;
  }
}

G* takeWorker() {
  LockScope l(&work.lock);
  if (work.next == nullptr) return nullptr;
  G* gp = work.idle.pop();
  updateAvailable();
  return gp;
}

}  // namespace

// Pairs with the store in updateAvailable.
bool reclaimWorkAvailable() { return available.load(acquire); }

G* reclaimIdleWorker() {
  G* gp = takeWorker();
  if (gp != nullptr) casgstatus(gp, kGwaiting, kGrunnable);
  return gp;
}

// ---- The cycle --------------------------------------------------------------

namespace {

// dealOut makes all slabs available, and wakes workers for them. If there is
// only one slab, the caller needs no help: it has finished the slab before a
// thread has woken up.
void dealOut(Visit visit) {
  const GSlab* first = nextGSlab(nullptr);
  const bool alone = first == nullptr || nextGSlab(first) == nullptr;
  if (!alone) startWorkers();
  {
    LockScope l(&work.lock);
    work.visit = visit;
    work.next = nextGSlab(nullptr);
    updateAvailable();
  }
  if (alone) return;
  for (int32_t n = gomaxprocs.load(relaxed) / 4 - 1; n > 0; n--) {
    G* gp = takeWorker();
    if (gp == nullptr) break;
    goready(gp);
  }
  M* mp = acquirem();
  fence(seq_cst);  // W1 of the essay in proc.cc
  wakepAnywhere();
  releasem(mp);
}

bool cycleParkCommit(G* gp, void*)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // releases the lock of awaitWorkers
  work.waiter = gp;
  unlock(&work.lock);
  return true;
}

void awaitWorkers() ABSL_NO_THREAD_SAFETY_ANALYSIS {  // as above
  M* mp = acquirem();
  lock(&work.lock);
  if (work.busy == 0) {
    unlock(&work.lock);
    releasem(mp);
    return;
  }
  gopark(cycleParkCommit, nullptr, WaitReason::kWaitForGCCycle);
}

// visitSlabs calls visit for each G, with the workers' help.
void visitSlabs(Visit visit) {
  dealOut(visit);
  while (GSlab* slab = takeSlab(&visit)) {
    forEachGIn(slab, visit, nullptr);
    done();
    runtimeEntry();  // yields, if it is time
  }
  awaitWorkers();
}

// cycle runs a cycle, and counts it in *count.
// On: user, or a foreign thread.  P: either.  Locks: takes worldsema,
// sched.lock.  Parks: yes.
void cycle(Atomic<uint64_t>* count);

constexpr FuncType kForcedCycle = systemFunc([](void*) {
  cycle(&stats.forcedCycles);
  forcingReclaim.store(false, release);  // pairs with the cas below
});

}  // namespace

Atomic<int64_t> forcegcperiod{120'000'000'000};

void forceReclaim(int64_t now) {
  // Relaxed: it is only a time, and publishes nothing. The first period begins
  // with the first look.
  const int64_t last = lastCycle.load(relaxed);
  if (last == 0) lastCycle.store(now, relaxed);
  if (last == 0 || now - last < forcegcperiod.load(relaxed)) return;
  if (!forcingReclaim.cas(false, true, acquire)) return;
  if (!startSystemG(&kForcedCycle)) forcingReclaim.store(false, release);
}

// In Go, GC parks until the workers have done the cycle, and yields between the
// spans that it sweeps. Here the caller may do all of the cycle itself, without
// parking. So it yields. Otherwise a goroutine that calls GC in a loop would
// keep its P for a slice: at one P each of the others would get a turn once in
// 10 ms. There are two exceptions:
//  * On a stack that the program made, no goroutine yields.
//  * If no other goroutine waits, a yield would only wake an M in vain.
void runtimeGC() noexcept {
  cycle(&stats.requestedCycles);
  const G* gp = getg();
  const auto sp = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (gp->foreign || !onOwnStack(gp, sp)) return;
  M* mp = acquirem();
  // The queue of its group is none of those that nothingElseToRun looks at.
  const bool alone = mp->p != nullptr && !gp->special && nothingElseToRun(mp);
  releasem(mp);
  if (!alone) gosched();
}

namespace {

// handIn is what each P does at its safe point. With several nodes it also
// hands in its free cells, so that those of other nodes go home. (The stacks
// do, too.)
void handIn(P* pp) {
  stackcacheFlush(pp);
  if (severalNodes()) gfpurge(pp);
}

void cycle(Atomic<uint64_t>* count) {
  runtimeEntry();
  // The hooks run code of the program, which may want a cycle in its turn.
  for (auto& h : hooks) {
    if (Hook f = h.load(acquire)) f();  // pairs with the cas in reclaimRegister
  }
  const bool plain = getg()->foreign;
  if (!plain) semacquire(&cyclesema, /*lifo=*/false, SemaReason::kSemacquire);
  scanners.add(1, seq_cst);  // before forEachP asks the first P
  forEachP(WaitReason::kFlushProcCaches, handIn);
  if (plain) {
    forEachG(giveBackStack, nullptr);
  } else {
    visitSlabs(giveBackStack);
  }
  // Pairs with the load in noScanner: all scan bits are clear.
  scanners.add(-1, release);
  stackpoolRelease();
  retireIdleMs(gomaxprocs.load(relaxed));  // a number to aim at
  count->add(1, relaxed);                  // a figure
  lastCycle.store(nanotime(), relaxed);    // as in forceReclaim
  if (!plain) semrelease(&cyclesema, /*handoff=*/false);
}

}  // namespace

void hibernatePass() {
  semacquire(&cyclesema, /*lifo=*/false, SemaReason::kSemacquire);
  if (hibernateBegin()) {
    scanners.add(1, seq_cst);  // as in cycle
    forEachP(WaitReason::kFlushProcCaches, [](P*) {});
    visitSlabs(hibernateVisit);
    scanners.add(-1, release);  // as in cycle
    hibernateEnd();
  }
  semrelease(&cyclesema, /*handoff=*/false);
}

bool reclaimRegister(void (*hook)()) noexcept {
  for (auto& h : hooks) {
    // A set that only grows.
    if (h.load(relaxed) == hook || h.cas(nullptr, hook, acq_rel)) return true;
  }
  return false;
}

}  // namespace gump::rt
