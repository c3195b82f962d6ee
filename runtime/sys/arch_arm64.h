// What differs between the architectures: the part for AArch64. arch_amd64.h
// has the same functions. base.h includes the one that the compiler builds for.
#ifndef RUNTIME_SYS_ARCH_ARM64_H_
#define RUNTIME_SYS_ARCH_ARM64_H_

#include <cstdint>

namespace gump::rt {

// archPause makes the core wait for a moment, in a loop that waits for another
// core.
inline void archPause() { asm volatile("isb" ::: "memory"); }

// archTlsG reads gumpTlsG of the current thread (tls.h).
inline __attribute__((always_inline)) void* archTlsG() {
  void* gp;
  uintptr_t tmp;
  asm volatile(
      "adrp %0, :gottprel:gumpTlsG\n\t"
      "ldr %0, [%0, :gottprel_lo12:gumpTlsG]\n\t"
      "mrs %1, tpidr_el0\n\t"
      "ldr %0, [%0, %1]"
      : "=&r"(gp), "=&r"(tmp));
  return gp;
}

}  // namespace gump::rt

#endif  // RUNTIME_SYS_ARCH_ARM64_H_
