// callerPC for x86-64; see arch.h.
#ifndef GUMP_INTERNAL_ARCH_AMD64_H_
#define GUMP_INTERNAL_ARCH_AMD64_H_

#include <cstdint>

#include "gump/internal/compiler.h"

namespace gump::rt {

__attribute__((always_inline)) inline uintptr_t callerPC() noexcept {
  uintptr_t pc;
  asm volatile("leaq 0(%%rip), %0" : "=r"(pc));
  return pc;
}

}  // namespace gump::rt

#endif  // GUMP_INTERNAL_ARCH_AMD64_H_
