// What differs between the architectures: the part for x86-64. arch_arm64.h has
// the same functions. base.h includes the one that the compiler builds for.
#ifndef RUNTIME_SYS_ARCH_AMD64_H_
#define RUNTIME_SYS_ARCH_AMD64_H_

namespace gump::rt {

// archPause makes the core wait for a moment, in a loop that waits for another
// core.
inline void archPause() { __builtin_ia32_pause(); }

// archTlsG reads gumpTlsG of the current thread (tls.h).
inline __attribute__((always_inline)) void* archTlsG() {
  void* gp;
  asm volatile(
      "movq gumpTlsG@gottpoff(%%rip), %0\n\t"
      "movq %%fs:(%0), %0"
      : "=r"(gp));
  return gp;
}

}  // namespace gump::rt

#endif  // RUNTIME_SYS_ARCH_AMD64_H_
