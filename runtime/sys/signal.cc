// The signal handlers: SIGQUIT, SIGURG, SIGPROF during a CPU profile, stack
// overflow among SIGSEGV and SIGBUS, and in process 1 the signals that ask a
// process to end.
//
// Invariants:
//
// (I1) Handlers run on the M's signal stack, save errno, and call only
//      async-signal-safe functions. The SIGURG handler may sleep there until it
//      is the goroutine's turn again (preempt_signal.cc).
//
// (I2) A fault that is not an overflow has the same effect as without us. The
//      handler that was installed before gets it, under its own flags and mask.
//      If there was none, the default action takes place at the faulting
//      instruction, so that the core shows it.
//
// (I3) A signal that should end the process does so in process 1 as well. The
//      kernel discards there what has the default action, so the process exits
//      with 128 plus the signal's number, as a shell reports such an end.
//
// (I4) All other signals but those of faults wait for the end of the handler of
// SIGPROF. So no other handler runs on top of it, and it is not preempted
// (cpuprof.cc). A handler of the program to which it passes a signal on has the
// mask that it would have without us.
//
// A handler that the program installs after us replaces ours. If it does not
// pass on the signals that it does not know, it treats a stack overflow as any
// other segmentation fault.
#include "runtime/sys/signal.h"

#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/diag/cpuprof.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/traceback.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/preempt.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stack.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/print.h"
#include "runtime/sys/tls.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

