// fork: the runtime in the child process.
//
// A child of fork has one thread, the one that forked. The threads that ran the
// goroutines, sysmon and the template thread do not exist there. Our locks and
// queues are as those threads happened to leave them. So nothing can be
// repaired, and nothing of the runtime may be used until exec: a call that
// needs the runtime would wait for a thread that does not exist. Such a call
// ends the child with one sentence (dieForked).
//
// Fast paths do not pay for that. The handler in the child leads them to slow
// paths that look:
//  (F1) A thread with a G enters the runtime by acquirem, which looks at
//       m.presumed anyway. kPresumedForked sends it to reenter.
//  (F2) A thread without a G enters by needm or schedinit, where `initialised`
//       is false again.
//  (F3) A thread without a G may also take the lock of the standard descriptors
//       (descriptor.cc). It looks at `forked` first (dieIfForked).
// An operation that neither takes a lock nor waits (an atomic, a free Mutex, an
// Hchan's count) works as ever.
//
// The handlers in the parent, before and after fork, only make sure that no
// stack is taken away meanwhile (hibernate.cc). Neither holds a lock or keeps a
// P in between. A thread that forks may wait inside fork for malloc's lock, and
// the holder of that lock may be preempted in place. So it must be possible to
// take the P of a thread that forks, like that of any other thread.
//
// Rejected:
//  * A panic. It would have to pass functions that are noexcept, with the
//    runtime in an unknown state, and a program that recovers from it would go
//    on.
//  * A dump of the stack. The unwinder may want the loader's lock, and the
//    holder of that is not in the child.
//  * A page that is zero after fork (MADV_WIPEONFORK). A child of _Fork or of
//    clone would see it too, but each entry would have to read it.
#include "runtime/sched/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <cstring>

#include "runtime/diag/panic.h"
#include "runtime/diag/trace.h"
#include "runtime/sched/affinity.h"
#include "runtime/sched/hibernate.h"
#include "runtime/sched/home.h"
#include "runtime/sched/rt0.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/thread.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

Atomic<bool> forked;

namespace {

// Written by forkinit, before there are threads of ours.
int32_t processId;
char startName[kThreadNameMax];  // of the thread that started the runtime

// restoreName undoes minitName and startHome for a child, whose only thread
// gives the process its name.
void restoreName(const M* mp) {
  char now[kThreadNameMax] = {};
  threadName(&now);
  constexpr size_t n = sizeof(kThreadNamePrefix) - 1;
  const bool ours = strncmp(now, kThreadNamePrefix, n) == 0 ||
                    (mp != nullptr && mp->home != nullptr &&
                     strcmp(now, mp->home->name) == 0);
  if (ours) setThreadName(startName);
}

// inChild runs in the child, on its only thread, before fork returns.
void inChild() {
  // There is only one thread, so none of this needs an order.
  forked.store(true, relaxed);
  hibernateInChild();  // before other handlers may touch a stack
  unsetInitialised();  // (F2)
  traceForked();
  G* gp = getg();
  M* mp = gp == nullptr ? nullptr : gp->m;
  if (mp != nullptr) {
    mp->presumed.or_(kPresumedForked, relaxed);  // (F1)
    // To yield would be to use the other threads. No thread asks again.
    gp->preempt.store(false, relaxed);
    // The child keeps its thread, but not the poller for which it slept.
    ordinarySleeps(mp);
    unbindThread(mp);
  }
  restoreName(mp);
  panicAfterFork();
}

}  // namespace

void forkinit() {
  processId = getpid();
  threadName(&startName);
  // If this fails, a child that uses the runtime may wait for ever, but nothing
  // worse happens.
  (void)pthread_atfork(hibernateBeforeFork, hibernateAfterFork, inChild);
}

bool inOwnProcess() { return getpid() == processId; }

void dieForked() {
  printf(
      "fatal error: use of goroutines in a child of fork: their threads stayed "
      "in the parent; the child can only exec or exit\n");
  _exit(2);
}

}  // namespace gump::rt
