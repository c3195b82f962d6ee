// Waking goroutines from a call that any thread of the program may make.
#ifndef API_HOOKS_WAKING_H_
#define API_HOOKS_WAKING_H_

#include "runtime/sched/runtime2.h"

namespace gump::hooks {

// Waking brackets a call that wakes goroutines. The caller may be any thread,
// in any code of the program, and may hold a lock of pthread. So Waking does
// not yield, and does not wait for a P ((PL1) of parklocks.cc).
class Waking {
 public:
  Waking();
  ~Waking();
  Waking(const Waking&) = delete;
  Waking& operator=(const Waking&) = delete;

  // inside returns true if the caller is code of the runtime, a signal handler
  // in it, or a child of fork or of vfork. Then nothing may be woken.
  bool inside() const { return mp_ == nullptr; }

 private:
  rt::M* mp_ = nullptr;
  bool lost_ = false;
};

}  // namespace gump::hooks

#endif  // API_HOOKS_WAKING_H_