namespace gump::rt {

namespace {

// A dump uses about 10 KiB of it (GCC 12, x86-64, no sanitizer). The rest is
// for handlers of the user.
constexpr size_t kSignalStack = 64 << 10;

#if defined(__x86_64__)
uintptr_t contextPC(const ucontext_t* uc) {
  return static_cast<uintptr_t>(uc->uc_mcontext.gregs[REG_RIP]);
}
uintptr_t contextSP(const ucontext_t* uc) {
  return static_cast<uintptr_t>(uc->uc_mcontext.gregs[REG_RSP]);
}
#else
uintptr_t contextPC(const ucontext_t* uc) { return uc->uc_mcontext.pc; }
uintptr_t contextSP(const ucontext_t* uc) { return uc->uc_mcontext.sp; }
#endif

struct sigaction oldSegv;
struct sigaction oldBus;
struct sigaction oldUrg;

// What was installed for SIGPROF before us. A handler of the profile before may
// still read its entry, so takeSigprof writes the other one.
struct sigaction oldProfs[2];
constinit Atomic<struct sigaction*> oldProf{oldProfs};

sigset_t maskAtStart;  // written by initsig

// crashAbort asks one thread after the other for its stack. It stores the
// thread's id and sends SIGQUIT. The handler on that thread prints, answers,
// and never returns.
// Written by crashAbort, release; read by the handler, acquire.
Atomic<int32_t> relayTo;
// The futex word; set by the handler, release; read by crashAbort, acquire.
Atomic<uint32_t> relayDone;
TracebackMode relayMode;  // written before the first relayTo

void setDefault(int sig) {
  struct sigaction dfl = {};
  dfl.sa_handler = SIG_DFL;
  sigaction(sig, &dfl, nullptr);
}

// The first process of a PID namespace, as in most containers, has the
// number 1.
bool isProcess1() { return getpid() == 1; }

// endsByDefault returns true if the default action of a signal ends the
// process.
bool endsByDefault(int sig) {
  switch (sig) {
    case SIGCHLD:
    case SIGCONT:
    case SIGSTOP:
    case SIGTSTP:
    case SIGTTIN:
    case SIGTTOU:
    case SIGURG:
    case SIGWINCH:
      return false;
    default:
      return true;
  }
}

// dieFromSignal ends the process by the default action of sig, or with the exit
// code that stands for it (I3).
// On: any.  P: either.  Locks: none.  Parks: no.
[[noreturn]] void dieFromSignal(int sig) {
  setDefault(sig);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, sig);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  tgkill(gettid(), sig);
  // This is process 1, or a tracer has swallowed the signal.
  _exit(128 + sig);
}

// ---- stack overflow

// overflowed returns true if a fault at addr means that gp ran out of stack.
// There are two cases:
// - The fault hit the guard of gp's own stack.
// - The stack pointer has left the stack, and addr is near the stack pointer.
//   Then a frame larger than the guard has jumped over the guard. (Only code
//   compiled with -fstack-clash-protection is sure to hit the guard.)
bool overflowed(const G* gp, uintptr_t addr, uintptr_t sp) {
  constexpr uintptr_t kNear = 64 << 10;
  if (gp == nullptr || gp->foreign || gp->stack.lo == 0) return false;
  Stack hit;
  if (stackOfGuard(addr, &hit) && hit.lo == gp->stack.lo) return true;
  return sp < gp->stack.lo && addr < gp->stack.lo && addr + kNear >= sp;
}

void onFault(int sig, siginfo_t* info, void* context) {
  int savedErrno = errno;
  const auto* uc = static_cast<const ucontext_t*>(context);
  auto addr = reinterpret_cast<uintptr_t>(info->si_addr);
  const G* gp = getg();
  if (isPanickingHere()) dieInSignal();  // the dump itself crashed
  if (info->si_code > 0 && overflowed(gp, addr, contextSP(uc))) {
    printf(
        "runtime: goroutine stack exceeds %U-byte limit\n"
        "fatal error: stack overflow\n",
        uint64_t{stackLimit(gp)});
    dieInSignal();
  }
  forwardsig(sig, info, context, sig == SIGSEGV ? &oldSegv : &oldBus);
  errno = savedErrno;
}

// ---- SIGQUIT

void onQuit(int, siginfo_t* info, void* context) {
  int savedErrno = errno;
  const auto* uc = static_cast<const ucontext_t*>(context);
  int32_t self = gettid();
  // Pairs with the release in crashAbort: relayMode is set.
  if (relayTo.load(acquire) == self) {
    tracebackThread(relayMode);
    relayDone.store(1, release);  // pairs with the acquire in crashAbort
    futexwakeup(&relayDone, 1);
    for (;;) usleep(1'000'000);
  }
  // Two such signals may interrupt two threads at once.
  if (!isPanicking() && claimDeath()) {
    const G* gp = getg();
    printf("SIGQUIT: quit\nPC=0x%X m=%D sigcode=%d\n", uint64_t{contextPC(uc)},
           gp == nullptr || gp->m == nullptr ? int64_t{-1} : gp->m->id,
           info->si_code);
    dieInSignal();
  }
  errno = savedErrno;  // the process is ending already
}

// ---- SIGURG, by which a goroutine is preempted

void onUrg(int sig, siginfo_t* info, void* context) {
  int savedErrno = errno;
  preemptedBySignal(contextSP(static_cast<const ucontext_t*>(context)));
  // The signal may come from us, from out-of-band data, or from both, since two
  // signals may have become one. So the program's own handler gets every
  // SIGURG, ours too, as in Go. Without such a handler the signal would have
  // no effect.
  if ((oldUrg.sa_flags & SA_SIGINFO) != 0 ||
      (oldUrg.sa_handler != SIG_DFL && oldUrg.sa_handler != SIG_IGN)) {
    forwardsig(sig, info, context, &oldUrg);
  }
  errno = savedErrno;
}

// ---- SIGPROF, by which a thread is asked where it is

void onProf(int sig, siginfo_t* info, void* context) {
  int savedErrno = errno;
  if (!cpuProfileSignal(info, context)) {
    const auto* uc = static_cast<const ucontext_t*>(context);
    pthread_sigmask(SIG_SETMASK, &uc->uc_sigmask, nullptr);  // (I4)
    // Acquire: pairs with the release in takeSigprof.
    forwardsig(sig, info, context, oldProf.load(acquire));
  }
  errno = savedErrno;
}

bool isOurs(const struct sigaction& action,
            void (*handler)(int, siginfo_t*, void*)) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == handler;
}

// ---- The end of process 1

void onEnd(int sig, siginfo_t*, void*) { dieFromSignal(sig); }

