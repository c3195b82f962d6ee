// What stands where Go has its collector: the finalizer goroutine, and the
// cycle that gives memory back.
//
// findRunnable asks here in its steps 1, 6 and 9. The finalizer goroutine is a
// system goroutine that runs what queueFinalizer hands it, in order, off
// everybody's hot path; it parks when the queue is empty, and step 1 readies it
// when something was queued. Steps 6 and 9 are told that there is nothing to
// do: a cycle runs on the goroutine that asked for it, or, two minutes after
// the last one, on one that sysmon starts.
#include <cstdlib>

#include "runtime/os_linux.h"
#include "runtime/panic.h"
#include "runtime/proc.h"

namespace gump::rt {

// True: the queue is not empty and fing is parked. Read without the lock by
// every findRunnable. Sleeper: under finlock, parks only on an empty queue.
// Waker: under finlock, queues, then sets this. So a queued item is either seen
// before parking or leaves the flag set; whoever clears it owns the wake-up.
Atomic<bool> fingwake;

namespace {

struct Finalizer {
  Finalizer* next;
  const FuncType* ft;
  alignas(kClosureAlign) unsigned char closure[kClosureSize];
};

Mutex finlock{LockRank::kLeaf};
Finalizer* finHead ABSL_GUARDED_BY(finlock) = nullptr;
Finalizer* finTail ABSL_GUARDED_BY(finlock) = nullptr;
bool fingStarted ABSL_GUARDED_BY(finlock) = false;
// Parked with an empty queue, or nullptr.
G* fing ABSL_GUARDED_BY(finlock) = nullptr;
using Hook = void (*)();
constexpr int kMaxHooks = 16;
Atomic<Hook> hooks[kMaxHooks];

bool finParkCommit(G* gp, void*)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // releases what runFinalizers locked
  fing = gp;
  unlock(&finlock);
  return true;
}

Finalizer* nextFinalizer()
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // hands finlock to finParkCommit
  for (;;) {
    M* mp = acquirem();
    lock(&finlock);
    Finalizer* f = finHead;
    if (f != nullptr) {
      finHead = f->next;
      if (finHead == nullptr) finTail = nullptr;
      unlock(&finlock);
      releasem(mp);
      return f;
    }
    gopark(finParkCommit, nullptr, WaitReason::kFinalizerWait);
  }
}

void runFinalizers(void*) {
  getg()->systemG = true;
  sched.ngsys.add(1, relaxed);  // a count for humans
  for (;;) {
    Finalizer* f = nextFinalizer();
    f->ft->run(f->closure);
    f->ft->destroy(f->closure);
    std::free(f);
  }
}

constexpr FuncType kFingType = {runFinalizers, [](void*) {},
                                [](void*, void*) noexcept {}};

}  // namespace

G* wakefing() {
  // Pairs with the release in queueFinalizer.
  if (GUMP_LIKELY(!fingwake.load(acquire))) return nullptr;
  LockScope l(&finlock);
  if (!fingwake.load(relaxed) || fing == nullptr) return nullptr;
  fingwake.store(false, relaxed);  // under finlock
  G* gp = fing;
  fing = nullptr;
  return gp;
}

namespace {
// startFing starts the finalizer goroutine if there is none. False: no memory;
// what others queue meanwhile waits for the next attempt.
bool startFing() {
  M* mp = acquirem();
  lock(&finlock);
  const bool start = !fingStarted;
  fingStarted = true;
  unlock(&finlock);
  releasem(mp);
  if (!start || newproc(&kFingType, nullptr, nullptr, 0) == SpawnResult::kOk) {
    return true;
  }
  mp = acquirem();
  lock(&finlock);
  fingStarted = false;
  unlock(&finlock);
  releasem(mp);
  return false;
}
}  // namespace

bool queueFinalizer(const FuncType* ft, void* closure) noexcept {
  runtimeEntry();
  auto* f = static_cast<Finalizer*>(std::malloc(sizeof(Finalizer)));
  if (f == nullptr) return false;
  if (!startFing()) {
    std::free(f);
    return false;  // *closure is still the caller's
  }
  f->next = nullptr;
  f->ft = ft;
  ft->relocate(f->closure, closure);
  M* mp = acquirem();
  lock(&finlock);
  if (finTail != nullptr) {
    finTail->next = f;
  } else {
    finHead = f;
  }
  finTail = f;
  // Pairs with the acquire in wakefing.
  if (fing != nullptr) fingwake.store(true, release);
  unlock(&finlock);
  releasem(mp);
  if (G* gp = wakefing()) goready(gp);
  return true;
}

bool reclaimWorkAvailable(P*) { return false; }

G* reclaimIdleWorker(P*) { return nullptr; }

bool reclaimRegister(void (*hook)()) noexcept {
  for (auto& h : hooks) {
    // A set that only grows.
    if (h.load(relaxed) == hook || h.cas(nullptr, hook, acq_rel)) return true;
  }
  return false;
}

namespace {

Atomic<int64_t> lastCycle;    // nanotime of the end of the last cycle; 0: none
Atomic<bool> forcingReclaim;  // the goroutine of forceReclaim is on its way

constexpr FuncType kForcedCycle = {
    [](void*) {
      freeOSMemory();
      forcingReclaim.store(false, release);  // pairs with the cas below
    },
    [](void*) {}, [](void*, void*) noexcept {}};

}  // namespace

Atomic<int64_t> forcegcperiod{120'000'000'000};

void forceReclaim(int64_t now) {
  // A time, not a message. The first period begins with the first look.
  const int64_t last = lastCycle.load(relaxed);
  if (last == 0) lastCycle.store(now, relaxed);
  if (last == 0 || now - last < forcegcperiod.load(relaxed)) return;
  if (!forcingReclaim.cas(false, true, acquire)) return;
  if (!startSystemG(&kForcedCycle)) forcingReclaim.store(false, release);
}

void runtimeGC() noexcept {
  runtimeEntry();
  for (auto& h : hooks) {
    if (Hook f = h.load(acquire)) f();  // pairs with the cas in reclaimRegister
  }
  lastCycle.store(nanotime(), relaxed);  // as in forceReclaim
}

void gracePeriod() noexcept {
  forEachP(WaitReason::kFlushProcCaches, [](P*) {});
  // Those whose P was taken from them may be reading still.
  awaitInterrupted();
}

void freeOSMemory() noexcept {
  runtimeGC();
  // Each P hands in its own cache at its next safe point; then nobody else uses
  // what is in the pool.
  forEachP(WaitReason::kFlushProcCaches, stackcacheFlush);
  stackpoolRelease();
}

}  // namespace gump::rt
