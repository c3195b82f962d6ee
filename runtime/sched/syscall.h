// Declared system calls (proc_syscall.cc). entersyscall and exitsyscall are
// declared in gump/internal/linkname.h.
#ifndef RUNTIME_SCHED_SYSCALL_H_
#define RUNTIME_SCHED_SYSCALL_H_

namespace gump::rt {

struct M;

// exitsyscallNoP ends a system call after its P has been taken. It gets another
// P, or parks. Returns the M that the goroutine is on then.
// On: user; m.locks is 1, and so it is afterwards.  P: none.
// Locks: takes sched.lock.  Parks: yes.
[[nodiscard]] M* exitsyscallNoP();

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_SYSCALL_H_
