// SyscallScope: the brackets of blocking.
#ifndef GUMP_INTERNAL_SYSCALL_SCOPE_H_
#define GUMP_INTERNAL_SYSCALL_SCOPE_H_

#include "gump/internal/linkname_go.h"

namespace gump::internal {

// SyscallScope brackets a declared system call.
class SyscallScope {
 public:
  SyscallScope() { rt::entersyscall(); }
  ~SyscallScope() { rt::exitsyscall(); }
  SyscallScope(const SyscallScope&) = delete;
  SyscallScope& operator=(const SyscallScope&) = delete;
};

}  // namespace gump::internal

#endif  // GUMP_INTERNAL_SYSCALL_SCOPE_H_
