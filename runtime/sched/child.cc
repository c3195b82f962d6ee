// Children: which thread makes a child process, and with which attributes.
//
// A goroutine's child is made by the thread on which the goroutine is, as in
// Go. So a goroutine that has called LockOSThread gives its child what it has
// set on its own thread: namespaces, the nice value, the affinity. A child may
// ask for a signal when the thread that made it ends (PR_SET_PDEATHSIG). So
// that thread does not end for being idle while the child runs:
//
//  (C1) M.children is raised before the child is made, by the thread that makes
//       it. It is lowered after the child has been reaped, by any thread. So
//       while the child runs, it is above 0.
//  (C2) retireIdleMs ends an idle M under sched.lock, and only if its children
//       are 0. The M took that lock after (C1) to become idle. So retireIdleMs
//       sees every child that the M has made. It may see a count that is too
//       high, and then the thread stays until the next round.
//  (C3) The count belongs to the M and not to the thread. mexit ends the thread
//       of a goroutine that ends while locked, with its children (as in Go).
//       The M keeps their count when it gets another thread, because childEnded
//       will still come. Meanwhile the new thread does not end for being idle.
//
// No thread sleeps or is woken in this protocol, so there is no wake-up to
// lose. If a Cmd is dropped without Wait, its child is never reaped, and its
// maker stays.
//
// A thread that runs goroutines differs from a thread of the program in four
// ways that a child would inherit. They are undone here:
//  * the timer slack, if the thread has slept in the poller or has stopped the
//    world (preciseSleeps), or has inherited it from such a thread, as a
//    std::thread does;
//  * the signal mask, in which SIGURG is unblocked;
//  * the affinity mask, if the runtime has bound the thread (affinity.cc);
//  * our handlers for SIGSEGV, SIGBUS and SIGURG, where these were ignored.
// Short time slices last only while the world is stopped, and their threads
// make no child meanwhile. The runtime changes no limit of resources and
// no nice value.
//
// Why not a thread that makes all children: docs/decisions/009.
#include "runtime/sched/child.h"

#include <signal.h>

#include "runtime/sched/affinity.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/signal.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

// childMask returns the signal mask for a child that this thread makes. The
// child of a plain thread gets that thread's mask, and so does the child of a
// goroutine that has called LockOSThread. The child of any other goroutine gets
// the mask of the thread that started the runtime (startMask), as in Go.
sigset_t childMask() {
  const G* gp = getg();
  if (gp != nullptr && !gp->foreign && gp->m->lockedExt == 0) {
    return startMask();
  }
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  // minitSignalMask unblocks SIGURG in our threads, and so in those that they
  // make.
  if (sigismember(&startMask(), SIGURG) == 1) sigaddset(&mask, SIGURG);
  return mask;
}

}  // namespace

M* childBegins() {
  const G* gp = getg();
  if (gp == nullptr || gp->foreign) return nullptr;
  gp->m->children.add(1, relaxed);  // published by sched.lock (C2)
  return gp->m;
}

void childEnded(M* maker) {
  if (maker == nullptr) return;
  // Release: the child has been reaped. Pairs with mgetChildless.
  if (maker->children.add(-1, release) == 0) {
    sched.nmidleKept.store(0, relaxed);  // a hint: look again
  }
}

pid_t childStart(ChildSpec* spec, M** maker) {
  M* mp = childBegins();
  ordinarySleeps(mp);
  if (mp != nullptr) spec->affinity = childAffinity(mp);
  spec->mask = childMask();
  spec->ignored = ignoredBelow();
  const pid_t pid = spawn(*spec);
  if (pid < 0) {
    childEnded(mp);
    mp = nullptr;
  }
  *maker = mp;
  return pid;
}

}  // namespace gump::rt
