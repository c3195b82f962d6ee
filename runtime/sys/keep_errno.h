// errno, kept over calls that change it.
#ifndef RUNTIME_SYS_KEEP_ERRNO_H_
#define RUNTIME_SYS_KEEP_ERRNO_H_

#include <cerrno>

#include "runtime/sys/base.h"

namespace gump::rt {

// KeepErrno restores errno at the end of its scope. The scope may park and
// change threads: compilers take the address of errno to be the same in a whole
// function, so the functions that use it are not inlined.
// On: any.  P: either.  Locks: none.  Parks: no.
class KeepErrno {
 public:
  GUMP_NOINLINE KeepErrno() : saved_(errno) {}
  GUMP_NOINLINE ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  const int saved_;
};

}  // namespace gump::rt

#endif  // RUNTIME_SYS_KEEP_ERRNO_H_
