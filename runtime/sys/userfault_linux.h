// userfaultfd(2): pages of this process whose faults a thread of ours answers.
//
// A thread that touches a missing page of a watched range sleeps in the kernel
// until the page is there, whether it is in user code or in a system call. The
// functions that return an int return 0 or an errno. All but userfaultOpen keep
// the thread's errno. All addresses are those of pages.
#ifndef RUNTIME_SYS_USERFAULT_LINUX_H_
#define RUNTIME_SYS_USERFAULT_LINUX_H_

#include <cstddef>
#include <cstdint>

namespace gump::rt {

// userfaultOpen asks the kernel for everything below. It fails if the kernel
// cannot move pages (before Linux 6.8), or if the process may not have the
// faults of system calls answered (vm.unprivileged_userfaultfd, seccomp).
// On: a goroutine.  P: either.  Locks: may take a leaf.  Parks: perhaps.
[[nodiscard]] int userfaultOpen();
// The functions below require that userfaultOpen has succeeded.
// On: any.  P: either.  Locks: none.  Parks: no.
//
// userfaultWatch begins to watch the n bytes at p, and userfaultUnwatch ends
// it. A thread that waits there then gets a page of zeros.
[[nodiscard]] int userfaultWatch(uintptr_t p, size_t n);
[[nodiscard]] int userfaultUnwatch(uintptr_t p, size_t n);
// userfaultMove moves the page at `from` to `to`, which is watched and has no
// page. It is one step: each write of any thread to `from` is in the page that
// arrives, or finds no page. Fails with EBUSY if the kernel has pinned the page
// for I/O.
[[nodiscard]] int userfaultMove(uintptr_t to, uintptr_t from);
// userfaultCopy puts a copy of a page to `to`, and userfaultZero a page of
// zeros. Both are one step for all other threads, and wake the threads that
// wait for that page. If there is a page already, they only wake.
[[nodiscard]] int userfaultCopy(uintptr_t to, const void* page);
[[nodiscard]] int userfaultZero(uintptr_t to);
// userfaultWake wakes the threads that wait for the page at p. If it is still
// missing, they fault again.
void userfaultWake(uintptr_t p);
// userfaultDrop gives the pages of [p, p + n) back to the kernel, and the page
// tables that map only this range. Returns false if the program has locked the
// pages.
bool userfaultDrop(uintptr_t p, size_t n);
// userfaultNext stores the addresses of up to n faults, and returns how many.
// If `wait`, it sleeps until there is one.
[[nodiscard]] size_t userfaultNext(uintptr_t* faults, size_t n, bool wait);

}  // namespace gump::rt

#endif  // RUNTIME_SYS_USERFAULT_LINUX_H_
