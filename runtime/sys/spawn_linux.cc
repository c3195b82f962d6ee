// Making a child process as vfork does: the child runs on this thread's stack,
// in our memory, until it has called exec, and this thread waits for that.
//
// fork would copy the page tables of possibly many stacks. posix_spawn does as
// this file does, but it cannot make the child ignore a signal for which we
// have a handler (ignoredBelow).
//
// Invariants:
//  (V1) The child makes system calls and nothing else. It uses no lock, no
//       malloc and no errno, because they are this process's. Sanitizers do not
//       see it, and it calls no function that they intercept.
//  (V2) The child has all signals blocked until no handler of ours is left.
//       A handler would run in our memory. libc's own signals are blocked too,
//       so sigprocmask is called without libc.
//  (V3) The function that both processes return to changes nothing on the stack
//       that the other one reads. So vforkChild calls runChild, which does not
//       return, and has no variable in memory.
#include "runtime/sys/spawn_linux.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "runtime/sys/base.h"
#include "runtime/sys/raw_syscall.h"

namespace gump::rt {
namespace {

constexpr int kSignals = 64;  // the kernel's numbers are 1 to 64
using KernelMask = uint64_t;
static_assert(sizeof(KernelMask) * 8 == kSignals);

// KernelAction is the kernel's struct sigaction.
struct KernelAction {
  uintptr_t handler;
  unsigned long flags;
  uintptr_t restorer;
  KernelMask mask;
};

// Child is what the child reads, and where it leaves the reason of a failure.
struct Child {
  const ChildSpec* spec;
  KernelMask mask;
  KernelMask ignored;
  long err;
};

KernelMask kernelMask(const sigset_t& set) {
  KernelMask mask = 0;  // the first word of a sigset_t, which is longer
  memcpy(&mask, &set, sizeof(mask));
  return mask;
}

GUMP_NO_SANITIZE long call(long nr, long a0, long a1, long a2, long a3) {
  return rawSyscall(nr, a0, a1, a2, a3, 0, 0);
}

// setDispositions does what exec would do with our handlers, so that the
// signals can be unblocked before it (V2).
GUMP_NO_SANITIZE void setDispositions(KernelMask ignored) {
  for (int sig = 1; sig <= kSignals; sig++) {
    if (sig == SIGKILL || sig == SIGSTOP) continue;
    KernelAction action;
    action.handler = 0;
    call(SYS_rt_sigaction, sig, 0, asArg(&action), sizeof(KernelMask));
    const auto ignore = reinterpret_cast<uintptr_t>(SIG_IGN);
    if (action.handler == ignore || action.handler == 0) continue;
    const bool was = (ignored >> (sig - 1) & 1) != 0;
    action.handler = was ? ignore : 0;
    action.flags = 0;
    action.restorer = 0;
    action.mask = 0;
    call(SYS_rt_sigaction, sig, asArg(&action), 0, sizeof(KernelMask));
  }
}

// setStandard makes fd, or /dev/null, the descriptor `number`. Returns a value
// below 0 if it cannot.
GUMP_NO_SANITIZE long setStandard(long fd, int number) {
  if (fd >= 0) return call(SYS_dup3, fd, number, 0, 0);
  fd = call(SYS_openat, AT_FDCWD, asArg("/dev/null"),
            number == 0 ? O_RDONLY : O_WRONLY, 0);
  if (fd < 0 || fd == number) return fd;
  const long n = call(SYS_dup3, fd, number, 0, 0);
  call(SYS_close, fd, 0, 0, 0);
  return n;
}

// begin does all that the child does, up to and including exec. It returns only
// if a step fails, with the negative errno of that step.
GUMP_NO_SANITIZE long begin(const Child* c) {
  const ChildSpec* s = c->spec;
  setDispositions(c->ignored);
  if (s->affinity != nullptr) {
    // If it fails, a cpuset has changed meanwhile, and the kernel knows better.
    call(SYS_sched_setaffinity, 0, kMaxProcessors / 8,
         reinterpret_cast<long>(s->affinity), 0);
  }
  if (s->dir != nullptr) {
    const long n = call(SYS_chdir, asArg(s->dir), 0, 0, 0);
    if (n < 0) return n;
  }
  for (int i = 0; i < 3; i++) {
    const long n = setStandard(s->fds[i], i);
    if (n < 0) return n;
  }
  call(SYS_rt_sigprocmask, SIG_SETMASK, asArg(&c->mask), 0, sizeof(KernelMask));
  return call(SYS_execve, asArg(s->path), asArg(s->argv), asArg(s->envp), 0);
}

[[noreturn]] GUMP_NO_SANITIZE void runChild(Child* c) {
  c->err = begin(c);
  for (;;) call(SYS_exit_group, 127, 0, 0, 0);
}

// vforkChild returns the process id of the child, or a negative errno. The call
// of the kernel stands here, and not in rawSyscall, so that no function returns
// twice (V3).
#if defined(__x86_64__)
GUMP_NO_SANITIZE long vforkChild(Child* c) {
  long ret;
  register long r10 asm("r10") = 0;
  register long r8 asm("r8") = 0;
  asm volatile("syscall"
               : "=a"(ret)
               : "a"(SYS_clone), "D"(CLONE_VM | CLONE_VFORK | SIGCHLD), "S"(0),
                 "d"(0), "r"(r10), "r"(r8)
               : "rcx", "r11", "memory");
  if (ret == 0) runChild(c);
  return ret;
}
#else
GUMP_NO_SANITIZE long vforkChild(Child* c) {
  register long x8 asm("x8") = SYS_clone;
  register long x0 asm("x0") = CLONE_VM | CLONE_VFORK | SIGCHLD;
  register long x1 asm("x1") = 0;
  register long x2 asm("x2") = 0;
  register long x3 asm("x3") = 0;
  register long x4 asm("x4") = 0;
  asm volatile("svc #0"
               : "+r"(x0)
               : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
               : "memory");
  if (x0 == 0) runChild(c);
  return x0;
}
#endif

}  // namespace

pid_t spawn(const ChildSpec& spec) {
  Child c = {&spec, kernelMask(spec.mask), kernelMask(spec.ignored), 0};
  const KernelMask all = ~KernelMask{0};
  KernelMask old = 0;
  rawSyscall(SYS_rt_sigprocmask, SIG_SETMASK, asArg(&all), asArg(&old),
             sizeof(KernelMask), 0, 0);
  const long pid = vforkChild(&c);
  // If the program did not begin, reap the child, so that nothing of it is
  // left. If SIGCHLD is ignored, the kernel has reaped it.
  long failed = c.err;
  if (pid > 0 && failed != 0) {
    long n;
    do {
      n = rawSyscall(SYS_wait4, pid, 0, __WALL, 0, 0, 0);
    } while (n == -EINTR);
  }
  rawSyscall(SYS_rt_sigprocmask, SIG_SETMASK, asArg(&old), 0,
             sizeof(KernelMask), 0, 0);
  if (pid > 0 && failed == 0) return static_cast<pid_t>(pid);
  return static_cast<pid_t>(pid < 0 ? pid : failed);
}

}  // namespace gump::rt
