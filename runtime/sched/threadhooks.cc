// The program's hooks for the threads that run goroutines: one that each such
// thread calls before its first goroutine, and one that it calls before it
// ends. m0 calls them in each Run, before main and after it. The runtime's own
// threads (sysmon, the template thread, the ring thread) and foreign threads
// run no goroutines, and call none.
//
// A hook runs on the thread's own stack, with g0 as the current G, and without
// a P. The thread may have been ordered for a P. That P can be taken from it
// until it has finished its hook (finishStarting). A stop of the world takes it
// at once, and sysmon takes it after a slice's time (replaceStartingMs).
//
// The P then belongs to the thread that took it, and no wake-up is lost:
//  * The thread may have been ordered to spin, so wakers rely on it. The taker
//    clears its spinningStart in the same section of sched.lock in which it
//    takes the P, so the thread does not count itself twice. Then comes S1
//    (uncountSpinner), and then wakep in the place of S2. wakep starts a
//    spinner. If no P is idle, it sets needspinning instead.
//  * The taker has a P in its hands, which that wakep does not see. The taker
//    calls handoffp. That hands the P on if it has work, if no M spins and no P
//    is idle, or if needspinning is set. handoffp reads the flag in the section
//    in which it idles the P. So the P becomes idle only if another M looks.
//  * A taker that runs a goroutine on the P instead (claimForLocked) is in the
//    place of any M that is busy. It reads needspinning when it gives up the P.
//  * A thread that stops the world counts the P as stopped. The wakep of
//    startTheWorld comes later.
//
// A goroutine needs a thread that has finished its hook. sysmon gives a P to an
// idle thread, whatever the number of threads that are late. If there is none,
// it orders new threads for late ones, but at most two for each P
// (mayStartLate). So a goroutine waits for a hook in two cases:
//  * No thread has finished its hook. This is so at first: if main leaves m0,
//    which then runs no other goroutine, it goes on when a first hook returns.
//  * The goroutine is locked to its thread and waits in the global queue, and
//    the Ms of all Ps are in their hooks. Only an M with a P can hand it one.
// A hook that waits for such a goroutine waits for ever. No order of events in
// the scheduler could help: it would have to run a goroutine on a thread whose
// hook has not returned. So a hook must not wait for a goroutine.
//
// A hook is code of the program. It may allocate, lock and block, but it has no
// goroutine that could park. Every way into the runtime finds that out, where
// it looks anyway:
//  (T1) acquirem looks at m.presumed. kPresumedHook sends it to reenter.
//  (T2) Entries without acquirem look at the request to yield of the current G
//       (runtimeEntry). It is set on g0 during a hook, and sends them to
//       runtimeEntrySlow.
// Both end in dieInThreadHook. An operation that neither takes a lock nor waits
// (a free Mutex, an Atomic) works as ever. So do goroutine-local values: they
// are kept on g0, and destroyed when the hook ends.
//
// An exception that leaves a hook must end the process at the throw, as one
// that leaves a goroutine does. So a hook is called below gumpMstart, where the
// unwind information says that the stack ends. Otherwise a catch (...) of
// Run's caller, or of libc, could take the exception.
//
// Rejected: no current G during a hook. The thread would be a foreign thread,
// and a hook could wait for a goroutine that only this thread can run.
#include "runtime/sched/threadhooks.h"

#include <utility>

#include "gump/internal/linkname.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/gls.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/switch.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

Mutex hooksLock{LockRank::kLeaf};
// Written under the lock while `hooksSealed` is false. Once it is true they are
// constant. schedinit sets it before it makes the threads that read them.
constinit ThreadHookFuncs threadHooks;
Atomic<bool> hooksSealed;  // written under the lock

// HookCall is a hook that a thread is about to call.
struct HookCall {
  void (*fn)(void*);
  void* arg;
};

// runHook is the first function of gumpMstart. It returns nullptr, which ends
// gumpMstart.
G* runHook(G* g0) {
  const auto* call =
      static_cast<const HookCall*>(std::exchange(g0->param, nullptr));
  call->fn(call->arg);
  if (g0->gls != nullptr) glsDestroyAll(g0);
  return nullptr;
}

void callHook(void (*fn)(void*)) {
  if (fn == nullptr) return;
  M* mp = getg()->m;
  G* g0 = &mp->g0;
  // Drop the exceptions in flight that the last goroutine of this thread has
  // left.
  *mp->eh = EhGlobals();
  mp->presumed.or_(kPresumedHook, relaxed);  // (T1); no asker looks at this M
  g0->preempt.store(true, relaxed);          // (T2)
  HookCall call = {fn, threadHooks.arg};
  g0->param = &call;
  gumpMstart(g0, runHook);
  g0->preempt.store(false, relaxed);
  mp->presumed.and_(~uint32_t{kPresumedHook}, relaxed);
  dieIfForked();  // the hook has forked, and this is the child
}

}  // namespace

bool setThreadHooks(const ThreadHookFuncs& next, void** old) noexcept {
  // Relaxed: never cleared. Without the lock, which a hook must not take.
  if (hooksSealed.load(relaxed)) return false;
  LockScope l(&hooksLock);
  if (hooksSealed.load(relaxed)) return false;  // written under the lock
  *old = std::exchange(threadHooks, next).arg;
  return true;
}

void sealThreadHooks() {
  LockScope l(&hooksLock);
  hooksSealed.store(true, relaxed);
}

bool hasStartHook() { return threadHooks.on_start != nullptr; }

void threadStarts() { callHook(threadHooks.on_start); }
void threadEnds() { callHook(threadHooks.on_end); }

void leaveThreadHook() {
  M* mp = getg()->m;
  mp->presumed.and_(~uint32_t{kPresumedHook}, relaxed);
  mp->g0.preempt.store(false, relaxed);
  mp->diesInHook = true;
}

void dieInThreadHook() {
  leaveThreadHook();
  fatal(
      "use of goroutines in a thread hook: on_start runs before the thread's "
      "first goroutine, and on_end after its last one");
}

}  // namespace gump::rt
