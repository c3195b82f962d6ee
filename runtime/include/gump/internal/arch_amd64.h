// callerPC for x86-64; see arch.h.
#ifndef GUMP_INTERNAL_ARCH_AMD64_H_
#define GUMP_INTERNAL_ARCH_AMD64_H_

#include <cstdint>

#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump::rt {

__attribute__((always_inline)) inline uintptr_t callerPC() noexcept {
  uintptr_t pc;
  asm volatile("leaq 0(%%rip), %0" : "=r"(pc));
  return pc;
}

}  // namespace gump::rt

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_ARCH_AMD64_H_