// install installs a handler, and returns what was there before. The signal
// `blocked`, unless 0, waits for its end.
struct sigaction install(int sig, void (*handler)(int, siginfo_t*, void*),
                         int flags, int blocked = 0) {
  struct sigaction action = {};
  struct sigaction old = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | flags;
  sigemptyset(&action.sa_mask);
  if (blocked != 0) sigaddset(&action.sa_mask, blocked);
  sigaction(sig, &action, &old);
  return old;
}

bool isDefault(int sig) {
  struct sigaction now = {};
  sigaction(sig, nullptr, &now);
  return (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL;
}

}  // namespace

bool isFault(int sig, const siginfo_t* info) {
  switch (sig) {
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
    case SIGTRAP:
    case SIGSYS:
      return info->si_code > 0;
    default:  // a positive code is the kernel's too, but means no fault
      return false;
  }
}

void forwardsig(int sig, siginfo_t* info, void* context,
                struct sigaction* old) {
  const bool wantsInfo = (old->sa_flags & SA_SIGINFO) != 0;
  const bool fault = isFault(sig, info);
  if (!wantsInfo && old->sa_handler == SIG_IGN && !fault) return;
  if (!wantsInfo &&
      (old->sa_handler == SIG_DFL || old->sa_handler == SIG_IGN)) {
    setDefault(sig);
    // A true fault happens again when this handler returns, except SIGTRAP and
    // SIGSYS, which are reported after the instruction. A signal that does not
    // happen again is sent again. It arrives on return, or at once
    // (SA_NODEFER).
    if (fault && sig != SIGTRAP && sig != SIGSYS) return;
    if (isProcess1() && endsByDefault(sig)) dieFromSignal(sig);  // (I3)
    tgkill(gettid(), sig);
    return;
  }
  struct sigaction action = *old;
  if ((action.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) {
    *old = {};
    old->sa_handler = SIG_DFL;
  }
  if ((action.sa_flags & SA_NODEFER) == 0) sigaddset(&action.sa_mask, sig);
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, &action.sa_mask, &mask);
  if (wantsInfo) {
    action.sa_sigaction(sig, info, context);
  } else {
    action.sa_handler(sig);
  }
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

bool endsProcess1(const struct sigaction& action) {
  return isOurs(action, onEnd);
}

const sigset_t& startMask() { return maskAtStart; }

sigset_t ignoredBelow() {
  const struct {
    int sig;
    void (*handler)(int, siginfo_t*, void*);
    const struct sigaction* old;
  } kTaken[] = {{SIGSEGV, onFault, &oldSegv},
                {SIGBUS, onFault, &oldBus},
                {SIGURG, onUrg, &oldUrg},
                {SIGPROF, onProf, oldProf.load(acquire)}};
  sigset_t set;
  sigemptyset(&set);
  for (const auto& t : kTaken) {
    struct sigaction now = {};
    sigaction(t.sig, nullptr, &now);
    if (isOurs(now, t.handler) && (t.old->sa_flags & SA_SIGINFO) == 0 &&
        t.old->sa_handler == SIG_IGN) {
      sigaddset(&set, t.sig);
    }
  }
  return set;
}

void initsig() {
  tracebackinit();
  pthread_sigmask(SIG_BLOCK, nullptr, &maskAtStart);
  if (isDefault(SIGQUIT)) install(SIGQUIT, onQuit, 0);
  if (isProcess1()) {  // (I3)
    for (int sig : {SIGHUP, SIGINT, SIGTERM}) {
      if (isDefault(sig)) install(sig, onEnd, 0);
    }
  }
  // SA_NODEFER, because a second fault, in the dump of the first, must arrive.
  oldSegv = install(SIGSEGV, onFault, SA_NODEFER);
  oldBus = install(SIGBUS, onFault, SA_NODEFER);
  // A tick of the clock often makes both signals. Unless SIGPROF waits, the
  // kernel lets it interrupt onUrg, and the profile blames onUrg for the
  // goroutine's time.
  oldUrg = install(SIGURG, onUrg, 0, SIGPROF);
  initterminate();
}

void takeSigprof() {
  struct sigaction now = {};
  sigaction(SIGPROF, nullptr, &now);
  if (isOurs(now, onProf)) return;  // the program has put ours back
  struct sigaction* unused = &oldProfs[oldProf.load(relaxed) == oldProfs];
  *unused = now;
  oldProf.store(unused, release);
  struct sigaction action = {};
  action.sa_sigaction = onProf;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigfillset(&action.sa_mask);  // (I4)
  for (int sig : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT}) {
    sigdelset(&action.sa_mask, sig);
  }
  sigaction(SIGPROF, &action, nullptr);
}

