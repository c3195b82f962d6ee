// The finalizer goroutine: a system goroutine that runs the functions that
// queueFinalizer hands it, in order, off every hot path. It parks when the
// queue is empty, and step 1 of findRunnable readies it when something was
// queued.
#include "runtime/sched/mfinal.h"

#include <cstdlib>

#include "runtime/diag/panic.h"
#include "runtime/diag/stats.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"

namespace gump::rt {

// fingwake is true if the queue is not empty and fing is parked. Every
// findRunnable reads it without the lock. The sleeper parks only on an empty
// queue, under finlock. The waker queues an item and then sets fingwake, under
// finlock. So a queued item is either seen before parking or leaves the flag
// set. The thread that clears the flag owns the wake-up.
// Until then the flag stands for a runnable goroutine that is on no queue. So a
// thread that gives up a P, or looks whether goroutines wait for one, looks at
// the flag as well.
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

bool finParkCommit(G* gp, void*)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // releases the lock of runFinalizers
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

// True while fing runs the program's code. fing alone writes it. It publishes
// nothing, so its accesses are relaxed: a reader sees the present value if it
// has stopped the world, or has found by its status that fing is parked.
Atomic<bool> fingRunsUser;

}  // namespace

void runFinalizers(void*) {
  for (;;) {
    Finalizer* f = nextFinalizer();
    fingRunsUser.store(true, relaxed);
    f->ft->run(f->closure);
    f->ft->destroy(f->closure);
    fingRunsUser.store(false, relaxed);
    stats.finalizersExecuted.add(1, relaxed);  // a figure
    std::free(f);
  }
}

namespace {
constexpr FuncType kFingType = systemFunc(runFinalizers);

}  // namespace

bool isSystemGoroutine(const G* gp) {
  return gp->systemG &&
         !(gp->fn == &kFingType && fingRunsUser.load(relaxed));  // see there
}

G* wakefing() {
  // Pairs with the cas in queueFinalizer.
  if (GUMP_LIKELY(!fingwake.load(acquire))) return nullptr;
  LockScope l(&finlock);
  if (!fingwake.load(relaxed) || fing == nullptr) return nullptr;
  fingwake.store(false, relaxed);  // under finlock
  G* gp = fing;
  fing = nullptr;
  return gp;
}

namespace {
// startFing starts the finalizer goroutine if there is none. Returns false if
// there is no memory. Then items that other threads queue meanwhile wait for
// the next attempt.
bool startFing() {
  M* mp = acquirem();
  lock(&finlock);
  const bool start = !fingStarted;
  fingStarted = true;
  unlock(&finlock);
  releasem(mp);
  if (!start || startSystemG(&kFingType)) return true;
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
  stats.finalizersQueued.add(1, relaxed);  // a figure
  // seq_cst: W1 of the essay in proc.cc. It also pairs with the acquire in
  // wakefing. If the cas fails, another thread has set the flag and called
  // wakep.
  const bool wake = fing != nullptr && fingwake.cas(false, true, seq_cst);
  unlock(&finlock);
  if (wake) wakepAnywhere();  // step 1 of findRunnable readies it
  releasem(mp);
  return true;
}

}  // namespace gump::rt
