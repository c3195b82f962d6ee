// Functions that depend on the processor, for templates in public headers. No
// other public header chooses between processors; the runtime's own choice is
// in runtime/sys/base.h. Each arch_*.h defines:
//
//   uintptr_t callerPC() noexcept
//     returns an address inside the function into which it is inlined.
//     Goroutine dumps print it as "created by".
#ifndef GUMP_INTERNAL_ARCH_H_
#define GUMP_INTERNAL_ARCH_H_

#if defined(__x86_64__)
#include "gump/internal/arch_amd64.h"  // IWYU pragma: export
#elif defined(__aarch64__)
#include "gump/internal/arch_arm64.h"  // IWYU pragma: export
#else
#error "gumption runs on x86-64 and AArch64"
#endif

#endif  // GUMP_INTERNAL_ARCH_H_