// The late signals would end a program that does not handle SIGPROF. The kernel
// drops all that are on their way when the signal is ignored.
void giveBackSigprof(bool late) {
  struct sigaction now = {};
  sigaction(SIGPROF, nullptr, &now);
  if (!isOurs(now, onProf)) return;
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  if (late) sigaction(SIGPROF, &ignore, nullptr);
  sigaction(SIGPROF, oldProf.load(relaxed), nullptr);
}

// The mapping of a signal stack holds a guard page, the stack, and at the top
// the stack_t that was in force before.
void minitSignalStack(M* mp) {
  size_t size = getauxval(AT_MINSIGSTKSZ) + (kSignalStack / 2);
  size = alignUp(size < kSignalStack ? kSignalStack : size, kPageSize);
  size_t total = kPageSize + size + kPageSize;
  auto base = reinterpret_cast<uintptr_t>(sysReserve(total));
  // Without memory for a signal stack, an overflow on this thread kills the
  // process silently, as on any thread that has none.
  if (base == 0) return;
  sysName(reinterpret_cast<void*>(base), total, "gump: signal stacks");
  mprotect(reinterpret_cast<void*>(base), kPageSize, PROT_NONE);
  stack_t now = {};
  now.ss_sp = reinterpret_cast<void*>(base + kPageSize);
  now.ss_size = size;
  auto* before = reinterpret_cast<stack_t*>(base + kPageSize + size);
  if (sigaltstack(&now, before) != 0) {
    sysFree(reinterpret_cast<void*>(base), total);
    return;
  }
  mp->signalStackLo = base;
  mp->signalStackSize = total;
}

void unminitSignalStack(M* mp) {
  uintptr_t base = mp->signalStackLo;
  size_t total = mp->signalStackSize;
  if (base == 0) return;
  mp->signalStackLo = 0;
  mp->signalStackSize = 0;
  stack_t now = {};
  sigaltstack(nullptr, &now);
  auto* before = reinterpret_cast<const stack_t*>(base + total - kPageSize);
  // If the program has changed the signal stack since then, it keeps its own.
  if (now.ss_sp == reinterpret_cast<void*>(base + kPageSize)) {
    // If this fails, the thread is on that stack right now: leave it mapped.
    if (sigaltstack(before, nullptr) != 0) return;
  }
  sysFree(reinterpret_cast<void*>(base), total);
}

void crashAbort(const TracebackMode& mode) {
  // How long to wait for each thread. A thread that blocks SIGQUIT stays
  // silent.
  constexpr int64_t kRelayWaitNS = 1'000'000'000;
  int32_t self = gettid();
  relayMode = mode;
  // Install it even if the program started with SIGQUIT ignored, or handles it.
  install(SIGQUIT, onQuit, 0);
  // Pairs with mcommoninit. In a child of fork there is no other thread.
  M* first = forked.load(relaxed) ? nullptr : allm.load(acquire);
  for (M* mp = first; mp != nullptr; mp = mp->alllink) {
    int32_t tid = mp->procid.load(acquire);  // pairs with minit
    if (tid == 0 || tid == self) continue;
    printf("\n-----\n\n");
    relayDone.store(0, relaxed);  // the next line publishes it
    relayTo.store(tid, release);  // pairs with the acquire in onQuit
    tgkill(tid, SIGQUIT);
    int64_t deadline = nanotime() + kRelayWaitNS;
    // Pairs with the release in onQuit.
    while (relayDone.load(acquire) == 0 && nanotime() < deadline) {
      futexsleep(&relayDone, 0, kRelayWaitNS);
    }
  }
  dieFromSignal(SIGABRT);
}

}  // namespace gump::rt
