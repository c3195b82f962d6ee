// A child process: a new program, made without fork.
#ifndef RUNTIME_SYS_SPAWN_LINUX_H_
#define RUNTIME_SYS_SPAWN_LINUX_H_

#include <signal.h>
#include <sys/types.h>

#include "runtime/sys/topology_linux.h"

namespace gump::rt {

// ChildSpec describes a child. The caller owns all that it points to.
struct ChildSpec {
  const char* path = nullptr;
  char* const* argv = nullptr;  // ends with nullptr, as envp does
  char* const* envp = nullptr;
  const char* dir = nullptr;  // nullptr means that of this process
  // Our descriptors that the child gets as its descriptors 0, 1 and 2. Each is
  // 3 or above, or it is -1, which means /dev/null.
  int fds[3] = {-1, -1, -1};
  // The processors that the child may use; nullptr means those of the calling
  // thread.
  const CpuSet* affinity = nullptr;
  sigset_t mask = {};     // the signals that the child blocks
  sigset_t ignored = {};  // the signals that it ignores although we handle them
};

// spawn makes the child, and returns when the child has begun its program.
// Returns the process id of the child. If a step fails, it returns the negative
// errno of that step, and no child is left. The child inherits the attributes
// of the calling thread. If the child asks for a signal at the end of its
// parent (PR_SET_PDEATHSIG), it gets the signal when the calling thread ends.
// On: user, in a declared call; or a plain thread.  P: none.  Locks: none.
// Parks: blocks the thread.
[[nodiscard]] pid_t spawn(const ChildSpec& spec);

}  // namespace gump::rt

#endif  // RUNTIME_SYS_SPAWN_LINUX_H_
