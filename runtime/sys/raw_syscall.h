// Calls of the kernel without libc.
#ifndef RUNTIME_SYS_RAW_SYSCALL_H_
#define RUNTIME_SYS_RAW_SYSCALL_H_

namespace gump::rt {

// rawSyscall enters the kernel and returns its result, or -errno on failure. It
// does not write errno.
// On: any.  P: either.  Locks: none.  Parks: no.
#if defined(__x86_64__)
inline long rawSyscall(long nr, long a0, long a1, long a2, long a3, long a4,
                       long a5) {
  long ret;
  register long r10 asm("r10") = a3;
  register long r8 asm("r8") = a4;
  register long r9 asm("r9") = a5;
  asm volatile("syscall"
               : "=a"(ret)
               : "a"(nr), "D"(a0), "S"(a1), "d"(a2), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return ret;
}
#else
inline long rawSyscall(long nr, long a0, long a1, long a2, long a3, long a4,
                       long a5) {
  register long x8 asm("x8") = nr;
  register long x0 asm("x0") = a0;
  register long x1 asm("x1") = a1;
  register long x2 asm("x2") = a2;
  register long x3 asm("x3") = a3;
  register long x4 asm("x4") = a4;
  register long x5 asm("x5") = a5;
  asm volatile("svc #0"
               : "+r"(x0)
               : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
               : "memory");
  return x0;
}
#endif

// asArg is a pointer as an argument of rawSyscall.
inline long asArg(const void* p) { return reinterpret_cast<long>(p); }

}  // namespace gump::rt

#endif  // RUNTIME_SYS_RAW_SYSCALL_H_
