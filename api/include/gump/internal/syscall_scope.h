// SyscallScope: the beginning and the end of a call of blocking.
#ifndef GUMP_INTERNAL_SYSCALL_SCOPE_H_
#define GUMP_INTERNAL_SYSCALL_SCOPE_H_

#include "gump/internal/linkname_go.h"

#pragma GCC visibility push(default)

namespace gump::internal {

// SyscallScope begins a declared system call, and ends it at the end of the
// scope. The end may park.
class SyscallScope {
 public:
  SyscallScope() { rt::entersyscall(); }
  ~SyscallScope() { rt::exitsyscall(); }
  SyscallScope(const SyscallScope&) = delete;
  SyscallScope& operator=(const SyscallScope&) = delete;
};

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_SYSCALL_SCOPE_H_
