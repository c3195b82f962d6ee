// A child process: a new program, made without fork.
#ifndef RUNTIME_SYS_SPAWN_LINUX_H_
#define RUNTIME_SYS_SPAWN_LINUX_H_

#include <signal.h>
#include <sys/types.h>

namespace gump::rt {

// ChildSpec describes a child. The caller owns all that it points to.
struct ChildSpec {
  const char* path = nullptr;
  char* const* argv = nullptr;  // ends with nullptr, as envp does
  char* const* envp = nullptr;
  const char* dir = nullptr;  // nullptr means that of this process
  // What become the descriptors 0, 1 and 2. None is below 3, except that -1
  // means /dev/null.
  int fds[3] = {-1, -1, -1};
  sigset_t mask = {};     // the signals that the child blocks
  sigset_t ignored = {};  // the signals that it ignores although we handle them
};

// spawn makes the child and returns its process id, or the negative errno of
// the step that failed. Then there is no child. Returns when the child has
// begun its program. The child inherits the attributes of this thread, and it
// gets its death signal (PR_SET_PDEATHSIG) when this thread ends. On: user, in
// a declared call; or a plain thread.  P: none.  Locks: none. Parks: blocks the
// thread.
[[nodiscard]] pid_t spawn(const ChildSpec& spec);

}  // namespace gump::rt

#endif  // RUNTIME_SYS_SPAWN_LINUX_H_
